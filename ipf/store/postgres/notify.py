"""The notifier: wakes workers in this process at once, and those of other processes through NOTIFY.

Arrives: `notify(name)`.  Leaves: `wake()` calls, here immediately, elsewhere within a millisecond or so.  NOTIFY
takes a
lock that all committing transactions share, so it is never part of a transaction that does work: it has a connection
of its own, many rings become one, and two NOTIFY round trips are at least `GAP_SECONDS` apart (the first is not
delayed).  The same connection listens.  Nothing survives a crash: a lost ring costs one poll interval, and after a
reconnect every notifier is rung once, because rings may have been missed.

Source: https://www.postgresql.org/docs/current/sql-notify.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.ports import Notifier
from ipf.store.postgres.connection import Connection, connect
from ipf.store.postgres.quoting import literal, script

log = Logger()

CHANNEL = "ipf_bell"
GAP_SECONDS = 0.005
RECONNECT_SECONDS = 0.5


class PostgresNotifier:
    """A notifier shared by all processes on one database.  `start` before use; without a server it rings only here."""

    def __init__(self, url: str, *, reactor: Any, channel: str = CHANNEL) -> None:
        self._url = url
        self._reactor = reactor
        self._channel = channel
        self._wakes: dict[str, list[Callable[[], None]]] = {}
        self._pending: set[str] = set()
        self._connection: Connection | None = None
        self._sending = False
        self._timer: Any = None
        self._closed = False

    def notify(self, name: str) -> None:
        """Wake those who wait here now, those elsewhere as soon as the NOTIFY is through."""
        self._wake(name)
        self._pending.add(name)
        if not self._sending and self._connection is not None:
            self._flush()

    def subscribe(self, name: str, wake: Callable[[], None]) -> None:
        """Call `wake` at each ring of `name`; it must return at once."""
        self._wakes.setdefault(name, []).append(wake)

    async def start(self) -> None:
        """Connect and listen.  StoreUnreachable now does not end it: it goes on trying."""
        try:
            await self._connect()
        except StoreUnreachable:
            self._connect_later()
            raise

    async def close(self) -> None:
        """Stop listening."""
        self._closed = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _connect(self) -> None:
        connection = await connect(self._url, reactor=self._reactor, lost=self._lost)
        try:
            await connection.run(f"LISTEN {connection.quoted_identifier(self._channel)}")
        except Problem:
            connection.close()
            raise
        if self._closed:
            connection.close()
            return
        backend = connection.backend

        def heard(sender: int, name: str) -> None:
            if sender != backend:
                self._wake(name)

        connection.notified(heard)
        self._connection = connection
        if self._pending:
            self._flush()

    def _connect_later(self) -> None:
        if not self._closed:
            self._timer = self._reactor.callLater(RECONNECT_SECONDS, self._reconnect)

    def _reconnect(self) -> None:
        def failed(failure: Any) -> None:
            failure.trap(Problem)
            self._connect_later()

        connecting = Deferred.fromCoroutine(self._connect())
        connecting.addCallbacks(lambda _: self._wake_all(), failed)

    def _lost(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
            log.warn("event=bell_lost the notifier's connection was lost", event="bell_lost")
            self._connect_later()

    def _flush(self) -> None:
        connection, names = self._connection, sorted(self._pending)
        if connection is None or not names:
            self._sending = False
            return
        self._pending.clear()
        self._sending = True
        channel = literal(self._channel)
        sent = connection.run(script(*(f"SELECT pg_notify({channel}, {literal(name)})" for name in names)))
        sent.addErrback(lambda failure: failure.trap(Problem) and None)
        sent.addCallback(lambda _: self._reactor.callLater(GAP_SECONDS, self._flush) if not self._closed else None)

    def _wake(self, name: str) -> None:
        for wake in self._wakes.get(name, ()):
            wake()

    def _wake_all(self) -> None:
        for name in list(self._wakes):
            self._wake(name)


_: type[Notifier] = PostgresNotifier
