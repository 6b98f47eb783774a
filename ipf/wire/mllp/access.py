"""Who may send over MLLP, from where, how much, and for which tenant: a gate before the connections of a listener.

* Networks: a connection from elsewhere is closed before a byte of it is read.
* Connections of one address: more than the limit are closed at once.
* Names: on a listener with client certificates the name in the certificate is held against the list once the handshake
  is done, before the first message; it may also say which tenant the messages belong to.
* A client that does not complete its TLS handshake within the time of a frame is cut off.
* Messages of one address in a second: what comes faster waits, and with it the reading of its connections (a sender
  that is answered later sends later); nothing is refused or lost.  A second's worth may come at once.

A listener without any of these has no gate, and its connections are plain `Mllp`.

Source: decisions section 2; issue of security, "MLLP".
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
from ipf.wire.mllp.limits import Limits
from ipf.wire.mllp.mtls import fitting, names_of
from ipf.wire.mllp.protocol import Mllp, MllpFactory, Sink

log = Logger()

_QUIET_SECONDS = 10.0  # one warning about refused peers in this time
_MOST_BUCKETS = 10_000


@dataclass(frozen=True, slots=True)
class Gate:
    """The rules of one listener.

    `networks`: none = from anywhere.  `names`: (pattern, tenant or ""); none = any certificate.  `connections`, `rate`
    (messages a second): of one address; 0 = no limit.
    """

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    connections: int = 0
    rate: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether it lets everybody and everything in."""
        return not (self.networks or self.names or self.connections or self.rate)

    def admits(self, host: str) -> bool:
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
    """The networks for a listener, out of (listener or "", network): its own, else those for all."""
    own = [network for name, network in allowed if name == listener]
    return tuple(ip_network(network) for network in own or [network for name, network in allowed if not name])


class Bucket:
    """Messages that one address may send now; refills with time."""

    __slots__ = ("_clock", "_filled_at", "_left", "_rate")

    def __init__(self, rate: float, clock: IReactorTime) -> None:
        self._rate = rate
        self._clock = clock
        self._left = max(rate, 1.0)
        self._filled_at = clock.seconds()

    def wait(self) -> float:
        """Seconds until a message may be taken; 0.0 = now."""
        now = self._clock.seconds()
        self._left = min(max(self._rate, 1.0), self._left + (now - self._filled_at) * self._rate)
        self._filled_at = now
        return 0.0 if self._left >= 1.0 else (1.0 - self._left) / self._rate

    def take(self) -> None:
        """One message was taken."""
        self._left -= 1.0

    @property
    def is_full(self) -> bool:
        """Whether nothing is lost by forgetting it."""
        return self.wait() == 0.0 and self._left >= max(self._rate, 1.0)


@implementer(IHandshakeListener)
class GatedMllp(Mllp):
    """A connection behind a gate."""

    _bucket: Bucket | None = None
    _delayed: IDelayedCall | None = None
    _handshake: IDelayedCall | None = None

    def __init__(self, factory: GatedMllpFactory, peer: str, host: str) -> None:
        super().__init__(factory, peer)
        self._gated = factory
        self.host = host
        self._bucket = factory.bucket(host)

    def connectionMade(self) -> None:
        super().connectionMade()
        if hasattr(self.transport, "getPeerCertificate"):
            self._handshake = self._clock.callLater(self._limits.frame_timeout, self.transport.abortConnection)

    def handshakeCompleted(self) -> None:
        """Twisted: TLS is set up, and the client's certificate is known to be good."""
        self._stop_timer(self._handshake)
        sink = self._gated.sink_for(names_of(self.transport.getPeerCertificate()))
        if sink is None:
            self._gated.refuse(self.peer, "its certificate has a name that is not on the list")
            self._closing = True
            self.transport.abortConnection()
        else:
            self._sink = sink

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._stop_timer(self._handshake)
        self._stop_timer(self._delayed)
        self._bucket = None  # what is in hand is taken now or never
        super().connectionLost(reason)

    @staticmethod
    def _stop_timer(timer: IDelayedCall | None) -> None:
        if timer is not None and timer.active():
            timer.cancel()

    def _held_up(self) -> bool:
        if super()._held_up():
            return True
        if self._bucket is None:
            return False
        wait = self._bucket.wait()
        if wait > 0.0 and (self._delayed is None or not self._delayed.active()):
            self._delayed = self._clock.callLater(wait, self._work)
        return wait > 0.0

    def _hand_over(self, event: Event) -> None:
        if self._bucket is not None and isinstance(event, bytes):
            self._bucket.take()
        super()._hand_over(event)


class GatedMllpFactory(MllpFactory):
    """The connections of one gated listener.  `sink_of(tenant)`: where messages go that a certificate places."""

    def __init__(
        self,
        name: str,
        sink: Sink,
        clock: IReactorTime,
        limits: Limits,
        gate: Gate,
        sink_of: Callable[[str], Sink],
    ) -> None:
        super().__init__(name, sink, clock, limits)
        self._gate = gate
        self._sinks = {tenant: sink_of(tenant) for _, tenant in gate.names if tenant}
        self._open: Counter[str] = Counter()
        self._buckets: dict[str, Bucket] = {}
        self._refused_at = float("-inf")

    def buildProtocol(self, addr: IAddress | None) -> Mllp | None:
        host = addr.host if isinstance(addr, IPv4Address | IPv6Address) else ""
        gate = self._gate
        if host and not gate.admits(host):
            self.refuse(host, "its network is not on the list")
            return None
        if gate.connections and self._open[host] >= gate.connections:
            self.refuse(host, "it has too many connections")
            return None
        if super().buildProtocol(addr) is None:  # stopping, or full
            return None
        peer = f"{host}:{getattr(addr, 'port', '')}" if host else str(addr)
        return GatedMllp(self, peer, host)

    def opened(self, connection: Mllp) -> None:
        super().opened(connection)
        self._open[_host_of(connection)] += 1

    def closed(self, connection: Mllp) -> None:
        super().closed(connection)
        host = _host_of(connection)
        self._open[host] -= 1
        if self._open[host] <= 0:
            del self._open[host]

    def sink_for(self, names: list[str]) -> Sink | None:
        """Where the messages of a client with these names go; None: nowhere."""
        if not self._gate.names:
            return self.sink
        found = fitting(names, self._gate.names)
        return None if found is None else self._sinks.get(found[1], self.sink)

    def bucket(self, host: str) -> Bucket | None:
        """The bucket that the connections of one address share."""
        if not self._gate.rate:
            return None
        if host not in self._buckets:
            if len(self._buckets) >= _MOST_BUCKETS:
                kept = {one: bucket for one, bucket in self._buckets.items() if one in self._open or not bucket.is_full}
                self._buckets = kept
            self._buckets[host] = Bucket(self._gate.rate, self.clock)
        return self._buckets[host]

    def refuse(self, peer: str, reason: str) -> None:
        """Tell the operator, not more often than he can read."""
        now = self.clock.seconds()
        if now - self._refused_at >= _QUIET_SECONDS:
            self._refused_at = now
            text = "event=mllp_refused listener={listener} peer={peer} reason={reason}"
            log.warn(text, event="mllp_refused", listener=self.name, peer=peer, reason=reason)


def _host_of(connection: Mllp) -> str:
    return connection.host if isinstance(connection, GatedMllp) else ""
