"""HTTP as Twisted speaks it, around handlers that know only values.

A request becomes a `ports.Request`, the handler's `ports.Answer` becomes bytes.  A client that hangs up does not
disturb the handler: what it began is finished (a database transaction above all), only the answer is dropped.  Every
answer carries `X-Correlation-Id`: the caller's when it is a UUID, else a fresh one.  A body beyond the limit is not
kept in memory; the answer is 413.  What a handler raises unforeseen is logged with the correlation id and answered 500
without a trace.  There is no access log: metrics count requests, and traces follow the correlation id.

Source: interface specification "Correlation"; RFC 9110.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from io import BytesIO
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import IResource, Resource
from twisted.web.server import NOT_DONE_YET, Site
from twisted.web.server import Request as WebRequest

from ipf.errors import Category, Problem
from ipf.ports import Answer, Handler, Request
from ipf.telemetry import correlation, metrics
from ipf.wire.http_guard import HSTS, REPLACED, SECURITY_HEADERS, HttpLimits, channel_class, cors_headers, unpacked
from ipf.wire.routes import route_of

log = Logger()

Refuse = Callable[[Problem], Answer]
"""Renders a Problem; `rest/outcome.py` for the FHIR surface."""

DEFAULT_MAX_BODY = 64 * 1024 * 1024
_MOST_DISCARDED = 4  # times the limit: so much is read and dropped so that a client can read why; then the line is cut
_MOST_PARAMETERS = 500
_HOST = re.compile(r"[A-Za-z0-9.\-_\[\]:]{1,255}")
_EMPTY = (204, 304)


class FhirResource(Resource):
    """The leaf that hands everything below `/fhir` to one handler.

    `base_url`: what links and locations begin with; None = as the caller addressed the server.
    """

    isLeaf = True

    def __init__(self, handle: Handler, refuse: Refuse, base_url: str | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._handle = handle
        self._refuse = refuse
        self._base_url = base_url

    def render(self, request: Any) -> int:
        """Twisted: answer a request; the answer is written later."""
        Deferred.fromCoroutine(self._serve(_Exchange(request)))
        return NOT_DONE_YET

    async def _serve(self, exchange: _Exchange) -> None:
        try:
            request = exchange.request(self._base_url)
            answer = await self._handle(request)
        except Problem as problem:
            answer = self._refuse(problem)
        except Exception:
            text = "event=request_failed correlation_id={correlation_id}"
            log.failure(text, Failure(), correlation_id=exchange.correlation_id)
            internal = Problem(Category.INTERNAL, f"internal error; correlation id {exchange.correlation_id}")
            answer = self._refuse(internal)
        exchange.write(answer)


class _Exchange:
    """One request and the way back to its client."""

    def __init__(self, web: Any) -> None:
        self._web = web
        self._gone = False
        self.correlation_id = correlation.of(web.getHeader)
        web.notifyFinish().addErrback(self._leave)

    def _leave(self, _: Failure) -> None:
        self._gone = True

    def request(self, base_url: str | None) -> Request:
        """The request as a value.  Problem TOO_LARGE or VALUE when it cannot be read."""
        web = self._web
        if web.refused is not None:
            raise web.refused
        headers = {
            name.decode("latin-1").lower(): ", ".join(value.decode("latin-1") for value in values)
            for name, values in web.requestHeaders.getAllRawHeaders()
        }
        try:
            path = tuple(segment.decode() for segment in web.postpath)
            query = web.uri.partition(b"?")[2].decode("ascii")
            pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS)
        except ValueError as refused:
            raise Problem(Category.VALUE, "the URL cannot be read") from refused
        while path and not path[-1]:
            path = path[:-1]
        base = base_url or _base_url(web, headers.get("host", ""))
        method = web.method.decode("latin-1")
        body, address = web.content.read(), getattr(web.getClientAddress(), "host", None) or ""
        return Request(method, path, tuple(pairs), headers, body, base, self.correlation_id, address=address)

    def write(self, answer: Answer) -> None:
        """Send the answer, unless the client has gone."""
        if self._gone:
            return
        web = self._web
        web.setResponseCode(answer.status)
        web.setHeader(b"server", b"ipf")
        web.setHeader(correlation.HEADER, self.correlation_id)
        for name, value in answer.headers:
            if name.lower() in REPLACED:
                web.responseHeaders.removeHeader(name.encode("latin-1"))
            web.responseHeaders.addRawHeader(name.encode("latin-1"), value.encode("utf-8"))
        if answer.status not in _EMPTY:
            web.setHeader(b"content-length", b"%d" % len(answer.body))
            if answer.body:
                web.setHeader(b"content-type", answer.content_type.encode("latin-1"))
                web.write(answer.body)
        web.finish()


def _base_url(web: Any, host: str) -> str:
    """The address under which the caller knows the resource that serves it."""
    if not _HOST.fullmatch(host):
        address = web.getHost()
        host = f"{getattr(address, 'host', 'localhost')}:{getattr(address, 'port', 80)}"
    return _joined(bool(web.isSecure()), host, tuple(web.prepath))


@lru_cache(maxsize=64)
def _joined(is_secure: bool, host: str, prefix: tuple[bytes, ...]) -> str:
    """The same for all requests of a client."""
    path = "/".join(part.decode("latin-1") for part in prefix)
    return f"{'https' if is_secure else 'http'}://{host}/{path}".rstrip("/")


class BoundedRequest(WebRequest):
    """Twisted's request, whose body is dropped once it is larger than `max_body`; `too_large` tells."""

    max_body = DEFAULT_MAX_BODY
    origins: tuple[str, ...] = ()
    too_large = False
    refused: Problem | None = None
    preflight = False
    _received = 0
    _cut = False
    began = 0.0

    def gotLength(self, length: int | None) -> None:
        """Twisted: the headers have been read, a body of `length` (None: unknown) follows."""
        self._parsePOSTFormSubmission = False
        self.too_large = length is not None and length > self.max_body
        super().gotLength(0 if self.too_large else length)  # type: ignore[no-untyped-call]  # Twisted has no types here

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

    def process(self) -> None:
        """Twisted: the request is whole."""
        self.began = perf_counter()
        headers = self.responseHeaders
        for name, value in SECURITY_HEADERS:
            headers.addRawHeader(name, value)
        if self.isSecure():  # type: ignore[no-untyped-call]  # Twisted has no types here
            headers.addRawHeader(*HSTS)
        if self.too_large:
            self.refused = Problem(Category.TOO_LARGE, "the body is larger than this server accepts")
        elif self.requestHeaders.hasHeader(b"content-encoding"):
            self._unpack()
        if self.origins and self.path.startswith(b"/fhir"):
            self._allow_pages()
        super().process()  # type: ignore[no-untyped-call]  # Twisted has no types here

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


