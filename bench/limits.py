"""Limits of the machine, measured in the same run as the figures of a bench."""

from __future__ import annotations

import os
import re
import statistics
import tempfile
import time
from pathlib import Path

from tests.traffic.psql import program, psql

_PGBENCH = ("pgbench", "-n", "-M", "prepared", "-j", "1")
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
    psql(
        socket_folder,
        "DROP TABLE IF EXISTS bench_plain;"
        "CREATE TABLE bench_plain"
        " (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text, status text DEFAULT 'R');"
        "CREATE INDEX ON bench_plain (id) WHERE status = 'R'",
    )
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(_INSERT)
        script.flush()
        os.chmod(script.name, 0o644)
        text = body.decode("ascii").replace("\r", " ").replace("'", " ").replace("\\", "/").strip("\x0b\x1c ")
        out = program(socket_folder, *_PGBENCH, "-c", str(connections), "-T", str(seconds),
                  "-f", script.name, "-D", f"body={text}", "ipf")  # fmt: skip
    psql(socket_folder, "DROP TABLE bench_plain")
    found = re.search(r"tps = ([\d.]+)", out)
    assert found, out
    return float(found.group(1))


def plain_reads(socket_folder: Path, body: str, seconds: int, connections: int) -> float:
    """Rows read by primary key per second (pgbench, prepared statements) on the same server: 5,000 rows of `body`."""
    psql(
        socket_folder,
        "DROP TABLE IF EXISTS bench_reads; CREATE TABLE bench_reads (id bigint PRIMARY KEY, body text);"
        f"INSERT INTO bench_reads SELECT n, $body${body}$body$ FROM generate_series(1, 5000) n; ANALYZE bench_reads",
    )
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write("\\set id random(1, 5000)\nSELECT body FROM bench_reads WHERE id = :id;")
        script.flush()
        os.chmod(script.name, 0o644)
        out = program(socket_folder, *_PGBENCH, "-c", str(connections), "-T", str(seconds),
                  "-f", script.name, "ipf")  # fmt: skip
    psql(socket_folder, "DROP TABLE bench_reads")
    found = re.search(r"tps = ([\d.]+)", out)
    assert found, out
    return float(found.group(1))
