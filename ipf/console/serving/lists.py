"""A list of the admin API as a page: filters and columns in the URL, paging on the server, keyboard, export.

A list is declared once (`ListPage`): its path, filters and columns.  The page never reads more than one page of rows,
so it stays fast on millions.  Source: docs/reference/admin-api.md, "Lists".
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from io import StringIO
from typing import Any
from urllib.parse import urlencode

from ipf.console.serving.filters import AGO, TIMES, asked
from ipf.console.serving.web import Route, View
from ipf.hl7.direction import escaped
from ipf.ports import Answer
from ipf.wire.admin.route import Role

SIZE, EXPORT_SIZE, MOST_EXPORTED = 50, 500, 10_000


class Kind(StrEnum):
    """How a value is shown."""

    TEXT = "text"
    CODE = "code"
    TIME = "time"
    NUMBER = "number"
    STATUS = "status"
    LONG = "long"
    LIST = "list"
    FILTER = "filter"
    """A value that leads to the rows that have it too."""
    REFERENCES = "references"
    """What rows are about, as links to their pages."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.  `name`: of the value, and of its text `field.NAME`.  `shown`: unless the reader chooses others."""

    name: str
    kind: Kind = Kind.TEXT
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Filter:
    """One parameter of the list.  `choices`: the values it can have, with texts `state.VALUE`; none: any text.

    `first`: in the first row, where the eye falls; the others are behind "More filters".
    """

    name: str
    choices: tuple[str, ...] = ()
    first: bool = False


@dataclass(frozen=True, slots=True)
class ListPage:
    """One list.  `area`: first segment of its URL, and section of its texts.  `row`: the URL of a row, with `{id}`."""

    area: str
    path: str
    columns: Sequence[Column]
    filters: Sequence[Filter] = ()
    row: str | None = None
    template: str = "list.html"

    def routes(self) -> tuple[Route, Route]:
        """The page and its export."""
        return Route("GET", "/", Role.VIEWER, self.page), Route("GET", "/export.csv", Role.VIEWER, self.export)

    def given(self, view: View) -> dict[str, str]:
        """The filters of a request."""
        return {one.name: view.parameters[one.name] for one in self.filters if one.name in view.parameters}

    def chosen(self, view: View) -> list[Column]:
        """The columns of a request."""
        return self.columns_of(view.parameters.get("columns", ""))

    def columns_of(self, names: str) -> list[Column]:
        """The columns with these names, separated by commas; the usual ones if there is none."""
        chosen = names.split(",")
        return [one for one in self.columns if one.name in chosen] or [one for one in self.columns if one.shown]

    async def page(self, view: View) -> Answer:
        """One page of rows."""
        filters, offset = self.given(view), number_of(view.parameters.get("offset", ""))
        found = await view.get(self.path, {**asked(filters, datetime.now(UTC)), "limit": SIZE, "offset": offset})
        views = (await view.get("/admin/views", {"area": self.area}))["items"]
        return view.page(
            self.template, list=self, found=found, filters=filters, columns=self.chosen(view), link=view.link,
            views=views, query=urlencode(view.request.query), times=TIMES, ago=AGO,
            **self.further(view, filters, offset),
        )  # fmt: skip

    def further(self, view: View, filters: Mapping[str, str], offset: int) -> dict[str, Any]:
        """Further values of the template."""
        return {}

    async def export(self, view: View) -> Answer:
        """The rows of this view as CSV, at most MOST_EXPORTED."""
        columns, filters = self.chosen(view), asked(self.given(view), datetime.now(UTC))
        out = StringIO()
        writer = csv.writer(out)
        writer.writerow([one.name for one in columns])
        for offset in range(0, MOST_EXPORTED, EXPORT_SIZE):
            found = await view.get(self.path, {**filters, "limit": EXPORT_SIZE, "offset": offset})
            writer.writerows([[cell(item.get(one.name)) for one in columns] for item in found["items"]])
            if offset + EXPORT_SIZE >= found["total"]:
                break
        headers = [("Content-Disposition", f'attachment; filename="{self.area}.csv"'), ("Cache-Control", "no-store")]
        return Answer(200, out.getvalue().encode("utf-8-sig"), headers, "text/csv; charset=utf-8")

    def row_url(self, item: Mapping[str, Any]) -> str | None:
        """The page of a row."""
        return None if self.row is None else self.row.format(id=item["id"])


def number_of(text: str) -> int:
    """A number of a URL; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0


def cell(value: Any) -> str:
    """A cell of a spreadsheet.

    A text that a spreadsheet would run as a formula begins with an apostrophe; characters that change the direction of
    text are escape sequences.
    """
    text = escaped("" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value))
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
