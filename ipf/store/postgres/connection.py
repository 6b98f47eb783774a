"""One connection to PostgreSQL, and every driver error turned into a category.

What txpostgres leaves open, and what is done about it: a connection that dies while idle raises in the reactor's
read loop (`driver.py` reports it instead, here it is passed on through `lost`); a cancelled query leaves the connection
unusable (`run` cannot be cancelled, only the waiting for it); connecting has no time limit (bounded here); the name of
the server is looked up in the reactor's thread (looked up by the reactor's resolver first).

Sources: https://www.postgresql.org/docs/current/errcodes-appendix.html,
https://www.postgresql.org/docs/current/libpq-connect.html
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import psycopg2
from psycopg2.extensions import make_dsn, parse_dsn
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from ipf.errors import Category, Problem, StoreUnreachable, WriteConflict
from ipf.store.postgres.driver import Row, Wire
from ipf.store.postgres.quoting import Statement, script

T = TypeVar("T")
log = Logger()

MAX_PREPARED = 200  # statements that a connection keeps besides those of its greeting
_CONFLICTS = frozenset({"40001", "40P01", "23505", "55P03"})
_GONE = ("08", "53", "57P", "58", "XX001", "25006")  # connection, resources, shutdown, disk, read-only standby
_WHY = {
    "53100": ": its disk is full",
    "53200": ": it is out of memory",
    "53300": ": it has too many connections",
    "57P01": ": it is shutting down",
    "57P03": ": it is starting up",
    "25006": ": it only reads, as a standby does",
}
_QUOTING = "SET standard_conforming_strings = on"
_SOCKET = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 8000,
}


class Connection:
    """A connection of the pool.  One statement string at a time; `lent` belongs to the pool."""

    def __init__(self, wire: Wire, reactor: Any, statement_seconds: float, lost: Callable[[Connection], None]) -> None:
        self._wire = wire
        self._reactor = reactor
        self._statement_seconds = statement_seconds
        self._lost = lost
        self._running: Deferred[list[Row]] | None = None
        self._ended: Callable[[Connection], None] | None = None
        self._settled: list[Deferred[None]] = []
        self._began = 0.0
        self._watchdog: IDelayedCall | None = None
        self._closed = False
        self._prepared: dict[str, None] = {}
        self.lent = False
        wire.died = self._died

    @property
    def alive(self) -> bool:
        """Whether it may be used again."""
        return not self._closed

    def quoted_identifier(self, name: str) -> str:
        """`name` as a quoted SQL identifier."""
        return self._wire.quoted_identifier(name)

    @property
    def backend(self) -> int:
        """Process id of the server's side."""
        return int(self._wire.get_backend_pid())

    def notified(self, observer: Callable[[int, str], None]) -> None:
        """Call `observer(backend, payload)` for each NOTIFY that arrives."""
        self._wire.addNotifyObserver(lambda notify: observer(notify.pid, notify.payload))

    def has_prepared(self, name: str) -> bool:
        """Whether `prepare` was done for this statement."""
        return name in self._prepared

    async def prepare(self, statement: Statement) -> None:
        """Have the server prepare a statement; the oldest is given up when there are too many."""
        oldest = next(iter(self._prepared)) if len(self._prepared) >= MAX_PREPARED else None
        if oldest is not None:
            del self._prepared[oldest]
            await self.run(f"DEALLOCATE {oldest}")
        await self.run(statement.prepare())
        self._prepared[statement.name] = None

    def run(self, sql: str, ended: Callable[[Connection], None] | None = None) -> Deferred[list[Row]]:
        """Send `sql` (several statements allowed), wait, return the rows of the last one.

        `ended` is called when the server is done with it, before the rows are passed on.  Cancelling the Deferred only
        stops the waiting.  Fails with a `Problem`.
        """
        running: Deferred[list[Row]] = Deferred()
        if self._running is not None:
            return _failed(Problem(Category.INTERNAL, "two statements at once on one connection"))
        self._running, self._ended = running, ended
        if self._closed:
            self._ran(StoreUnreachable())
            return running
        self._began = self._reactor.seconds()
        if self._watchdog is None:
            self._watchdog = self._reactor.callLater(self._statement_seconds, self._look)
        self._wire.query(sql, self._ran)
        return running

    def _ran(self, result: list[Row] | BaseException) -> None:
        running, self._running = self._running, None
        ended, self._ended = self._ended, None
        if isinstance(result, BaseException):
            result = self._categorised(result)
            if isinstance(result, StoreUnreachable):
                self._died()
        if ended is not None:
            ended(self)
        settled, self._settled = self._settled, []
        for waiting in settled:
            waiting.callback(None)
        assert running is not None
        if isinstance(result, BaseException):
            running.errback(result)
        else:
            running.callback(result)

    def settled(self) -> Deferred[None]:
        """Fires when no statement is running."""
        if self._running is None:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._settled.append(waiting)
        return waiting

    def close(self) -> None:
        """Close at once; a running statement fails with StoreUnreachable."""
        if not self._closed:
            self._closed = True
            if self._watchdog is not None:
                self._watchdog.cancel()
                self._watchdog = None
            self._wire.close()

    def _look(self) -> None:
        """One timer for many statements: it looks how long the one that runs has been running."""
        self._watchdog = None
        if self._running is None:
            return
        left = self._began + self._statement_seconds - self._reactor.seconds()
        if left > 0:
            self._watchdog = self._reactor.callLater(left, self._look)
            return
        text = "event=store_hung a statement took longer than {seconds} s"
        log.warn(text, event="store_hung", seconds=self._statement_seconds)
        self.close()

    def _died(self) -> None:
        if not self._closed:
            self.close()
            self._lost(self)

    def _categorised(self, error: BaseException) -> Problem:
        if isinstance(error, Problem):
            return error
        if self._closed or not isinstance(error, psycopg2.Error):
            return StoreUnreachable()
        return category_of(error)


