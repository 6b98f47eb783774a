"""ConceptMap translation: a code of one system in, the matching codes of others out.

Source: https://hl7.org/fhir/R4/conceptmap-operation-translate.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Codes = Mapping[str, frozenset[str]]
"""Dependencies of a request: property -> its codes."""
Other = Callable[[str], Json | None]
"""A ConceptMap by its canonical."""
_NO_MATCH = frozenset(("unmatched", "disjoint"))
_MOST_MAPS = 5  # one that sends what it does not map to another


@dataclass(frozen=True, slots=True)
class Match:
    """One translation: the target code, its equivalence (`equivalent`, `wider` ...), and the ConceptMap.

    `products`: (property, system, code, display) that belong to the translation.
    """

    system: str
    code: str
    display: str
    equivalence: str
    source: str
    products: tuple[tuple[str, str, str, str], ...] = ()

    @property
    def matched(self) -> bool:
        """Whether this is a translation; False for `unmatched` and `disjoint`."""
        return self.equivalence not in _NO_MATCH


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be translated.  `reverse`: from a target back to its sources.  `dependencies`: None = any.

    `version`: of the system; a group for another version does not translate it.
    """

    system: str | None
    code: str
    target_system: str | None = None
    reverse: bool = False
    dependencies: Codes | None = None
    version: str | None = None


def translate(
    maps: Iterable[Json], system: str | None, code: str, target_system: str | None = None, reverse: bool = False,
    dependencies: Codes | None = None, other: Other = lambda canonical: None, version: str | None = None,
) -> list[Match]:  # fmt: skip
    """All matches of a code in these maps, in order, each once."""
    question = Question(system, code, target_system, reverse, dependencies, version)
    found = (match for one in maps for match in _in_map(one, question, other, _MOST_MAPS))
    return list(dict.fromkeys(found))


def _in_map(concept_map: Json, asked: Question, other: Other, depth: int) -> Iterator[Match]:
    url = concept_map.get("url", "")
    for group in concept_map.get("group", ()):
        here, there = group.get("source"), group.get("target")
        if asked.reverse:
            here, there = there, here
        if (asked.system and here and asked.system != here) or (
            asked.target_system and there and asked.target_system != there
        ):
            continue
        stated = group.get("targetVersion" if asked.reverse else "sourceVersion")
        if asked.version and stated and asked.version != stated:
            continue
        pairs = _reversed(group, asked) if asked.reverse else _forward(group, asked)
        matches = [
            Match(there or "", end.get("code", ""), end.get("display", ""), equivalence, url, _products(target))
            for source, end, equivalence, target in pairs
            if source == asked.code
        ]
        yield from matches
        if not matches and not asked.reverse:
            yield from _unmapped(group.get("unmapped", {}), asked, there or "", url, other, depth)


def _forward(group: Json, asked: Question) -> Iterator[tuple[str, Json, str, Json]]:
    for element in group.get("element", ()):
        for target in element.get("target", ()):
            if _depends(target, asked):
                yield element.get("code", ""), target, target.get("equivalence", "equivalent"), target


def _reversed(group: Json, asked: Question) -> Iterator[tuple[str, Json, str, Json]]:
    turned = {"wider": "narrower", "narrower": "wider", "subsumes": "specializes", "specializes": "subsumes"}
    for element in group.get("element", ()):
        for target in element.get("target", ()):
            equivalence = target.get("equivalence", "equivalent")
            yield target.get("code", ""), element, turned.get(equivalence, equivalence), {}


def _depends(target: Json, asked: Question) -> bool:
    """Whether a target holds with the dependencies of a request; without any, all hold."""
    if asked.dependencies is None:
        return True
    return all(
        str(one.get("value", "")) in asked.dependencies.get(str(one.get("property", "")), ())
        for one in target.get("dependsOn", ())
    )


def _products(target: Json) -> tuple[tuple[str, str, str, str], ...]:
    names = ("property", "system", "value", "display")
    return tuple(
        (str(a), str(b), str(c), str(d))
        for a, b, c, d in ([one.get(name, "") for name in names] for one in target.get("product", ()))
    )


def _unmapped(rule: Json, asked: Question, system: str, url: str, other: Other, depth: int) -> Iterator[Match]:
    """The translation of codes that a map does not list: unchanged, one fixed code, or that of another map."""
    mode = rule.get("mode")
    if mode == "provided":
        yield Match(system, asked.code, "", "equal", url)
    elif mode == "fixed" and "code" in rule:
        yield Match(system, rule["code"], rule.get("display", ""), "inexact", url)
    elif mode == "other-map" and depth and (found := other(str(rule.get("url", "")))) is not None:
        yield from _in_map(found, asked, other, depth - 1)
