"""Retention for operators: `/admin/retention` shows the policy, the last run, and what a run would remove now.

`GET` shows; with `dry_run` it counts as well.  `POST` lets a run begin within a minute; with `dry_run` it only counts.
Nothing is removed while the request waits: the stage `pipeline/maintenance/retention.py` of one process does it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
from klein import Klein
from twisted.python.failure import Failure
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from ipf.errors import Category, Problem
from ipf.ports import Answer, Json, Request
from ipf.ports.statistics import Pruner, RetentionPolicy
from ipf.wire.admin.app import Gate, read_request, respond, write_answer
from ipf.wire.admin.audit import Watch
from ipf.wire.admin.messages import refusal, timestamp

JSON = "application/json"

Count = Callable[[], Awaitable[Json]]
"""What a run would remove now, by kind."""


async def show(pruner: Pruner, policy: RetentionPolicy, count: Count, request: Request) -> Answer:
    """`GET /admin/retention`."""
    last = await pruner.last_run()
    shown = {
        "policy": {
            "delivered_days": policy.delivered_days,
            "dead_letter_days": policy.dead_letter_days,
            "history_days": policy.history_days,
        },
        "last_run": None
        if last.began_at is None
        else {
            "began_at": timestamp(last.began_at),
            "ended_at": timestamp(last.ended_at),
            "running_on": last.held_by,
            "removed": last.result,
        },
        "would_remove": await count() if _is_dry(request) else None,
    }
    return Answer(200, orjson.dumps(shown), (), JSON)


async def run(pruner: Pruner, policy: RetentionPolicy, count: Count, request: Request) -> Answer:
    """`POST /admin/retention`: 202.  Problem BUSINESS_RULE (422) when nothing is ever removed."""
    if _is_dry(request):
        return await show(pruner, policy, count, request)
    if not policy.prunes:
        raise Problem(Category.BUSINESS_RULE, "everything is kept: IPF_RETENTION_DAYS and its kin are 0")
    await pruner.request_run()
    return Answer(202, orjson.dumps({"message": "a run begins within a minute"}), (), JSON)


def resource(
    pruner: Pruner, policy: RetentionPolicy, count: Count, gate: Gate, watch: Watch | None = None
) -> IResource:
    """The resource to mount at `/admin/retention`.  `watch`: told of every request, for the audit trail."""
    app = Klein()

    async def answered(web: Any, work: Callable[[Request], Awaitable[Answer]]) -> bytes:
        request = read_request(web)
        if b"dry_run" in web.uri.partition(b"?")[2].split(b"&"):  # without a value, which Twisted leaves out
            request = replace(request, query=(*request.query, ("dry_run", "")))
        began = datetime.now(UTC)
        answer = await respond(gate, request, work)
        if watch is not None:
            watch(request, answer, began)
        return write_answer(web, request, answer)

    @app.route("/", methods=["GET"])
    async def shown(web: IRequest) -> bytes:
        return await answered(web, lambda request: show(pruner, policy, count, request))

    @app.route("/", methods=["POST"])
    async def begun(web: IRequest) -> bytes:
        return await answered(web, lambda request: run(pruner, policy, count, request))

    @app.handle_errors(HTTPException)  # type: ignore[arg-type]  # Klein's hint fits methods only
    async def refuse(web: IRequest, failure: Failure) -> bytes:
        return await answered(web, _no_route(failure.value))

    return app.resource()


def _no_route(error: object) -> Callable[[Request], Awaitable[Answer]]:
    async def answer(_: Request) -> Answer:
        if isinstance(error, MethodNotAllowed):
            return refusal(Problem(Category.METHOD, "this path answers GET and POST"), ("Allow", "GET, POST"))
        return refusal(Problem(Category.NOT_FOUND, "there is nothing at this path"))

    return answer


def _is_dry(request: Request) -> bool:
    """`?dry_run`, `?dry_run=true`."""
    asked = dict(reversed(request.query)).get("dry_run")
    return asked is not None and asked.strip().lower() not in ("false", "0", "no")