def category_of(error: psycopg2.Error) -> Problem:
    """A driver error as a Problem.  Its text never carries values, since the server's messages may quote them."""
    code = error.pgcode
    if code is None:
        gone = isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError | psycopg2.DatabaseError)
        return StoreUnreachable() if gone else Problem(Category.INTERNAL, f"the driver refused: {type(error).__name__}")
    if code in _CONFLICTS:
        return WriteConflict()
    if code.startswith(_GONE):
        why = _WHY.get(code, "")
        return StoreUnreachable(f"the store cannot serve now{why} (SQLSTATE {code})")
    defect = error.diag.message_primary if code.startswith("42") else None  # names of ours, never values
    where = ", ".join(name for name in (error.diag.table_name, error.diag.constraint_name, defect) if name)
    return Problem(Category.INTERNAL, f"the store refused a statement (SQLSTATE {code}{': ' + where if where else ''})")


async def connect(
    url: str,
    *,
    reactor: Any,
    greeting: str = "",
    connect_seconds: float = 3.0,
    statement_seconds: float = 60.0,
    lost: Callable[[Connection], None] = lambda connection: None,
) -> Connection:
    """Open a connection and run `greeting` on it, within `connect_seconds`; StoreUnreachable otherwise."""
    wire = Wire(reactor)
    connection = Connection(wire, reactor, statement_seconds, lost)
    try:
        dsn = await _resolved(url, reactor)
        connecting: Deferred[Any] = wire.connect(dsn)
    except Exception as error:  # a URL that cannot be read, a host that has no address
        raise StoreUnreachable(detail=_said(error)) from error
    late = False

    def give_up() -> None:
        nonlocal late
        late = True
        wire.close()

    timer = reactor.callLater(connect_seconds, give_up)
    try:
        await connecting
        await connection.run(script(_QUOTING, greeting))
        wire.check_quoting()
    except Problem:
        connection.close()
        raise
    except Exception as error:  # whatever the driver raises while connecting means: not reachable
        _abandon(wire)
        raise StoreUnreachable(detail=f"no answer within {connect_seconds:g} s" if late else _said(error)) from error
    finally:
        if timer.active():
            timer.cancel()
    return connection


def _said(error: Exception) -> str:
    """What the driver says of a connection that was not made, on one line; never a URL, which may hold a password."""
    if isinstance(error, psycopg2.ProgrammingError):
        return "the URL of the database cannot be read"
    return " ".join(str(error).split()) or type(error).__name__


def _abandon(wire: Wire) -> None:
    if wire.pollable() is not None:
        wire.close()


async def _resolved(url: str, reactor: Any) -> str:
    """The connection string with the server's address looked up outside the reactor's thread."""
    parts = parse_dsn(url)
    host = parts.get("host", "")
    if "@" in host:
        raise OSError("the URL of the database has an @ in its host; in a user name or password it is written %40")
    if host and not host.startswith("/") and "," not in host and "hostaddr" not in parts:
        parts["hostaddr"] = await reactor.resolve(host)
    return str(make_dsn(**{"client_encoding": "UTF8", **_SOCKET, **parts}))


def shielded(work: Coroutine[Any, Any, T]) -> Deferred[T]:
    """Run `work` to its end, whatever happens to the Deferred returned."""
    return _decoupled(Deferred.fromCoroutine(work))


def _decoupled(running: Deferred[T]) -> Deferred[T]:
    """Another Deferred with the same result; cancelling it leaves `running` alone."""
    waiting: Deferred[T] = Deferred()

    def pass_on(result: Any) -> None:
        if not waiting.called:
            waiting.callback(result)
        elif isinstance(result, Failure):
            log.debug("a failure that nobody waited for: {reason}", reason=result.getErrorMessage())

    running.addBoth(pass_on)
    return waiting


def _failed(problem: Problem) -> Deferred[Any]:
    failed: Deferred[Any] = Deferred()
    failed.errback(problem)
    return failed
