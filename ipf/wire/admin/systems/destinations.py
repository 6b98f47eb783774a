"""Destinations of forwarded messages for operators: what waits, what was refused, and what is to be done.

`GET /admin/destinations` lists them, `GET /admin/destinations/{name}/messages` what each was sent.  `POST .../retry`
sends dead letters again, `.../skip` gives up a message that holds back others, `.../pause` and `.../resume` stop and
start a destination.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from ipf.errors import Category, Problem
from ipf.ports import Answer, Json, Request
from ipf.ports.messages.forwards import DestinationRow, ForwardRow, ForwardStatus, ForwardStore
from ipf.wire.admin.messages import InvalidStatus, answer, json_body, parameters_of, row_id, timestamp, window
from ipf.wire.admin.route import Mounted, Role, Route, WhenMasked, query
from ipf.wire.admin.schemas.base import TEXT, Schema

Names = Callable[[], Collection[str]]
"""The destinations of the settings."""

_NAME: Schema = TEXT | {"description": "name of the destination"}
_STATUS = query("status", {"enum": list(ForwardStatus)}, "in this state")


class Destinations(NamedTuple):
    """What the operations use."""

    store: ForwardStore
    names: Names


async def list_destinations(store: ForwardStore, names: Names) -> Answer:
    """`GET /admin/destinations`."""
    known, rows = names(), {row.name: row for row in await store.destinations()}
    items = [_item(name, rows.get(name), in_use=name in known) for name in sorted({*known, *rows})]
    return answer(200, {"total": len(items), "items": items})


async def list_messages(store: ForwardStore, name: str, request: Request) -> Answer:
    """`GET /admin/destinations/{name}/messages?status=`: oldest first.  Problem INVALID_STATUS."""
    parameters = parameters_of(request)
    given = parameters.get("status")
    if given is not None and given not in set(ForwardStatus):
        raise InvalidStatus(Category.VALUE, f"status must be one of {', '.join(ForwardStatus)}", "status")
    limit, offset = window(parameters)
    total, rows = await store.messages(name, None if given is None else ForwardStatus(given), limit, offset)
    return answer(200, {"total": total, "limit": limit, "offset": offset, "items": [_message(row) for row in rows]})


async def retry(store: ForwardStore, name: str, request: Request) -> Answer:
    """`POST /admin/destinations/{name}/retry`: all dead letters, or the one of `{"message_id": 7}`."""
    body = json_body(request, {})
    if not isinstance(body, dict) or set(body) - {"message_id"}:
        raise Problem(Category.VALUE, 'the body must be empty, or {"message_id": the id of a message}')
    given = body.get("message_id")
    count = await store.retry(name, None if given is None else row_id(str(given)))
    return answer(202, {"retried": count})


async def skip(store: ForwardStore, name: str, request: Request) -> Answer:
    """`POST /admin/destinations/{name}/skip` with `{"message_id": 7}`: it becomes a dead letter.  Problem NOT_FOUND."""
    body = json_body(request, None)
    if not isinstance(body, dict) or set(body) != {"message_id"}:
        raise Problem(Category.VALUE, 'the body must be {"message_id": the id of a pending message}')
    await store.skip(name, row_id(str(body["message_id"])))
    return answer(202, {"skipped": body["message_id"]})


async def pause(store: ForwardStore, name: str, *, paused: bool) -> Answer:
    """`POST /admin/destinations/{name}/pause` and `/resume`.  Problem NOT_FOUND."""
    await store.pause(name, paused=paused)
    return answer(202, {"name": name, "paused": paused})


def routes(store: ForwardStore, names: Names) -> Mounted[Destinations]:
    """The paths below `/admin/destinations`."""
    return Mounted(ROUTES, Destinations(store, names))


ROUTES: tuple[Route[Destinations], ...] = (
    Route(
        "GET", "/destinations", "destinations", "Destinations of forwarded messages",
        lambda of, _, __: list_destinations(of.store, of.names), "DestinationList", masked=WhenMasked.NO,
    ),
    Route(
        "GET", "/destinations/{id}/messages", "forwarded", "What a destination was sent, oldest first",
        lambda of, request, id: list_messages(of.store, id, request), "ForwardedList", masked=WhenMasked.NO,
        variable=_NAME, parameters=[_STATUS], is_page=True,
    ),
    Route(
        "POST", "/destinations/{id}/retry", "retryDestination", "Send dead letters again: all, or one",
        lambda of, request, id: retry(of.store, id, request), "Retried", Role.OPERATOR, WhenMasked.NO,
        variable=_NAME, body="ForwardRetryRequest", status="202", refusals=["404"],
    ),
    Route(
        "POST", "/destinations/{id}/skip", "skipDestination", "Give up a message that holds back others",
        lambda of, request, id: skip(of.store, id, request), "Skipped", Role.ADMIN, WhenMasked.NO,
        variable=_NAME, body="ForwardSkipRequest", status="202", refusals=["404"],
    ),
    Route(
        "POST", "/destinations/{id}/pause", "pauseDestination", "Send nothing until it is resumed",
        lambda of, _, id: pause(of.store, id, paused=True), "Paused", Role.OPERATOR, WhenMasked.NO,
        variable=_NAME, status="202", refusals=["404"],
    ),
    Route(
        "POST", "/destinations/{id}/resume", "resumeDestination", "Send again",
        lambda of, _, id: pause(of.store, id, paused=False), "Paused", Role.OPERATOR, WhenMasked.NO,
        variable=_NAME, status="202", refusals=["404"],
    ),
)  # fmt: skip


def _item(name: str, row: DestinationRow | None, *, in_use: bool) -> Json:
    return {
        "name": name,
        "in_use": in_use,
        "paused": row is not None and row.is_paused,
        "pending": row.pending if row is not None else 0,
        "dead_letters": row.dead if row is not None else 0,
        "sent": row.sent if row is not None else 0,
        "oldest_pending_at": timestamp(row.oldest_pending_at) if row is not None else None,
        "last_sent_at": timestamp(row.last_sent_at) if row is not None else None,
        "head_message_id": row.head_id if row is not None else None,
        "head_attempts": row.head_attempts if row is not None else 0,
        "last_error": row.last_error if row is not None else None,
    }


def _message(row: ForwardRow) -> Json:
    return {
        "message_id": row.message_id,
        "message_type": row.message_type,
        "source_id": row.source_id,
        "status": row.status.value,
        "attempts": row.attempts,
        "code": row.code or None,
        "text": row.text or None,
        "ended_at": timestamp(row.ended_at),
    }
