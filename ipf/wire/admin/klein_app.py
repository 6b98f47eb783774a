"""A Klein application of the operator API: access check, audit record, and one error body around functions on values.

`/admin` and `/admin/observe` are built with it; they differ in their error bodies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from klein import Klein
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.iweb import IRequest
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from ipf.errors import Category, Problem
from ipf.ports import Answer, Handler, Request
from ipf.ports.caller import Caller
from ipf.wire.admin.route import AnyMounted, AnyRoute
from ipf.wire.http.routes import note_route
from ipf.wire.http.serving import Refuse, serve

log = Logger()

MAX_BODY = 1024 * 1024
"""Bytes of a request to the operator API; archives of profiles and batches of messages have that of every body."""
_LARGE = (("admin", "api", "profiles", "validate"), ("admin", "ingest"))

Check = Callable[[Request], Caller]
"""Who asks, by the admin token.  Problem UNAUTHORIZED or FORBIDDEN when the request may not be answered."""

AuditHook = Callable[[Request, Answer, datetime], None]
"""Called after every request with its answer and the time it began."""

Run = Callable[[IRequest, Handler], Awaitable[bytes]]
"""Answers a request with a function on values; the value of a Klein route."""


def application(check: Check, refuse: Refuse, audit: AuditHook | None = None) -> tuple[Klein, Run]:
    """An application without paths, and what its routes call.  `audit`: None = nothing is recorded."""
    app = Klein()

    async def run(web: IRequest, work: Handler) -> bytes:
        async def handle(request: Request) -> Answer:
            began = datetime.now(UTC)
            answer = await respond(check, refuse, request, work)
            if audit is not None:
                audit(request, answer, began)
            return answer

        return await serve(web, handle, refuse, errors="replace")

    @app.handle_errors(HTTPException)  # type: ignore[arg-type]  # Klein's hint fits methods only
    async def no_route(web: IRequest, failure: Failure) -> bytes:
        async def answer(_: Request) -> Answer:
            return not_routed(failure.value, refuse)

        return await run(web, answer)

    return app, run


def mount(app: Klein, run: Run, mounted: AnyMounted, base: str = "", prefix: str = "/admin") -> None:
    """Add the operations of a table.  `base`: where the application is, below `prefix`; the rows' paths begin with it.

    The template of the path is noted on the request, as the label of its metrics.
    """
    for route in mounted.routes:
        rule = route.path.removeprefix(base).replace("{", "<").replace("}", ">")
        answers = _answering(run, route, mounted.part, prefix + route.path)
        app.route(rule, methods=[route.method], endpoint=route.name)(answers)


def _answering(run: Run, route: AnyRoute, part: Any, template: str) -> Callable[..., Awaitable[bytes]]:
    name = route.variable_name

    async def answers(web: IRequest, **variables: str) -> bytes:
        note_route(web, template)
        value = variables[name] if name is not None else ""
        return await run(web, lambda request: route.handle(part, request, value))

    return answers


async def respond(check: Check, refuse: Refuse, request: Request, work: Handler) -> Answer:
    """The answer of `work` when `check` admits the request.  Every failure becomes an answer here."""
    try:
        request = request.by(check(request))
        if len(request.body) > MAX_BODY and request.path not in _LARGE:
            raise Problem(Category.TOO_LARGE, f"the body has more than {MAX_BODY} bytes")
        return await work(request)
    except Problem as problem:
        return refuse(problem)
    except Exception:
        log.failure("an admin request failed", correlation_id=request.correlation_id)
        return refuse(Problem(Category.INTERNAL, "the request could not be completed; the log says why"))


def not_routed(error: Any, refuse: Refuse) -> Answer:
    """The answer where werkzeug finds no route: 405 with `Allow`, or 404."""
    if not isinstance(error, MethodNotAllowed):
        return refuse(Problem(Category.NOT_FOUND, "there is nothing at this path"))
    allowed = ", ".join(sorted(set(error.valid_methods or ()) - {"HEAD"}))
    answer = refuse(Problem(Category.METHOD, f"this path answers {allowed}"))
    return replace(answer, headers=(*answer.headers, ("Allow", allowed)))
