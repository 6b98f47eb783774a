"""What an HTTP client may cost this server, and what every answer says to a browser.

* Headers beyond the limit are answered 431.
* A request must be there whole within `seconds` of its first byte, and a long body goes on for as long as it comes at
  16 KiB a second; slower ones are answered 408 and cut off, however steadily they drip (slowloris).
* A body with `Content-Encoding: gzip` is unpacked up to the limit of a body, so a small request cannot become a huge
  one; any other encoding is answered 415.
* Requests that a client sends ahead are answered as it reads: while its socket takes no more, the next one waits.  Else
  64 KiB of requests for what is large would be a gigabyte of answers in memory.
* What ends a request, and whom it is for, is said in one way: no header goes on in the next line, `Transfer-Encoding`
  is `chunked` and nothing else, there is one `Host` at most.  Else a proxy before this server could see other requests.
* No answer is kept by a cache, framed, or taken for another type of content than it says.
* Pages of other sites change nothing, not even by a form that asks for no answer.
* CORS is off.  With origins named, their pages may use what they have a token for; cookies and other ambient
  credentials are never allowed.

Source: RFC 9110 sections 8.4.1 and 15.5; RFC 6585 section 5; https://fetch.spec.whatwg.org/#http-cors-protocol;
https://cheatsheetseries.owasp.org/cheatsheets/REST_Security_Cheat_Sheet.html
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import connectionDone
from twisted.internet.tcp import Server
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.http_headers import Headers

from ipf.errors import Category, Problem
from ipf.ports import Credential
from ipf.wire.http.connections import ConnectionLimit

SLOWEST_BYTES = 16 * 1024  # a second, of a long body
_GZIP = 16 + zlib.MAX_WBITS
_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_EXPOSED = (
    b"Location, Content-Location, ETag, Last-Modified, X-Correlation-Id, WWW-Authenticate, Retry-After, X-Progress"
)
_ACCEPTED = (
    b"Authorization, Content-Type, Content-Encoding, Accept, Prefer, If-Match, If-None-Match, If-None-Exist, "
    b"If-Modified-Since, X-Correlation-Id"
)
_PREFLIGHT_SECONDS = b"600"

SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Cache-Control", b"no-store"),
    (b"Content-Security-Policy", b"sandbox; default-src 'none'; frame-ancestors 'none'"),
    (b"Referrer-Policy", b"no-referrer"),
)
REPLACED = frozenset(name.lower().decode() for name, _ in SECURITY_HEADERS)
"""Of these an answer has one only: its own, when it has one."""
HSTS = (b"Strict-Transport-Security", b"max-age=31536000")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of one HTTP listener: bytes of headers, seconds for a request, origins of web pages (`*`: any).

    `connections`: at once, of all clients together.
    """

    header_bytes: int = 64 * 1024
    seconds: float = 120.0
    origins: tuple[str, ...] = ()
    connections: int = 10_000


