"""A real PostgreSQL for tests: one embedded server for each process, a migrated database for each test.

The server starts when the first test asks for it, on a copy of the run's template cluster (`tests/cluster.py`), with
fsync off.  It is killed at exit; what a killed test run left behind is swept away by the next one.  A test's database
is a clone of `ipf` or `fhir`, dropped when the test ends.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, Literal

import psutil
import psycopg2
from twisted.internet import defer, reactor
from twisted.trial.unittest import TestCase

from ipf.store.deliveries import bindings, deliveries
from ipf.store.inbox import inbox
from ipf.store.postgres.database import Database
from ipf.store.postgres.embedded import EmbeddedPostgres
from ipf.store.postgres.row_security import secure
from ipf.store.resources import resources
from ipf.store.terminology import systems
from tests.cluster import FAST, service_cluster
from tests.runner.shared import run_folder
from tests.waiting import PATIENCE

Kind = Literal["ipf", "fhir"]

_FHIR = (*resources.STATEMENTS, *deliveries.STATEMENTS, *bindings.STATEMENTS, *systems.STATEMENTS)
STATEMENTS = {"ipf": inbox.STATEMENTS, "fhir": _FHIR}
_PREFIX = "ipf-test-"

PATIENT: dict[str, Any] = {"connect_seconds": PATIENCE, "wait_seconds": PATIENCE, "tick_seconds": PATIENCE}
"""Options of a `Database` on a machine that may stall."""

_numbers = itertools.count(1)
_starting = defer.DeferredLock()
_server: EmbeddedPostgres | None = None
_administrator: Any = None


async def server() -> EmbeddedPostgres:
    """The server of this process, started when needed."""
    global _server
    await _starting.acquire()
    try:
        if _server is None:
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=run_folder()))
            atexit.register(remove, folder)
            service_cluster(folder)
            started = EmbeddedPostgres(folder, reactor, databases=(), extra=FAST)
            await started.start()
            _server = started
        return _server
    finally:
        _starting.release()


async def fresh_url(kind: Kind | None) -> str:
    """The URL of a new database, migrated as `kind` (None: empty)."""
    running = await server()
    name = f"test_{os.getpid()}_{next(_numbers)}"
    _execute(running, f"CREATE DATABASE {name} TEMPLATE {kind or 'template1'} STRATEGY FILE_COPY")
    return running.url(name)


async def fresh(kind: Kind, *, size: int = 4, **options: Any) -> Database:
    """An open pool on a new migrated database; whoever asks closes it.

    `tenants=True`: under row-level security.  `now`: the clock of its statements, which the test moves.
    """
    url = await fresh_url(kind)
    if options.get("tenants"):
        await secure(url, reactor=reactor)
    options = PATIENT | {"statements": STATEMENTS[kind], "prepare_on_use": True} | options
    opened = Database(url, reactor=reactor, size=size, **options)
    await opened.one("SELECT 1")  # the other connections open when they are needed
    return opened


async def database(case: TestCase, kind: Kind, *, size: int = 4, **options: Any) -> Database:
    """As `fresh`, closed and dropped when the test `case` ends."""
    opened = await fresh(kind, size=size, **options)
    case.addCleanup(lambda: defer.Deferred.fromCoroutine(drop(opened)))
    return opened


async def drop(opened: Database) -> None:
    """Close a pool of `fresh` and drop its database."""
    await opened.close()
    name = psycopg2.extensions.parse_dsn(opened.url)["dbname"]
    _execute(await server(), f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _execute(running: EmbeddedPostgres, sql: str) -> None:
    """Run a statement, on a connection that blocks: it is open from test to test, which a reactor's must not be."""
    global _administrator
    if _administrator is None or _administrator.closed:
        _administrator = psycopg2.connect(running.url("postgres"))
        _administrator.autocommit = True
    with _administrator.cursor() as cursor:
        cursor.execute(sql)


def remove(folder: Path) -> None:
    """Kill the server in `folder` and delete it."""
    with contextlib.suppress(OSError, ValueError, IndexError, psutil.Error):
        process = psutil.Process(int((folder / "postgres" / "postmaster.pid").read_text().splitlines()[0]))
        if Path(process.cwd()) == folder / "postgres":
            process.send_signal(signal.SIGQUIT)
            process.wait(10)
    shutil.rmtree(folder, ignore_errors=True)
