"""The console as mounted Klein applications: one for each area of pages, the sign-in, the proxy, the static files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from klein import Klein
from twisted.internet.defer import Deferred
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource

from ipf.console.pages import (
    browse,
    codes,
    conflicts,
    dead_letters,
    interfaces,
    jobs,
    message,
    overview,
    profiles,
    reference,
    send,
    subscriptions,
    system,
    topics,
    views,
    workbench,
)
from ipf.console.pages.messages import MESSAGES
from ipf.console.pages.operations import CODES, CONFLICTS, JOBS, OTHERS
from ipf.console.people.sessions import Session
from ipf.console.serving import account, live
from ipf.console.serving.backend import BackendDown, decoded
from ipf.console.serving.filters import asked
from ipf.console.serving.live import Listener
from ipf.console.serving.proxy import PASSED, admin_path, proxy_mask, right_of
from ipf.console.serving.tail import TailListener
from ipf.console.serving.web import (
    Console,
    Route,
    answer,
    is_genuine_write,
    is_masked,
    language_for,
    refuse,
    session_of,
)
from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Request
from ipf.ports.threads import run_inline
from ipf.wire.admin.route import Role
from ipf.wire.http.compression import compressed
from ipf.wire.http.serving import serve

Open = Callable[[Console, Request], Awaitable[Answer]]
"""A page without a session."""

AREAS: Mapping[str, Sequence[Route]] = {
    "": overview.ROUTES,
    "messages": (*MESSAGES.routes(), *message.ROUTES),
    "browse": browse.ROUTES,
    "interfaces": interfaces.ROUTES,
    "dead-letters": dead_letters.ROUTES,
    "conflicts": (*CONFLICTS.routes(), *conflicts.ROUTES),
    "codes": (*CODES.routes(), *codes.ROUTES),
    "jobs": (*JOBS.routes(), *jobs.ROUTES),
    "profiles": profiles.ROUTES,
    "reference": reference.ROUTES,
    "subscriptions": subscriptions.ROUTES,
    "system": system.ROUTES,
    "topics": topics.ROUTES,
    "views": views.ROUTES,
    "send": send.ROUTES,
    "workbench": workbench.ROUTES,
    **{one.area: one.routes() for one in OTHERS},
    "sign-out": (Route("POST", "/", Role.VIEWER, account.end),),
    "preferences": (Route("POST", "/", Role.VIEWER, account.choose),),
}
OPEN: Mapping[str, Mapping[str, Open]] = {
    "sign-in": {"/": account.begin, "/callback": account.finish, "/begun": account.begun},
    "signed-out": {"/": account.ended},
}


def mounts(console: Console, hub: live.LiveHub) -> dict[str, IResource]:
    """The resources by the first segment of their paths."""
    found = {area: _area(console, routes) for area, routes in AREAS.items()}
    found |= {area: _open(console, pages) for area, pages in OPEN.items()}
    found["static"] = _static(console)
    found["api"] = _proxy(console)
    found["live"] = live.resource(console, hub, {"state": state_listener, "messages": message_tail})
    return found


def state_listener(
    console: Console, session: Session, headers: Mapping[str, str], query: Mapping[str, str]
) -> Listener:
    """What the overview shows live."""
    return live.StateListener()


def message_tail(console: Console, session: Session, headers: Mapping[str, str], query: Mapping[str, str]) -> Listener:
    """The rows of the message list as they come."""
    given = {one.name: query[one.name].strip() for one in MESSAGES.filters if query.get(one.name, "").strip()}
    filters = asked(given, datetime.now(UTC))
    columns = MESSAGES.columns_of(query.get("columns", ""))
    return TailListener(console.renderer, language_for(headers), MESSAGES, columns, filters)


def _area(console: Console, routes: Sequence[Route]) -> IResource:
    app = Klein()
    app.url_map.strict_slashes = False
    for number, route in enumerate(routes):

        def handle(web: IRequest, _route: Route = route, **parts: Any) -> Deferred[bytes]:
            async def page(request: Request) -> Answer:
                return await compressed(request, await answer(console, _route, request, parts), run_inline)

            return _serve(web, page)

        app.route(route.path, methods=[route.method], endpoint=f"page-{number}")(handle)
    return app.resource()


def _open(console: Console, pages: Mapping[str, Open]) -> IResource:
    app = Klein()
    app.url_map.strict_slashes = False
    for number, (path, page) in enumerate(pages.items()):

        def handle(web: IRequest, _page: Open = page) -> Deferred[bytes]:
            return _serve(web, partial(_page, console))

        app.route(path, methods=["GET"], endpoint=f"open-{number}")(handle)
    return app.resource()


def _static(console: Console) -> IResource:
    app = Klein()

    @app.route("/", branch=True)
    def every_file(web: IRequest) -> Deferred[bytes]:
        return _serve(web, console.static.answer)

    return app.resource()


def _proxy(console: Console) -> IResource:
    app = Klein()

    @app.route("/", branch=True)
    def every_call(web: IRequest) -> Deferred[bytes]:
        return _serve(web, partial(proxied, console))

    return app.resource()


async def proxied(console: Console, request: Request) -> Answer:
    """`/api/admin/...`: the same call at the engine.  Problem UNAUTHORIZED, FORBIDDEN, VALUE or UPSTREAM."""
    session = session_of(console, request.headers, request.base_url)
    if session is None:
        raise Problem(Category.UNAUTHORIZED, "sign in first")
    if request.path[1:2] != ("admin",):
        raise Problem(Category.NOT_FOUND, "there is nothing at this address")
    path = admin_path(request.path[2:])
    if request.method not in ("GET", "HEAD") and not is_genuine_write(request, session):
        raise Problem(Category.FORBIDDEN, "the header X-CSRF-Token is missing or wrong")
    right = right_of(request.method, path, session.role)
    mask = proxy_mask(request, path, right) if is_masked(console, session) else None
    kind = request.headers.get("content-type", "application/json")
    body = request.body if request.method not in ("GET", "HEAD") else None
    try:
        reply = await console.backend.call(request.method, path, dict(request.query), body, session.actor, kind)
    except BackendDown as down:
        raise Problem(Category.UPSTREAM, str(down)) from None
    headers = [(name, reply.headers[name]) for name in PASSED if name in reply.headers]
    if mask is not None and 200 <= reply.status < 300 and reply.body:
        return Answer(reply.status, dumps(mask(decoded(reply))), headers, "application/json")
    return Answer(reply.status, reply.body, headers, reply.headers.get("content-type", "application/json"))


def _serve(web: Any, handle: Callable[[Request], Awaitable[Answer]]) -> Deferred[bytes]:
    return serve(web, handle, refuse)