class QuietSite(Site):
    """A Site that formats no access log line, and whose connections are bounded."""

    displayTracebacks = False

    def __init__(self, root: Resource, limits: HttpLimits, **options: Any) -> None:
        super().__init__(root, **options)  # type: ignore[no-untyped-call]  # Twisted has no types here
        chosen: Any = channel_class(limits)
        vars(self)["protocol"] = chosen  # Twisted's own would also negotiate HTTP/2, which has no such bounds

    def log(self, request: Any) -> None:
        """Twisted: a request is done, or its client has gone."""
        route = route_of([*(request.prepath or ()), *(request.postpath or ())], request.code)
        seconds = perf_counter() - request.began
        metrics.http_answered(route, request.method.decode("latin-1"), request.code, seconds)


class _Root(Resource):
    """The first segment of the path chooses what serves it."""

    def __init__(self, mounts: Mapping[str, IResource]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Twisted has no types here
        for name, resource in mounts.items():
            self.putChild(name.encode("ascii"), resource)

    def getChildWithDefault(self, path: bytes, request: Any) -> IResource:
        """Twisted: the resource for the first segment; bodies too large are refused for all but `/fhir` here."""
        child: IResource = super().getChildWithDefault(path, request)  # type: ignore[no-untyped-call]  # Twisted has no types here
        if getattr(request, "preflight", False):
            return _Refusal(204, b"")
        refused: Problem | None = getattr(request, "refused", None)
        if refused is not None and not isinstance(child, FhirResource):
            kind = refused.rendering
            return _Refusal(kind.http_status, b'{"error":"%s","message":"%s"}' % (
                kind.admin_code.encode(), refused.text.encode()
            ))  # fmt: skip
        return child

    def getChild(self, path: bytes, request: Any) -> IResource:
        """Twisted: nothing is mounted under this name."""
        return _Refusal(404, b'{"error":"not_found","message":"there is nothing at this address"}')


class _Refusal(Resource):
    """Answers everything with one status and JSON body."""

    isLeaf = True

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._status = status
        self._body = body

    def render(self, request: Any) -> bytes:
        """Twisted: answer a request."""
        request.setResponseCode(self._status)
        request.setHeader(b"server", b"ipf")
        request.setHeader(b"content-type", b"application/json")
        request.setHeader(correlation.HEADER, correlation.of(request.getHeader))
        return self._body


def site(
    mounts: Mapping[str, IResource],
    *,
    max_body: int = DEFAULT_MAX_BODY,
    timeout: float = 75.0,
    limits: HttpLimits | None = None,
) -> QuietSite:
    """One HTTP factory: `mounts` by first path segment (`fhir`, `admin`, `actuator`).

    `max_body`: bytes that a request body may have, packed or not; `timeout`: seconds of silence after which a
    connection is closed; `limits`: what else is bounded.
    """
    limits = limits or HttpLimits()
    bounded = type("BoundedRequest", (BoundedRequest,), {"max_body": max_body, "origins": limits.origins})
    return QuietSite(_Root(mounts), limits, requestFactory=bounded, timeout=timeout)
