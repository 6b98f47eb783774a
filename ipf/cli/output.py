"""Output of the commands: tables for people, JSON and CSV for scripts and spreadsheets (`--output`)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from ipf.cli import tables
from ipf.cli.progress import Waiting
from ipf.cli.words import counted, none_of, plural
from ipf.fhir.model.json import dumps
from ipf.hl7.direction import escaped


class Form(StrEnum):
    """The form of a result."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@dataclass(slots=True)
class Output:
    """Standard output and standard error.

    JSON: only :meth:`data` writes to standard output.  CSV: tables are kept, and :meth:`finish` writes them as one.
    """

    form: Form = Form.TABLE
    utc: bool = False
    console: Console = field(default_factory=lambda: Console(highlight=False))
    errors: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))
    waiting: Waiting = field(init=False)
    _kept: list[tuple[str, Sequence[str], tables.Rows]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.waiting = Waiting(self.errors)

    @property
    def is_table(self) -> bool:
        """Whether the result is for people."""
        return self.form is Form.TABLE

    def data(self, value: Any) -> bool:
        """Write a result if it is to be JSON; returns whether it was."""
        if self.form is Form.JSON:
            self.waiting.clear()
            sys.stdout.write(dumps(value).decode() + "\n")
        return self.form is Form.JSON

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> None:
        """Write rows as a table; write nothing if there are none.  CSV has the columns without rows, too."""
        rows = list(rows)
        if self.form is Form.CSV:
            self._kept.append((title, columns, rows))
        elif rows and self.form is Form.TABLE:
            if title:
                self.say(f"\n{title}")
            if self.console.is_terminal:
                self.waiting.clear()
                self._print(tables.fitted(columns, rows, self.console.width, self.utc))
            else:
                self.verbatim("\n".join(tables.lines(columns, rows, self.utc)))

    def page(self, found: Mapping[str, Any], columns: Sequence[str], noun: str, title: str = "") -> None:
        """Write a list of the admin API: its rows, and which of how many they are.  `noun`: one of them."""
        items = found["items"]
        self.table(columns, [[item.get(name) for name in columns] for item in items], title)
        total, exact = found.get("total", len(items)), "" if found.get("total_is_exact", True) else "at least "
        first = found.get("offset", 0) + 1
        if not items:
            there = "is" if total == 1 else "are"
            self.say(f"No more: there {there} {exact}{counted(total, noun)}." if total else none_of(noun))
        elif len(items) == total and not exact:
            self.say(counted(total, noun))
        else:
            self.say(f"{first} to {first + len(items) - 1} of {exact}{total} {plural(noun)}")

    def record(self, values: Mapping[str, Any]) -> None:
        """Write names and values, one per line; in CSV a row."""
        if self.form is Form.CSV:
            self._kept.append(("", list(values), [list(values.values())]))
        elif self.form is Form.TABLE:
            self.waiting.clear()
            self._print(tables.record(values, self.utc))

    def say(self, text: str) -> None:
        """Write a sentence, if the result is a table."""
        if self.form is Form.TABLE:
            self.waiting.clear()
            self._print(Text(escaped(text)))

    def verbatim(self, text: str) -> None:
        """Write text without breaking its lines, if the result is a table."""
        if self.form is Form.TABLE:
            self.waiting.clear()
            self.console.print(Text(escaped(text)), soft_wrap=True)

    def _print(self, text: RenderableType) -> None:
        """Write with line breaks at the width of the terminal, and without them where there is none."""
        self.console.print(text, soft_wrap=not self.console.is_terminal)

    def error(self, text: str, hint: str = "") -> None:
        """Write an error to standard error."""
        self.waiting.clear()
        wraps = self.errors.is_terminal
        self.errors.print(Text("error: ", style="bold red") + Text(escaped(text)), soft_wrap=not wraps)
        if hint:
            self.errors.print(Text(escaped(hint), style="dim"), soft_wrap=not wraps)

    def finish(self) -> None:
        """Write the CSV."""
        if self.form is Form.CSV and self._kept:
            self.waiting.clear()
            sys.stdout.write(tables.csv_text(self._kept, self.utc))
            self._kept.clear()
