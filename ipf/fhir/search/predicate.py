"""What a search asks of one resource, as values: the small algebra between search syntax and those who answer it.

`query.py` writes it; `match.py` reads it against index entries in memory, `store/resources/search.py` reads it as
SQL.  Both
must give the same answer, so every rule of FHIR search (prefixes, precision, modifiers) is settled before: a test
here is only equality, prefix, substring, or a comparison of numbers with stored numbers.

Tests fall in three kinds of index, one table each: `text` (code, value), `date` (code, lo, hi) and `quantity`
(code, lo, hi, unit); see `entries.py` for what the values look like.  A test is true of a resource when at least one
entry of the resource satisfies it; `Not` is true when none does.

Some need more than the entries of the resource: `Linked` and `Has` look at other resources, `CodeIn` and `ListMember`
are replaced by others before they are put (`rest/interactions/search_expand.py`), `CodedText` and `TypedIdentifier`
look at the
resource itself.  `needs_store` and `needs_resource` tell them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

from ipf.records import quick

Kind = Literal["text", "date", "quantity"]
Operator = Literal["<", "<=", ">", ">="]


@quick
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
class TextSuffix:
    """Some text entry of `code` ends with `suffix`: a TAB and a system, for tokens of any code."""

    code: str
    suffix: str


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
class QuantityIn:
    """Some quantity entry of `code` in UCUM units satisfies `bounds`, which are in the UCUM unit `unit`: units of the
    same dimension are converted."""

    code: str
    bounds: Bounds
    unit: str


@dataclass(frozen=True, slots=True)
class TextParts:
    """Some text entry of the composite `code` satisfies all `parts`.

    A part is the number of its first field (fields are separated by LF) and a test on it, whose code means nothing.
    """

    code: str
    parts: tuple[tuple[int, Test], ...]


@dataclass(frozen=True, slots=True)
class Linked:
    """Some reference under `code` points at a live resource of `resource_type` that passes all `tests`: a chain."""

    code: str
    resource_type: str
    tests: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class Has:
    """Some live resource of `resource_type` refers here under `code` and passes all `tests`: `_has`."""

    resource_type: str
    code: str
    tests: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class CodeIn:
    """Some token of these `codes` is in a set that a terminology knows.

    `relation`: `in` (a value set, `value` is its URL), `above` or `below` (`value` is `system|code`).  `systems`: the
    tokens have systems.
    """

    codes: tuple[str, ...]
    relation: Literal["in", "above", "below"]
    value: str
    systems: bool


@dataclass(frozen=True, slots=True)
class ListMember:
    """The resource is an entry of the List with this id."""

    id: str


@dataclass(frozen=True, slots=True)
class CodedText:
    """In a value of the token or reference parameter `code`, a text or display has a word that `text` begins at."""

    resource_type: str
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class TypedIdentifier:
    """Some Identifier of the parameter `code` has this `value` and a type with this coding."""

    resource_type: str
    code: str
    system: str
    type_code: str
    value: str


@dataclass(frozen=True, slots=True)
class AllOf:
    """All of the tests (two or more) are true."""

    tests: tuple[Test, ...]


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


Stored = (
    TextEquals | TextPrefix | TextSuffix | TextContains | TextParts | DateRange | QuantityRange | QuantityIn | Present
)
"""Tests on the entries of one code."""

Test = (
    Stored | IdIn | LastUpdated | Linked | Has | CodeIn | ListMember | CodedText | TypedIdentifier | AllOf | AnyOf | Not
)

NOTHING = LastUpdated(())
"""The test that no resource passes, such as `patient=Group/1`."""


_HOLDERS = (AllOf, AnyOf, Not, Linked, Has)


def inner(test: Test) -> tuple[Test, ...]:
    """The tests that a test is put together from, of this or of other resources."""
    match test:
        case AllOf(tests) | AnyOf(tests):
            return tests
        case Linked() | Has():
            return test.tests
        case Not(one):
            return (one,)
    return ()


def within(test: Test, *kinds: type[object]) -> bool:
    """Whether the test is, or holds, one of these kinds."""
    if isinstance(test, kinds):
        return True
    return isinstance(test, _HOLDERS) and any(within(one, *kinds) for one in inner(test))


def needs_store(test: Test) -> bool:
    """Whether the answer takes other resources, or a terminology."""
    return within(test, Linked, Has, CodeIn, ListMember)


def needs_resource(test: Test) -> bool:
    """Whether the answer takes the resource itself: index entries only come near to it."""
    return within(test, CodedText, TypedIdentifier)


def rewritten(test: Test, change: Callable[[Test], Test]) -> Test:
    """The test with `change` applied to all that it holds, innermost first, and to itself."""
    match test:
        case AllOf(tests):
            test = AllOf(tuple(rewritten(one, change) for one in tests))
        case AnyOf(tests):
            test = AnyOf(tuple(rewritten(one, change) for one in tests))
        case Linked(code, resource_type, tests):
            test = Linked(code, resource_type, tuple(rewritten(one, change) for one in tests))
        case Has(resource_type, code, tests):
            test = Has(resource_type, code, tuple(rewritten(one, change) for one in tests))
        case Not(one):
            test = Not(rewritten(one, change))
    return change(test)


def tests_equal(code: str, values: Iterable[str]) -> Test:
    """`TextEquals` for any number of values; with none, what no resource passes."""
    found = tuple(sorted(set(values)))
    return TextEquals(code, found) if found else NOTHING
