"""`/admin/observe/*` as a Klein application of its own, mounted below the operator API.

Its refusals carry `schema_version`, also where nothing is at a path.  The OpenAPI document needs no token.
"""

from __future__ import annotations

import orjson
from twisted.web.resource import IResource

from ipf.ports import Answer, Json, Request
from ipf.wire.admin.klein_app import AuditHook, Check, application, mount
from ipf.wire.admin.route import Mounted, Route, WhenMasked, query
from ipf.wire.admin.schemas.base import TEXT
from ipf.wire.http.serving import JSON
from ipf.wire.observe.observe import (
    DEFAULT_LIMIT,
    DEFAULT_WINDOW,
    HIGHEST_LIMIT,
    LONGEST_DAYS,
    MAX_TRACE_ROWS,
    Observe,
    refusal,
)

BASE = "/observe"
_WINDOW_FORM = {"type": "string", "pattern": "^(0*[1-9][0-9]{0,3}[hd])?$", "default": DEFAULT_WINDOW}
_WINDOW = query("window", _WINDOW_FORM, f"digits and h or d, at most {LONGEST_DAYS}d")
_SYSTEM = query("source_system", TEXT, "only messages of this sender (MSH-3.1)")
_LIMIT = query("limit", {"type": "integer", "default": DEFAULT_LIMIT}, f"clamped to 1..{HIGHEST_LIMIT}")
_NEWEST = query("limit", {"type": "integer", "default": 0}, f"newest messages to return, clamped to 0..{HIGHEST_LIMIT}")
_TRACE = f"All rows of one correlation id, up to {MAX_TRACE_ROWS} of each kind"


async def _described(document: bytes, _: Request, __: str) -> Answer:
    return Answer(200, document, (), JSON)


ROUTES: tuple[Route[Observe], ...] = (
    Route(
        "GET", "/observe/system", "system", "Health, feature toggles and queue sizes",
        lambda observe, request, _: observe.system(request), "System",
    ),
    Route(
        "GET", "/observe/throughput", "throughput",
        "Messages by hour or day of their receipt and their state now; the last bucket is not over yet",
        lambda observe, request, _: observe.throughput(request), "Throughput",
        parameters=[_WINDOW, _SYSTEM], refusals=["400"],
    ),
    Route(
        "GET", "/observe/live", "live", "What changes from second to second",
        lambda observe, request, _: observe.live(request), "Live", parameters=[_NEWEST], refusals=["400"],
    ),
    Route(
        "GET", "/observe/interfaces", "interfaces",
        "Senders: rate, last message, errors, what waits, silence; those that need attention first",
        lambda observe, request, _: observe.interfaces(request), "Interfaces", parameters=[_SYSTEM],
    ),
    Route(
        "GET", "/observe/dlq", "dlq", "Dead letters, newest first by receipt",
        lambda observe, request, _: observe.dlq(request), "DeadLetters", parameters=[_LIMIT],
        refusals=["400"],
    ),
    Route(
        "GET", "/observe/trace/{correlationId}", "trace", _TRACE, lambda observe, _, id: observe.trace(id), "Trace",
        masked=WhenMasked.NO, variable=TEXT, refusals=["404"],
    ),
)  # fmt: skip
DOCUMENT_ROUTES: tuple[Route[bytes], ...] = (
    Route("GET", "/observe/openapi.json", "openapi", "This document", _described, needs_token=False),
)


def resource(observe: Observe, check: Check, document: Json, audit: AuditHook | None = None) -> IResource:
    """The resource of `/admin/observe`.  `check`: of the admin token, which lets the OpenAPI document pass."""
    app, run = application(check, refusal, audit)
    mount(app, run, Mounted(ROUTES, observe), BASE)
    mount(app, run, Mounted(DOCUMENT_ROUTES, orjson.dumps(document)), BASE)
    return app.resource()
