"""The template cluster of a run: `initdb` and all migrations once, then copies of its folder.

`python -m tests.cluster FOLDER` fills a data folder as the first start of the service does, and stops its server in
order.  The copies start in a fraction of a second: those of the tests (`tests/postgres.py`), and those of services that
a test runs as a process (`service_cluster`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from twisted.internet import defer, task

from ipf.store.postgres.embedded import EmbeddedPostgres
from ipf.store.postgres.migrate import migrate
from tests.runner.shared import once

# Without autovacuum: its transactions hold back the horizon of ids that have committed, and with it the text index.
FAST = {
    "autovacuum": "off",
    "fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "shared_buffers": "64MB",
    "max_connections": "200", "max_wal_size": "256MB", "min_wal_size": "32MB",
}  # fmt: skip


def service_cluster(folder: Path) -> None:
    """Fill an engine's data folder (`IPF_DATA_DIR`), not yet started: the databases `ipf` and `fhir` are migrated.

    They are empty, as after a first start with one tenant.  Blocks while the first caller of the run makes them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    template = once("cluster", _make) / "postgres"
    subprocess.run(["cp", "-a", "--reflink=auto", str(template), str(folder)], check=True)


def _make(folder: Path) -> None:
    folder.chmod(0o755)  # under root the server has a user of its own
    command = [sys.executable, "-m", "tests.cluster", str(folder)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[1], env=os.environ | {"PYTHONPATH": "."})


async def _fill(reactor: Any, folder: Path) -> None:
    server = EmbeddedPostgres(folder, reactor, extra=FAST)
    await server.start()
    for kind in server.databases:
        await migrate(server.url(kind), kind, reactor=reactor)
    await server.stop()


if __name__ == "__main__":
    task.react(lambda reactor: defer.Deferred.fromCoroutine(_fill(reactor, Path(sys.argv[1]))))