class GuardedChannel(HTTPChannel):
    """One HTTP/1.1 connection within bounds."""

    header_bytes = 64 * 1024
    seconds = 120.0
    _deadline: IDelayedCall | None = None
    _began = 0.0
    _since = 0
    _idle: IDelayedCall | None = None
    _peer: Any = None
    _host: Any = None
    _secure: bool | None = None
    _credential: Credential | None = None
    _counts = False
    _unread: Any = None

    def connectionMade(self) -> None:
        """Twisted: it is there."""
        super().connectionMade()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._counts = True
        self._crowd.enter()

    @property
    def _crowd(self) -> ConnectionLimit:
        own: Any = self
        crowd: ConnectionLimit = own.site.crowd
        return crowd

    def hand_over(self) -> Callable[[], None]:
        """The connection becomes another protocol's, which calls what is returned once it is gone."""
        self._counts = False
        self.stop_idle()
        return self._crowd.leave

    def dataReceived(self, data: bytes) -> None:
        """Twisted: bytes from the client."""
        super().dataReceived(data)  # type: ignore[no-untyped-call]  # Twisted has no types here
        if self._deadline is not None:
            self._since += len(data)
        elif not self._handlingRequest and (self.requests or self._buffer):  # in the middle of a request
            self._since = len(data)
            self._watch(self.seconds, 0.0)

    def lineReceived(self, line: bytes) -> None:
        """Twisted: the request line or a header."""
        if self._receivedHeaderSize + len(line) > self.header_bytes:
            self._refuse(b"431 Request Header Fields Too Large")
            return
        if line.startswith((b" ", b"\t")):  # a header that goes on in the next line: proxies read it in several ways
            self._refuse(b"400 Bad Request")
            return
        super().lineReceived(line)  # type: ignore[no-untyped-call]  # Twisted has no types here

    def lineLengthExceeded(self, line: bytes) -> None:
        """Twisted: one line is larger than all may be."""
        self._refuse(b"431 Request Header Fields Too Large")

    def headerReceived(self, line: bytes) -> bool:
        """Twisted: a header; whether it may be one.  What ends a request, and whom it is for, is said once."""
        known = super().headerReceived(line)  # type: ignore[no-untyped-call]  # Twisted has no types here
        if known and line[:1] in b"hHtT" and not self._is_plain(line):
            self._refuse(b"400 Bad Request")
            return False
        return bool(known)

    def _is_plain(self, line: bytes) -> bool:
        name, _, value = line.lower().partition(b":")
        if name == b"transfer-encoding":
            return value.strip(b" \t") == b"chunked"
        return name != b"host" or len(self.requests[-1].requestHeaders.getRawHeaders(name)) == 1

    def requestDone(self, request: Any) -> None:
        """Twisted: a request is answered.  While the client reads no answers, it is asked for no more of them."""
        own: Any = self
        if own._waitingForTransport and own.persistent and request is own.requests[0]:
            self._unread = request
            own._networkProducer.pauseProducing()
            if own._savedTimeOut:
                self.setTimeout(own._savedTimeOut)
            return
        super().requestDone(request)  # type: ignore[no-untyped-call]  # Twisted has no types here

    def resumeProducing(self) -> None:
        """Twisted: the socket takes more again."""
        super().resumeProducing()  # type: ignore[no-untyped-call]  # Twisted has no types here
        request, self._unread = self._unread, None
        if request is not None:
            own: Any = self
            own._networkProducer.resumeProducing()
            self.requestDone(request)

    def allContentReceived(self) -> None:
        """Twisted: the request is whole."""
        self._stop_deadline()
        super().allContentReceived()  # type: ignore[no-untyped-call]  # Twisted has no types here

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: it is gone."""
        self._stop_deadline()
        self.stop_idle()
        if self._counts:
            self._counts = False
            self._crowd.leave()
        super().connectionLost(reason)  # type: ignore[no-untyped-call]  # Twisted has no types here

    def credential(self, headers: Headers) -> Credential | None:
        """What stands for `Authorization` of a request: the same object as before when it is the same text.

        The comparison takes a time that does not tell where they differ, as a proxy may bring many clients.
        """
        values = headers.getRawHeaders(b"authorization")
        if not values:
            return None
        raw = values[0] if len(values) == 1 else b", ".join(values)
        kept = self._credential
        if kept is None or not (kept.raw is raw or compare_digest(kept.raw, raw)):
            kept = self._credential = Credential(raw)
        return kept

    # What Twisted finds out anew for each request, and does not change while a connection lasts.

    def getPeer(self) -> Any:
        """Twisted: the client's address."""
        if self._peer is None:
            self._peer = super().getPeer()  # type: ignore[no-untyped-call]  # Twisted has no types here
        return self._peer

    def getHost(self) -> Any:
        """Twisted: our address."""
        if self._host is None:
            self._host = super().getHost()  # type: ignore[no-untyped-call]  # Twisted has no types here
        return self._host

    def isSecure(self) -> bool:
        """Twisted: whether this is TLS."""
        if self._secure is None:
            self._secure = bool(super().isSecure())  # type: ignore[no-untyped-call]  # Twisted has no types here
        return self._secure

    def setTimeout(self, period: float | None) -> float | None:
        """Twisted: seconds of silence that are allowed from now on; None: any number.

        One timer for many requests: it is put off with each, and means nothing while none is allowed to run.
        """
        previous: float | None = self.timeOut
        vars(self)["timeOut"] = period
        if period is not None:
            if self._idle is not None and self._idle.active():
                self._idle.reset(period)
            else:
                later: Any = self.callLater
                self._idle = later(period, self._idled)
        return previous

    def resetTimeout(self) -> None:
        """Twisted: something was heard."""
        if self.timeOut is not None and self._idle is not None and self._idle.active():
            self._idle.reset(self.timeOut)

    def stop_idle(self) -> None:
        """No timer, until one is asked for again."""
        if self._idle is not None and self._idle.active():
            self._idle.cancel()

    def _idled(self) -> None:
        if self.timeOut is not None:
            self.timeoutConnection()  # type: ignore[no-untyped-call]  # Twisted has no types here

    def send(self, data: bytes) -> None:
        """Write to the socket what it takes now, the rest when it can: a turn of the reactor less for most answers."""
        transport: Any = self.transport
        if type(transport) is Server and transport.connected and not (transport.dataBuffer or transport._tempDataLen):
            sent = transport.writeSomeData(data)
            if isinstance(sent, int):
                data = data[sent:]
        if data:
            transport.write(data)

    def _watch(self, seconds: float, waited: float) -> None:
        later: Any = self.callLater  # the reactor's; Twisted's types call it something else
        self._deadline = later(seconds, self._look, waited)

    def _look(self, waited: float) -> None:
        self._deadline = None
        waited += self.seconds if not waited else 1.0
        if self.requests and self._transferDecoder is not None and waited < self.seconds + self._since / SLOWEST_BYTES:
            self._watch(1.0, waited)
            return
        self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        self._stop_deadline()
        transport: Any = self.transport
        transport.write(b"HTTP/1.1 " + status + b"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        self.timeoutConnection()  # type: ignore[no-untyped-call]  # Twisted has no types here

    def _stop_deadline(self) -> None:
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        self._deadline = None


def unpacked(encoding: str, body: bytes, limit: int) -> bytes:
    """A body without its Content-Encoding.  Problem MEDIA_TYPE, VALUE, or TOO_LARGE as soon as it exceeds the limit."""
    word = encoding.strip().lower()
    if word in ("", "identity"):
        return body
    if word not in ("gzip", "x-gzip"):
        raise Problem(Category.MEDIA_TYPE, "this server takes bodies as they are, or with Content-Encoding: gzip")
    unpacker = zlib.decompressobj(_GZIP)
    try:
        whole = unpacker.decompress(body, limit + 1)
    except zlib.error:
        raise Problem(Category.VALUE, "the body is no valid gzip") from None
    if len(whole) > limit:
        raise Problem(Category.TOO_LARGE, "the unpacked body is larger than this server accepts")
    if not unpacker.eof or unpacker.unused_data:
        raise Problem(Category.VALUE, "the body is no complete gzip, or something follows it")
    return whole


def is_cross_site(headers: Headers, origins: tuple[str, ...]) -> bool:
    """Whether a page of another site, which is not named, made a browser send this.

    Without CORS such a page cannot read the answer, but where no token is asked for it could change things by a form.
    Source: https://www.w3.org/TR/fetch-metadata/#sec-fetch-site-header
    """
    if b"cross-site" not in headers.getRawHeaders(b"sec-fetch-site", ()):
        return False
    return not ({"*", *(one.decode("latin-1") for one in headers.getRawHeaders(b"origin", ()))} & {*origins})


def cors_headers(origins: tuple[str, ...], origin: str, is_preflight: bool) -> list[tuple[bytes, bytes]]:
    """What allows the page of an origin to read the answer; nothing for an origin that is not named."""
    if "*" not in origins and origin not in origins:
        return []
    found = [(b"Access-Control-Allow-Origin", b"*" if "*" in origins else origin.encode("latin-1"))]
    if not is_preflight:
        return [*found, (b"Access-Control-Expose-Headers", _EXPOSED)]
    return [
        *found,
        (b"Access-Control-Allow-Methods", _METHODS),
        (b"Access-Control-Allow-Headers", _ACCEPTED),
        (b"Access-Control-Max-Age", _PREFLIGHT_SECONDS),
    ]
