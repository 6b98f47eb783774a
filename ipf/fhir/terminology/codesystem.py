"""A code system: its codes, their displays and their hierarchy.

Built from a row of the tables or from a CodeSystem resource; both give `[code, display, children, properties]`.
Source: https://hl7.org/fhir/R4/codesystem.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ipf.fhir.terminology.rules import rewritten
from ipf.ports.fhir.terminology import Above, Among, Below, ChildOf, Facts, ParentOf, Rule

Json = dict[str, Any]
_NO_PARENTS: tuple[str, ...] = ()


@dataclass(slots=True)
class Concept:
    """One code with its display, its parents, and its properties (code -> values)."""

    code: str
    display: str
    parents: tuple[str, ...]
    properties: dict[str, list[Any]]
    definition: str = ""
    designations: tuple[Json, ...] = ()
    known_facts: Facts | None = None

    @property
    def selectable(self) -> bool:
        """False for an abstract code, which only groups others."""
        return self.properties.get("notSelectable", [False])[0] not in (True, "true")

    @property
    def is_active(self) -> bool:
        """False for a code that is kept for old data only.

        Source: https://hl7.org/fhir/R4/codesystem-concept-properties.html
        """
        if self.properties.get("inactive", [False])[0] in (True, "true"):
            return False
        return not {"retired", "inactive"} & {str(one) for one in self.properties.get("status", ())}

    @property
    def facts(self) -> Facts:
        """The concept for rules without relations (`CodeSystem.grounded`); made once, since filters ask again."""
        if self.known_facts is None:
            self.known_facts = self._facts()
        return self.known_facts

    def _facts(self) -> Facts:
        pairs = {(name, text_of(value)) for name, values in self.properties.items() for value in values}
        return Facts(self.code, self.display, self.is_active, not self.selectable, properties=frozenset(pairs))


class CodeSystem:
    """The loaded codes of one system.  `complete`: the system has no other codes.  `is_resource`: of a client's or a
    package's resource, not of a shipped table."""

    def __init__(self, url: str, facts: Json, version: str = "", *, is_resource: bool = False) -> None:
        self.url = url
        self.is_resource = is_resource
        self.version = version
        self.name: str = facts.get("name", "")
        self.complete: bool = facts.get("content") == "complete"
        self.any_case: bool = facts.get("any_case", False)
        self.declared: dict[str, str] = facts.get("properties", {})  # code -> type
        self.concepts: dict[str, Concept] = {}
        self._folded: dict[str, Concept] = {}
        self._children: dict[str, list[str]] | None = None
        self._displays: dict[str, str] | None = None
        for concept in _flat(facts.get("concepts", ()), _NO_PARENTS):
            self.concepts.setdefault(concept.code, concept)
        if self.any_case:
            self._folded = {code.casefold(): concept for code, concept in self.concepts.items()}

    def find(self, code: str) -> Concept | None:
        """The concept of a code; None when it is unknown."""
        return self.concepts.get(code) or (self._folded.get(code.casefold()) if self.any_case else None)

    def displays(self) -> dict[str, str]:
        """Code -> display of all concepts; the caller may change it."""
        if self._displays is None:
            self._displays = {one.code: one.display for one in self.concepts.values()}
        return dict(self._displays)

    def is_below(self, code: str, ancestor: str) -> bool:
        """Whether `code` is a descendant of `ancestor`; a code is not its own descendant."""
        return ancestor in self.above(code)

    def above(self, code: str) -> set[str]:
        """All ancestors of a code."""
        found: set[str] = set()
        pending = [code]
        while pending:
            concept = self.find(pending.pop())
            for parent in concept.parents if concept is not None else ():
                if parent not in found:
                    found.add(parent)
                    pending.append(parent)
        return found

    def below(self, ancestor: str) -> set[str]:
        """All descendants of a code; each concept is visited once."""
        if self._children is None:
            self._children = self._by_parent()
        found: set[str] = set()
        pending = [self._own(ancestor)]
        while pending:
            for code in self._children.get(pending.pop(), ()):
                if code not in found:
                    found.add(code)
                    pending.append(code)
        return found

    def has_property(self, name: str) -> bool:
        """Whether a concept has this property, or the system declares it."""
        return name in self.declared or any(name in one.properties for one in self.concepts.values())

    def grounded(self, rule: Rule) -> Rule:
        """The rule with its relations as the codes that have them."""
        return rewritten(rule, self._grounded)

    def _grounded(self, rule: Rule) -> Rule:
        match rule:
            case Below(code):
                return Among(frozenset((*self.below(code), self._own(code))))
            case Above(code):
                return Among(frozenset((*self.above(code), self._own(code))))
            case ChildOf(code):
                own = self._own(code)
                return Among(frozenset(one.code for one in self.concepts.values() if own in one.parents))
            case ParentOf(code):
                concept = self.find(code)
                return Among(frozenset(concept.parents if concept is not None else ()))
        return rule

    def _by_parent(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for concept in self.concepts.values():
            for parent in concept.parents:
                found.setdefault(self._own(parent), []).append(concept.code)
        return found

    def _own(self, code: str) -> str:
        """The code as the system writes it."""
        known = self.find(code)
        return code if known is None else known.code


def text_of(value: Any) -> str:
    """The value of a property as filters compare it: a Coding by its code."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.get("code", "")) if isinstance(value, dict) else str(value)


def _flat(rows: Iterable[Any], parents: tuple[str, ...]) -> Iterator[Concept]:
    for row in rows:
        code, display, children, properties, definition, designations = _padded(row)
        above = parents
        for name in ("parent", "subsumedBy"):
            above = (*above, *(str(each) for each in properties.get(name, ()) if str(each) not in above))
        yield Concept(code, display or code, above, properties, definition, designations)
        yield from _flat(children, (code,))


def _padded(row: list[Any]) -> tuple[str, str, list[Any], dict[str, list[Any]], str, tuple[Json, ...]]:
    """A row with defaults for missing columns: display, children, properties, definition, designations."""
    padded: Any = (*row, *("", [], {}, "", ())[len(row) - 1 :])
    return padded  # type: ignore[no-any-return]


def facts_of(resource: Json) -> Json:
    """A CodeSystem resource as facts."""
    return {
        "name": resource.get("name", ""),
        "content": resource.get("content", ""),
        "any_case": resource.get("caseSensitive") is False,
        "properties": {one["code"]: one.get("type", "") for one in resource.get("property", ()) if "code" in one},
        "concepts": _rows(resource.get("concept", ())),
    }


def _rows(concepts: Iterable[Json]) -> list[list[Any]]:
    """The rows of those with a code; another one cannot be asked for."""
    return [_row(one) for one in concepts if "code" in one]


def _row(concept: Json) -> list[Any]:
    properties: dict[str, list[Any]] = {}
    for one in concept.get("property", ()):
        value = next((item for name, item in one.items() if name.startswith("value")), None)
        properties.setdefault(one.get("code", ""), []).append(value)
    children = _rows(concept.get("concept", ()))
    designations = tuple(concept.get("designation", ()))
    display, definition = concept.get("display", ""), concept.get("definition", "")
    return [concept["code"], display, children, properties, definition, designations]
