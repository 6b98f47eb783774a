"""Retention for operators: `/admin/retention` shows the policy, the last run, and what a run would remove now.

`GET` shows; with `dry_run` it counts as well.  `POST` requests a run within a minute; with `dry_run` it only counts.
The maintenance stage (`pipeline/maintenance/retention.py`) removes the rows, not the request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import orjson

from ipf.errors import Category, Problem
from ipf.ports import Answer, Json, Request
from ipf.ports.messages.statistics import Pruner, RetentionPolicy
from ipf.wire.admin.messages import timestamp
from ipf.wire.admin.route import Mounted, Role, Route, WhenMasked, query
from ipf.wire.admin.schemas.base import ref
from ipf.wire.http.serving import JSON

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
        "would_remove": await count() if _is_dry_run(request) else None,
    }
    return Answer(200, orjson.dumps(shown), (), JSON)


async def start(pruner: Pruner, policy: RetentionPolicy, count: Count, request: Request) -> Answer:
    """`POST /admin/retention`: 202.  Problem BUSINESS_RULE (422) when nothing is ever removed."""
    if _is_dry_run(request):
        return await show(pruner, policy, count, request)
    if not policy.prunes:
        raise Problem(Category.BUSINESS_RULE, "nothing is removed: all retention settings (IPF_RETENTION_DAYS) are 0")
    await pruner.request_run()
    return Answer(202, orjson.dumps({"message": "a run begins within a minute"}), (), JSON)


class Retention(NamedTuple):
    """What the operations use."""

    pruner: Pruner
    policy: RetentionPolicy
    would_remove: Count


def routes(pruner: Pruner, policy: RetentionPolicy, count: Count) -> Mounted[Retention]:
    """The path `/admin/retention`."""
    return Mounted(ROUTES, Retention(pruner, policy, count))


_DRY_RUN = query("dry_run", {"enum": ["true", "false"]}, "counts what a run would remove now, and removes nothing")
ROUTES: tuple[Route[Retention], ...] = (
    Route(
        "GET", "/retention", "retention", "Policy, last run, and what a run would remove",
        lambda of, request, _: show(*of, request), "Retention", masked=WhenMasked.NO, parameters=[_DRY_RUN],
    ),
    Route(
        "POST", "/retention", "runRetention", "Let a run begin within a minute",
        lambda of, request, _: start(*of, request), "Retention", Role.ADMIN, WhenMasked.NO, parameters=[_DRY_RUN],
        statuses={"202": ("a run begins within a minute", ref("Accepted"))}, refusals=["422"],
    ),
)  # fmt: skip


def _is_dry_run(request: Request) -> bool:
    """`?dry_run`, `?dry_run=true`."""
    asked = dict(reversed(request.query)).get("dry_run")
    return asked is not None and asked.strip().lower() not in ("false", "0", "no")
