"""`/admin/observe/*` on a listener, and how it is mounted beside the rest of `/admin`.

Refusals of this part have a body of their own (with `schema_version`), also where there is nothing at a path, so it is
an application of its own.  The OpenAPI document needs no token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from klein import Klein
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource, Resource
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from ipf.errors import Category, Problem
from ipf.ports import Answer, Request
from ipf.wire.admin.app import read_request, write_answer
from ipf.wire.admin.audit import Watch
from ipf.wire.observe.observe import JSON, Observe, refusal, respond
from ipf.wire.observe.openapi import document

log = Logger()

Check = Callable[[Request], None]
"""The admin token: Problem UNAUTHORIZED when a request may not be answered."""
Work = Callable[[Request], Awaitable[Answer]]


def resource(observe: Observe, check: Check, version: str, watch: Watch | None = None) -> IResource:
    """The resource to mount at `/admin/observe`.  `watch`: told of every request, for the audit trail."""
    app = Klein()
    described = Answer(200, orjson.dumps(document(version)), (), JSON)

    async def run(web: IRequest, work: Work) -> bytes:
        request = read_request(web)

        def failed() -> None:
            log.failure("an observe request failed", correlation_id=request.correlation_id)

        async def checked() -> Answer:
            check(request)
            return await work(request)

        began = datetime.now(UTC)
        answer = await respond(checked(), failed)
        if watch is not None:
            watch(request, answer, began)
        return write_answer(web, request, answer)

    @app.route("/system", methods=["GET"])
    async def system(web: IRequest) -> bytes:
        return await run(web, observe.system)

    @app.route("/throughput", methods=["GET"])
    async def throughput(web: IRequest) -> bytes:
        return await run(web, observe.throughput)

    @app.route("/dlq", methods=["GET"])
    async def dlq(web: IRequest) -> bytes:
        return await run(web, observe.dlq)

    @app.route("/trace/<correlation_id>", methods=["GET"])
    async def trace(web: IRequest, correlation_id: str) -> bytes:
        return await run(web, lambda _: observe.trace(correlation_id))

    @app.route("/openapi.json", methods=["GET"])
    def openapi(web: IRequest) -> bytes:
        return write_answer(web, read_request(web), described)

    @app.handle_errors(HTTPException)  # type: ignore[arg-type]  # Klein's hint fits methods only
    async def refuse(web: IRequest, failure: Failure) -> bytes:
        return await run(web, no_route(failure.value))

    return app.resource()


def no_route(error: object) -> Work:
    """The refusal of a path or method that is not served."""

    async def answer(_: Request) -> Answer:
        if isinstance(error, MethodNotAllowed):
            return refusal(Problem(Category.METHOD, "this path answers GET"), ("Allow", "GET"))
        return refusal(Problem(Category.NOT_FOUND, "there is nothing at this path"))

    return answer


class Beside(Resource):
    """`main`, apart from the first segments that have a resource of their own."""

    def __init__(self, main: IResource, own: Mapping[str, IResource]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Twisted has no types here
        self._main = main
        for name, each in own.items():
            self.putChild(name.encode("ascii"), each)

    def getChildWithDefault(self, path: bytes, request: Any) -> IResource:
        """Twisted: the resource of the first segment; Klein knows the end of a path as an empty segment."""
        if not request.postpath:
            request.postpath.append(b"")
        child: IResource = super().getChildWithDefault(path, request)  # type: ignore[no-untyped-call]  # Twisted has no types here
        return child

    def getChild(self, path: bytes, request: Any) -> IResource:
        """Twisted: the segment is given back, `main` looks at it itself."""
        if request.postpath == [b""] and not request.path.endswith(b"/"):
            request.postpath.clear()  # the end that was added for a resource beside it
        request.postpath.insert(0, request.prepath.pop())
        return self._main

    def render(self, request: Any) -> Any:
        """Twisted: the path ends here."""
        return self._main.render(request)
