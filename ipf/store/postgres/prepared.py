"""Statements that are written while the service runs, their values beside them, so that equal ones are planned once.

A search's SQL depends on which parameters it has, not on their values.  Two searches of the same shape have the same
text here, `$1` for each value; from the second time on it is prepared by each connection that runs it, which saves what
PostgreSQL spends on planning: more than half of a small page.  A shape whose best plan depends on its values is not
`stable`, and is sent with the values in its text, as is one that came once.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count

from ipf.store.postgres.driver import Row
from ipf.store.postgres.quoting import Statement, Value, literal, script

MOST_SHAPES = 500  # that are remembered; then all are forgotten
OFTEN = 2  # so many times a shape must have come to be prepared
_MARK = re.compile(r"\$(\d+)")


class Values:
    """The values of one statement, in the order of their marks."""

    __slots__ = ("types", "values")

    def __init__(self) -> None:
        self.types: list[str] = []
        self.values: list[Value] = []

    def add(self, value: Value, kind: str = "text") -> str:
        """The mark that stands for a value of an SQL type."""
        self.values.append(value)
        self.types.append(kind)
        return f"${len(self.values)}"


@dataclass(frozen=True, slots=True)
class Call:
    """A statement with its values.  `settings`: statements that go before it where the planner sees the values."""

    sql: str
    values: Values
    settings: str = ""
    stable: bool = False

    @property
    def text(self) -> str:
        """One string with the values in it.  Problem MALFORMED for a value that cannot be stored."""
        written = [literal(value) for value in self.values.values]
        return script(self.settings, _MARK.sub(lambda mark: written[int(mark[1]) - 1], self.sql))


class Shapes:
    """Which shapes there were, and what those that came again are prepared as."""

    def __init__(self) -> None:
        self._known: dict[str, Statement] = {}
        self._times: dict[str, int] = {}
        self._numbers = count(1)

    def statement(self, call: Call) -> Statement | None:
        """What a call is prepared as; None when it goes as it is."""
        if not call.stable:
            return None
        return self._known.get(call.sql) or self._often(call)

    def _often(self, call: Call) -> Statement | None:
        times = self._times[call.sql] = self._times.get(call.sql, 0) + 1
        if times < OFTEN:
            if len(self._times) > MOST_SHAPES:
                self._times.clear()
                self._known.clear()
            return None
        made = Statement(f"shape_{next(self._numbers)}", ", ".join(call.values.types), call.sql)
        self._known[call.sql] = made
        return made


Run = Callable[[Call], Awaitable[list[Row]]]
"""Runs a call and returns its rows."""
