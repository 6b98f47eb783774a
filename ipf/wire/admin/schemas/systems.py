"""Paths of polled sources and of destinations, for the OpenAPI document of the operator API."""

from __future__ import annotations

from ipf.ports.messages.forwards import ForwardStatus
from ipf.wire.admin.schemas.base import COUNT, TEXT, TIME, Schema, list_of, object_of, or_null, page_of, ref

_NAME: Schema = {"name": "id", "in": "path", "required": True, "schema": TEXT, "description": "name of the destination"}
_FLAG: Schema = {"type": "boolean"}


def schemas() -> Schema:
    """The bodies by name."""
    feed = object_of(
        name=TEXT, in_use=_FLAG, source_protocol=or_null(TEXT), source_system=or_null(TEXT), tenant=or_null(TEXT),
        interval_seconds=or_null({"type": "number"}), read_until=or_null(TIME), pass_began_at=or_null(TIME),
        pages=COUNT, due_at=or_null(TIME), polled_at=or_null(TIME), completed_at=or_null(TIME), failures=COUNT,
        last_error=or_null(TEXT), fetched=COUNT, stored=COUNT,
    )  # fmt: skip
    destination = object_of(
        name=TEXT, in_use=_FLAG, paused=_FLAG, pending=COUNT, dead_letters=COUNT, sent=COUNT,
        oldest_pending_at=or_null(TIME), last_sent_at=or_null(TIME), head_message_id=or_null(COUNT),
        head_attempts=COUNT, last_error=or_null(TEXT),
    )  # fmt: skip
    forwarded = object_of(
        message_id=COUNT, message_type=TEXT, source_id=TEXT, status={"enum": list(ForwardStatus)}, attempts=COUNT,
        code=or_null(TEXT), text=or_null(TEXT), ended_at=or_null(TIME),
    )  # fmt: skip
    since = or_null(TIME) | {"description": "with its offset; null: from the beginning"}
    return {
        "Feed": feed,
        "FeedList": object_of(total=COUNT, items=list_of(ref("Feed"))),
        "FeedChanged": object_of(name=TEXT, message=TEXT),
        "PollRequest": object_of(name=TEXT | {"description": "profile/item/feed"}),
        "RewindRequest": object_of(name=TEXT | {"description": "profile/item/feed"}, since=since),
        "Destination": destination,
        "DestinationList": object_of(total=COUNT, items=list_of(ref("Destination"))),
        "Forwarded": forwarded,
        "ForwardedList": page_of(ref("Forwarded")),
        "ForwardRetryRequest": object_of(message_id=COUNT | {"description": "only this one"}) | {"required": []},
        "ForwardSkipRequest": object_of(message_id=COUNT),
        "Retried": object_of(retried=COUNT),
        "Skipped": object_of(skipped=COUNT),
        "Paused": object_of(name=TEXT, paused=_FLAG),
    }
