"""Paths of polled sources and of destinations, for the OpenAPI document of the operator API."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ipf.ports.messages.forwards import ForwardStatus
from ipf.wire.admin.schemas.base import COUNT, TEXT, TIME, Schema, list_of, object_of, or_null, page_of, ref

_NAME: Schema = {"name": "id", "in": "path", "required": True, "schema": TEXT, "description": "name of the destination"}
_FLAG: Schema = {"type": "boolean"}


def paths(operation: Callable[..., Schema], page: Callable[..., Schema]) -> Schema:
    """All of them.  `operation`, `page`: make one, as `document` does."""

    def change(
        name: str, summary: str, schema: str, body: str | None = None, parameters: Sequence[Schema] = (_NAME,)
    ) -> Schema:
        return {"post": operation(name, summary, schema, [*parameters], "404", body=body, status="202")}

    status = {"name": "status", "in": "query", "description": "in this state", "schema": {"enum": list(ForwardStatus)}}
    of_one = "/admin/destinations/{id}"
    return {
        "/admin/sources": {
            "get": operation("sources", "Polled sources: how far each feed has been read", "FeedList", [])
        },
        "/admin/sources/poll": change("pollSource", "Poll a feed at once", "FeedChanged", "PollRequest", ()),
        "/admin/sources/rewind": change(
            "rewindSource", "Poll a feed again from a time", "FeedChanged", "RewindRequest", ()
        ),
        "/admin/destinations": {
            "get": operation("destinations", "Destinations of forwarded messages", "DestinationList", [])
        },
        f"{of_one}/messages": {
            "get": page("forwarded", "What a destination was sent, oldest first", "ForwardedList", _NAME, status)
        },
        f"{of_one}/retry": change(
            "retryDestination", "Send dead letters again: all, or one", "Retried", "ForwardRetryRequest"
        ),
        f"{of_one}/skip": change(
            "skipDestination", "Give up a message that holds back others", "Skipped", "ForwardSkipRequest"
        ),
        f"{of_one}/pause": change("pauseDestination", "Send nothing until it is resumed", "Paused"),
        f"{of_one}/resume": change("resumeDestination", "Send again", "Paused"),
    }  # fmt: skip


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
