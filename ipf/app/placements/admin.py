"""The operator API of the placement that a request names.

It names one in the header `X-Ipf-Placement`.  Without it, that of the tenant in the parameter `tenant` is meant, else
the default.

What arrives: a request to `/admin`.  What leaves: the answer of that placement's API; 404 for a name that is not
known, 503 with `Retry-After` while the placement cannot be used, and for changes while it is frozen.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.web.resource import IResource, Resource
from twisted.web.server import NOT_DONE_YET
from zope.interface import implementer

from ipf.app.placements.directory import Directory, Placement
from ipf.config.placements import DEFAULT
from ipf.errors import Category, Problem
from ipf.ports import Answer, Request
from ipf.wire.admin.access import AdminAccess
from ipf.wire.http.serving import parameters, refusal, serve

HEADER = "X-Ipf-Placement"
_READS = ("GET", "HEAD", "OPTIONS")


@implementer(IResource)
class PlacedAdmin(Resource):
    """The resource to mount at `/admin`."""

    isLeaf = True

    def __init__(self, directory: Directory, access: AdminAccess) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._directory = directory
        self._access = access

    def render(self, request: Any) -> Any:
        """Twisted: a request."""
        try:
            placement = self._placement(request)
            serving = placement.use(writes=request.method.decode("latin-1") not in _READS)
        except Problem as problem:
            return self._refuse(request, problem)
        resource: Any = serving.api.admin
        return resource.render(request)

    def _placement(self, web: Any) -> Placement:
        name = (web.getHeader(HEADER) or "").strip()
        if name:
            return self._directory.named(name)
        try:
            given = dict(parameters(web.uri.partition(b"?")[2].decode("ascii"), "replace"))
        except ValueError:  # the API of the default refuses it
            given = {}
        return self._directory.of(given.get("tenant", DEFAULT))

    def _refuse(self, web: Any, problem: Problem) -> Any:
        """Refuse a request, first for its token: whoever may not ask learns no names."""

        async def handle(request: Request) -> Answer:
            self._access.check(request)
            raise problem

        def refuse(problem: Problem) -> Answer:
            is_away = problem.category is Category.UNAVAILABLE
            return refusal(problem, *((("Retry-After", "1"),) if is_away else ()))

        def written(body: bytes) -> None:
            web.write(body)
            web.finish()

        closed: list[object] = []
        web.notifyFinish().addErrback(closed.append)
        answered: Deferred[bytes] = serve(web, handle, refuse)
        answered.addCallback(lambda body: None if closed else written(body))
        return NOT_DONE_YET
