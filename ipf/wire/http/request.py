"""Twisted's request within our bounds, and on a short way: what it would do for pages, forms and sessions is left out.

A request of the FHIR surface is handed to its resource as soon as it is whole, and its answer goes out as one piece of
bytes, head and body.  All other paths go Twisted's own way, with the same headers on their answers.

Source: RFC 9110, RFC 9112.
"""

from __future__ import annotations

from io import BytesIO
from time import perf_counter
from typing import Any
from urllib.parse import unquote_to_bytes

from twisted.python.failure import Failure
from twisted.web.http import parse_qs
from twisted.web.server import Request as WebRequest

from ipf.errors import Category, Problem
from ipf.ports import Answer, Request
from ipf.telemetry import correlation
from ipf.wire.http.asked import base_url, fields_of, host_of, pairs_of, unreadable
from ipf.wire.http.limits import HSTS, SECURITY_HEADERS, cors_headers, is_cross_site, unpacked
from ipf.wire.http.written import written

DEFAULT_MAX_BODY = 64 * 1024 * 1024
_MOST_DISCARDED = 4  # times the limit: so much is read and dropped so that a client can read why; then the line is cut
_SAFE = frozenset((b"GET", b"HEAD", b"OPTIONS"))
_CORRELATION, _TRACEPARENT = correlation.HEADER.encode(), correlation.TRACEPARENT.encode()


