"""`/messages`: the message browser.  All filters are parameters of the URL and of `GET /admin/messages`."""

from __future__ import annotations

import csv
from io import StringIO
from typing import Any

from ipf.console.sessions import Role
from ipf.console.web import Route, View
from ipf.ports import Answer

FILTERS = (
    "status", "message_type", "source_system", "source_id", "patient", "text", "error", "received_from", "received_to",
    "correlation_id", "tenant",
)  # fmt: skip
STATUSES = ("RECEIVED", "TRANSFORMING", "DELIVERED", "FAILED", "DEAD_LETTER")
COLUMNS = (
    "id", "received_at", "source_system", "message_type", "source_id", "status", "attempt_count", "delivered_at",
    "correlation_id", "last_error",
)  # fmt: skip
SHOWN = ("received_at", "source_system", "message_type", "source_id", "status", "last_error")
SIZE, MOST_EXPORTED, EXPORT_SIZE = 50, 10_000, 500


async def messages(view: View) -> Answer:
    """One page of messages, newest first."""
    given = view.parameters
    filters = {name: given[name] for name in FILTERS if name in given}
    offset = number_of(given.get("offset", ""))
    found = await view.get("/admin/messages", {**filters, "limit": SIZE, "offset": offset})
    columns = [name for name in given.get("columns", "").split(",") if name in COLUMNS] or list(SHOWN)
    template = "messages_rows.html" if view.is_part else "messages.html"
    return view.page(template, found=found, filters=filters, columns=columns, every_column=COLUMNS, statuses=STATUSES,
                     link=view.link, is_filtered=bool(filters))  # fmt: skip


async def export(view: View) -> Answer:
    """`/messages/export.csv`: the messages of this view, at most MOST_EXPORTED."""
    filters = {name: text for name, text in view.parameters.items() if name in FILTERS}
    columns = [name for name in view.parameters.get("columns", "").split(",") if name in COLUMNS] or list(COLUMNS)
    out = StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    for offset in range(0, MOST_EXPORTED, EXPORT_SIZE):
        found = await view.get("/admin/messages", {**filters, "limit": EXPORT_SIZE, "offset": offset})
        writer.writerows([[cell(item[name]) for name in columns] for item in found["items"]])
        if offset + EXPORT_SIZE >= found["total"]:
            break
    headers = [("Content-Disposition", 'attachment; filename="messages.csv"'), ("Cache-Control", "no-store")]
    return Answer(200, out.getvalue().encode("utf-8-sig"), headers, "text/csv; charset=utf-8")


def number_of(text: str) -> int:
    """A number of a URL; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0


def cell(value: Any) -> str:
    """A cell of a spreadsheet; a text that a spreadsheet would run as a formula begins with an apostrophe."""
    text = "" if value is None else str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


ROUTES = (Route("GET", "/", Role.VIEWER, messages), Route("GET", "/export.csv", Role.VIEWER, export))
