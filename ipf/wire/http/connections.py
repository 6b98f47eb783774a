"""How many connections an HTTP listener has at once, and what becomes of those beyond.

All count: those that wait, those that are served, and those that became a websocket.  One more is answered 503 when its
request comes, and closed; those that are there are served on.  Of the refused as well only some are heard at a time,
and not for long: others are closed without a word.

Source: RFC 9110 section 15.6.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from ipf.telemetry import metrics

log = Logger()

MOST_TOLD = 100
TOLD_SECONDS = 5.0
_QUIET_SECONDS = 10.0
_BODY = b'{"error":"unavailable","message":"the server has as many connections as it takes"}'
_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Type: application/json\r\n"
    b"Cache-Control: no-store\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class ConnectionLimit:
    """The connections of one listener.  `most`: so many are served."""

    def __init__(self, most: int, clock: IReactorTime, changed: Callable[[int], None] = metrics.http_connections):
        self.clock = clock
        self._most = most
        self._changed = changed
        self._count = 0
        self._told = 0
        self._warned_at = float("-inf")

    def __len__(self) -> int:
        """How many there are."""
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether one more is one too many."""
        return self._count >= self._most

    def enter(self) -> None:
        """A connection is served."""
        self._count += 1
        self._changed(self._count)

    def leave(self) -> None:
        """It is gone."""
        self._count -= 1
        self._changed(self._count)

    def refuse(self, address: IAddress | None) -> Protocol | None:
        """What tells a connection that there are too many; None: it is to be closed at once."""
        now = self.clock.seconds()
        metrics.http_refused()
        if now - self._warned_at >= _QUIET_SECONDS:
            self._warned_at = now
            peer = getattr(address, "host", "")
            text = "event=http_refused peer={peer} connections={connections}"
            log.warn(text, event="http_refused", peer=peer, connections=self._count)
        return Refused(self) if self._told < MOST_TOLD else None

    def tell(self, by: int) -> None:
        """So many more, or fewer, are being refused."""
        self._told += by


class Refused(Protocol):
    """Answers the first bytes, whatever they are, and hangs up; after a while also without."""

    def __init__(self, crowd: ConnectionLimit) -> None:
        self._crowd = crowd
        self._timer: IDelayedCall | None = None

    def connectionMade(self) -> None:
        """Twisted: it is there."""
        self._crowd.tell(1)
        transport: Any = self.transport
        self._timer = self._crowd.clock.callLater(TOLD_SECONDS, transport.abortConnection)

    def dataReceived(self, data: bytes) -> None:
        """Twisted: a request, or its beginning."""
        if self.transport is not None:
            self.transport.write(_ANSWER)
            self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: it is gone."""
        self._crowd.tell(-1)
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
