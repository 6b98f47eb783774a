"""The short way of a request that repeats the headers of the one before it on its connection.

A client sends the same headers with each of its reads.  What they mean is found out once: where a GET or HEAD for the
FHIR surface arrives whole, and its headers were heard before (`http_heard.py`), they are not read again, and none of
Twisted's own request is made.  Whatever differs goes Twisted's way, which alone decides what is well-formed and within
the limits; a connection remembers the last block that passed there, and no longer than it lasts.

Source: RFC 9112.
"""

from __future__ import annotations

import re
from time import perf_counter
from typing import Any

from twisted.python.failure import Failure

from ipf.ports import Answer, Request
from ipf.telemetry import correlation
from ipf.wire.http.asked import base_url, host_of, pairs_of
from ipf.wire.http.heard import Heard, Meaning
from ipf.wire.http.limits import GuardedChannel, HttpLimits
from ipf.wire.http.written import written

_LONGEST = 32 * 1024  # bytes of a request that is remembered
_LINE = re.compile(rb"(GET|HEAD) /([a-z]+)(?:/([!-$&->@-~]*))?(?:\?([!-~]*))? HTTP/1\.1")
_OF_ONE = (b"expect", b"content-encoding", b"origin")  # what asks more of a server than an answer


class ShortRequest:
    """A request on the short way: what a FhirResource, the site's log and its channel ask of Twisted's."""

    __slots__ = ("_channel", "_meant", "_query", "began", "code", "gone", "method", "postpath", "prepath")

    def __init__(self, channel: ShortChannel, meant: Meaning, line: re.Match[bytes]) -> None:
        self.began = perf_counter()
        self.method, mount, path, query = line.groups(b"")
        self.prepath, self.postpath, self._query = (mount,), path.split(b"/"), query
        self.code = 200
        self.gone = False
        self._channel = channel
        self._meant = meant

    def correlate(self) -> str:
        """See `BoundedRequest`."""
        return correlation.accept(self._meant.correlation, self._meant.traceparent)

    def asked(self, base: str | None, correlation_id: str) -> Request:
        """See `BoundedRequest`.  Problem VALUE when the URL cannot be read."""
        meant, channel, mount = self._meant, self._channel, self.prepath[0]
        path = [segment.decode() for segment in self.postpath]
        while path and not path[-1]:
            path.pop()
        if base is None and (base := meant.bases.get(mount)) is None:
            host, here = meant.fields.get("host", ""), channel.getHost()
            base = meant.bases[mount] = base_url(host, here, channel.isSecure(), self.prepath)
        return Request(
            self.method.decode(), tuple(path), pairs_of(self._query.decode()), meant.fields, b"", base, correlation_id,
            address=host_of(channel.getPeer()), credential=meant.credential,
        )  # fmt: skip

    def answer(self, answer: Answer, correlation_id: str) -> None:
        """See `BoundedRequest`."""
        if self.gone:
            return
        channel: Any = self._channel
        self.code = answer.status
        channel.send(written(answer, correlation_id, is_head=self.method == b"HEAD", is_secure=channel.isSecure()))
        channel.site.log(self)
        channel.requestDone(self)

    def connectionLost(self, reason: Failure) -> None:
        """Twisted: the client has gone before it was answered."""
        self.gone = True


class ShortChannel(GuardedChannel):
    """One HTTP/1.1 connection, with the short way.  `requestFactory.direct`: the resources that it leads to."""

    _heard: Heard | None = None
    _arrived = b""  # what came between two requests, until it turns out what it is

    def dataReceived(self, data: bytes) -> None:
        """Twisted: bytes from the client."""
        if self._handlingRequest or self._buffer or self.requests or not self._is_at_first_line():
            self._arrived = b""
        elif self._heard is not None and self._is_repeated(self._heard, data):
            return
        else:
            self._arrived = data
        super().dataReceived(data)

    def _is_at_first_line(self) -> bool:
        """Whether the next line is the first of a request, and none was left out before it."""
        return getattr(self, "_HTTPChannel__first_line", 0) == 1 and not self.paused

    def _is_repeated(self, heard: Heard, data: bytes) -> bool:
        """Answer a request that repeats what was heard; whether this is one."""
        found = heard.repeated(data) if len(data) <= self.header_bytes else None
        if found is None:
            return False
        at, meant = found
        line = _LINE.fullmatch(data, 0, at)
        own: Any = self
        resource = None if line is None or own.transport.disconnecting else own.requestFactory.direct.get(line[2])
        if line is None or resource is None:
            return False
        request = ShortRequest(self, meant, line)
        own.requests.append(request)
        if own.timeOut:
            own._savedTimeOut = own.setTimeout(None)
        own._handlingRequest = True
        own.setRawMode()
        resource.render(request)
        return True

    def allContentReceived(self) -> None:
        """Twisted: the request is whole."""
        self._hear()
        super().allContentReceived()

    def _hear(self) -> None:
        """Remember the headers of a request that came alone, without a body, and left the connection open."""
        data, self._arrived = self._arrived, b""
        at = data.find(b"\r\n")
        self._heard = None
        if at <= 0 or len(data) > _LONGEST or data.find(b"\r\n\r\n", at) != len(data) - 4:
            return
        headers = self.requests[-1].requestHeaders
        if self._transferDecoder is None and self.persistent and not any(map(headers.hasHeader, _OF_ONE)):
            self._heard = Heard(data[at:], headers, self.credential(headers))

    def requestDone(self, request: Any) -> None:
        """Twisted: a request is answered.  Its own way is for what came or waits meanwhile."""
        own: Any = self
        if own._dataBuffer or own._waitingForTransport or not own.persistent or request is not own.requests[0]:
            super().requestDone(request)
            return
        del own.requests[0]
        own._handlingRequest = False
        if own._savedTimeOut:
            own.setTimeout(own._savedTimeOut)
        own.setLineMode()


def channel_class(limits: HttpLimits) -> type[ShortChannel]:
    """The channel of a listener with these limits."""
    members = {"header_bytes": limits.header_bytes, "seconds": limits.seconds, "totalHeadersSize": limits.header_bytes}
    return type("ShortChannel", (ShortChannel,), members | {"MAX_LENGTH": limits.header_bytes})
