"""Finds a server that hangs, its sockets stay open but it does not answer, and one that only reads from now on.

The probe asks one server twice a second whether it only reads, on a connection of its own.  The server hangs when the
answer is missing at six ticks in a row.  Ticks are counted instead of seconds, each once however late it is, and the
reactor reads what has arrived between two of them: a process that was itself stopped or blocked does not blame the
server.  An error is an answer too; a server that is gone shows itself by closing its sockets.

A former primary may only read while every statement on it is a commit that waits for a standby, which has left it: then
only this question tells.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from ipf.errors import Problem, StoreUnreachable
from ipf.store.postgres.connect import connect, connect_again
from ipf.store.postgres.connection import Connection
from ipf.store.postgres.hosts import Host
from ipf.store.postgres.replication import NoPositions, Positions

log = Logger()

TICK_SECONDS = 0.5
TICKS = 6

Unusable = Callable[[StoreUnreachable], None]


class Probe:
    """Watches one server at a time, from `watch` until `stop`, or until it calls `unusable` with the reason.

    `positions` takes the answers.
    """

    def __init__(
        self,
        reactor: Any,
        unusable: Unusable,
        tick_seconds: float = TICK_SECONDS,
        positions: Positions | None = None,
    ) -> None:
        self._reactor = reactor
        self._unusable = unusable
        self._tick_seconds = tick_seconds
        self._positions = positions or NoPositions()
        self._host: Host | None = None
        self._connection: Connection | None = None
        self._asking: Deferred[None] | None = None
        self._missed = 0
        self._timer: IDelayedCall | None = None

    @property
    def seconds(self) -> float:
        """How long a server may be silent, about."""
        return round(TICKS * self._tick_seconds, 3)

    def watch(self, host: Host) -> None:
        """Watch this server, and no other one."""
        if host != self._host:
            self.stop()
            self._host = host
            self._timer = self._reactor.callLater(self._tick_seconds, self._tick)

    def stop(self) -> None:
        """Stop asking."""
        self._positions.lost()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._host = self._timer = None
        self._missed = 0
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _tick(self) -> None:
        assert self._host is not None
        self._timer = self._reactor.callLater(self._tick_seconds, self._tick)
        if self._asking is None:
            self._ask(self._host)
            return
        self._missed += 1
        if self._missed >= TICKS:
            text = "event=store_hung {server} has not answered for {seconds} s"
            log.warn(text, event="store_hung", server=self._host.label, seconds=self.seconds)
            reason = f"{self._host.label} has not answered for {self.seconds:g} s"
            self.stop()
            self._unusable(StoreUnreachable("the store does not answer", reason))

    def _ask(self, host: Host) -> None:
        asking = self._asking = Deferred.fromCoroutine(self._answer(host))
        asking.addErrback(self._unanswered)
        asking.addErrback(lambda failure: log.failure("asking the store failed", failure))
        asking.addBoth(lambda _: self._answered(asking))

    def _unanswered(self, failure: Failure) -> None:
        failure.trap(Problem, CancelledError)
        self._positions.lost()

    async def _answer(self, host: Host) -> None:
        if self._connection is None or not self._connection.alive:
            wait = 2 * TICKS * self._tick_seconds  # longer than `hung` takes
            self._connection = await connect_again(host, reactor=self._reactor, connect_seconds=wait)
        asked = self._reactor.seconds()
        (row,) = await self._connection.run(self._positions.question)
        if host != self._host:
            return
        self._positions.heard(asked, row)
        if host.must_be_writable and row[0] == "on":
            self._reactor.callLater(0, self._is_wrong, host, "only reads")
        elif host.must_be_standby and row[0] == "off":
            self._reactor.callLater(0, self._is_wrong, host, "is no standby any more")

    def _is_wrong(self, host: Host, what: str) -> None:
        if host == self._host:
            self.stop()
            self._unusable(StoreUnreachable(detail=f"{host.label} {what}"))

    def _answered(self, asking: Deferred[None]) -> None:
        if self._asking is asking:
            self._asking, self._missed = None, 0


@asynccontextmanager
async def watched_connection(
    url: str, *, reactor: Any, statement_seconds: float, tick_seconds: float = TICK_SECONDS
) -> AsyncIterator[Connection]:
    """A connection for statements that may take long on a server that lives, closed at the end.

    StoreUnreachable names the host when its server hangs or only reads.
    """
    quiet = "SET client_min_messages = warning"
    connection = await connect(url, reactor=reactor, greeting=quiet, statement_seconds=statement_seconds)
    found: list[StoreUnreachable] = []

    def unusable(problem: StoreUnreachable) -> None:
        found.append(problem)
        connection.close()

    probe = Probe(reactor, unusable, tick_seconds)
    probe.watch(connection.host)
    try:
        yield connection
    except StoreUnreachable as unreachable:
        if found:
            raise found[0] from unreachable
        raise
    finally:
        probe.stop()
        connection.close()
