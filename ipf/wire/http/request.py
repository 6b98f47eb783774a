"""Twisted's request within limits: what is refused before it is routed, and the headers of every answer.

Refused here, in the form of the surface that the path names: bodies that are too large or not unpacked, requests for
other hosts and of foreign pages, unknown first segments, and paths that are no UTF-8.  Everything else goes Twisted's
way.

Source: RFC 9110, RFC 9112.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from time import perf_counter
from typing import Any, AnyStr
from urllib.parse import unquote_to_bytes

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web.http import datetimeToString
from twisted.web.server import Request as WebRequest

from ipf.errors import Category, Problem
from ipf.ports import Answer
from ipf.telemetry import correlation
from ipf.wire.http.cors import cors_headers
from ipf.wire.http.limits import HSTS, SECURITY_HEADERS, unpacked
from ipf.wire.http.origin import OwnNames, Sent, refusal_of
from ipf.wire.http.serving import unreadable_url, write_answer

_MAX_DISCARDED = 4  # times the body limit: so much is read and dropped so that a client can read the 413


class BoundedRequest(WebRequest):
    """Twisted's request with a bounded body.  Its limits are those of its site (`site.LimitedSite`)."""

    began = 0.0
    _is_too_large = False
    _received = 0
    _is_cut = False

    @property
    def names(self) -> OwnNames:
        """Hosts and origins of the requests that are answered."""
        channel: Any = self.channel
        found: OwnNames = channel.site.limits.names
        return found

    def getRequestHostname(self) -> bytes:
        """Twisted: a constant.  Klein routes by path only, and werkzeug raises on a malformed Host."""
        return b"localhost"

    def getHeader(self, key: AnyStr) -> AnyStr | None:
        """Twisted: the last value of a header.  Each byte is a character: Twisted's own raises for no UTF-8."""
        values = self.requestHeaders.getRawHeaders(key if isinstance(key, bytes) else key.encode("latin-1"))
        if not values:
            return None
        return values[-1] if isinstance(key, bytes) else values[-1].decode("latin-1")

    def gotLength(self, length: int | None) -> None:
        """Twisted: the headers have been read, a body of `length` (None: unknown) follows."""
        self._is_too_large = length is not None and length > self._max_body
        if length == 0 or self._is_too_large:
            self.content = BytesIO()
            return
        super().gotLength(length)  # type: ignore[no-untyped-call]  # Twisted has no types here

    @property
    def _max_body(self) -> int:
        channel: Any = self.channel
        found: int = channel.site.max_body
        return found

    def handleContentChunk(self, data: bytes) -> None:
        """Twisted: a piece of the body.  A body beyond the limit is not kept."""
        self._received += len(data)
        if self._received <= self._max_body and not self._is_too_large:
            super().handleContentChunk(data)  # type: ignore[no-untyped-call]  # Twisted has no types here
            return
        if not self._is_too_large:
            self._is_too_large = True
            content: Any = self.content
            content.seek(0)
            content.truncate()
        if self._received > self._max_body * _MAX_DISCARDED and not self._is_cut:
            self._is_cut = True
            transport: Any = self.channel.transport
            transport.write(b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\n\r\n")
            transport.loseConnection()

    def process(self) -> None:
        """Twisted: serve the request."""
        self.began = perf_counter()
        channel: Any = self.channel
        for name, value in (*SECURITY_HEADERS, *([HSTS] if channel.isSecure() else [])):
            self.responseHeaders.addRawHeader(name, value)
        if self._allow_pages():
            self._answer(Answer(204))
            return
        problem = self._problem()
        encodings = self.requestHeaders.getRawHeaders(b"content-encoding")
        if problem is not None or encodings is None:
            self._serve(problem)
            return
        Deferred.fromCoroutine(self._serve_unpacked(encodings)).addErrback(self._failed)

    async def _serve_unpacked(self, encodings: Sequence[bytes]) -> None:
        """In a thread: 60 kB may become 64 MiB, which takes 100 to 200 ms."""
        channel: Any = self.channel
        self._serve(await channel.site.run_in_thread(lambda: self._unpack(encodings)))

    def _serve(self, problem: Problem | None) -> None:
        """Serve the request, or refuse it before it is routed."""
        if self._disconnected:
            return
        if problem is None:
            super().process()  # type: ignore[no-untyped-call]  # Twisted has no types here
            return
        channel: Any = self.channel
        self._answer(channel.site.refuse(unquote_to_bytes(self.path), problem))

    def _failed(self, failure: Failure) -> None:
        """What is not foreseen, in the form that Twisted gives it where it calls `process`."""
        if not self._disconnected:
            self.processingFailed(failure)  # type: ignore[no-untyped-call]  # Twisted has no types here

    def _problem(self) -> Problem | None:
        """Why the request is refused before it is routed."""
        channel: Any = self.channel
        refused = refusal_of(self._sent(), self.names)
        if refused is not None:
            return refused
        if self._is_too_large:
            return Problem(Category.TOO_LARGE, "the body is larger than this server accepts")
        try:
            path = unquote_to_bytes(self.path)
            if self.path != b"*" and unquote_to_bytes(self.path[1:].partition(b"/")[0]) not in channel.site.mounts:
                return Problem(Category.NOT_FOUND, "there is nothing at this address")
            path.decode()
        except UnicodeDecodeError:
            return unreadable_url()
        return None

    def _sent(self) -> Sent:
        """What the rules on Host and Origin look at."""
        channel: Any = self.channel
        upgrade = self._texts(b"upgrade")
        return Sent(
            self.method.decode("latin-1"),
            self.clientproto.decode("latin-1"),
            self._texts(b"host"),
            self._texts(b"origin"),
            self._texts(b"sec-fetch-site"),
            any(one.strip().lower() == "websocket" for one in upgrade),
            getattr(channel.getHost(), "host", "") or "",
            bool(channel.isSecure()),
            self.path.decode("latin-1"),
        )

    def _texts(self, name: bytes) -> list[str]:
        return [value.decode("latin-1") for value in self.requestHeaders.getRawHeaders(name, ())]

    def _unpack(self, encodings: Sequence[bytes]) -> Problem | None:
        """Replace a packed body by what it holds; the Problem when that cannot be done."""
        content: Any = self.content
        content.seek(0)
        try:
            self.content = BytesIO(unpacked(b", ".join(encodings).decode("latin-1"), content.read(), self._max_body))
        except Problem as problem:
            return problem
        return None

    def _allow_pages(self) -> bool:
        """Set the CORS headers of `/fhir`; whether the request is a preflight."""
        origin = self.getHeader("origin")
        origins = self.names.origins
        if origin is None or not origins or not self.path.startswith(b"/fhir"):
            return False
        is_preflight = self.method == b"OPTIONS" and self.requestHeaders.hasHeader("access-control-request-method")
        self.responseHeaders.addRawHeader(b"Vary", b"Origin")
        for name, value in cors_headers(origins, origin, is_preflight):
            self.responseHeaders.addRawHeader(name, value)
        return is_preflight

    def _answer(self, answer: Answer) -> None:
        """Answer without a resource."""
        now: Any = datetimeToString
        self.responseHeaders.setRawHeaders(b"Date", [now()])
        self.write(
            write_answer(self, answer, correlation.of(self.getHeader), correlation.request_id_of(self.getHeader))
        )
        self.finish()  # type: ignore[no-untyped-call]  # Twisted has no types here

    def write(self, data: bytes) -> None:
        """Twisted: a piece of the answer.  The name of the server software is left out."""
        if not self.startedWriting:
            self.responseHeaders.removeHeader("server")
        super().write(data)  # type: ignore[no-untyped-call]  # Twisted has no types here
