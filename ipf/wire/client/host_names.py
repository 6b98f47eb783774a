"""Resolution of host names in threads of its own: a name that resolves slowly delays neither others nor other work.

`getaddrinfo` cannot be cancelled, and lasts half a minute when a name server does not answer.  In the thread pool of
the reactor ten such names would stop the parsing of requests, and every connection to a host that has a name.  Here
each lookup has its own thread, a name is looked up once for all who ask at the same time, and there are limits: for
names whose last lookup was quick, for names that are new, and for names that were slow.

Input: host names, of outgoing connections and of endpoints that are registered.  Output: addresses; none when the name
does not resolve.  Nothing is cached: every connection looks its name up again.

Source: `IHostnameResolver` of Twisted; RFC 6724 (the order of addresses is that of `getaddrinfo`).
"""

from __future__ import annotations

import socket
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address
from threading import Thread
from typing import Any, Literal

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, DeferredList, TimeoutError
from twisted.internet.interfaces import IAddress, IHostnameResolver, IHostResolution, IResolutionReceiver
from twisted.python.failure import Failure
from zope.interface import implementer

Found = Sequence[tuple[int, tuple[Any, ...]]]
"""(address family, socket address) of each address."""

REGISTRATION_SECONDS = 2.0
"""How long the registration of a Subscription waits for the names of its endpoints."""
_SLOW_SECONDS = 2.0
_LONGEST_WAIT_SECONDS = 30.0
"""A lookup that found no thread for this long is not begun: whoever asked has given up."""
_MOST_WAITING = 1000
"""Names that wait for a thread, of each speed; more do not resolve now."""
_FAILING_SECONDS = 60.0
_KNOWN_NAMES = 10_000


class Speed(Enum):
    """What is known of a name; the value is the number of lookups at once."""

    QUICK = 32
    NEW = 16
    SLOW = 4


@dataclass(slots=True)
class _Lookup:
    """A lookup that waits or runs.  `speed`: whose limit counts it."""

    host: str
    speed: Speed
    asked_at: float
    waiters: list[Callable[[Found], None]] = field(default_factory=list)
    began_at: float = 0.0


@implementer(IHostResolution)
class _Resolution:
    def __init__(self, name: str) -> None:
        self.name = name
        self.is_cancelled = False

    def cancel(self) -> None:
        """Twisted: nobody waits for it any more."""
        self.is_cancelled = True


def _in_thread(work: Callable[[], None]) -> None:
    """The process ends without waiting for it."""
    Thread(target=work, name="host name", daemon=True).start()


