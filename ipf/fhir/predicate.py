"""What a search asks of one resource, as values: the small algebra between search syntax and those who answer it.

`query.py` writes it; `match.py` reads it against index entries in memory, `store/search.py` reads it as SQL.  Both
must give the same answer, so every rule of FHIR search (prefixes, precision, modifiers) is settled before: a test
here is only equality, prefix, substring, or a comparison of numbers with stored numbers.

Tests fall in three kinds of index, one table each: `text` (code, value), `date` (code, lo, hi) and `quantity`
(code, lo, hi, unit); see `entries.py` for what the values look like.  A test is true of a resource when at least one
entry of the resource satisfies it; `Not` is true when none does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

Kind = Literal["text", "date", "quantity"]
Operator = Literal["<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class TextEquals:
    """Some text entry of `code` has one of these `values` (sorted, without repeats, at least one)."""

    code: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextPrefix:
    """Some text entry of `code` begins with `prefix` (by code points: collation "C")."""

    code: str
    prefix: str


@dataclass(frozen=True, slots=True)
class TextContains:
    """Some text entry of `code` holds `part` anywhere before its first tab."""

    code: str
    part: str


@dataclass(frozen=True, slots=True)
class Bound:
    """`column operator value`; `column` is `lo` or `hi` of one entry (`at` in LastUpdated)."""

    column: Literal["lo", "hi", "at"]
    operator: Operator
    value: int | Decimal | datetime


Bounds = tuple[tuple[Bound, ...], ...]
"""Alternatives (or) of conjunctions (and), all about one and the same entry.  No alternative at all is never true."""


@dataclass(frozen=True, slots=True)
class DateRange:
    """Some date entry of `code` satisfies `bounds`; values are microseconds since 1970 UTC (`dates.py`)."""

    code: str
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class QuantityRange:
    """Some quantity entry of `code` satisfies `bounds` (Decimal), and its unit text begins with / holds what is given.

    `unit_prefix`: `unit` begins with it ("" = any).  `unit_part`: `unit` holds it anywhere ("" = any).
    """

    code: str
    bounds: Bounds
    unit_prefix: str = ""
    unit_part: str = ""


@dataclass(frozen=True, slots=True)
class Present:
    """There is any entry of `code` in that index.  `:missing=true` is `Not(Present(...))`."""

    code: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class IdIn:
    """The resource's logical id is one of these (sorted, without repeats)."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LastUpdated:
    """The instant of the resource's current version satisfies `bounds`; column `at`, values are UTC datetimes."""

    bounds: Bounds


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one of the tests (there are two or more) is true: values separated by a comma."""

    tests: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The test is false."""

    test: Test


Test = TextEquals | TextPrefix | TextContains | DateRange | QuantityRange | Present | IdIn | LastUpdated | AnyOf | Not

NOTHING = LastUpdated(())
"""The test that no resource passes, such as `patient=Group/1`."""
