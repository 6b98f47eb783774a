"""ConceptMap translation: a code of one system in, the matching codes of others out.

Source: https://hl7.org/fhir/R4/conceptmap-operation-translate.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
_NO_MATCH = frozenset(("unmatched", "disjoint"))


@dataclass(frozen=True, slots=True)
class Match:
    """One translation: the target code, its equivalence (`equivalent`, `wider` ...), and the ConceptMap."""

    system: str
    code: str
    display: str
    equivalence: str
    source: str

    @property
    def matched(self) -> bool:
        """Whether this is a translation; False for `unmatched` and `disjoint`."""
        return self.equivalence not in _NO_MATCH


def translate(
    maps: Iterable[Json], system: str | None, code: str, target_system: str | None = None, reverse: bool = False
) -> list[Match]:
    """All matches of a code in these maps, in order, each once."""
    found = (match for one in maps for match in _in_map(one, system, code, target_system, reverse))
    return list(dict.fromkeys(found))


def _in_map(
    concept_map: Json, system: str | None, code: str, target_system: str | None, reverse: bool
) -> Iterator[Match]:
    url = concept_map.get("url", "")
    for group in concept_map.get("group", ()):
        here, there = group.get("source"), group.get("target")
        if reverse:
            here, there = there, here
        if (system and here and system != here) or (target_system and there and target_system != there):
            continue
        pairs = _reversed(group) if reverse else _forward(group)
        matches = [
            Match(there or "", target.get("code", ""), target.get("display", ""), equivalence, url)
            for source, target, equivalence in pairs
            if source == code
        ]
        yield from matches
        if not matches and not reverse:
            yield from _unmapped(group.get("unmapped", {}), code, there or "", url)


def _forward(group: Json) -> Iterator[tuple[str, Json, str]]:
    for element in group.get("element", ()):
        for target in element.get("target", ()):
            yield element.get("code", ""), target, target.get("equivalence", "equivalent")


def _reversed(group: Json) -> Iterator[tuple[str, Json, str]]:
    turned = {"wider": "narrower", "narrower": "wider", "subsumes": "specializes", "specializes": "subsumes"}
    for element in group.get("element", ()):
        for target in element.get("target", ()):
            equivalence = target.get("equivalence", "equivalent")
            yield target.get("code", ""), element, turned.get(equivalence, equivalence)


def _unmapped(rule: Json, code: str, system: str, url: str) -> Iterator[Match]:
    """The translation of codes that a map does not list: unchanged, or one fixed code."""
    if rule.get("mode") == "provided":
        yield Match(system, code, "", "equal", url)
    elif rule.get("mode") == "fixed" and "code" in rule:
        yield Match(system, rule["code"], rule.get("display", ""), "inexact", url)
