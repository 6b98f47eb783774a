"""The notifier: wakes subscribers in this process at once, and those of other processes through LISTEN/NOTIFY.

Arrives: `notify(name)`.  Leaves: calls of `wake()`, at once in this process, within about a millisecond in others.
NOTIFY takes a lock that all committing transactions share, so it is not part of a transaction that does work.  The
notifier has its own connection, which also listens.  Several notifications are sent in one round trip, and round trips
are at least `GAP_SECONDS` apart (the first is not delayed).  Nothing survives a crash: after a lost notification a
subscriber waits for its poll interval, and after a reconnect every subscriber is woken once.

Channels belong to a database.  Where several installations share one, each in a schema of its own, the
channel has the name of the schema, so that one does not wake the others.

Source: https://www.postgresql.org/docs/current/sql-notify.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.ports import Notifier
from ipf.store.postgres.connect import connect
from ipf.store.postgres.connection import Connection
from ipf.store.postgres.quoting import literal, script

log = Logger()

CHANNEL = "ipf_bell"  # in the schema public; `ipf_bell:SCHEMA` in another
_SCHEMA = "SELECT current_schema()"
GAP_SECONDS = 0.005
RECONNECT_SECONDS = 0.5
ANSWER_SECONDS = 10.0  # a NOTIFY waits for commits of others


class PostgresNotifier:
    """A notifier shared by all processes on one database.  Without a connection it notifies this process only."""

    def __init__(self, url: str, *, reactor: Any) -> None:
        self._url = url
        self._reactor = reactor
        self._channel = CHANNEL
        self._wakes: dict[str, list[Callable[[], None]]] = {}
        self._pending: set[str] = set()
        self._connection: Connection | None = None
        self._sending = False
        self._timer: Any = None
        self._closed = False

    def notify(self, name: str) -> None:
        """Wake the subscribers of this process now, those of other processes by NOTIFY."""
        self._wake(name)
        self._pending.add(name)
        if not self._sending and self._connection is not None:
            self._flush()

    def subscribe(self, name: str, wake: Callable[[], None]) -> None:
        """Call `wake` at each notification of `name`; it must return at once."""
        self._wakes.setdefault(name, []).append(wake)

    async def start(self) -> None:
        """Connect and listen.  After StoreUnreachable it goes on trying."""
        try:
            await self._connect()
        except StoreUnreachable:
            self._connect_later()
            raise

    def reconnect(self) -> None:
        """Leave the server, which hangs or no longer writes, and connect again."""
        if self._connection is not None:
            self._connection.close()
            self._lost(self._connection)

    async def close(self) -> None:
        """Stop listening."""
        self._closed = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _connect(self) -> None:
        connection = await connect(self._url, reactor=self._reactor, statement_seconds=ANSWER_SECONDS, lost=self._lost)
        try:
            ((schema,),) = await connection.run(_SCHEMA)
            self._channel = CHANNEL if schema == "public" else f"{CHANNEL}:{schema}"
            await connection.run(f"LISTEN {connection.quoted_identifier(self._channel)}")
        except Problem:
            connection.close()
            raise
        if self._closed:
            connection.close()
            return
        backend = connection.backend

        def received(sender: int, name: str) -> None:
            if sender != backend:
                self._wake(name)

        connection.notified(received)
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