@implementer(IHostnameResolver)
class HostNames:
    """The resolver of one process.  `run`: runs a function in a thread."""

    def __init__(
        self,
        reactor: Any,
        getaddrinfo: Callable[..., Any] = socket.getaddrinfo,
        run: Callable[[Callable[[], None]], None] = _in_thread,
    ) -> None:
        self._reactor = reactor
        self._getaddrinfo = getaddrinfo
        self._run = run
        self._lookups: dict[str, _Lookup] = {}
        self._waiting: dict[Speed, deque[_Lookup]] = {speed: deque() for speed in Speed}
        self._running = dict.fromkeys(Speed, 0)
        self._known: OrderedDict[str, Speed] = OrderedDict()
        self._failed_at: OrderedDict[str, float] = OrderedDict()

    def resolveHostName(
        self,
        resolutionReceiver: IResolutionReceiver,
        hostName: str,
        portNumber: int = 0,
        addressTypes: Sequence[type[IAddress]] | None = None,
        transportSemantics: str = "TCP",
    ) -> IHostResolution:
        """Twisted: resolve a name."""
        resolution = _Resolution(hostName)
        transport: Literal["TCP", "UDP"] = "UDP" if transportSemantics == "DATAGRAM" else "TCP"

        def found(addresses: Found) -> None:
            if resolution.is_cancelled:
                return
            for family, (address, _, *rest) in addresses:
                kind = IPv6Address if family == socket.AF_INET6 else IPv4Address
                if addressTypes is None or kind in addressTypes:
                    resolutionReceiver.addressResolved(kind(transport, address, portNumber, *rest))
            resolutionReceiver.resolutionComplete()

        resolutionReceiver.resolutionBegan(resolution)
        literal = _literal(hostName)
        if literal:
            found(literal)
        else:
            self._ask(hostName, found)
        return resolution

    async def look_up(self, hosts: Collection[str]) -> dict[str, Sequence[str]]:
        """The addresses of each name, none when it does not resolve within `REGISTRATION_SECONDS`, for all together."""
        results: dict[str, Sequence[str]] = dict.fromkeys(hosts, ())
        await DeferredList([self._looked_up(host, results) for host in results])
        for host, addresses in results.items():
            if not addresses:
                self._note_failure(host)
        return results

    def is_failing(self, host: str) -> bool:
        """Whether the last lookup of the name, within a minute, found nothing."""
        failed_at = self._failed_at.get(host)
        return failed_at is not None and self._reactor.seconds() - failed_at < _FAILING_SECONDS

    def _looked_up(self, host: str, results: dict[str, Sequence[str]]) -> Deferred[None]:
        done: Deferred[None] = Deferred()

        def found(addresses: Found) -> None:
            if not done.called:
                results[host] = [str(address[0]) for _, address in addresses]
                done.callback(None)

        def too_late(failure: Failure) -> None:
            failure.trap(TimeoutError)

        done.addTimeout(REGISTRATION_SECONDS, self._reactor).addErrback(too_late)
        self._ask(host, found)
        return done

    def _ask(self, host: str, waiter: Callable[[Found], None]) -> None:
        lookup = self._lookups.get(host)
        if lookup is None:
            speed = self._known.get(host, Speed.NEW)
            if len(self._waiting[speed]) >= _MOST_WAITING:
                waiter(())
                return
            lookup = self._lookups[host] = _Lookup(host, speed, self._reactor.seconds())
            self._waiting[speed].append(lookup)
        lookup.waiters.append(waiter)
        self._begin(lookup.speed)

    def _begin(self, speed: Speed) -> None:
        """Begin lookups while the limit allows it."""
        waiting, now = self._waiting[speed], self._reactor.seconds()
        while waiting and self._running[speed] < speed.value:
            lookup = waiting.popleft()
            if now - lookup.asked_at >= _LONGEST_WAIT_SECONDS:
                self._answer(lookup, ())
                continue
            self._running[speed] += 1
            lookup.began_at = now
            try:
                self._run(lambda lookup=lookup: self._resolve(lookup))  # type: ignore[misc]
            except RuntimeError:  # the system has no thread left
                self._running[speed] -= 1
                self._answer(lookup, ())

    def _resolve(self, lookup: _Lookup) -> None:
        """In the thread."""
        found: Found = ()
        try:
            rows = self._getaddrinfo(lookup.host, 0, socket.AF_UNSPEC, socket.SOCK_STREAM)
            found = [(row[0], row[4]) for row in rows if row[0] in (socket.AF_INET, socket.AF_INET6)]
        except (OSError, UnicodeError):
            pass  # it does not resolve, or it is no name
        finally:
            self._reactor.callFromThread(self._ended, lookup, found)

    def _ended(self, lookup: _Lookup, found: Found) -> None:
        self._running[lookup.speed] -= 1
        self._note_speed(lookup, found)
        if found:
            self._failed_at.pop(lookup.host, None)
        else:
            self._note_failure(lookup.host)
        self._answer(lookup, found)
        self._begin(lookup.speed)

    def _answer(self, lookup: _Lookup, found: Found) -> None:
        self._lookups.pop(lookup.host, None)
        for waiter in lookup.waiters:
            waiter(found)

    def _note_speed(self, lookup: _Lookup, found: Found) -> None:
        is_slow = self._reactor.seconds() - lookup.began_at >= _SLOW_SECONDS
        if is_slow or found:
            self._known[lookup.host] = Speed.SLOW if is_slow else Speed.QUICK
            _bound(self._known, lookup.host)

    def _note_failure(self, host: str) -> None:
        self._failed_at[host] = self._reactor.seconds()
        _bound(self._failed_at, host)


def _bound(names: OrderedDict[str, Any], newest: str) -> None:
    """Forget the names that were not looked up for longest."""
    names.move_to_end(newest)
    while len(names) > _KNOWN_NAMES:
        names.popitem(last=False)


def _literal(host: str) -> Found:
    """The address itself, when the host is one without a zone."""
    try:
        address = ip_address(host)
    except ValueError:
        return ()
    if "%" in host:
        return ()  # the kernel knows the number of the zone
    rest = (0, 0) if address.version == 6 else ()
    return [(socket.AF_INET6 if address.version == 6 else socket.AF_INET, (str(address), 0, *rest))]


def use_host_names(reactor: Any) -> HostNames:
    """The resolver of the reactor, which becomes a `HostNames` at the first call."""
    if not isinstance(reactor.nameResolver, HostNames):
        reactor.installNameResolver(HostNames(reactor))
    names: HostNames = reactor.nameResolver
    return names
