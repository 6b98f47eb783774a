"""txpostgres with a connection that stays registered with the reactor.

txpostgres registers a cursor with the reactor for each query: four changes of the poll set, two reactor turns and a
timer, more than the rest of a query costs this process.  Here the connection stays the reader, and passes on the rows
within the read that completes them.  Connecting, closing and NOTIFY are those of txpostgres.

Source: https://www.psycopg.org/docs/advanced.html#asynchronous-support
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import psycopg2
from psycopg2.extensions import POLL_OK, POLL_WRITE, quote_ident
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.logger import Logger
from twisted.python.failure import Failure
from txpostgres import txpostgres

from ipf.errors import StoreUnreachable

log = Logger()

Row = tuple[Any, ...]
Done = Callable[[list[Row] | BaseException], None]
"""Takes the rows of the last statement, or the error.  Called exactly once."""


class PsycopgConnection(txpostgres.Connection):  # type: ignore[misc]  # txpostgres has no types
    """A connection whose queries end in a callback.  `died` is called when it is lost while nothing runs."""

    died: Callable[[], None] = staticmethod(lambda: None)
    _watched = -1
    _cursor: Any = None
    _done: Done | None = None

    def connect(self, dsn: str) -> Deferred[Any]:
        """See txpostgres.  Afterwards the reactor watches a duplicate of the socket.

        libpq closes its socket as soon as the server is gone, and a poll set must not hold a closed descriptor, whose
        number may be reused.
        """
        connecting: Deferred[Any] = super().connect(dsn)
        return connecting.addCallback(self._watch)

    def _watch(self, connected: Any) -> Any:
        self.reactor.removeReader(self)
        self._watched = os.dup(self._connection.fileno())
        self.reactor.addReader(self)
        return connected

    def fileno(self) -> int:
        return self._watched if self._watched >= 0 else int(super().fileno())

    def close(self) -> None:
        super().close()
        if self._watched >= 0:
            os.close(self._watched)
            self._watched = -1

    def quoted_identifier(self, name: str) -> str:
        """`name` quoted by libpq."""
        return str(quote_ident(name, self._connection))

    def check_quoting(self) -> None:
        """StoreUnreachable unless the session reads string literals as `quoting.py` writes them."""
        for name, wanted in (("standard_conforming_strings", "on"), ("client_encoding", "UTF8")):
            if self._connection.get_parameter_status(name) != wanted:
                raise StoreUnreachable(detail=f"the session does not have {name}={wanted}")

    def query(self, sql: str, done: Done) -> None:
        """Send `sql`; one at a time.  `done` is called within this call only when it cannot be sent."""
        try:
            cursor = self._connection.cursor()
            cursor.execute(sql)
        except (psycopg2.Error, UnicodeError) as error:
            done(error)
            return
        self._cursor, self._done = cursor, done
        self._advance(sending=True)

    def doRead(self) -> None:
        if self._pollingD is not None:
            super().doRead()
            return
        self._advance()
        if not self._connection.closed:
            self.checkForNotifies()

    def doWrite(self) -> None:
        if self._pollingD is not None:
            super().doWrite()
            return
        self.reactor.removeWriter(self)
        self._advance()

    def connectionLost(self, reason: Failure) -> None:
        if self._pollingD is not None:
            super().connectionLost(reason)
        if not self._connection.closed:
            self._advance()  # libpq reports the reason
        if self._done is not None:
            self._end(ConnectionLost())
        elif not self._connection.closed and self._pollingD is None:
            self.died()

    def checkForNotifies(self) -> None:
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

    def _advance(self, sending: bool = False) -> None:
        """Let libpq read or write, and end the query when it is complete."""
        try:
            state = self._connection.poll()
        except psycopg2.Error as error:
            if self._done is not None:
                self._end(error)
            elif self._pollingD is None:
                self.died()
            return
        if state == POLL_OK:
            if sending:  # the result is here already: end later, or queries would nest
                self.reactor.callLater(0, self._advance)
            elif self._done is not None:
                self._end(self._rows())
        elif state == POLL_WRITE:
            self.reactor.addWriter(self)

    def _rows(self) -> list[Row] | BaseException:
        cursor = self._cursor
        try:
            rows: list[Row] = cursor.fetchall() if cursor.description is not None else []
        except psycopg2.Error as error:
            failure: BaseException = error
            return failure
        return rows

    def _end(self, result: list[Row] | BaseException) -> None:
        done, self._done, self._cursor = self._done, None, None
        assert done is not None
        done(result)
