"""The conditions of a search on one resource, as records.

`ipf/fhir/search` builds them from search parameters, `ipf/fhir/search/evaluation/match.py` evaluates them against index
entries in memory, `ipf/store/resources/searches/conditions.py` writes them as SQL.  All rules of FHIR search (prefixes,
precision, modifiers) are already applied: a test is an equality, a prefix, a substring, or a comparison of numbers.

There are three kinds of index, one table each: `text` (code, value), `date` (code, lo, hi) and `quantity` (code, lo,
hi, unit); `ipf/ports/queries/index.py` describes the values.  A test is true of a resource when at least one of
its entries satisfies it; `Not` is true when none does.

Some tests need more than the entries of the resource.  `Linked` and `Has` read other resources.  `CodeIn`,
`ReferenceIn` and `ListMember` are replaced by other tests before evaluation
(`ipf/rest/interactions/searches/expand.py`).  `CodedText`, `FullText`, `TypedIdentifier` and `Contained` read the
resource itself.

Source: https://hl7.org/fhir/R4/search.html
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Literal

Kind = Literal["text", "date", "quantity"]
Operator = Literal["<", "<=", ">", ">="]


class ManyValues:
    """A set of texts that may be large.  Sets with the same content are equal; `repr` is short."""

    __slots__ = ("_digest", "ordered", "values")

    def __init__(self, values: Iterable[str]) -> None:
        self.values = frozenset(values)
        self.ordered = tuple(sorted(self.values))
        self._digest = blake2b("\n".join(self.ordered).encode(), digest_size=16).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ManyValues) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"ManyValues({len(self.values)}, {self._digest})"


@dataclass(frozen=True, slots=True)
class TextEquals:
    """Some text entry of `code` has one of these `values` (sorted, unique, at least one)."""

    code: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextAmong:
    """As `TextEquals`, for many values, of which a decision on access is made."""

    code: str
    values: ManyValues


@dataclass(frozen=True, slots=True)
class IdAmong:
    """As `IdIn`, for many ids."""

    ids: ManyValues


@dataclass(frozen=True, slots=True)
class ContextOutside:
    """The resource has no `securityContext` (Binary), or one that is a Patient not among these `Patient/id`."""

    patients: ManyValues


@dataclass(frozen=True, slots=True)
class TextPrefix:
    """Some text entry of `code`, or of `others`, begins with `prefix` (by code points: collation "C")."""

    code: str
    prefix: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextSuffix:
    """Some text entry of `code` ends with `suffix`: a TAB and a system, for tokens of any code."""

    code: str
    suffix: str


@dataclass(frozen=True, slots=True)
class TextContains:
    """Some text entry of `code` contains `part` before its first TAB."""

    code: str
    part: str


@dataclass(frozen=True, slots=True)
class TextEnds:
    """Some text entry of `code` ends with `part` before its first TAB."""

    code: str
    part: str


@dataclass(frozen=True, slots=True)
class Bound:
    """`column operator value`; `column` is `lo` or `hi` of one entry (`at` in LastUpdated)."""

    column: Literal["lo", "hi", "at"]
    operator: Operator
    value: int | Decimal | datetime


Bounds = tuple[tuple[Bound, ...], ...]
"""Alternatives (OR) of conjunctions (AND) on the same entry.  An empty tuple is never true."""


@dataclass(frozen=True, slots=True)
class DateRange:
    """Some date entry of `code` satisfies `bounds`; values are microseconds since 1970 UTC."""

    code: str
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class QuantityRange:
    """Some quantity entry of `code` satisfies `bounds` (Decimal), and its unit matches.

    `unit_prefix`: `unit` begins with it ("" = any).  `unit_part`: `unit` contains it ("" = any).
    """

    code: str
    bounds: Bounds
    unit_prefix: str = ""
    unit_part: str = ""


@dataclass(frozen=True, slots=True)
class QuantityIn:
    """Some quantity entry of `code` in UCUM units satisfies `bounds`, given in the UCUM unit `unit`.  Units of the same
    dimension are converted."""

    code: str
    bounds: Bounds
    unit: str


@dataclass(frozen=True, slots=True)
class TextParts:
    """Some text entry of the composite `code` satisfies all `parts`.

    A part is the number of its first field (fields are separated by LF) and a test on it, without its code.
    """

    code: str
    parts: tuple[tuple[int, Test], ...]


@dataclass(frozen=True, slots=True)
class Linked:
    """Some reference under `code` refers to a live resource of `resource_type` that passes all `tests`: a chain."""

    code: str
    resource_type: str
    tests: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class Has:
    """Some live resource of `resource_type` refers to this resource under `code` and passes all `tests`: `_has`."""

    resource_type: str
    code: str
    tests: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class CodeIn:
    """Some token of these `codes` is in a set of the terminology.

    `relation`: `in` (a value set, `value` is its URL), `above` or `below` (`value` is `system|code`).  `systems`: the
    tokens have systems.
    """

    codes: tuple[str, ...]
    relation: Literal["in", "above", "below"]
    value: str
    systems: bool


@dataclass(frozen=True, slots=True)
class ReferenceIn:
    """Some reference under these `codes` refers to a resource, or to one above or below it in its hierarchy.

    `parents`: the reference parameters of `resource_type` that refer to the resource above.
    """

    codes: tuple[str, ...]
    relation: Literal["above", "below"]
    resource_type: str
    id: str
    parents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListMember:
    """The resource is an entry of the List with this id."""

    id: str


@dataclass(frozen=True, slots=True)
class CodedText:
    """In a value of the token or reference parameter `code`, a text or display has a word that begins with `text`."""

    resource_type: str
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class WordQuery:
    """A condition on words: a `phrase` (one word or several in a row), or `and`, `or`, `not` of others."""

    operator: Literal["phrase", "and", "or", "not"]
    words: tuple[str, ...] = ()
    parts: tuple[WordQuery, ...] = ()


@dataclass(frozen=True, slots=True)
class FullText:
    """The words of the resource under `code` (`_text` or `_content`; `ipf/fhir/index/words.py`) meet the condition."""

    code: str
    query: WordQuery


@dataclass(frozen=True, slots=True)
class IndexedWords:
    """As `FullText`, by index entries: the store puts it in its place where all resources have them."""

    code: str
    query: WordQuery


@dataclass(frozen=True, slots=True)
class Near:
    """The Location is at most `metres` from the point (degrees)."""

    latitude: float
    longitude: float
    metres: float


@dataclass(frozen=True, slots=True)
class TypedIdentifier:
    """Some Identifier of the parameter `code` has this `value` and a type with this coding."""

    resource_type: str
    code: str
    system: str
    type_code: str
    value: str


@dataclass(frozen=True, slots=True)
class Contained:
    """Some contained resource of this type passes all `tests`, which are put to it alone."""

    resource_type: str
    tests: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """All of the tests (two or more) are true."""

    tests: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class Present:
    """The index has an entry of `code`.  `:missing=true` is `Not(Present(...))`."""

    code: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class IdIn:
    """The resource's logical id is one of these (sorted, unique)."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LastUpdated:
    """The instant of the resource's current version satisfies `bounds`; column `at`, values are UTC datetimes."""

    bounds: Bounds


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one of the tests (two or more) is true: values separated by a comma."""

    tests: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The test is false."""

    test: Test


Stored = (
    TextEquals
    | TextAmong
    | TextPrefix
    | TextSuffix
    | TextContains
    | TextEnds
    | TextParts
    | DateRange
    | QuantityRange
    | QuantityIn
    | IndexedWords
    | Present
)
"""Tests on the entries of one code."""

Filtered = CodedText | FullText | Near | ContextOutside | Contained
"""Tests that are put to the resources which the others leave."""

Test = (
    Stored
    | IdIn
    | IdAmong
    | LastUpdated
    | Linked
    | Has
    | CodeIn
    | ReferenceIn
    | ListMember
    | CodedText
    | FullText
    | Near
    | TypedIdentifier
    | ContextOutside
    | Contained
    | AllOf
    | AnyOf
    | Not
)

NOTHING = LastUpdated(())
"""The test that no resource passes, such as `patient=Group/1`."""
