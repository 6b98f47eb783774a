"""The limit of connections of an HTTP listener.

Idle connections, connections in use, and those that became a websocket all count.  A connection beyond the limit is
answered 503 on its first bytes and closed; existing connections are not affected.  At most `MAX_ANSWERED` refused
connections are open at a time, for `ANSWER_SECONDS` each; further ones are closed without an answer.

No address takes them all: the last tenth is for addresses that have less than a tenth of the limit.

Source: RFC 9110 section 15.6.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from ipf.security.addresses import source_of
from ipf.telemetry import metrics

log = Logger()

MAX_ANSWERED = 100
ANSWER_SECONDS = 5.0
_LOG_SECONDS = 10.0  # at least between two log lines
_BODY = b'{"error":"unavailable","message":"the server has as many connections as it takes"}'
_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Type: application/json\r\n"
    b"Cache-Control: no-store\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class ConnectionLimit:
    """Counts the connections of one listener.  `limit`: connections that are served."""

    def __init__(self, limit: int, clock: IReactorTime, changed: Callable[[int], None] = metrics.http_connections):
        self.clock = clock
        self._limit = limit
        self._changed = changed
        self._count = 0
        self._by_source: dict[str, int] = {}
        self._refused = 0
        self._logged_at = float("-inf")

    def __len__(self) -> int:
        """The number of connections that are served."""
        return self._count

    def is_full(self, host: str = "") -> bool:
        """Whether a further connection from this address is refused."""
        if self._count < self._limit - self._limit // 10:
            return False
        return self._count >= self._limit or self._by_source.get(source_of(host), 0) >= self._limit // 10

    def enter(self, host: str = "") -> None:
        """A connection from this address is served."""
        source = source_of(host)
        self._count += 1
        self._by_source[source] = self._by_source.get(source, 0) + 1
        self._changed(self._count)

    def leave(self, host: str = "") -> None:
        """A served connection is lost."""
        source = source_of(host)
        self._count -= 1
        left = self._by_source.pop(source, 1) - 1
        if left > 0:
            self._by_source[source] = left
        self._changed(self._count)

    def refuse(self, address: IAddress | None) -> Protocol | None:
        """The protocol that answers 503; None: close the connection at once."""
        now = self.clock.seconds()
        metrics.http_refused()
        if now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            peer = getattr(address, "host", "")
            text = "event=http_refused peer={peer} connections={connections}"
            log.warn(text, event="http_refused", peer=peer, connections=self._count)
        return RefusedConnection(self) if self._refused < MAX_ANSWERED else None

    def count_refused(self, by: int) -> None:
        """The number of refused connections that are open changes by `by`."""
        self._refused += by


class RefusedConnection(Protocol):
    """Answers 503 to the first bytes and closes; without any it closes after `ANSWER_SECONDS`."""

    def __init__(self, connections: ConnectionLimit) -> None:
        self._connections = connections
        self._timer: IDelayedCall | None = None

    def connectionMade(self) -> None:
        """Twisted: connected."""
        self._connections.count_refused(1)
        transport: Any = self.transport
        self._timer = self._connections.clock.callLater(ANSWER_SECONDS, transport.abortConnection)

    def dataReceived(self, data: bytes) -> None:
        """Twisted: a request, or its beginning."""
        if self.transport is not None:
            self.transport.write(_ANSWER)
            self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: disconnected."""
        self._connections.count_refused(-1)
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
