"""A TLS connection to a syslog server: `ports.audit.feed.LogStream`.

TLS is 1.2 or later; the certificate of the server must be for its host name.  Nothing answers a frame.  `close` waits
until the server's system has taken all bytes, sends the close_notify of TLS and waits until the server has ended its
side, which it does when it has read everything.  A server that ends the TCP connection in order, without a close_notify
of its own, has read everything too: its system resets a connection that is closed with unread data.

Source: RFC 5425 sections 4.2 to 4.4; RFC 8446 section 6.1.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from termios import TIOCOUTQ
from typing import Any

from OpenSSL.SSL import Error as TLSError
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectionDone, ConnectionLost, VerifyError
from twisted.internet.interfaces import IHandshakeListener, IPushProducer
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from ipf.ports.audit.feed import LogStream, StreamLost
from ipf.wire.client.client_tls import client_tls
from ipf.wire.client.failures import TimeLimitExceeded, describe
from ipf.wire.client.http_client import within

CONNECT_SECONDS = 20.0
SEND_SECONDS = 60.0
CLOSE_SECONDS = 20.0
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class SyslogServer:
    """`ca`: certificates that may sign the server's; None: those of the system.  `certificate`, `key`: of this client,
    both or neither.  All are PEM files, read for each connection."""

    host: str
    port: int
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def tls_options(self) -> Any:
        """How Twisted connects.  OSError or ValueError: a file cannot be read."""
        return client_tls(self.host, self.ca, self.certificate, self.key)


@implementer(IPushProducer, IHandshakeListener)
class SyslogStream(Protocol):
    """One connection.  `secured` fires after the handshake, or fails with StreamLost."""

    transport: Any

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.secured: Deferred[None] = Deferred()
        self._room: Deferred[None] | None = None
        self._ended: Deferred[None] = Deferred()
        self._is_closing = self._is_lost = False
        self._reason = ""

    def connectionMade(self) -> None:
        """See `Protocol`."""
        self.transport.registerProducer(self, True)

    def handshakeCompleted(self) -> None:
        """See `IHandshakeListener`."""
        if not self.secured.called:
            self.secured.callback(None)

    def dataReceived(self, data: bytes) -> None:
        """A syslog server says nothing."""

    def pauseProducing(self) -> None:
        """The receiver is slow."""
        if self._room is None:
            self._room = Deferred()

    def resumeProducing(self) -> None:
        """The receiver has taken what was written."""
        room, self._room = self._room, None
        if room is not None and not room.called:
            room.callback(None)

    def stopProducing(self) -> None:
        """The connection is gone."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """See `Protocol`."""
        self._is_lost = True
        if not (self._is_closing and self._is_in_order(reason)):
            value, is_end = reason.value, reason.check(ConnectionDone, ConnectionLost) is not None
            told = describe(value) if isinstance(value, Exception) and not is_end else ""
            self._reason = told or "the log server has ended the connection"
        if not self.secured.called:
            self.secured.errback(StreamLost(self._reason))
        self.resumeProducing()
        if not self._ended.called:
            self._ended.callback(None)

    def _is_in_order(self, reason: Failure) -> bool:
        """Whether both sides have ended TLS, or the server has ended TCP instead."""
        ended: Failure | None = self.transport.tcp_reason
        is_ended = ended is not None and ended.check(ConnectionDone) is not None
        return is_ended and reason.check(ConnectionDone, ConnectionLost) is not None

    async def send(self, frames: bytes) -> None:
        """See `LogStream.send`."""
        if not self._is_lost:
            self.transport.write(frames)
        if self._room is not None:
            await self._limited(SEND_SECONDS, self._emptied(), "the log server does not read")
        if self._is_lost:
            raise StreamLost(self._reason)

    async def _emptied(self) -> None:
        if self._room is not None:
            await self._room

    async def close(self) -> None:
        """See `LogStream.close`."""
        await self._limited(SEND_SECONDS, self._drained(), "the log server does not read")
        if not self._is_lost:
            self._is_closing = True
            self.transport.unregisterProducer()
            self.transport.loseConnection()
            await self._limited(CLOSE_SECONDS, self._end(), "the log server does not confirm the end of the stream")
        if self._reason:
            raise StreamLost(self._reason)

    async def _end(self) -> None:
        await self._ended

    async def _drained(self) -> None:
        """Return when the server's system has taken all bytes; a second look lets Twisted write what it still holds."""
        looks = 0
        while not self._is_lost and looks < 2:
            looks = looks + 1 if not self._unacknowledged() else 0
            await deferLater(self._clock, _LOOK_SECONDS)

    def _unacknowledged(self) -> int:
        size = array("i", [0])
        try:
            ioctl(self.transport.transport.getHandle(), TIOCOUTQ, size)
        except OSError:  # a system that does not tell
            return 0
        return size[0]

    async def _limited(self, seconds: float, work: Coroutine[Deferred[Any], Any, None], refusal: str) -> None:
        try:
            await within(seconds, self._clock, work)
        except TimeLimitExceeded as late:
            self.abort()
            raise StreamLost(refusal) from late

    def abort(self) -> None:
        """See `LogStream.abort`."""
        if not self._is_lost:
            self.transport.abortConnection()


class _Tls(TLSMemoryBIOProtocol):
    """Keeps how the TCP connection ended: Twisted reports a missing close_notify in place of it."""

    tcp_reason: Failure | None = None

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """See `Protocol`."""
        self.tcp_reason = reason
        super().connectionLost(reason)  # type: ignore[no-untyped-call]  # Twisted has no types here


async def open_stream(reactor: Any, server: SyslogServer) -> LogStream:
    """Connect.  StreamLost with the reason."""
    try:
        options = server.tls_options()
    except (OSError, ValueError, TLSError, VerifyError) as unreadable:
        raise StreamLost(f"the certificates and the key cannot be used: {type(unreadable).__name__}") from unreadable
    factory = TLSMemoryBIOFactory(options, True, Factory.forProtocol(lambda: SyslogStream(reactor)))
    factory.protocol = _Tls
    endpoint = HostnameEndpoint(reactor, server.host, server.port, timeout=CONNECT_SECONDS)

    async def connected() -> LogStream:
        tls: Any = await endpoint.connect(factory)
        stream: SyslogStream = tls.wrappedProtocol
        try:
            await stream.secured
        except CancelledError:
            stream.abort()
            raise
        return stream

    try:
        return await within(CONNECT_SECONDS, reactor, connected())
    except StreamLost:
        raise
    except Exception as failure:
        raise StreamLost(describe(failure)) from failure


_: Callable[[Any], LogStream] = SyslogStream
