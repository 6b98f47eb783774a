"""Structure definitions by canonical url: from packages and the store, then from the shipped tables.

Callers must not change the definitions.  Snapshots are generated on first use and cached; a snapshot that a definition
contains is used unchanged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from ipf.fhir.profiles.element_ids import with_ids
from ipf.fhir.profiles.rows import canonical, structure
from ipf.fhir.profiles.snapshot import SnapshotError, make_snapshot, widenings
from ipf.fhir.profiles.tables import STRUCTURES, Table, tables

Json = dict[str, Any]
Find = Callable[[str], Json | None]  # canonical, perhaps with |version -> StructureDefinition
PUBLISHERS = dict.fromkeys(("r4", "us-core", "backport", "topics"), "HL7 International") | {"balp": "IHE International"}


class Structures:
    """All structure definitions of this process: those of `find`, then the shipped tables."""

    def __init__(self, find: Find | None = None) -> None:
        self._find = find
        self._known: dict[str, Json | None] = {}
        self._snapshots: dict[str, list[Json]] = {}
        self._failed: dict[str, str] = {}
        self._shipped: set[str] = set()
        self._begun = threading.local()

    def get(self, url: str) -> Json | None:
        """The definition with this canonical; None when it is unknown or has another version."""
        if url not in self._known:
            self._known[url] = self._load(url)
        return self._known[url]

    def snapshot(self, url: str) -> list[Json]:
        """The snapshot elements of a definition; empty when it is unknown, SnapshotError when generation fails."""
        found = self._snapshots.get(url)
        if found is not None:
            return found
        if url in self._failed:
            raise SnapshotError(self._failed[url])
        definition = self.get(url)
        if definition is None:
            return []
        making: set[str] = self._begun.__dict__.setdefault("snapshots", set())  # by this thread
        if url in making:
            raise SnapshotError(f"{url} is derived from itself")
        making.add(url)
        try:
            provided = definition.get("snapshot", {}).get("element")
            made = provided or make_snapshot(definition, self.snapshot, self.rules, url in self._shipped)
            elements: list[Json] = with_ids(made)
        except SnapshotError as error:
            if len(making) == 1:  # else the reason may be the one that is made around it
                self._failed[url] = str(error)
            raise
        finally:
            making.discard(url)
        self._snapshots[url] = elements
        return elements

    def failure(self, url: str) -> str:
        """Why the snapshot of a definition could not be generated; "" when it could, or was not needed yet."""
        return self._failed.get(url, "")

    def rules(self, url: str) -> list[Json]:
        """The constraints on the root element of a type and of its base types."""
        found: list[Json] = []
        seen: set[str] = set()
        while url and url not in seen:
            seen.add(url)
            definition = self.get(url) or {}
            elements = definition.get("differential", {}).get("element", ())
            own = elements[0].get("constraint", ()) if elements and "." not in elements[0]["path"] else ()
            found, url = [*own, *found], definition.get("baseDefinition", "")
        return found

    def complete(self, url: str) -> Json | None:
        """The definition with its snapshot, as clients receive it."""
        definition = self.get(url)
        if definition is None:
            return None
        return finished(definition, self.snapshot(url))

    def _load(self, url: str) -> Json | None:
        found = self._find(url) if self._find is not None else None
        if found is None:
            self._shipped.add(url)
        return found or own_structure(url)

    def widenings(self, definition: Json) -> list[tuple[int, str]]:
        """What a profile would widen in its base: index in the differential, and words.  Errors as of `snapshot`."""
        return widenings(definition, self.snapshot, self.rules)


def own_structure(url: str) -> Json | None:
    """A definition of the shipped tables; None when it is unknown or has another version."""
    bare, _, version = url.partition("|")
    for guide, table in tables(STRUCTURES):
        facts = table.get(_key(table, bare))
        if facts is not None and version in ("", table_version(table)):
            return structure(canonical(bare), facts, table_version(table), PUBLISHERS.get(guide, ""))
    return None


def own_urls(*guides: str) -> Iterator[str]:
    """The canonical urls of the definitions in the tables of these guides (`us-core`, `backport`, `r4`)."""
    for guide, table in tables(STRUCTURES):
        if guide in guides:
            yield from (canonical(url) for url in table)


def table_version(table: Table) -> str:
    """The version of the guide: the last word of the table's source."""
    return str(table.head["source"].rpartition(" ")[2])


def finished(definition: Json, elements: list[Json]) -> Json:
    """The definition with a snapshot that satisfies sdf-3: each element has a definition and cardinality."""
    found = {name: value for name, value in definition.items() if name not in ("snapshot", "differential")}
    found["snapshot"] = {"element": [_with_required_elements(one) for one in elements]}
    if "differential" in definition:
        found["differential"] = definition["differential"]
    return found


def _with_required_elements(element: Json) -> Json:
    words = element.get("definition") or element.get("short") or element["path"].rpartition(".")[2]
    flags: Json = {"isModifier": element.get("isModifier", False), "isSummary": element.get("isSummary", False)}
    if flags["isModifier"]:
        flags["isModifierReason"] = element.get("isModifierReason", "It changes how the rest is to be understood")
    return {**element, "definition": words, **(flags if "." in element["path"] else {})}


def _key(table: Table, url: str) -> str:
    short = url.removeprefix("http://hl7.org/fhir/StructureDefinition/")
    return short if short in table else url
