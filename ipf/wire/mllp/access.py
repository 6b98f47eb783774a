"""Access control of an MLLP listener: who may send, how much, and for which tenant.

* Networks: a connection from another network is closed before a byte of it is read.
* Connections: an address may have so many; further connections are closed at once.
* Certificate names: on a listener with client certificates, the names of the certificate must match a pattern of the
  list.  They are checked after the handshake, before the first message.  The pattern may also choose the tenant.
* TLS handshake: a client that does not complete it within the time limit of a frame is aborted.
* Rate: messages of one address per second.  Faster messages wait, and so does reading; none is refused or lost.  The
  messages of one second may arrive at once.

A listener without any of these rules uses `MllpProtocol` directly.

Source: decisions section 2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IAddress, IDelayedCall, IHandshakeListener, IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ipf.hl7.framing import Event
from ipf.wire.mllp.client_names import first_match, names_of
from ipf.wire.mllp.limits import Limits
from ipf.wire.mllp.protocol import MllpFactory, MllpProtocol
from ipf.wire.mllp.receiver import FrameReceiver

log = Logger()

_WARNING_SECONDS = 10.0  # least time between two warnings about refused peers
_MAX_BUCKETS = 10_000


@dataclass(frozen=True, slots=True)
class SenderAccess:
    """The access rules of one listener.

    `networks`: empty = all.  `names`: (pattern, tenant or ""); empty = all certificates.  `connections`, `rate`
    (messages per second): for each address; 0 = no limit.
    """

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    connections: int = 0
    rate: float = 0.0

    @property
    def is_unrestricted(self) -> bool:
        """Whether there are no rules."""
        return not (self.networks or self.names or self.connections or self.rate)

    def permits(self, host: str) -> bool:
        """Whether an address may connect."""
        if not self.networks:
            return True
        try:
            address = ip_address(host.partition("%")[0])
        except ValueError:
            return False
        inner = getattr(address, "ipv4_mapped", None) or address
        return any(inner in network for network in self.networks)


def networks_of(listener: str, allowed: tuple[tuple[str, str], ...]) -> tuple[IPv4Network | IPv6Network, ...]:
    """The networks of a listener, out of (listener or "", network): its own, else those of all listeners."""
    own = [network for name, network in allowed if name == listener]
    return tuple(ip_network(network) for network in own or [network for name, network in allowed if not name])


class TokenBucket:
    """Token bucket of one address: `rate` messages per second, and as many at once."""

    __slots__ = ("_clock", "_filled_at", "_left", "_rate")

    def __init__(self, rate: float, clock: IReactorTime) -> None:
        self._rate = rate
        self._clock = clock
        self._left = max(rate, 1.0)
        self._filled_at = clock.seconds()

    def wait(self) -> float:
        """Seconds until a message is allowed; 0.0 = now."""
        now = self._clock.seconds()
        self._left = min(max(self._rate, 1.0), self._left + (now - self._filled_at) * self._rate)
        self._filled_at = now
        return 0.0 if self._left >= 1.0 else (1.0 - self._left) / self._rate

    def take(self) -> None:
        """Count one message."""
        self._left -= 1.0

    @property
    def is_full(self) -> bool:
        """Whether it equals a new one."""
        return self.wait() == 0.0 and self._left >= max(self._rate, 1.0)


@implementer(IHandshakeListener)
class RestrictedMllp(MllpProtocol):
    """A connection under access rules."""

    _bucket: TokenBucket | None = None
    _delayed: IDelayedCall | None = None
    _handshake: IDelayedCall | None = None

    def __init__(self, factory: RestrictedMllpFactory, peer: str, host: str) -> None:
        super().__init__(factory, peer)
        self._restricted_factory = factory
        self.host = host
        self._bucket = factory.bucket(host)

    def connectionMade(self) -> None:
        super().connectionMade()
        if hasattr(self.transport, "getPeerCertificate"):
            self._handshake = self._clock.callLater(self._limits.frame_timeout, self.transport.abortConnection)

    def handshakeCompleted(self) -> None:
        """Twisted: the handshake is complete, and the client's certificate is verified."""
        self._cancel(self._handshake)
        receiver = self._restricted_factory.receiver_for_certificate(names_of(self.transport.getPeerCertificate()))
        if receiver is None:
            self._restricted_factory.refuse(self.peer, self.host, "its certificate name is not on the list")
            self._closing = True
            self.transport.abortConnection()
        else:
            self._receiver = receiver

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._handshake is not None and self._handshake.active() and _is_of_tls(reason):
            self._restricted_factory.refuse(self.peer, self.host, "its TLS handshake failed")
        self._cancel(self._handshake)
        self._cancel(self._delayed)
        self._bucket = None  # received messages are stored now, whatever the rate
        super().connectionLost(reason)

    @staticmethod
    def _cancel(timer: IDelayedCall | None) -> None:
        if timer is not None and timer.active():
            timer.cancel()

    def _must_wait(self) -> bool:
        if super()._must_wait():
            return True
        if self._bucket is None:
            return False
        wait = self._bucket.wait()
        if wait > 0.0 and (self._delayed is None or not self._delayed.active()):
            self._delayed = self._clock.callLater(wait, self._process)
        return wait > 0.0

    def _dispatch(self, event: Event) -> None:
        if self._bucket is not None and isinstance(event, bytes):
            self._bucket.take()
        super()._dispatch(event)