class BoundedRequest(WebRequest):
    """Twisted's request, whose body is dropped once it is larger than `max_body`; `too_large` tells.

    `direct`: resources by the first segment of the path, which are given the request without a search for them.
    """

    max_body = DEFAULT_MAX_BODY
    origins: tuple[str, ...] = ()
    direct: dict[bytes, Any]
    too_large = False
    refused: Problem | None = None
    preflight = False
    gone = False
    began = 0.0
    _received = 0
    _cut = False
    _query = b""
    _args: dict[bytes, list[bytes]] | None = None

    @property
    def args(self) -> dict[bytes, list[bytes]]:
        """The parameters of the URL, for those who ask Twisted for them."""
        if self._args is None:
            found: Any = parse_qs
            self._args = found(self._query, 1)
        return self._args

    @args.setter
    def args(self, args: dict[bytes, list[bytes]]) -> None:
        self._args = args

    def gotLength(self, length: int | None) -> None:
        """Twisted: the headers have been read, a body of `length` (None: unknown) follows."""
        self._parsePOSTFormSubmission = False
        self.too_large = length is not None and length > self.max_body
        if length == 0 or self.too_large:
            self.content = BytesIO()
            return
        super().gotLength(length)  # type: ignore[no-untyped-call]  # Twisted has no types here

    def handleContentChunk(self, data: bytes) -> None:
        """Twisted: a piece of the body."""
        self._received += len(data)
        if self._received <= self.max_body and not self.too_large:
            super().handleContentChunk(data)  # type: ignore[no-untyped-call]  # Twisted has no types here
            return
        if not self.too_large:
            self.too_large = True
            content: Any = self.content
            content.seek(0)
            content.truncate()
        if self._received > self.max_body * _MOST_DISCARDED and not self._cut:
            self._cut = True
            transport: Any = self.channel.transport
            transport.write(b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\n\r\n")
            transport.loseConnection()

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Twisted: the request is whole.  Its own way also reads forms."""
        content: Any = self.content
        content.seek(0)
        self.method, self.uri, self.clientproto = command, path, version
        self.path, _, self._query = path.partition(b"?")
        self.process()

    def connectionLost(self, reason: Failure) -> None:
        """Twisted: the client has gone before it was answered."""
        self.gone = True
        super().connectionLost(reason)  # type: ignore[no-untyped-call]  # Twisted has no types here

    def process(self) -> None:
        """Twisted: serve the request."""
        self.began = perf_counter()
        if self.too_large:
            self.refused = Problem(Category.TOO_LARGE, "the body is larger than this server accepts")
        elif self.requestHeaders.hasHeader(b"content-encoding"):
            self._unpack()
        if self.method not in _SAFE and is_cross_site(self.requestHeaders, self.origins):
            self.refused = Problem(Category.FORBIDDEN, "pages of other sites may not change anything here")
        segments = [unquote_to_bytes(one) if b"%" in one else one for one in self.path[1:].split(b"/")]
        if self.origins and self.path.startswith(b"/fhir"):
            self._allow_pages()
        resource = None if self.preflight else self.direct.get(segments[0])
        if resource is None:
            self._go_round()
            return
        channel: Any = self.channel
        self.prepath, self.postpath, self.site = segments[:1], segments[1:], channel.site
        try:
            resource.render(self)
        except Exception:
            self.processingFailed(Failure())  # type: ignore[no-untyped-call]  # Twisted has no types here

    def _go_round(self) -> None:
        """Twisted's own way, on which the connection may also become another's (a websocket)."""
        channel: Any = self.channel
        channel.stop_idle()
        for name, value in (*SECURITY_HEADERS, *([HSTS] if channel.isSecure() else [])):
            self.responseHeaders.addRawHeader(name, value)
        super().process()  # type: ignore[no-untyped-call]  # Twisted has no types here

    def write(self, data: bytes) -> None:
        """Twisted: a piece of the answer.  What serves it is not said."""
        if not self.startedWriting:
            self.responseHeaders.removeHeader("server")
        super().write(data)  # type: ignore[no-untyped-call]  # Twisted has no types here

    def _unpack(self) -> None:
        content: Any = self.content
        encoding = ", ".join(self.requestHeaders.getRawHeaders("content-encoding", []))
        try:
            self.content = BytesIO(unpacked(encoding, content.read(), self.max_body))
        except Problem as problem:
            self.refused = problem

    def _allow_pages(self) -> None:
        """Say which web pages may read the answer; `preflight`: a page only asks whether it may ask."""
        origin = self.getHeader("origin")
        if origin is None:
            return
        asked = self.method == b"OPTIONS" and self.requestHeaders.hasHeader("access-control-request-method")
        self.preflight = asked
        self.responseHeaders.addRawHeader(b"Vary", b"Origin")
        for name, value in cors_headers(self.origins, origin, asked):
            self.responseHeaders.addRawHeader(name, value)

    def correlate(self) -> str:
        """The correlation id of the request; a fresh one when it brings none."""
        return correlation.accept(self.getHeader(_CORRELATION), self.getHeader(_TRACEPARENT))

    def asked(self, base: str | None, correlation_id: str) -> Request:
        """The request as a value.  Problem TOO_LARGE or VALUE when it cannot be read.

        `base`: what links begin with; None = as the caller addressed the server.
        """
        if self.refused is not None:
            raise self.refused
        fields = fields_of(self.requestHeaders.getAllRawHeaders())
        try:
            path = [segment.decode() for segment in self.postpath or ()]
            pairs = pairs_of(self._query.decode("ascii"))
        except ValueError as refused:
            raise unreadable() from refused
        while path and not path[-1]:
            path.pop()
        channel: Any = self.channel
        credential = channel.credential(self.requestHeaders)
        base = base or base_url(fields.get("host", ""), self.host, channel.isSecure(), self.prepath or ())
        content: Any = self.content
        return Request(
            self.method.decode("latin-1"), tuple(path), pairs, fields, content.read(), base, correlation_id,
            address=host_of(self.client), credential=credential,
        )  # fmt: skip

    def answer(self, answer: Answer, correlation_id: str) -> None:
        """Send an answer as one piece, unless the client has gone, and be done with the request."""
        if self.gone:
            return
        self.code, self.startedWriting = answer.status, 1
        channel: Any = self.channel
        channel.send(
            written(
                answer,
                correlation_id,
                version=self.clientproto,
                is_head=self.method == b"HEAD",
                is_secure=channel.isSecure(),
                more=self.responseHeaders.getAllRawHeaders(),
            )
        )
        self.finish()  # type: ignore[no-untyped-call]  # Twisted has no types here
