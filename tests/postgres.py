"""A real PostgreSQL for tests: one embedded server for each trial process, a fresh migrated database for each test.

The server starts when the first test asks for it, in a temporary folder with fsync off, and is killed at exit; what a
killed test run left behind is swept away by the next one.  A fresh database is a clone of a migrated template.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import itertools
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import psutil
from twisted.internet import defer, reactor, task
from twisted.trial.unittest import TestCase

from ipf.store.deliveries import bindings, deliveries
from ipf.store.inbox import inbox
from ipf.store.postgres.connect import connect
from ipf.store.postgres.database import Database
from ipf.store.postgres.embedded import EmbeddedPostgres
from ipf.store.postgres.migrate import migrate
from ipf.store.postgres.row_security import secure
from ipf.store.resources import resources
from ipf.store.terminology import systems
from tests.waiting import PATIENCE

Kind = Literal["ipf", "fhir"]

FAST_RUN = os.environ.get("IPF_TEST_FAST") == "true"
"""Whether this is `bin/test --fast`: suites run on the stores in memory alone."""
PostgresTestCase: type = object if FAST_RUN else TestCase  # trial does not collect a suite on plain objects

_FHIR = (*resources.STATEMENTS, *deliveries.STATEMENTS, *bindings.STATEMENTS, *systems.STATEMENTS)
STATEMENTS = {"ipf": inbox.STATEMENTS, "fhir": _FHIR}
_PREFIX = "ipf-test-"
_YOUNG_SECONDS = 600.0
# Without autovacuum: its transactions hold back the horizon of ids that have committed, and with it the text index.
FAST = {
    "autovacuum": "off",
    "fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "shared_buffers": "64MB",
    "max_connections": "200", "max_wal_size": "256MB", "min_wal_size": "32MB",
}  # fmt: skip

PATIENT: dict[str, Any] = {"connect_seconds": PATIENCE, "wait_seconds": PATIENCE, "tick_seconds": PATIENCE}
"""Options of a `Database` on a machine that may stall."""

_numbers = itertools.count(1)
_starting = defer.DeferredLock()
_server: EmbeddedPostgres | None = None
_templates: set[str] = set()


async def server() -> EmbeddedPostgres:
    """The server of this process, started when needed."""
    global _server
    await _starting.acquire()
    try:
        if _server is None:
            _sweep()
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
            started = EmbeddedPostgres(folder, reactor, databases=(), extra=FAST)
            await started.start()
            atexit.register(_remove, folder)
            _server = started
        return _server
    finally:
        _starting.release()


async def fresh_url(kind: Kind | None) -> str:
    """The URL of a new database, migrated as `kind` (None: empty)."""
    running = await server()
    name = f"test_{os.getpid()}_{next(_numbers)}"
    template = "template1" if kind is None else await _template(running, kind)
    await _execute(running, f"CREATE DATABASE {name} TEMPLATE {template}")
    return running.url(name)


async def fresh(kind: Kind, *, size: int = 4, **options: Any) -> Database:
    """An open pool on a new migrated database; whoever asks closes it.  `tenants=True`: under row-level security."""
    url = await fresh_url(kind)
    if options.get("tenants"):
        await secure(url, reactor=reactor)
    options = PATIENT | options
    opened = Database(url, reactor=reactor, size=size, statements=STATEMENTS[kind], **options)
    await opened.start()
    return opened


async def database(case: TestCase, kind: Kind, *, size: int = 4, **options: Any) -> Database:
    """As `fresh`, closed when the test `case` ends."""
    opened = await fresh(kind, size=size, **options)
    case.addCleanup(lambda: defer.Deferred.fromCoroutine(opened.close()))
    return opened


async def pass_time(opened: Database, table: str, seconds: float, *columns: str) -> None:
    """Move these times of all rows into the past by so much, as if so much time had gone by."""
    moved = ", ".join(f"{name} = {name} - interval '{seconds} seconds'" for name in columns)
    await opened.many(f"UPDATE {table} SET {moved}")


async def pause(seconds: float) -> None:
    """Wait, for what PostgreSQL's own clock decides."""
    await task.deferLater(reactor, seconds)


async def _template(running: EmbeddedPostgres, kind: Kind) -> str:
    name = f"template_{kind}"
    await _starting.acquire()
    try:
        if name not in _templates:
            await _execute(running, f"CREATE DATABASE {name}")
            await migrate(running.url(name), kind, reactor=reactor)
            _templates.add(name)
    finally:
        _starting.release()
    return name


async def _execute(running: EmbeddedPostgres, sql: str) -> None:
    connection = await connect(running.url("postgres"), reactor=reactor, connect_seconds=PATIENCE)
    try:
        await connection.run(sql)
    finally:
        connection.close()


def _remove(folder: Path) -> None:
    """Kill the server in `folder` and delete it."""
    with contextlib.suppress(OSError, ValueError, IndexError, psutil.Error):
        process = psutil.Process(int((folder / "postgres" / "postmaster.pid").read_text().splitlines()[0]))
        if Path(process.cwd()) == folder / "postgres":
            process.send_signal(signal.SIGQUIT)
            process.wait(10)
    shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """Remove what test runs that were killed left behind: folders whose lock nobody holds, nor is about to take."""
    for folder in Path(tempfile.gettempdir()).glob(_PREFIX + "*"):
        with contextlib.suppress(OSError), open(folder / "lock") as lock:
            if time.time() - os.fstat(lock.fileno()).st_mtime > _YOUNG_SECONDS:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
