"""A connection string in, an open `Connection` out, within a bound, whatever the servers do.

The hosts of the string are tried in order.  The next one is tried when one fails, or beside it once it has taken
`NEXT_SECONDS`, so that a server that hangs does not hide the one that can write.  While one still hangs the others are
tried again.  The first that answers wins, the rest is given up.  The same holds for the addresses of a host name, which
the reactor's resolver finds outside the reactor's thread.

Source: https://www.rfc-editor.org/rfc/rfc8305 (connection attempts side by side)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psycopg2
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IResolutionReceiver
from zope.interface import implementer

from ipf.errors import Problem, StoreUnreachable
from ipf.store.postgres.connection import Connection
from ipf.store.postgres.driver import FailoverConnection
from ipf.store.postgres.hosts import Host, hosts_of
from ipf.store.postgres.quoting import script

NEXT_SECONDS = 0.2
"""After this wait the next host is tried beside the one that has not answered."""
_QUOTING = "SET standard_conforming_strings = on"

Lost = Callable[[Connection], None]


async def connect(
    url: str,
    *,
    reactor: Any,
    greeting: str = "",
    connect_seconds: float | None = None,
    statement_seconds: float = 60.0,
    lost: Lost = lambda connection: None,
    first: Host | None = None,
) -> Connection:
    """Open a connection to a server of `url` and run `greeting` on it; StoreUnreachable otherwise.

    It ends within `connect_seconds` (None: the string's `connect_timeout`, or 3 s), and `NEXT_SECONDS` for each further
    host.  `first`: the host that answered last, which is tried first.
    """
    try:
        hosts = hosts_of(url)
    except Exception as error:
        raise StoreUnreachable(detail=_reason(error)) from error
    if first is not None:
        hosts = tuple(sorted(hosts, key=lambda host: not host.is_like(first)))

    async def reach(host: Host) -> Connection:
        return await _reach(host, first, reactor, lambda at: _open(at, reactor, greeting, statement_seconds, lost))

    seconds = hosts[0].seconds if connect_seconds is None else connect_seconds
    return await _Search(hosts, reach, reactor, seconds).run()


async def connect_again(
    host: Host,
    *,
    reactor: Any,
    greeting: str = "",
    connect_seconds: float | None = None,
    statement_seconds: float = 60.0,
    lost: Lost = lambda connection: None,
) -> Connection:
    """As `connect`, another connection to exactly this server."""

    async def reach(host: Host) -> Connection:
        return await _open(host, reactor, greeting, statement_seconds, lost)

    return await _Search((host,), reach, reactor, host.seconds if connect_seconds is None else connect_seconds).run()


class Connector:
    """Opens the connections of a pool.  `options`: those of `connect`.

    `host`: the server of the pool; None before there was one.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self.host: Host | None = None
        self._url = url
        self._options = options
        self._connecting: set[Deferred[Connection]] = set()

    async def open(self, stay: bool) -> Connection:
        """A connection; `stay`: to the pool's server and no other.  StoreUnreachable, CancelledError after `stop`."""
        if stay and self.host is not None:
            opening = connect_again(self.host, **self._options)
        else:
            opening = connect(self._url, first=self.host, **self._options)
        connecting = Deferred.fromCoroutine(opening)
        self._connecting.add(connecting)
        try:
            return await connecting
        finally:
            self._connecting.discard(connecting)

    def stop(self) -> None:
        """Give up every attempt that is under way."""
        for connecting in list(self._connecting):
            connecting.cancel()


async def _reach(
    host: Host, first: Host | None, reactor: Any, reach: Callable[[Host], Awaitable[Connection]]
) -> Connection:
    """Connect to any address of a host, the one of `first` before the others."""
    if not host.needs_address:
        return await reach(host)
    found = await _addresses(host.name, reactor)
    if first is not None:
        found.sort(key=lambda address: address != first.address)
    places = [host.at(address) for address in found]
    return await _Search(places, reach, reactor, None).run()


async def _open(host: Host, reactor: Any, greeting: str, statement_seconds: float, lost: Lost) -> Connection:
    driver = FailoverConnection(reactor)
    connection = Connection(driver, reactor, statement_seconds, lost, host)
    try:
        await driver.connect(host.dsn)
        await connection.run(script(_QUOTING, greeting))
        connection.check_quoting()
    except BaseException:  # cancelled as well
        connection.close()
        raise
    return connection


class _NoHost(StoreUnreachable):
    """No host of a search answered."""


class _Search:
    """The first of several hosts that answers.  `seconds`: None = the caller cancels `run` in time."""

    def __init__(
        self,
        hosts: Sequence[Host],
        reach: Callable[[Host], Awaitable[Connection]],
        reactor: Any,
        seconds: float | None,
    ) -> None:
        self._hosts = hosts
        self._reach = reach
        self._reactor = reactor
        self._seconds = seconds
        self._running: dict[Host, Deferred[Connection]] = {}
        self._failed: dict[Host, Exception] = {}
        self._found: Connection | None = None
        self._news: Deferred[None] | None = None

    async def run(self) -> Connection:
        """The connection; a Problem when no host answers.  Whatever happens, nothing goes on afterwards."""
        try:
            await self._until_found()
            if self._found is None:
                raise self._failure()
            return self._found
        except BaseException:
            if self._found is not None:
                self._found.close()
            raise
        finally:
            for attempt in list(self._running.values()):
                attempt.cancel()

    async def _until_found(self) -> None:
        begun = self._reactor.seconds()
        while self._found is None:
            for host in [host for host in self._hosts if host not in self._running]:
                self._begin(host)
                await self._wait(begun)
                if self._found is not None or self._left(begun) <= 0:
                    return
            if not self._running:
                return
            await self._wait(begun)
            if self._left(begun) <= 0:
                return

    def _left(self, begun: float) -> float:
        if self._seconds is None:
            return NEXT_SECONDS
        return float(begun + self._seconds + NEXT_SECONDS * (len(self._hosts) - 1) - self._reactor.seconds())

    async def _wait(self, begun: float) -> None:
        """Until an attempt ends, for a short time at most."""
        if self._found is not None or not self._running:
            return
        many = len(self._hosts) > 1 or self._seconds is None
        left = self._left(begun)
        news = self._news = Deferred()
        timer = self._reactor.callLater(max(0.0, min(left, NEXT_SECONDS) if many else left), self._tell)
        try:
            await news
        finally:
            self._news = None
            if timer.active():
                timer.cancel()

    def _tell(self) -> None:
        news, self._news = self._news, None
        if news is not None:
            news.callback(None)

    def _begin(self, host: Host) -> None:
        attempt = Deferred.fromCoroutine(_coroutine(self._reach, host))
        self._running[host] = attempt
        attempt.addCallbacks(self._answered, lambda failure: self._gave_up(host, failure.value))
        attempt.addBoth(lambda _: self._ended(host))

    def _ended(self, host: Host) -> None:
        del self._running[host]
        self._tell()

    def _answered(self, connection: Connection) -> None:
        if self._found is None:
            self._found = connection
        else:
            connection.close()

    def _gave_up(self, host: Host, error: Exception) -> None:
        self._failed[host] = error

    def _failure(self) -> Problem:
        """One line with each host and its reason; a defect of ours as it is when there is one host only."""
        error = self._failed.get(self._hosts[0])
        if len(self._hosts) == 1 and isinstance(error, Problem) and not isinstance(error, StoreUnreachable):
            return error
        return _NoHost(detail="; ".join(self._why(host) for host in self._hosts))

    def _why(self, host: Host) -> str:
        error = self._failed.get(host)
        if isinstance(error, _NoHost):  # of its addresses
            return error.detail
        if error is None or host in self._running:
            return f"{host.label}: no answer within {self._seconds or 0:g} s"
        return f"{host.label}: {_reason(error)}"


async def _coroutine(reach: Callable[[Host], Awaitable[Connection]], host: Host) -> Connection:
    return await reach(host)


def _reason(error: Exception) -> str:
    """The driver's reason for a failed connection, on one line, without the URL, which may hold a password."""
    if isinstance(error, psycopg2.ProgrammingError):
        return "the URL of the database cannot be read"
    text = getattr(error, "detail", "") or str(error)
    return " ".join(text.split()) or type(error).__name__


@implementer(IResolutionReceiver)
class _Receiver:
    """Collects the addresses of a name."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.complete: Deferred[None] = Deferred()

    def resolutionBegan(self, resolution: Any) -> None:
        """The resolver has begun."""

    def addressResolved(self, address: Any) -> None:
        """One more address."""
        if address.host not in self.found:
            self.found.append(address.host)

    def resolutionComplete(self) -> None:
        """No more addresses."""
        if not self.complete.called:
            self.complete.callback(None)


async def _addresses(name: str, reactor: Any) -> list[str]:
    """The addresses of a host name; OSError when it has none.  The caller cancels it in time."""
    receiver = _Receiver()
    reactor.nameResolver.resolveHostName(receiver, name, transportSemantics="TCP")
    await receiver.complete
    if not receiver.found:
        raise OSError(f"the host name {name} has no address")
    return receiver.found
