"""A search parameter of a request, and functions that the parsers of all parameter types share.

Source: https://hl7.org/fhir/R4/search.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from ipf.errors import Category, Problem
from ipf.fhir.index.sources import Source
from ipf.fhir.model.definitions import SearchParameter
from ipf.ports.queries.predicates import AnyOf, Kind, Test, TextEquals

_ESCAPED = re.compile(r"\\([,|$\\])")
_KINDS: dict[str, Kind] = {"date": "date", "number": "quantity", "quantity": "quantity"}


@dataclass(frozen=True, slots=True)
class RequestedParameter:
    """One parameter of a search: `name` as written (for messages), its definition and its sources.

    `now`: what `ap` on a date is relative to; None where the time of asking means nothing (stored criteria).
    `base_url`: of this server, whose resources references name by URL as well; "" where nobody asks by URL.
    """

    name: str
    modifier: str
    parameter: SearchParameter
    source: Source
    now: datetime | None = None
    resource_type: str = ""
    base_url: str = ""

    def refuse(self, why: str) -> Problem:
        """A Problem about this parameter's value."""
        return Problem(Category.VALUE, f"search parameter {self.name}: {why}", self.name)

    def unsupported(self) -> Problem:
        """A Problem about this parameter's modifier."""
        text = f"search parameter {self.name}: the modifier :{self.modifier} is not supported"
        return Problem(Category.NOT_SUPPORTED, text, self.name)


def kind_of(parameter: SearchParameter) -> Kind:
    """Which of the three indexes has the values of a parameter."""
    return _KINDS.get(parameter.type, "text")


def split(value: str, separator: str) -> list[str]:
    """The parts between separators that no backslash stands before; escapes are left as they are."""
    if "\\" not in value:
        return value.split(separator)
    parts, start, position = [], 0, 0
    while position < len(value):
        if value[position] == "\\":
            position += 1
        elif value[position] == separator:
            parts.append(value[start:position])
            start = position + 1
        position += 1
    return [*parts, value[start:]]


def unescape(value: str) -> str:
    """A part without the backslashes before `,` `|` `$` and backslash."""
    return _ESCAPED.sub(r"\1", value) if "\\" in value else value


def any_of(tests: Sequence[Test]) -> Test:
    """One test for alternatives; equalities on one code become one."""
    if len(tests) == 1:
        return tests[0]
    values: dict[str, set[str]] = {}
    others: list[Test] = []
    for test in tests:
        if isinstance(test, TextEquals):
            values.setdefault(test.code, set()).update(test.values)
        else:
            others.append(test)
    merged: list[Test] = [TextEquals(code, tuple(sorted(found))) for code, found in sorted(values.items())]
    every = tuple(dict.fromkeys(merged + others))
    return every[0] if len(every) == 1 else AnyOf(every)


def on_each_code(requested: RequestedParameter, make: Callable[[str], Test]) -> list[Test]:
    """The same test on each code that has values of the parameter."""
    return [make(code) for code in requested.source.codes]
