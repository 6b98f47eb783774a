"""The watchdog of systemd is notified only while every listener of this process answers a connection from inside.

A blocked reactor, a listener that no longer accepts, and a process without free file descriptors are failures; after
`WATCHDOG_USEC` without a notification systemd restarts the service.  A database that hangs is none: listeners stay
reachable, and senders are told.

A check connects to the address that the listener is bound to, closes its sending side and waits until the listener
closes the connection.  On TCP the listener knows these connections by their address: they reach no protocol, so they
take no slot of a connection limit, pass no access list, start no TLS handshake and leave no trace in log and metrics.
On a unix socket they are ordinary connections without a byte.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IConnector, IProtocolFactory, IReactorTime
from twisted.internet.protocol import ClientFactory, Protocol, connectionDone
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

log = Logger(namespace="ipf.app.watchdog")

_ROUNDS = 4  # in one interval of systemd, so that a single check that fails restarts nothing
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}

Check = Callable[[float], Awaitable[dict[str, str]]]
"""Checks all listeners within so many seconds; the reason for each that did not answer, by its name."""


class Watchdog:
    """Feeds `notify` in the interval of systemd; 0: never."""

    def __init__(self, interval: float, check: Check, notify: Callable[[str], None], clock: IReactorTime) -> None:
        self._seconds = interval / _ROUNDS
        self._check = check
        self._notify = notify
        self._loop = LoopingCall(lambda: Deferred.fromCoroutine(self._round()))
        self._loop.clock = clock

    def start(self) -> None:
        """Check at once, then again and again until the process ends: while it stops, for what is still open."""
        if self._seconds and not self._loop.running:
            self._loop.start(self._seconds)

    async def _round(self) -> None:
        try:
            unanswered = await self._check(self._seconds)
        except Exception:
            log.failure("the listeners could not be checked")
            return
        for name, reason in unanswered.items():
            text = "event=listener_unanswered listener={listener} reason={reason} the watchdog is not notified"
            log.error(text, event="listener_unanswered", listener=name, reason=reason)
        if not unanswered:
            self._notify("WATCHDOG=1")


class SelfConnections:
    """Connections of this process to its own listeners."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._open: set[tuple[str, int]] = set()

    def told_apart(self, factory: Any) -> Any:
        """The factory of a listener, which they do not reach."""
        return _ToldApart(factory, self._open)

    async def check(self, address: IAddress, seconds: float) -> None:
        """Connect to a listener; returns when it has closed the connection.

        ConnectError: there is none.  TimeoutError: it did not answer within so many seconds.
        """

        def give_up(closed: Deferred[None]) -> None:
            closed.errback(TimeoutError(f"no answer within {seconds:g} s"))
            connector.disconnect()

        closed: Deferred[None] = Deferred(give_up)
        connector = self._connect(address, _Connecting(closed), seconds)
        own = _own_address(connector)
        if own is not None:
            self._open.add(own)
        try:
            await closed.addTimeout(seconds, self._reactor)
        finally:
            self._open.discard(own or ("", 0))

    def _connect(self, address: IAddress, factory: ClientFactory, seconds: float) -> IConnector:
        if isinstance(address, UNIXAddress):
            return self._reactor.connectUNIX(address.name, factory, timeout=seconds)  # type: ignore[no-any-return]
        assert isinstance(address, IPv4Address | IPv6Address)
        host = _ANY.get(address.host, address.host)
        return self._reactor.connectTCP(  # type: ignore[no-any-return]
            host, address.port, factory, timeout=seconds, bindAddress=(host, 0)
        )


def _own_address(connector: Any) -> tuple[str, int] | None:
    """The address that a connection has before it is made; None: it has none, or the socket could not be bound."""
    try:
        own = connector.transport.getHost()
    except (OSError, AttributeError):  # Twisted: without a socket; the connection fails in the next turn of the reactor
        return None
    return (own.host, own.port) if isinstance(own, IPv4Address | IPv6Address) else None


class _Connecting(ClientFactory):
    """Fires `closed` when the far end closes the connection, or fails it when none is made."""

    noisy = False

    def __init__(self, closed: Deferred[None]) -> None:
        self._closed = closed

    def buildProtocol(self, addr: IAddress | None) -> Protocol:
        return _HalfClosed(self._closed)

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:
        if not self._closed.called:
            self._closed.errback(reason)


class _HalfClosed(Protocol):
    """Sends nothing and says so."""

    def __init__(self, closed: Deferred[None]) -> None:
        self._closed = closed

    def connectionMade(self) -> None:
        transport: Any = self.transport
        transport.loseWriteConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if not self._closed.called:
            self._closed.callback(None)


@implementer(IProtocolFactory)
class _ToldApart:
    """The factory of a listener, for all connections but `own`."""

    noisy = False

    def __init__(self, factory: Any, own: set[tuple[str, int]]) -> None:
        self._factory = factory
        self._own = own

    def doStart(self) -> None:
        """Twisted: the port opens."""
        self._factory.doStart()

    def doStop(self) -> None:
        """Twisted: the port closes."""
        self._factory.doStop()

    def buildProtocol(self, addr: IAddress | None) -> Protocol | None:
        """Twisted: a connection.  The empty protocol closes when the far end does."""
        if self._own and isinstance(addr, IPv4Address | IPv6Address) and (addr.host, addr.port) in self._own:
            return Protocol()
        protocol: Protocol | None = self._factory.buildProtocol(addr)
        return protocol
