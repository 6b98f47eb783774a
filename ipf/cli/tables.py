"""Rows as text: a table that fits a terminal, one line a row without a terminal, and CSV.

What arrives: names of columns and values as the service sends them.  What leaves: text; nothing of a value is lost.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ipf.cli.times import for_files, for_people
from ipf.fhir.model.json import dumps
from ipf.hl7.direction import escaped

Rows = Sequence[Sequence[Any]]

_COLOURS = {
    "DELIVERED": "green",
    "FAILED": "yellow",
    "DEAD_LETTER": "red",
    "UP": "green",
    "DOWN": "red",
    "active": "green",
    "error": "red",
    "ok": "green",
    "warning": "yellow",
    "failed": "red",
}
_NARROWEST = 12
_GAP = 2
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def shown(value: Any, utc: bool = False) -> Text:
    """A value as text: a dash for null, a local time, a colour for a state."""
    if value is None:
        return Text("-", style="dim")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, dict | list):
        return Text(escaped(dumps(value).decode()))
    text = escaped(for_people(str(value), utc))
    return Text(text, style=_COLOURS.get(text, ""))


def fitted(columns: Sequence[str], rows: Rows, width: int, utc: bool) -> RenderableType:
    """A table of `width` columns at most.  Long texts wrap; what is still too wide is one block a row.

    A column in which no row has a value is left out.
    """
    kept = [number for number in range(len(columns)) if any(row[number] not in (None, "") for row in rows)]
    names = [columns[number].replace("_", " ") for number in kept]
    cells = [[shown(row[number], utc) for number in kept] for row in rows]
    widths = _widths(names, cells, width)
    if widths is None:
        return Group(*_blocks(names, cells))
    made = Table(box=None, header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0))
    for name, wide in zip(names, widths, strict=True):
        made.add_column(name, width=wide, overflow="fold")
    for row_of_cells in cells:
        made.add_row(*row_of_cells)
    return made


def _widths(names: Sequence[str], cells: Sequence[Sequence[Text]], width: int) -> list[int] | None:
    """The width of each column; None when not even narrow ones fit."""
    words = [max((cell_len(word) for word in name.split()), default=1) for name in names]
    needed = [
        max(least, *(cell_len(line) for row in cells for line in row[number].plain.splitlines() or [""]))
        for number, least in enumerate(words)
    ]
    free = width - _GAP * (len(needed) - 1)
    while sum(needed) > free:
        widest = max(range(len(needed)), key=lambda number: needed[number])
        if needed[widest] <= max(_NARROWEST, words[widest]):
            return None
        needed[widest] -= 1
    return needed


def _blocks(names: Sequence[str], cells: Sequence[Sequence[Text]]) -> Iterable[Text]:
    """A block of lines for each row, an empty line between two."""
    wide = max(map(len, names), default=0)
    for number, row in enumerate(cells):
        if number:
            yield Text("")
        for name, cell in zip(names, row, strict=True):
            yield Text(f"{name:<{wide}}  ", style="bold") + cell


def record(values: Mapping[str, Any], utc: bool) -> RenderableType:
    """Names and values, one per line."""
    return Group(*_blocks(list(values), [[shown(value, utc) for value in values.values()]]))


def lines(columns: Sequence[str], rows: Rows, utc: bool) -> Iterable[str]:
    """The table without a terminal: aligned, complete, one line a row, however long; the names as the service has them.

    Line breaks inside a value are `\\n`.
    """
    texts = [list(columns), *([_one_line(shown(value, utc).plain) for value in row] for row in rows)]
    widths = [max(cell_len(row[number]) for row in texts) for number in range(len(columns))]
    for row in texts:
        padded = (text + " " * (wide - cell_len(text)) for text, wide in zip(row, widths, strict=True))
        yield (" " * _GAP).join(padded).rstrip()


def _one_line(text: str) -> str:
    return "\\n".join(text.splitlines())


def csv_text(tables: Sequence[tuple[str, Sequence[str], Rows]], utc: bool) -> str:
    """One CSV of all tables: their titles are the column `part` when there are several, columns of one name are one."""
    columns = list(dict.fromkeys(name for _, names, _ in tables for name in names))
    made = [_csv_line(["part", *columns] if len(tables) > 1 else columns)]
    for title, names, rows in tables:
        for row in rows:
            values: Mapping[str, Any] = dict(zip(names, row, strict=True))
            cells = [_cell(values.get(name), utc) for name in columns]
            made.append(_csv_line([title, *cells] if len(tables) > 1 else cells))
    return "".join(made)


def _csv_line(cells: Sequence[str]) -> str:
    """A line that ends with LF; the writer must know CR as an end, or it does not quote the segments of a message."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow(cells)
    return out.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: Any, utc: bool) -> str:
    """A cell of a spreadsheet: complete, null is empty, and no text runs as a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    text = escaped(dumps(value).decode() if isinstance(value, dict | list) else for_files(str(value), utc))
    return f"'{text}" if text.startswith(_FORMULA) else text
