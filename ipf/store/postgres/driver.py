"""txpostgres's connection, with what failover needs.

txpostgres connects, sends queries through its cursors and calls notify observers.  Repaired here:

- The reactor watches a duplicate of libpq's socket.  libpq replaces its socket while it connects (without TLS after a
  refusal) and closes it when the server is gone; a poll set must not hold a closed descriptor, whose number may be
  reused.
- The connection stays in the poll set, and a query ends within the read that completes it.  A cursor that registers for
  each query costs a lone sender a sixth of its messages, and a query that ends a turn later may end after `close`.
- A connection that is lost while nothing runs calls `died` instead of raising in the reactor.
- Cancelling ends the attempt to connect.  txpostgres would ask libpq to cancel, which blocks until the server answers.
- A statement that the server cancels fails with psycopg2's error, which has the SQLSTATE.
- A large statement is handed to libpq in a thread: libpq copies it, which takes 0.1 s for a document of 60 MB.

Sources: https://txpostgres.readthedocs.io/, https://www.psycopg.org/docs/advanced.html#asynchronous-support,
https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PQCONNECTSTARTPARAMS
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg2
from psycopg2.extensions import POLL_OK, POLL_READ, POLL_WRITE
from twisted.internet.defer import Deferred, fail
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from txpostgres import txpostgres

log = Logger()

Row = tuple[Any, ...]
LARGE_STATEMENT = 4_000_000
"""Characters of a statement that is sent in a thread."""


class FailoverCursor(txpostgres.Cursor):  # type: ignore[misc]  # txpostgres has no types
    """A cursor that leaves the polling to its connection."""

    def _doit(self, name: str, *args: Any) -> Deferred[Any]:
        """Call a method of psycopg2's cursor; fires with this cursor when the query is complete."""
        send = partial(getattr(self._cursor, name), *args)
        if name == "execute" and len(args[0]) >= LARGE_STATEMENT:
            sending: Deferred[Any] = self._connection.send_in_thread(send, self)
            return sending
        try:
            send()
        except Exception:
            return fail()
        polling: Deferred[Any] = self._connection.poll(self)
        return polling

    def rows(self) -> list[Row]:
        """The rows of the last statement."""
        rows: list[Row] = self._cursor.fetchall() if self._cursor.description is not None else []
        return rows


class FailoverConnection(txpostgres.Connection):  # type: ignore[misc]  # txpostgres has no types
    """One connection.  `died` is called when it is lost, or closed, while nothing runs."""

    cursorFactory = FailoverCursor

    def __init__(self, reactor: Any) -> None:
        super().__init__(reactor)
        self.died: Callable[[], None] = lambda: None
        self._pollingD: Deferred[Any] | None = None
        self._result: Any = None
        self._connecting = True
        self._watched = -1

    def poll(self, result: Any = None) -> Deferred[Any]:
        """Fires with `result`, or the connection, when libpq has done what was asked for."""
        polling = self._pollingD = Deferred(self._cancel)
        self._result = self if result is None else result
        self.continuePolling()
        return polling

    def send_in_thread(self, send: Callable[[], object], result: Any) -> Deferred[Any]:
        """As `poll`, for a statement that `send` hands to libpq in a thread, which releases the interpreter lock.

        Meanwhile the reactor leaves libpq alone.
        """
        polling = self._pollingD = Deferred(self._cancel)
        self._result = result
        self.reactor.removeReader(self)

        def sent(_: object) -> None:
            if self._pollingD is polling and not self._connection.closed:
                self.reactor.addReader(self)
                self.continuePolling()
            elif self._pollingD is polling:
                self._end(Failure(psycopg2.InterfaceError("the connection was closed")))

        def failed(failure: Failure) -> None:
            if self._pollingD is polling:
                if not self._connection.closed:
                    self.reactor.addReader(self)
                self._end(failure)

        deferToThreadPool(self.reactor, self.reactor.getThreadPool(), send).addCallbacks(sent, failed)
        return polling

    def close(self) -> None:
        """Close at once.  An attempt to connect, or a query, ends with an error."""
        if self._connection is not None:
            self._unwatch()
            self._connection.close()
            super().close()

    def fileno(self) -> int:
        """A duplicate of libpq's socket; the next one after `_unwatch`, -1 once closed."""
        if self._watched < 0 and not self._connection.closed:
            self._watched = os.dup(self._connection.fileno())
        return self._watched

    def continuePolling(self, swallowErrors: bool = False) -> None:
        """A query was sent.  If it is complete already it ends in the reactor's next turn, or queries would nest."""
        if self._advance():
            self.reactor.callLater(0, self.doRead)

    def doRead(self) -> None:
        self._go_on()
        if not self._connection.closed:
            self.checkForNotifies()

    def doWrite(self) -> None:
        self.reactor.removeWriter(self)
        self._go_on()

    def connectionLost(self, reason: Failure) -> None:
        self._unwatch()  # the reactor would report it again and again
        self._go_on()  # libpq reports the reason, or has another socket
        if self._watched < 0:
            self._end(reason)

    def checkForNotifies(self) -> None:
        """Call the observers at once.  With the Cooperator of txpostgres a NOTIFY costs half as much again."""
        notifies = self._connection.notifies
        if not notifies:
            return
        arrived = notifies[:]
        del notifies[:]
        for notify in arrived:
            for observer in self.getNotifyObservers():
                try:
                    observer(notify)
                except Exception:
                    log.failure("a NOTIFY could not be handled")

    def _go_on(self) -> None:
        if not self._connection.closed and self._advance():
            self._end(self._result)

    def _advance(self) -> bool:
        """Let libpq read and write; whether it has done all that was asked for."""
        try:
            state = self._connection.poll()
            if self._connecting:
                self._unwatch()  # libpq may have another socket now
            if state == POLL_WRITE:
                self.reactor.addWriter(self)
            elif state == POLL_READ and self._connecting:
                self.reactor.addReader(self)
        except (psycopg2.Error, OSError):
            self._end(Failure())
            return False
        self._connecting = self._connecting and state != POLL_OK
        return bool(state == POLL_OK)

    def _end(self, result: object) -> None:
        """Fire the Deferred of what runs.  If nothing runs, a failure is the loss of the connection."""
        polling, self._pollingD, self._result = self._pollingD, None, None
        if polling is not None:
            polling.callback(result)
        elif isinstance(result, Failure):
            self.died()

    def _unwatch(self) -> None:
        if self._watched >= 0:
            self.reactor.removeReader(self)
            self.reactor.removeWriter(self)
            os.close(self._watched)
            self._watched = -1

    def _cancel(self, connecting: Deferred[Any]) -> None:
        self._pollingD = None
        self.close()
