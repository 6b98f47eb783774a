"""A psycopg2 connection in the reactor: it connects, runs one query at a time, and passes on NOTIFY.

The reactor never watches a socket of libpq itself, but a duplicate.  libpq replaces its socket while it connects (next
address, without TLS after a refusal) and closes it when the server is gone; a poll set must not hold a closed
descriptor, whose number may be reused.  While connecting each wait has a duplicate of its own.

A connected one stays the reader, and passes on the rows within the read that completes them.

Source: https://www.psycopg.org/docs/advanced.html#asynchronous-support,
https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PQCONNECTSTARTPARAMS
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import psycopg2
from psycopg2.extensions import POLL_OK, POLL_WRITE, quote_ident
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionAborted, ConnectionLost
from twisted.internet.interfaces import IReadWriteDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ipf.errors import StoreUnreachable

log = Logger()

Row = tuple[Any, ...]
Done = Callable[[list[Row] | BaseException], None]
"""Takes the rows of the last statement, or the error.  Called exactly once."""


@implementer(IReadWriteDescriptor)
class _Watch:
    """A duplicate of a socket in the poll set, until `end`."""

    def __init__(self, reactor: Any, socket: int, readable: Callable[[], None], writable: Callable[[], None],
                 lost: Callable[[], None]) -> None:  # fmt: skip
        self._reactor = reactor
        self._descriptor = os.dup(socket)
        self._readable = readable
        self._writable = writable
        self._lost = lost
        self._ended = False

    def read(self) -> None:
        """Call `readable` from now on."""
        self._reactor.addReader(self)

    def write(self) -> None:
        """Call `writable` once."""
        self._reactor.addWriter(self)

    def end(self) -> None:
        """Leave the poll set and close the duplicate."""
        if not self._ended:
            self._ended = True
            self._reactor.removeReader(self)
            self._reactor.removeWriter(self)
            os.close(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def logPrefix(self) -> str:
        return "postgres"

    def doRead(self) -> None:
        if not self._ended:
            self._readable()

    def doWrite(self) -> None:
        if not self._ended:
            self._reactor.removeWriter(self)
            self._writable()

    def connectionLost(self, reason: Failure) -> None:
        if not self._ended:
            self._lost()


class PsycopgConnection:
    """`died` is called when the connection is lost while nothing runs, `notified` for each NOTIFY (sender, payload)."""

    def __init__(self, reactor: Any) -> None:
        self.died: Callable[[], None] = lambda: None
        self.notified: Callable[[int, str], None] = lambda backend, payload: None
        self._reactor = reactor
        self._connection: Any = None
        self._connecting: Deferred[None] | None = None
        self._watch: _Watch | None = None
        self._cursor: Any = None
        self._done: Done | None = None
        self._closed = False

    def connect(self, dsn: str) -> Deferred[None]:
        """Connect; psycopg2.Error or OSError when that fails, ConnectionAborted after `close`.

        Cancelling the Deferred closes the connection.
        """
        connecting = self._connecting = Deferred(self._cancel_connecting)
        try:
            self._connection = psycopg2.connect(dsn, async_=True)
        except psycopg2.Error as error:
            self._connected(error)
            return connecting
        self._go_on_connecting()
        return connecting

    def close(self) -> None:
        """Close at once.  An attempt to connect, or a query, ends with an error."""
        self._closed = True
        self._unwatch()
        if self._connection is not None:
            self._connection.close()
        if self._connecting is not None:
            self._connected(ConnectionAborted())
        if self._done is not None:
            self._end(ConnectionLost())

    @property
    def backend(self) -> int:
        """Process id of the server process."""
        return int(self._connection.get_backend_pid())

    def take_notices(self) -> list[str]:
        """The last notices and warnings of the server (50 at most), which are then forgotten.  No query may run."""
        try:
            self._connection.poll()  # psycopg2 has not seen those that arrived together with the last result
        except psycopg2.Error:
            return []  # the next query fails
        return self.earlier_notices()

    def earlier_notices(self) -> list[str]:
        """Those that psycopg2 has seen until now, which are then forgotten."""
        notices: list[str] = self._connection.notices
        if not notices:
            return []
        taken = notices[:]
        del notices[:]
        return taken

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

    # -- connecting

    def _go_on_connecting(self) -> None:
        self._unwatch()
        try:
            state = self._connection.poll()
            if state == POLL_OK:
                self._watch = self._watched(self._read, self._advance, self._lost)
                self._watch.read()
            else:
                go_on = self._go_on_connecting
                watch = self._watch = self._watched(go_on, go_on, go_on)
                watch.write() if state == POLL_WRITE else watch.read()
                return
        except (psycopg2.Error, OSError) as error:
            self._connected(error)
            return
        self._connected(None)

    def _watched(self, readable: Callable[[], None], writable: Callable[[], None], lost: Callable[[], None]) -> _Watch:
        return _Watch(self._reactor, self._connection.fileno(), readable, writable, lost)

    def _unwatch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.end()

    def _connected(self, error: Exception | None) -> None:
        connecting, self._connecting = self._connecting, None
        assert connecting is not None
        if error is None:
            connecting.callback(None)
        else:
            self.close()
            connecting.errback(error)

    def _cancel_connecting(self, _: Deferred[None]) -> None:
        self._connecting = None
        self.close()

    # -- connected

    def _read(self) -> None:
        self._advance()
        if not self._closed:
            self._pass_on_notifies()

    def _lost(self) -> None:
        self._unwatch()  # the reactor would report it again and again
        self._advance()  # libpq reports the reason
        if self._done is not None:
            self._end(ConnectionLost())
        elif not self._closed:
            self.died()

    def _pass_on_notifies(self) -> None:
        notifies = self._connection.notifies
        if not notifies:
            return
        arrived = notifies[:]
        del notifies[:]
        for notify in arrived:
            try:
                self.notified(notify.pid, notify.payload)
            except Exception:
                log.failure("a NOTIFY could not be handled")

    def _advance(self, sending: bool = False) -> None:
        """Let libpq read or write, and end the query when it is complete."""
        if self._closed:
            return
        try:
            state = self._connection.poll()
        except psycopg2.Error as error:
            if self._done is not None:
                self._end(error)
            else:
                self.died()
            return
        if state == POLL_OK:
            if sending:  # the result is here already: end later, or queries would nest
                self._reactor.callLater(0, self._advance)
            elif self._done is not None:
                self._end(self._rows())
        elif state == POLL_WRITE and self._watch is not None:
            self._watch.write()

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
