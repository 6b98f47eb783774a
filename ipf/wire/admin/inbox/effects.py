"""The effects of a message: the map that converted it, resource versions, events, delivery attempts, and its further
conversions.  Functions on values.

All are rows that the pipeline wrote, from both databases.  Source: decisions section 3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.ports import (
    Answer,
    EffectsStore,
    FhirEffects,
    FiredEvent,
    FiredNotification,
    Inbox,
    MessageAdmin,
    MessageRow,
    Request,
    Status,
    Transformed,
    UnmappedCodes,
    WrittenVersion,
    map_and_version,
)
from ipf.wire.admin.inbox.unmapped import conversion_item
from ipf.wire.admin.messages import answer, list_item, parameters_of, row_id, timestamp, window
from ipf.wire.admin.route import Route

_WAITING = (Status.RECEIVED, Status.TRANSFORMING, Status.FAILED)
_SILENT = ("off", "deleted")


async def effects(inbox: Inbox, admin: MessageAdmin, store: EffectsStore, message_id: str) -> Answer:
    """`GET /admin/messages/{id}/effects`.  `unknown` while the FHIR database cannot be reached."""
    row = await _message(inbox, message_id)
    transformed = await admin.transformed(row.id)
    try:
        found: FhirEffects | None = await store.effects(row.tenant, row.correlation_id)
    except StoreUnreachable:
        found = None
    return answer(200, effects_body(row, transformed, found))


async def conversions(inbox: Inbox, codes: UnmappedCodes, message_id: str, request: Request) -> Answer:
    """`GET /admin/messages/{id}/conversions`: further conversions of a message, the newest first."""
    row = await _message(inbox, message_id)
    limit, offset = window(parameters_of(request))
    total, rows = await codes.conversions(row.tenant, row.id, None, limit, offset)
    items = [conversion_item(one) for one in rows]
    return answer(200, {"total": total, "limit": limit, "offset": offset, "items": items})


def effects_body(row: MessageRow, transformed: Transformed, found: FhirEffects | None) -> dict[str, Any]:
    """The members that decisions section 3 names; `transform` is null for a message that was not mapped."""
    shown = found or FhirEffects((), (), ())
    transform = None
    if transformed.map_url is not None:
        url, version = map_and_version(transformed.map_url)
        duration = None if transformed.duration_ms is None else round(transformed.duration_ms, 3)
        transform = {"map": url, "version": version, "duration_ms": duration}
    return {
        "effects_status": effects_status(row.status, found),
        "message": list_item(row),
        "transform": transform,
        "fhir_resources_created": [_version(one) for one in shown.versions],
        "subscriptions_matched": [_event(one) for one in shown.events],
        "notifications_fired": [_notification(one) for one in shown.notifications],
    }


def effects_status(status: Status, found: FhirEffects | None) -> str:
    """`pending` while something is still to come, `failed` when something ended without success.

    A subscription that was switched off is waited for no longer.
    """
    if status is Status.DEAD_LETTER:
        return "failed"
    if status in _WAITING:
        return "pending"
    if found is None:
        return "unknown"
    open_events = [one for one in found.events if not one.delivered and one.status not in _SILENT]
    if any(one.status == "error" for one in open_events):
        return "failed"
    return "pending" if open_events else "delivered"


def _version(one: WrittenVersion) -> dict[str, Any]:
    return {
        "resource_type": one.resource_type,
        "id": one.id,
        "version_id": str(one.version_id),
        "action": one.action,
        "written_at": timestamp(one.written_at),
    }


def _event(one: FiredEvent) -> dict[str, Any]:
    return {
        "id": f"Subscription/{one.subscription_id}",
        "channel_type": one.channel_type,
        "endpoint": one.endpoint,
        "criteria": one.criteria,
        "matched_resource": one.matched_resource,
        "event_number": one.event_number,
        "delivered": one.delivered,
    }


def _notification(one: FiredNotification) -> dict[str, Any]:
    return {
        "subscription_id": f"Subscription/{one.subscription_id}",
        "event_number": one.event_number,
        "attempted_at": timestamp(one.attempted_at),
        "outcome": "success" if one.succeeded else "failure",
        "http_status": one.http_status,
        "duration_ms": one.duration_ms,
        "error": one.error,
    }


async def _message(inbox: Inbox, message_id: str) -> MessageRow:
    number = row_id(message_id)
    row = await inbox.get(number)
    if row is None:
        raise Problem(Category.NOT_FOUND, f"there is no message with id {number}")
    return row


class Effects(NamedTuple):
    """What the operations use."""

    inbox: Inbox
    messages: MessageAdmin
    store: EffectsStore
    codes: UnmappedCodes


ROUTES: tuple[Route[Effects], ...] = (
    Route(
        "GET", "/messages/{id}/effects", "messageEffects", "What a message did: facts of both databases",
        lambda of, _, id: effects(of.inbox, of.messages, of.store, id), "Effects", refusals=["404"],
    ),
    Route(
        "GET", "/messages/{id}/conversions", "messageConversions", "Further conversions of a message",
        lambda of, request, id: conversions(of.inbox, of.codes, id, request), "ConversionList", is_page=True,
    ),
)  # fmt: skip
