"""The HTTP factory: mounted Klein applications, bounded connections and requests, metrics instead of an access log.

Source: interface specification "Limits"; RFC 9110.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

from twisted.web.resource import IResource, Resource
from twisted.web.server import Site

from ipf.errors import Problem
from ipf.ports import Answer
from ipf.ports.threads import RunInThread, run_inline
from ipf.telemetry import metrics
from ipf.wire.http.channel import BoundedChannel
from ipf.wire.http.connections import ConnectionLimit
from ipf.wire.http.limits import HttpLimits
from ipf.wire.http.request import BoundedRequest
from ipf.wire.http.routes import route_of_request
from ipf.wire.http.serving import Refuse, refusal

DEFAULT_MAX_BODY = 64 * 1024 * 1024


class LimitedSite(Site):
    """A Site without an access log, within limits.

    `mounts`: resources by the first segment of the path.  `refusals`: how a request below a path (`fhir`,
    `admin/observe`) is refused before it is routed; elsewhere the engine's error body.  `max_body`: bytes.
    """

    displayTracebacks = False

    def __init__(
        self,
        mounts: Mapping[str, IResource],
        refusals: Mapping[str, Refuse],
        limits: HttpLimits,
        max_body: int,
        timeout: float,
        run_in_thread: RunInThread,
    ) -> None:
        root: Any = Resource()
        self.mounts = frozenset(name.encode("ascii") for name in mounts)
        for name, resource in mounts.items():
            root.putChild(name.encode("ascii"), resource)
        factory: Any = BoundedRequest
        super().__init__(root, requestFactory=factory, timeout=timeout, parsePOSTFormSubmission=False)  # type: ignore[no-untyped-call]  # Twisted has no types here
        self.limits = limits
        self.max_body = max_body
        self.run_in_thread = run_in_thread
        self._refusals = {name.encode("ascii"): refuse for name, refuse in refusals.items()}
        own: Any = self
        self.connections = ConnectionLimit(limits.connections, own.reactor)
        vars(self)["protocol"] = BoundedChannel  # Twisted's own also negotiates HTTP/2, which has no such limits

    def buildProtocol(self, addr: Any) -> Any:
        """Twisted: a client connects."""
        if self.connections.is_full(getattr(addr, "host", None) or ""):
            return self.connections.refuse(addr)
        channel: Any = super().buildProtocol(addr)  # type: ignore[no-untyped-call]  # Twisted has no types here
        channel.totalHeadersSize = channel.MAX_LENGTH = self.limits.header_bytes
        return channel

    def refuse(self, path: bytes, problem: Problem) -> Answer:
        """The answer to a request that is refused before it is routed."""
        first, _, rest = path[1:].partition(b"/")
        both = first + b"/" + rest.partition(b"/")[0]
        render = self._refusals.get(both) or self._refusals.get(first) or refusal
        return render(problem)

    def log(self, request: Any) -> None:
        """Twisted: a request is answered."""
        route = route_of_request(request)
        seconds = perf_counter() - request.began
        metrics.http_answered(route, request.method.decode("latin-1"), request.code, seconds)


def site(
    mounts: Mapping[str, IResource],
    refusals: Mapping[str, Refuse] | None = None,
    *,
    max_body: int = DEFAULT_MAX_BODY,
    timeout: float = 75.0,
    limits: HttpLimits | None = None,
    run_in_thread: RunInThread = run_inline,
) -> LimitedSite:
    """One HTTP factory.  `mounts`, `refusals`: see `LimitedSite`.

    `max_body`: bytes that a request body may have, packed or not; `timeout`: seconds of silence after which a
    connection is closed; `run_in_thread`: runs the unpacking of bodies.
    """
    return LimitedSite(mounts, refusals or {}, limits or HttpLimits(), max_body, timeout, run_in_thread)
