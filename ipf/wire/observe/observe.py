"""The observability API: components, queue, throughput, dead letters, and the trace of one correlation id.

Functions on values: a Request in, an Answer out; `app.py` mounts them at `/admin/observe`.  Every
body, refusals included, carries `schema_version`; every key is always present, absent values are null; times are UTC.
All tenants are shown together: this API is for those who run the service.

Source: interface specification "Observability API", "Versioning"; decisions section 3.  The OpenAPI document is
`openapi.py`; a test checks every answer against it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import orjson

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.ports import Answer, Clock, MessageRow, Request, Status, map_and_version
from ipf.ports.identity import ConflictRow
from ipf.ports.messages.inbox import passed_through
from ipf.ports.messages.statistics import (
    MINUTES,
    MessageStatistics,
    TracedDelivery,
    TracedEvent,
    TracedMessage,
    TracedResource,
)
from ipf.wire.admin.actuator import Health
from ipf.wire.admin.messages import parameters_of, timestamp
from ipf.wire.admin.patients.items import what_to_do
from ipf.wire.http.serving import JSON
from ipf.wire.observe import interfaces

SCHEMA_VERSION = "1.0"
SERVICE = "ipf"
DEFAULT_WINDOW = "24h"
LONGEST_DAYS = 90
DEFAULT_LIMIT = 20
HIGHEST_LIMIT = 100
MAX_TRACE_ROWS = 1000  # of a kind
LIVE_SHARE, LONGEST_COUNTED = 0.04, 5.0
"""Share of the time in which `live` counts, and seconds after which it counts again in any case."""

_STATES = tuple(status.value for status in Status)
_WINDOW = re.compile(r"0*([1-9][0-9]{0,3})([hd])")
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_WIDTHS = {"h": ("hour", timedelta(hours=1)), "d": ("day", timedelta(days=1))}


@dataclass(frozen=True, slots=True)
class Facts:
    """Constant facts of the service.  `uptime`: seconds since its start.

    `expected`: longest silence of senders by name, in seconds.  `kinds`: `http`, `file` or `operator` by listener.
    """

    version: str
    toggles: Mapping[str, object]
    uptime: Callable[[], float]
    expected: Mapping[str, int] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)


class Observe:
    """The answers: system, live, throughput, interfaces, dead letters, trace."""

    def __init__(self, statistics: MessageStatistics, health: Health, facts: Facts, now: Clock) -> None:
        self._statistics = statistics
        self._health = health
        self._facts = facts
        self._now = now
        self._known: tuple[Mapping[str, int | None], datetime | None] | None = None
        self._count_again = 0.0

    async def system(self, request: Request) -> Answer:
        """`GET /admin/observe/system`: 200 also when components are DOWN; null queue sizes without the store."""
        states = await self._health.states()
        shown = {
            name: {"status": state["status"], "detail": state.get("details")}
            for name, state in states.items()
        }  # fmt: skip
        required = self._health.required
        return answer(
            {
                "service": SERVICE,
                "version": self._facts.version,
                "uptime_seconds": round(self._facts.uptime(), 3),
                "feature_toggles": dict(self._facts.toggles),
                "components": [{"name": name, **state} for name, state in shown.items() if name in required],
                "downstream": {name: state for name, state in shown.items() if name not in required},
                "queue": await self._queue(),
            }
        )

    async def _queue(self) -> dict[str, int | None]:
        try:
            counts: Mapping[Status, int | None] = await self._statistics.queue()
        except StoreUnreachable:
            counts = {}
        return {status.value.lower(): counts.get(status) for status in Status}

    async def live(self, request: Request) -> Answer:
        """`GET /admin/observe/live`: what changes from second to second, for pages that ask for it every second."""
        limit = _limit(parameters_of(request).get("limit") or "0", lowest=0)
        states = await self._health.states()
        queue, oldest = await self._waiting()
        newest = await self._statistics.newest(limit) if limit else ()
        return answer(
            {
                "uptime_seconds": round(self._facts.uptime(), 3),
                "components": {name: state["status"] for name, state in states.items()},
                "queue": queue,
                "oldest_waiting_at": timestamp(oldest),
                "newest": [_message(row) | {"tenant": row.tenant} for row in newest],
            }
        )

    async def _waiting(self) -> tuple[Mapping[str, int | None], datetime | None]:
        """Queue sizes and receipt of the oldest waiting message, counted for at most LIVE_SHARE of the time.

        To count 45,000 undelivered messages takes 70 ms, which a page that asks every second must not cost.
        """
        began = self._facts.uptime()
        if self._known is None or began >= self._count_again:
            try:
                self._known = await self._queue(), await self._statistics.oldest_waiting()
            except StoreUnreachable:
                self._known = None
                return dict.fromkeys(map(str.lower, _STATES)), None
            ended = self._facts.uptime()
            self._count_again = ended + min((ended - began) / LIVE_SHARE, LONGEST_COUNTED)
        return self._known

    async def interfaces(self, request: Request) -> Answer:
        """`GET /admin/observe/interfaces`: the senders, those that need attention first."""
        now = self._now()
        found = await self._statistics.senders(now)
        items = sorted(
            (interfaces.item(one, self._facts.expected, now, self._facts.kinds) for one in found.senders),
            key=interfaces.order,
        )
        sender = parameters_of(request).get("source_system")
        items = [one for one in items if not sender or one["source_system"] == sender]
        first = now.replace(second=0, microsecond=0) - timedelta(minutes=MINUTES - 1)
        return answer({"total": len(items), "silent": sum(one["is_silent"] for one in items),
                       "is_exact": found.is_exact, "first_minute": timestamp(first), "items": items})  # fmt: skip

    async def throughput(self, request: Request) -> Answer:
        """`GET /admin/observe/throughput`: messages by hour or day of receipt and current status."""
        asked = parameters_of(request)
        window = asked.get("window") or DEFAULT_WINDOW
        starts, _, unit = buckets(window, self._now())
        found: dict[datetime, dict[str, int]] = {start: dict.fromkeys(_STATES, 0) for start in starts}
        sender = asked.get("source_system") or None
        for start, status, count in await self._statistics.throughput(starts[0], sender, unit):
            if start in found:
                found[start][status.value] += count
        items = [{"bucket_start": timestamp(start), "counts": counts} for start, counts in found.items()]
        return answer({"window": window, "bucket_width": unit, "buckets": items})

    async def dlq(self, request: Request) -> Answer:
        """`GET /admin/observe/dlq`: dead letters, newest first by receipt."""
        limit = _limit(parameters_of(request).get("limit") or str(DEFAULT_LIMIT))
        total, rows = await self._statistics.dead_letters(limit)
        return answer({"total": total, "limit": limit, "items": [_message(row) for row in rows]})

    async def trace(self, correlation_id: str) -> Answer:
        """`GET /admin/observe/trace/{correlationId}`.  Problem NOT_FOUND when no row carries the id."""
        found = None
        if _UUID.fullmatch(correlation_id):
            found = await self._statistics.trace(correlation_id.lower())
        if found is None or not (found.messages or found.resources or found.events or found.deliveries):
            raise Problem(Category.NOT_FOUND, "no row carries this correlation id")
        rows = (found.messages, found.resources, found.events, found.deliveries, found.identity_conflicts)
        return answer(
            {
                "correlation_id": correlation_id.lower(),
                "truncated": any(len(kind) >= MAX_TRACE_ROWS for kind in rows),
                "messages": [_traced(one) for one in found.messages],
                "resources": [_resource(one) for one in found.resources],
                "events": [_event(one) for one in found.events],
                "deliveries": [_delivery(one) for one in found.deliveries],
                "identity_conflicts": [_conflict(one) for one in found.identity_conflicts],
            }
        )


def answer(body: Mapping[str, Any], status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """A JSON answer with the version of its schema."""
    return Answer(status, orjson.dumps({"schema_version": SCHEMA_VERSION, **body}), headers, JSON)


def refusal(problem: Problem) -> Answer:
    """The error body of decisions section 3."""
    shown = problem.rendering
    headers = (("WWW-Authenticate", "Bearer"),) if problem.category is Category.UNAUTHORIZED else ()
    return answer({"error": shown.admin_code, "message": problem.text}, shown.http_status, headers)


def buckets(window: str, now: datetime) -> tuple[list[datetime], timedelta, str]:
    """Starts, width and unit of the buckets of a window; the last bucket is still open.

    `window`: digits and `h` or `d`, up to 90 days.  Problem VALUE otherwise.
    """
    match = _WINDOW.fullmatch(window)
    unit, width = _WIDTHS[match[2]] if match else _WIDTHS["h"]
    if match is None or int(match[1]) * width > timedelta(days=LONGEST_DAYS):
        text = f"window must be a number of hours or days such as 24h or 7d, at most {LONGEST_DAYS}d"
        raise Problem(Category.VALUE, text)
    last = now.replace(minute=0, second=0, microsecond=0)
    if unit == "day":
        last = last.replace(hour=0)
    count = int(match[1])
    return [last - (count - 1 - number) * width for number in range(count)], width, unit


def _limit(text: str, lowest: int = 1) -> int:
    if not _WHOLE_NUMBER.fullmatch(text):
        raise Problem(Category.VALUE, "limit must be a whole number")
    return min(max(int(text[:20]), lowest), HIGHEST_LIMIT)


def _message(row: MessageRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "received_at": timestamp(row.received_at),
        "source_protocol": row.source_protocol,
        "source_system": row.source_system,
        "source_id": row.source_id,
        "message_type": row.message_type,
        "status": row.status.value,
        "attempt_count": row.attempt_count,
        "last_attempt_at": timestamp(row.last_attempt_at),
        "last_error": row.last_error,
        "delivered_at": timestamp(row.delivered_at),
        "correlation_id": row.correlation_id,
        "permanent": row.permanent,
    }


def _traced(one: TracedMessage) -> dict[str, Any]:
    """A message, or a further conversion of one (`original_id`), and what converted it.

    `rules_path`: where the rules that made each element can be read; they are worked out when asked for.
    """
    of = one.row.id if one.original_id is None else one.original_id
    url, version = map_and_version(one.map_url or "")
    transform = {
        "map_url": url,
        "version": version,
        "duration_ms": None if one.transform_ms is None else round(one.transform_ms, 3),
        "rules_path": f"/admin/messages/{of}/trace",
    }
    return _message(one.row) | {
        "next_attempt_at": timestamp(one.row.next_attempt_at),
        "listener": one.listener,
        "original_id": one.original_id,
        "passed_through": passed_through(one.row.status, one.transform_ms),
        "transform": None if one.map_url is None else transform,
    }


def _resource(one: TracedResource) -> dict[str, Any]:
    made = "create" if one.version_id == 1 else "update"
    return {
        "tenant": one.tenant,
        "resource_type": one.resource_type,
        "id": one.id,
        "version_id": one.version_id,
        "action": "delete" if one.method == "DELETE" else made,
        "written_at": timestamp(one.written_at),
    }


def _conflict(one: ConflictRow) -> dict[str, Any]:
    """A match that was not made, and its answer; without identifiers of the patient, which `path` has."""
    return {
        "id": one.id,
        "message_id": one.message_id,
        "conversion_id": one.conversion_id,
        "status": one.status.value,
        "kind": one.finding.kind.value,
        "resource_type": one.finding.resource_type,
        "place": one.finding.place,
        "candidates": list(one.finding.candidates),
        "what_to_do": what_to_do(one.finding),
        "detected_at": timestamp(one.detected_at),
        "answer": None if one.answer is None else one.answer.value,
        "target": one.target,
        "answered_by": one.answered_by,
        "answered_at": timestamp(one.answered_at),
        "path": f"/admin/identity-conflicts/{one.id}",
    }


def _event(one: TracedEvent) -> dict[str, Any]:
    return {
        "subscription_id": f"Subscription/{one.subscription_id}",
        "event_number": one.event_number,
        "resource_type": one.resource_type,
        "id": one.id,
        "version_id": one.version_id,
        "occurred_at": timestamp(one.occurred_at),
    }


def _delivery(one: TracedDelivery) -> dict[str, Any]:
    return {
        "subscription_id": f"Subscription/{one.subscription_id}",
        "event_number": one.event_number,
        "to_event_number": one.to_event_number,
        "kind": one.kind,
        "attempted_at": timestamp(one.attempted_at),
        "outcome": "success" if one.succeeded else "failure",
        "http_status": one.http_status,
        "duration_ms": one.duration_ms,
        "error": one.error,
    }
