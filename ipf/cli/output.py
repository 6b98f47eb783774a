"""Output of the commands: tables for people, JSON for scripts (`--json`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ipf.fhir.model.json import dumps
from ipf.hl7.direction import escaped

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


_MICROSECONDS = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})\d{3}Z$")


@dataclass(frozen=True, slots=True)
class Output:
    """Standard output and standard error.  With `as_json` only :meth:`data` writes to standard output."""

    as_json: bool = False
    console: Console = field(default_factory=lambda: _console(stderr=False))
    errors: Console = field(default_factory=lambda: _console(stderr=True))

    def data(self, value: Any) -> bool:
        """Write a result as JSON if `as_json`; returns `as_json`."""
        if self.as_json:
            sys.stdout.write(dumps(value).decode() + "\n")
        return self.as_json

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> None:
        """Write rows as a table; write nothing if there are none."""
        rows = list(rows)
        if not rows:
            return
        made = Table(title=title or None, title_justify="left", box=None, header_style="bold", pad_edge=False)
        for column in columns:
            made.add_column(column, overflow="fold")
        for row in rows:
            made.add_row(*(shown(value) for value in row))
        self.console.print(made)

    def record(self, values: Mapping[str, Any]) -> None:
        """Write names and values, one per line."""
        width = max((len(name) for name in values), default=0)
        for name, value in values.items():
            self.console.print(Text(f"{name:<{width}}  ", style="bold") + shown(value))

    def say(self, text: str) -> None:
        """Write a sentence."""
        if not self.as_json:
            self.console.print(Text(escaped(text)))

    def error(self, text: str, hint: str = "") -> None:
        """Write an error to standard error."""
        self.errors.print(Text("error: ", style="bold red") + Text(text))
        if hint:
            self.errors.print(Text(hint, style="dim"))


def _console(*, stderr: bool) -> Console:
    """A console as wide as the terminal, or 240 columns wide without one."""
    console = Console(stderr=stderr, soft_wrap=True, highlight=False)
    if not console.is_terminal:
        console.width = 240
    return console


def shown(value: Any) -> Text:
    """A value as text: a dash for null, a colour for a state."""
    if value is None:
        return Text("-", style="dim")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, dict | list):
        return Text(escaped(dumps(value).decode()))
    text = escaped(_MICROSECONDS.sub(r"\1Z", str(value)))
    return Text(text, style=_COLOURS.get(text, ""))
