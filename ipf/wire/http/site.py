"""HTTP as Twisted speaks it, around handlers that know only values.

A request becomes a `ports.Request`, the handler's `ports.Answer` becomes bytes.  A client that hangs up does not
disturb the handler: what it began is finished (a database transaction above all), only the answer is dropped.  Every
answer carries `X-Correlation-Id`: the caller's when it is a UUID, else a fresh one.  A body beyond the limit is not
kept in memory; the answer is 413.  What a handler raises unforeseen is logged with the correlation id and answered 500
without a trace.  There is no access log: metrics count requests, and traces follow the correlation id.

Source: interface specification "Correlation"; RFC 9110.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import orjson
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import IResource, Resource
from twisted.web.server import NOT_DONE_YET, Site

from ipf.errors import Category, Problem
from ipf.ports import Answer, Handler
from ipf.telemetry import correlation, metrics
from ipf.wire.http.connections import ConnectionLimit
from ipf.wire.http.limits import HttpLimits
from ipf.wire.http.request import DEFAULT_MAX_BODY, BoundedRequest
from ipf.wire.http.routes import route_of
from ipf.wire.http.short import channel_class
from ipf.wire.observe.observe import SCHEMA_VERSION

log = Logger()

Refuse = Callable[[Problem], Answer]
"""Renders a Problem; `rest/http/outcome.py` for the FHIR surface."""

_OBSERVED = b"/admin/observe"


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
        Deferred.fromCoroutine(self._serve(request))
        return NOT_DONE_YET

    async def _serve(self, web: Any) -> None:
        correlation_id = web.correlate()
        try:
            answer = await self._handle(web.asked(self._base_url, correlation_id))
        except Problem as problem:
            answer = self._refuse(problem)
        except Exception:
            text = "event=request_failed correlation_id={correlation_id}"
            log.failure(text, Failure(), correlation_id=correlation_id)
            internal = Problem(Category.INTERNAL, f"internal error; correlation id {correlation_id}")
            answer = self._refuse(internal)
        web.answer(answer, correlation_id)


class QuietSite(Site):
    """A Site that formats no access log line, and whose connections are bounded."""

    displayTracebacks = False

    def __init__(self, root: Resource, limits: HttpLimits, **options: Any) -> None:
        super().__init__(root, **options)  # type: ignore[no-untyped-call]  # Twisted has no types here
        own: Any = self
        self.crowd = ConnectionLimit(limits.connections, own.reactor)
        chosen: Any = channel_class(limits)
        vars(self)["protocol"] = chosen  # Twisted's own would also negotiate HTTP/2, which has no such bounds

    def buildProtocol(self, addr: Any) -> Any:
        """Twisted: a client connects."""
        if self.crowd.is_full:
            return self.crowd.refuse(addr)
        return super().buildProtocol(addr)  # type: ignore[no-untyped-call]  # Twisted has no types here

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
            return _Refusal(refused.rendering.http_status, _error_body(refused, request.path))
        return child

    def getChild(self, path: bytes, request: Any) -> IResource:
        """Twisted: nothing is mounted under this name."""
        return _Refusal(404, b'{"error":"not_found","message":"there is nothing at this address"}')


def _error_body(refused: Problem, path: bytes) -> bytes:
    """The error body of the engine; below `/admin/observe` with the version of its schema, as all answers there."""
    body = {"error": refused.rendering.admin_code, "message": refused.text}
    is_observed = path == _OBSERVED or path.startswith(_OBSERVED + b"/")
    return orjson.dumps({"schema_version": SCHEMA_VERSION, **body} if is_observed else body)


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
    direct = {name.encode("ascii"): one for name, one in mounts.items() if isinstance(one, FhirResource)}
    members = {"max_body": max_body, "origins": limits.origins, "direct": direct}
    bounded = type("BoundedRequest", (BoundedRequest,), members)
    return QuietSite(_Root(mounts), limits, requestFactory=bounded, timeout=timeout)
