"""One HTTP/1.1 connection within limits.  Twisted's channel parses; what exceeds a limit or is ambiguous is refused.

* Headers beyond the limit are answered 431, with a body that says what to do.
* A request must be complete within `HttpLimits.seconds` of its first byte.  A long body may take longer while it
  arrives at 16 KiB a second or more.  Slower requests are answered 408 and the connection is closed (slowloris).
* Pipelined requests are answered one at a time, and the next one waits until the client has read the answer before.
  Otherwise 64 KiB of requests for large resources would be a gigabyte of answers in memory.
* Request smuggling: folded headers, any `Transfer-Encoding` but `chunked`, and a second `Host` are answered 400, since
  a proxy in front of this server could read them in another way.

Source: RFC 9112 sections 5.2, 6.1 and 9.3; RFC 6585 section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import orjson
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel

from ipf.wire.http.connections import ConnectionLimit

MIN_BYTES_PER_SECOND = 16 * 1024  # of a long body


class BoundedChannel(HTTPChannel):
    """Twisted's channel; its limits are those of its site (`site.LimitedSite`)."""

    _deadline: IDelayedCall | None = None
    _received = 0  # bytes since the deadline was set
    _is_counted = False
    _host = ""
    _unread: Any = None  # an answered request that waits for the client to read

    def connectionMade(self) -> None:
        """Twisted: connected."""
        super().connectionMade()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._is_counted = True
        own: Any = self
        self._host = getattr(own.transport.getPeer(), "host", None) or ""
        self._connections.enter(self._host)

    @property
    def _connections(self) -> ConnectionLimit:
        own: Any = self
        found: ConnectionLimit = own.site.connections
        return found

    @property
    def _seconds(self) -> float:
        own: Any = self
        found: float = own.site.limits.seconds
        return found

    def hand_over(self) -> Callable[[], None]:
        """Another protocol takes the connection over; it calls the result when the connection is lost."""
        self._is_counted = False
        return partial(self._connections.leave, self._host)

    def dataReceived(self, data: bytes) -> None:
        """Twisted: bytes from the client."""
        super().dataReceived(data)  # type: ignore[no-untyped-call]  # Twisted has no types here
        if self._deadline is not None:
            self._received += len(data)
        elif not self._handlingRequest and (self.requests or self._buffer):  # in the middle of a request
            self._received = len(data)
            self._set_deadline(self._seconds, 0.0)

    def lineReceived(self, line: bytes) -> None:
        """Twisted: the request line or a header."""
        if self._receivedHeaderSize + len(line) > self.totalHeadersSize:
            self._refuse_headers()
            return
        if line.startswith((b" ", b"\t")):  # a folded header: proxies read it in several ways
            self._refuse(b"400 Bad Request")
            return
        super().lineReceived(line)  # type: ignore[no-untyped-call]  # Twisted has no types here

    def lineLengthExceeded(self, line: bytes) -> None:
        """Twisted: one line exceeds the limit of all headers."""
        self._refuse_headers()

    def _refuse_headers(self) -> None:
        """431 with a body: an OperationOutcome, which clients of both surfaces can show."""
        text = (
            f"the URL and the headers of a request have at most {self.totalHeadersSize} bytes: send a long search by "
            "POST to [type]/_search, with its parameters in the body"
        )
        issue = {"severity": "error", "code": "too-long", "diagnostics": text}
        self._refuse(b"431 Request Header Fields Too Large", {"resourceType": "OperationOutcome", "issue": [issue]})

    def headerReceived(self, line: bytes) -> bool:
        """Twisted: a header; whether it is accepted."""
        known = super().headerReceived(line)  # type: ignore[no-untyped-call]  # Twisted has no types here
        if known and line[:1] in b"hHtT" and not self._is_unambiguous(line):
            self._refuse(b"400 Bad Request")
            return False
        return bool(known)

    def _is_unambiguous(self, line: bytes) -> bool:
        name, _, value = line.lower().partition(b":")
        if name == b"transfer-encoding":
            return value.strip(b" \t") == b"chunked"
        return name != b"host" or len(self.requests[-1].requestHeaders.getRawHeaders(name)) == 1

    def requestDone(self, request: Any) -> None:
        """Twisted: a request is answered.  While the client does not read, no further request is read from it."""
        own: Any = self
        if own._waitingForTransport and own.persistent and request is own.requests[0]:
            self._unread = request
            own._networkProducer.pauseProducing()
            if own._savedTimeOut:
                own.setTimeout(own._savedTimeOut)
            return
        super().requestDone(request)  # type: ignore[no-untyped-call]  # Twisted has no types here

    def resumeProducing(self) -> None:
        """Twisted: the socket accepts more again."""
        super().resumeProducing()  # type: ignore[no-untyped-call]  # Twisted has no types here
        request, self._unread = self._unread, None
        if request is not None:
            own: Any = self
            own._networkProducer.resumeProducing()
            self.requestDone(request)

    def allContentReceived(self) -> None:
        """Twisted: the request is complete."""
        self._stop_deadline()
        super().allContentReceived()  # type: ignore[no-untyped-call]  # Twisted has no types here

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: disconnected."""
        self._stop_deadline()
        if self._is_counted:
            self._is_counted = False
            self._connections.leave(self._host)
        super().connectionLost(reason)  # type: ignore[no-untyped-call]  # Twisted has no types here

    def _set_deadline(self, seconds: float, waited: float) -> None:
        later: Any = self.callLater  # the reactor's; Twisted's types call it something else
        self._deadline = later(seconds, self._check_deadline, waited)

    def _check_deadline(self, waited: float) -> None:
        self._deadline = None
        waited += self._seconds if not waited else 1.0
        is_body = self.requests and self._transferDecoder is not None
        if is_body and waited < self._seconds + self._received / MIN_BYTES_PER_SECOND:
            self._set_deadline(1.0, waited)
            return
        self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes, outcome: Mapping[str, Any] | None = None) -> None:
        self._stop_deadline()
        transport: Any = self.transport
        body = orjson.dumps(outcome) if outcome is not None else b""
        head = b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Length: %d\r\n" % (status, len(body))
        kind = b"Content-Type: application/fhir+json\r\n" if body else b""
        transport.write(head + kind + b"\r\n" + body)
        self.timeoutConnection()  # type: ignore[no-untyped-call]  # Twisted has no types here

    def _stop_deadline(self) -> None:
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        self._deadline = None