class RestrictedMllpFactory(MllpFactory):
    """The connections of a listener with access rules.  `receiver_for(tenant)`: chosen by the certificate name.

    `refused`: takes the listener, the address and the reason of each refused connection.
    """

    def __init__(
        self,
        name: str,
        receiver: FrameReceiver,
        clock: IReactorTime,
        limits: Limits,
        access: SenderAccess,
        receiver_for: Callable[[str], FrameReceiver],
    ) -> None:
        super().__init__(name, receiver, clock, limits)
        self._access = access
        self._tenant_receivers = {tenant: receiver_for(tenant) for _, tenant in access.names if tenant}
        self._open: Counter[str] = Counter()
        self._buckets: dict[str, TokenBucket] = {}
        self._refused_at = float("-inf")
        self.refused: Callable[[str, str, str], None] = lambda listener, host, reason: None

    def buildProtocol(self, addr: IAddress | None) -> MllpProtocol | None:
        host = addr.host if isinstance(addr, IPv4Address | IPv6Address) else ""
        access = self._access
        if host and not access.permits(host):
            self.refuse(host, host, "its network is not on the list")
            return None
        if access.connections and self._open[host] >= access.connections:
            self.refuse(host, host, "it has too many connections")
            return None
        if super().buildProtocol(addr) is None:  # stopping, or full
            return None
        peer = f"{host}:{getattr(addr, 'port', '')}" if host else str(addr)
        return RestrictedMllp(self, peer, host)

    def opened(self, connection: MllpProtocol) -> None:
        super().opened(connection)
        self._open[_host_of(connection)] += 1

    def closed(self, connection: MllpProtocol) -> None:
        super().closed(connection)
        host = _host_of(connection)
        self._open[host] -= 1
        if self._open[host] <= 0:
            del self._open[host]

    def receiver_for_certificate(self, names: list[str]) -> FrameReceiver | None:
        """The receiver for a client with these certificate names; None: the client is refused."""
        if not self._access.names:
            return self.receiver
        found = first_match(names, self._access.names)
        return None if found is None else self._tenant_receivers.get(found[1], self.receiver)

    def bucket(self, host: str) -> TokenBucket | None:
        """The token bucket that the connections of one address share; None: no rate limit."""
        if not self._access.rate:
            return None
        if host not in self._buckets:
            if len(self._buckets) >= _MAX_BUCKETS:
                kept = {one: bucket for one, bucket in self._buckets.items() if one in self._open or not bucket.is_full}
                self._buckets = kept
            self._buckets[host] = TokenBucket(self._access.rate, self.clock)
        return self._buckets[host]

    def refuse(self, peer: str, host: str, reason: str) -> None:
        """Report a refused peer, and log it at most once in `_WARNING_SECONDS`."""
        self.refused(self.name, host, reason)
        now = self.clock.seconds()
        if now - self._refused_at >= _WARNING_SECONDS:
            self._refused_at = now
            text = "event=mllp_refused listener={listener} peer={peer} reason={reason}"
            log.warn(text, event="mllp_refused", listener=self.name, peer=peer, reason=reason)


def _is_of_tls(reason: Failure) -> bool:
    """Whether TLS ended a connection: a certificate that is not trusted, or none."""
    return reason.type is not None and reason.type.__module__.startswith("OpenSSL")


def _host_of(connection: MllpProtocol) -> str:
    return connection.host if isinstance(connection, RestrictedMllp) else ""
