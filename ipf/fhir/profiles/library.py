"""Structure definitions by canonical url, whoever states them: packages and the store go before our own tables.

`Structures` never changes what it hands out is to be taken as read only.  A snapshot is made when it is first asked for
and kept; one that a definition brings along is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ipf.fhir.profiles.rows import canonical, structure
from ipf.fhir.profiles.snapshot import SnapshotError, make_snapshot
from ipf.fhir.profiles.tables import STRUCTURES, Table, tables

Json = dict[str, Any]
Find = Callable[[str], Json | None]  # canonical, perhaps with |version -> StructureDefinition
PUBLISHERS = dict.fromkeys(("r4", "us-core", "backport", "topics"), "HL7 International")


class Structures:
    """All structure definitions that this process knows.  `find` comes first, then the shipped tables."""

    def __init__(self, find: Find | None = None) -> None:
        self._find = find
        self._known: dict[str, Json | None] = {}
        self._snapshots: dict[str, list[Json]] = {}
        self._making: set[str] = set()

    def get(self, url: str) -> Json | None:
        """The definition with this canonical (a version is honoured when the definition has another: None)."""
        if url not in self._known:
            self._known[url] = self._look(url)
        return self._known[url]

    def snapshot(self, url: str) -> list[Json]:
        """Its elements; empty when it is not known, SnapshotError when they cannot be made."""
        found = self._snapshots.get(url)
        if found is not None:
            return found
        definition = self.get(url)
        if definition is None:
            return []
        if url in self._making:
            raise SnapshotError(f"{url} is made from itself")
        self._making.add(url)
        try:
            brought = definition.get("snapshot", {}).get("element")
            elements: list[Json] = brought or make_snapshot(definition, self.snapshot, self.rules)
        finally:
            self._making.discard(url)
        self._snapshots[url] = elements
        return elements

    def rules(self, url: str) -> list[Json]:
        """The constraints that stand on a type itself and on what it is made from."""
        definition = self.get(url) or {}
        base = definition.get("baseDefinition")
        elements = definition.get("differential", {}).get("element", ())
        own = elements[0].get("constraint", ()) if elements and "." not in elements[0]["path"] else ()
        return [*(self.rules(base) if base else ()), *own]

    def complete(self, url: str) -> Json | None:
        """The definition with its snapshot, as it is served."""
        definition = self.get(url)
        if definition is None:
            return None
        return finished(definition, self.snapshot(url))

    def _look(self, url: str) -> Json | None:
        found = self._find(url) if self._find is not None else None
        return found or own_structure(url)


def own_structure(url: str) -> Json | None:
    """A definition that our tables state; a version other than theirs is not it."""
    bare, _, version = url.partition("|")
    for guide, table in tables(STRUCTURES):
        facts = table.get(_key(table, bare))
        if facts is not None and version in ("", table_version(table)):
            return structure(canonical(bare), facts, table_version(table), PUBLISHERS.get(guide, ""))
    return None


def own_urls(*guides: str) -> Iterator[str]:
    """The canonical urls of what the tables of these guides (`us-core`, `backport`, `r4`) state."""
    for guide, table in tables(STRUCTURES):
        if guide in guides:
            yield from (canonical(url) for url in table)


def table_version(table: Table) -> str:
    """The version of the guide: the last word of where its facts come from."""
    return str(table.head["source"].rpartition(" ")[2])


def finished(definition: Json, elements: list[Json]) -> Json:
    """The definition with a snapshot in which each element has what R4 asks of one (sdf-3: words, cardinalities)."""
    found = {name: value for name, value in definition.items() if name not in ("snapshot", "differential")}
    found["snapshot"] = {"element": [_worded(one) for one in elements]}
    if "differential" in definition:
        found["differential"] = definition["differential"]
    return found


def _worded(element: Json) -> Json:
    words = element.get("definition") or element.get("short") or element["path"].rpartition(".")[2]
    flags: Json = {"isModifier": element.get("isModifier", False), "isSummary": element.get("isSummary", False)}
    if flags["isModifier"]:
        flags["isModifierReason"] = element.get("isModifierReason", "It changes how the rest is to be understood")
    return {**element, "definition": words, **(flags if "." in element["path"] else {})}


def _key(table: Table, url: str) -> str:
    short = url.removeprefix("http://hl7.org/fhir/StructureDefinition/")
    return short if short in table else url
