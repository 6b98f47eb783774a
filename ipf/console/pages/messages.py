"""`/messages`: the message browser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipf.console.serving.lists import Column, Filter, Kind, ListPage
from ipf.console.serving.tail import is_possible
from ipf.console.serving.web import View

STATUSES = ("RECEIVED", "TRANSFORMING", "DELIVERED", "FAILED", "DEAD_LETTER")


class MessageList(ListPage):
    """The list of messages, which has a live tail."""

    def further(self, view: View, filters: Mapping[str, str], offset: int) -> dict[str, Any]:
        """`tail`: whether there can be one, and whether it is on."""
        return {"has_tail": is_possible(filters, offset), "is_live": view.parameters.get("live") == "1"}


MESSAGES = MessageList(
    "messages",
    "/admin/messages",
    (
        Column("received_at", Kind.TIME),
        Column("id", Kind.NUMBER, shown=False),
        Column("source_system"),
        Column("message_type"),
        Column("source_id"),
        Column("status", Kind.STATUS),
        Column("attempt_count", Kind.NUMBER, shown=False),
        Column("delivered_at", Kind.TIME, shown=False),
        Column("correlation_id", Kind.CODE, shown=False),
        Column("tenant", shown=False),
        Column("last_error", Kind.LONG),
    ),
    (
        Filter("text", first=True),
        Filter("status", STATUSES, first=True),
        Filter("patient", first=True),
        *map(Filter, ("message_type", "source_system", "source_id", "error", "received_from", "received_to")),
        *map(Filter, ("correlation_id", "tenant")),
    ),
    row="/messages/{id}",
    template="messages.html",
)
