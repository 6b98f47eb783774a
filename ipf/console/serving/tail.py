"""The live tail of the message list: rows that are new, or in another state, as events.

A page sends its filters.  Those that a row of the list decides hold here; words and patient identifiers are in the
message, so with them there is no tail (`is_possible`).  A page keeps a bounded number of rows by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ipf.console.html.rendering import Renderer
from ipf.console.serving.lists import Column, ListPage
from ipf.console.serving.live import MOST_ROWS, Row
from ipf.fhir.model.json import dumps

EXACT = ("status", "message_type", "source_system", "source_id", "correlation_id", "tenant")
_FILTERS = (*EXACT, "error")


def is_possible(filters: Mapping[str, str], offset: int) -> bool:
    """Whether a page can have a tail: its first page, with filters that a row decides."""
    return not offset and set(filters) <= set(_FILTERS)


def matches(row: Row, filters: Mapping[str, str]) -> bool:
    """Whether a row is in the list with these filters."""
    if any(str(row.get(name)) != filters[name] for name in EXACT if name in filters):
        return False
    return "error" not in filters or filters["error"].lower() in (row.get("last_error") or "").lower()


class TailListener:
    """The tail of one page.  `list`, `columns`, `filters`: of the page."""

    rows = MOST_ROWS

    def __init__(
        self, renderer: Renderer, language: str, list: ListPage, columns: Sequence[Column], filters: Mapping[str, str]
    ) -> None:
        self._renderer = renderer
        self._language = language
        self._values: dict[str, Any] = {"list": list, "columns": columns}
        self._filters = filters
        self._known: dict[int, Row] = {}
        self._is_first = True

    def event(self, state: bytes, newest: Sequence[Row]) -> bytes:
        """Rows that are new or have changed, the newest first; `gap`: more arrived than a poll returns."""
        changed = [row for row in newest if self._known.get(row["id"]) != row]
        gap = not self._is_first and len(newest) == MOST_ROWS and all(row["id"] not in self._known for row in newest)
        self._known = {row["id"]: row for row in newest}
        self._is_first = False
        shown = [{"id": row["id"], "html": self._html(row)} for row in changed if matches(row, self._filters)]
        if not shown and not gap:
            return b""
        return b"event: rows\ndata: " + dumps({"rows": shown, "gap": gap}) + b"\n\n"

    def _html(self, row: Row) -> str:
        return self._renderer.page("list_row.html", self._language, {**self._values, "item": row}).decode()
