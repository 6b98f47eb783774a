"""Terminology: imported code systems, the rules that select concepts of one, and the terminology of searches.

Imported code systems belong to the installation: every tenant may use them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ImportedSystem:
    """One version of an imported code system.  `id` belongs to one import: another import of it has another id.

    `is_current`: the version that is meant where none is named.  `properties`: code -> type.
    """

    id: int
    url: str
    version: str
    name: str = ""
    is_current: bool = True
    is_case_sensitive: bool = True
    concepts: int = 0
    properties: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)
    languages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What rules ask of one concept.  `ancestors` has the concept itself; `properties`: name and value."""

    code: str
    display: str = ""
    is_active: bool = True
    is_abstract: bool = False
    definition: str = ""
    parents: frozenset[str] = frozenset()
    ancestors: frozenset[str] = frozenset()
    properties: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Designation:
    """A further name of a concept.  `use`: system, code and display; empty texts where it is not known."""

    language: str
    value: str
    use: tuple[str, str, str] = ("", "", "")


@dataclass(frozen=True, slots=True)
class Listed:
    """One concept of a page."""

    code: str
    display: str
    is_active: bool
    is_abstract: bool
    definition: str = ""


# -- rules: which concepts of one code system


@dataclass(frozen=True, slots=True)
class Among:
    """The concepts with these codes."""

    codes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Below:
    """A concept and its descendants."""

    code: str


@dataclass(frozen=True, slots=True)
class Above:
    """A concept and its ancestors."""

    code: str


@dataclass(frozen=True, slots=True)
class ChildOf:
    """The concepts with this parent."""

    code: str


@dataclass(frozen=True, slots=True)
class ParentOf:
    """The concepts with this child."""

    code: str


@dataclass(frozen=True, slots=True)
class HasProperty:
    """The concepts with a property, with one of these values (None: with any)."""

    name: str
    values: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class HasValue:
    """The concepts with a property whose value is the code of a concept of the same system that the rule selects."""

    name: str
    rule: Rule


@dataclass(frozen=True, slots=True)
class IsActive:
    """The concepts that are active."""


@dataclass(frozen=True, slots=True)
class MatchesPattern:
    """The concepts with a value of `name` (`code`, `display` or a property) that a regular expression matches whole."""

    name: str
    pattern: str


@dataclass(frozen=True, slots=True)
class EveryRule:
    """The concepts that all rules select; all concepts without a rule."""

    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class AnyRule:
    """The concepts that one of the rules selects."""

    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class NoRule:
    """The concepts that the rule does not select."""

    rule: Rule


Rule = (
    Among
    | Below
    | Above
    | ChildOf
    | ParentOf
    | HasProperty
    | HasValue
    | IsActive
    | MatchesPattern
    | EveryRule
    | AnyRule
    | NoRule
)
ALL = EveryRule()


class CodeSystems(Protocol):
    """The imported code systems.

    Problem TRANSIENT from each method with a system that another import has replaced meanwhile.
    """

    async def imported(self) -> Sequence[ImportedSystem]:
        """All versions of all systems."""

    async def facts(self, system: ImportedSystem, codes: Collection[str]) -> Mapping[str, Facts]:
        """The facts of these codes; unknown ones are missing."""

    async def page(
        self, system: ImportedSystem, rule: Rule, words: Sequence[str], offset: int, limit: int
    ) -> tuple[Sequence[Listed], int | None]:
        """Selected concepts with words that begin so, in the order of the system; `rule` has no MatchesPattern
        and no HasValue.

        And how many there are in all; None when there are too many to count them.
        """

    async def values(self, system: ImportedSystem, name: str, limit: int) -> Sequence[str]:
        """The different values of `code`, `display` or a property."""

    async def designations(self, system: ImportedSystem, codes: Collection[str]) -> Mapping[str, Sequence[Designation]]:
        """The designations of these codes."""

    async def children(self, system: ImportedSystem, code: str, limit: int) -> Sequence[str]:
        """The codes of the children of a concept."""

    async def used(
        self, tenant: str, resource_type: str, parameters: Sequence[str], system: ImportedSystem, rule: Rule, limit: int
    ) -> frozenset[str]:
        """The selected codes that resources of a type have under these search parameters."""


class ClosureTables(Protocol):
    """The closure tables of clients, by tenant and name."""

    async def start(self, tenant: str, name: str) -> None:
        """Make a table empty, or make an empty one."""

    async def add(self, tenant: str, name: str, codes: Collection[tuple[str, str]]) -> int | None:
        """Add (system, code); the version of the table afterwards.  None when there is no such table."""

    async def concepts(self, tenant: str, name: str) -> Mapping[tuple[str, str], int] | None:
        """(system, code) -> version of the table that added it; None when there is no such table."""


class Terminology(Protocol):
    """Sets of codes for searches.  Problem: unknown value set, or too many codes.

    `resource_type`, `parameters`: of the search; of a large system only codes that occur there are listed.
    """

    async def expand(
        self, tenant: str, url: str, resource_type: str, parameters: Sequence[str]
    ) -> frozenset[tuple[str, str]]:
        """(system, code) of the members of the value set with this canonical URL."""

    async def related(
        self, tenant: str, system: str, code: str, relation: str, resource_type: str, parameters: Sequence[str]
    ) -> frozenset[str]:
        """The code and its ancestors (`relation` `above`) or descendants (`below`)."""
