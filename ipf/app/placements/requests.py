"""Requests to `/fhir` and `/mapping`, each handled by the placement of its tenant.

The tenant is that of the verified token; without one, that of the default pair, which also answers requests that are
refused.  The placement identifies the caller again: it alone decides what the request may see.
"""

from __future__ import annotations

from collections.abc import Callable

from ipf.app.placements.directory import Directory, Placement
from ipf.app.roles.api import Api
from ipf.errors import Category, Problem
from ipf.ports import Answer, Handler, Identify, Request
from ipf.wire.http.serving import Refuse

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_READING_POSTS = frozenset((
    "_search", "$everything", "$validate", "$validate-code", "$lookup", "$translate", "$expand", "$status", "$events",
    "$dry-run", "$transform", "$docref", "$lastn",
))  # fmt: skip
_WRITING_GETS = frozenset(("$export", "$get-ws-binding-token"))


def placed_handler(
    directory: Directory, identify: Identify | None, surface: Callable[[Api], Handler | None], refuse: Refuse
) -> Handler:
    """The handler of one surface over all placements.  `refuse`: renders a Problem."""

    async def handle(request: Request) -> Answer:
        tenant = ""
        if identify is not None:
            try:
                tenant = (await identify(request)).tenant
            except Problem:
                tenant = ""  # the default pair refuses it, in the requested format, and records that
        return await handle_in(directory.of(tenant), request, surface, refuse)

    return handle


async def handle_in(
    placement: Placement, request: Request, surface: Callable[[Api], Handler | None], refuse: Refuse
) -> Answer:
    """The answer of one placement; 503 while it cannot be used, and while too many requests wait for it."""
    try:
        if placement.waiting >= placement.most:
            text = f"{placement.most} requests wait for the placement {placement.name}; try again later"
            raise Problem(Category.UNAVAILABLE, text)
        handle = surface(placement.use(writes=writes(request)).api)
        if handle is None:
            raise Problem(Category.UNAVAILABLE, placement.unusable)
    except Problem as problem:
        return refuse(problem)
    placement.waiting += 1
    try:
        return await handle(request)
    finally:
        placement.waiting -= 1


def writes(request: Request) -> bool:
    """Whether a request may write anything but audit records."""
    last = request.path[-1] if request.path else ""
    if request.method == "POST":
        return last not in _READING_POSTS
    return request.method not in _READS or last in _WRITING_GETS
