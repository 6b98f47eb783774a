"""One connection to PostgreSQL; every driver error becomes a `Problem`.

A connection that dies while idle is reported through `lost`; a statement is never cancelled,
only the wait for it, because a cancelled one leaves the connection unusable.

Source: https://www.postgresql.org/docs/current/errcodes-appendix.html
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import psycopg2
from psycopg2.extensions import quote_ident
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from ipf.errors import Category, Problem, StoreUnreachable, WriteConflict
from ipf.store.postgres.driver import FailoverConnection, FailoverCursor, Row
from ipf.store.postgres.hosts import Host
from ipf.store.postgres.preamble import Preamble
from ipf.store.postgres.quoting import Statement

T = TypeVar("T")
log = Logger()

REFUSED = "audit_not_written "
"""Begins the warning of a transaction that goes on without its audit records (the function note_audit)."""

MAX_PREPARED = 200  # statements that a connection keeps besides those of its greeting
_CONFLICTS = frozenset({"40001", "40P01", "23505", "55P03"})
_NO_LOCK = frozenset({"55P03", "40P01"})  # lock_timeout, deadlock
_UNAVAILABLE = ("08", "53", "57P", "58", "XX001", "25006")  # connection, resources, shutdown, disk, read-only standby
_CANCELLED = "57014"
_REASONS = {
    "53100": ": its disk is full",
    "53200": ": it is out of memory",
    "53300": ": it has too many connections",
    "57P01": ": it is shutting down",
    "57P03": ": it is starting up",
    "25006": ": it only reads, as a standby does",
}
_ONLY_READS = "25006"


class Connection:
    """A connection to `host`.  One statement string at a time; `lent` belongs to the pool.

    `only_reads`: its server refused to write, as a standby does.  `preamble`: goes before each string.
    """

    def __init__(
        self,
        driver: FailoverConnection,
        reactor: Any,
        statement_seconds: float,
        lost: Callable[[Connection], None],
        host: Host,
    ) -> None:
        self.host = host
        self.only_reads = False
        self.preamble: Preamble | None = None
        self._driver = driver
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
        driver.died = self._died

    @property
    def alive(self) -> bool:
        """Whether it may be used again."""
        return not self._closed

    def quoted_identifier(self, name: str) -> str:
        """`name` as a quoted SQL identifier."""
        return str(quote_ident(name, self._driver.pollable()))

    @property
    def backend(self) -> int:
        """Process id of the server process."""
        return int(self._driver.get_backend_pid())

    def notified(self, observer: Callable[[int, str], None]) -> None:
        """Call `observer(backend, payload)` for each NOTIFY that arrives."""
        self._driver.addNotifyObserver(lambda notify: observer(notify.pid, notify.payload))

    def check_quoting(self) -> None:
        """StoreUnreachable unless the session reads string literals as `quoting.py` writes them."""
        for name, wanted in (("standard_conforming_strings", "on"), ("client_encoding", "UTF8")):
            if self._driver.get_parameter_status(name) != wanted:
                raise StoreUnreachable(detail=f"the session does not have {name}={wanted}")

    def take_notices(self) -> list[str]:
        """The last notices and warnings of the server (50 at most), which are then forgotten.  No query may run."""
        try:
            self._driver.pollable().poll()  # psycopg2 has not seen those that arrived together with the last result
        except psycopg2.Error:
            self._died()
        return self._earlier_notices()

    def _earlier_notices(self) -> list[str]:
        """Those that psycopg2 has seen until now, which are then forgotten."""
        notices: list[str] = self._driver.pollable().notices
        if not notices:
            return []
        taken = notices[:]
        del notices[:]
        return taken

    def has_prepared(self, name: str) -> bool:
        """Whether this statement is prepared on this connection."""
        return name in self._prepared

    async def prepare(self, statement: Statement) -> None:
        """Prepare a statement; the oldest one is deallocated when there are too many."""
        oldest = next(iter(self._prepared)) if len(self._prepared) >= MAX_PREPARED else None
        if oldest is not None:
            del self._prepared[oldest]
            await self.run(f"DEALLOCATE {oldest}")
        await self.run(statement.prepare())
        self._prepared[statement.name] = None

    def run(self, sql: str, ended: Callable[[Connection], None] | None = None) -> Deferred[list[Row]]:
        """Send `sql` (several statements allowed), wait, return the rows of the last one.

        `ended` is called when the server has finished, before the rows are passed on.  Cancelling the Deferred ends the
        wait only.  Fails with a `Problem`.
        """
        running: Deferred[list[Row]] = Deferred()
        if self._running is not None:
            return _failed(Problem(Category.INTERNAL, "two statements at once on one connection"))
        self._running, self._ended = running, ended
        if self._closed:
            self._ran(Failure(StoreUnreachable()))
            return running
        self._log_refusals()
        self._began = self._reactor.seconds()
        if self._watchdog is None:
            self._watchdog = self._reactor.callLater(self._statement_seconds, self._check_duration)
        self._driver.cursor().execute(sql if self.preamble is None else self.preamble.before(sql)).addBoth(self._ran)
        return running

    def _log_refusals(self) -> None:
        """Log what earlier transactions could not record, where nobody has asked for it (`take_notices`)."""
        for text in self._earlier_notices():
            _, mark, reason = text.partition(REFUSED)
            if mark:
                line = "event=audit_not_written reason={reason}"
                log.warn(line, event="audit_not_written", reason=reason.strip())

    def _ran(self, result: FailoverCursor | Failure) -> None:
        running, self._running = self._running, None
        ended, self._ended = self._ended, None
        problem = None
        try:
            rows = result.raiseException() if isinstance(result, Failure) else result.rows()
        except Exception as error:
            problem = self._problem(error)
        if ended is not None:
            ended(self)
        settled, self._settled = self._settled, []
        for waiting in settled:
            waiting.callback(None)
        assert running is not None
        if problem is None:
            running.callback(rows)
        else:
            running.errback(problem)

    def _problem(self, error: BaseException | None) -> Problem:
        """The failure of a statement; closes the connection if it cannot be used any more."""
        code = getattr(error, "pgcode", None)
        self.only_reads = code == _ONLY_READS
        if self.preamble is not None:
            self.preamble.failed(code)
        problem = StoreUnreachable() if self._closed or not isinstance(error, psycopg2.Error) else category_of(error)
        if isinstance(problem, StoreUnreachable) or self._driver.closed:
            self._died()
        return problem

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
            self._driver.close()

    def _check_duration(self) -> None:
        """Check the duration of the running statement; one timer serves many statements."""
        self._watchdog = None
        if self._running is None:
            return
        left = self._began + self._statement_seconds - self._reactor.seconds()
        if left > 0:
            self._watchdog = self._reactor.callLater(left, self._check_duration)
            return
        text = "event=store_hung a statement took longer than {seconds} s"
        log.warn(text, event="store_hung", seconds=self._statement_seconds)
        self.close()

    def _died(self) -> None:
        if not self._closed:
            self.close()
            self._lost(self)


class LockUnavailable(WriteConflict):
    """A lock was not granted within `lock_timeout`, or its wait was a deadlock."""


class StatementCancelled(Problem):
    """A statement took longer than `statement_timeout`, or an administrator cancelled it."""


def category_of(error: psycopg2.Error) -> Problem:
    """A driver error as a Problem.  Its text leaves out the server's message, which may quote values."""
    code = error.pgcode
    if code is None:
        gone = isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError | psycopg2.DatabaseError)
        return StoreUnreachable() if gone else Problem(Category.INTERNAL, f"the driver refused: {type(error).__name__}")
    if code in _NO_LOCK:
        return LockUnavailable()
    if code in _CONFLICTS:
        return WriteConflict()
    if code == _CANCELLED:
        return StatementCancelled(Category.INTERNAL, f"the store cancelled a statement (SQLSTATE {code})")
    if code.startswith(_UNAVAILABLE):
        why = _REASONS.get(code, "")
        return StoreUnreachable(f"the store cannot serve now{why} (SQLSTATE {code})")
    defect = error.diag.message_primary if code.startswith("42") else None  # names of our schema, never values
    where = ", ".join(name for name in (error.diag.table_name, error.diag.constraint_name, defect) if name)
    return Problem(Category.INTERNAL, f"the store refused a statement (SQLSTATE {code}{': ' + where if where else ''})")


def shielded(work: Coroutine[Any, Any, T]) -> Deferred[T]:
    """Run `work` to its end, even if the Deferred returned is cancelled."""
    return _decoupled(Deferred.fromCoroutine(work))


def _decoupled(running: Deferred[T]) -> Deferred[T]:
    """Another Deferred with the same result; cancelling it leaves `running` alone."""
    waiting: Deferred[T] = Deferred()

    def pass_on(result: Any) -> None:
        if not waiting.called:
            waiting.callback(result)
        elif isinstance(result, Failure):
            log.debug("a cancelled caller missed this failure: {reason}", reason=result.getErrorMessage())

    running.addBoth(pass_on)
    return waiting


def _failed(problem: Problem) -> Deferred[Any]:
    failed: Deferred[Any] = Deferred()
    failed.errback(problem)
    return failed
