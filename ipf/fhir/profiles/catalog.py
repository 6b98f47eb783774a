"""The definitions that ship with the server, as resources: those of R4, US Core and the Backport guide.

StructureDefinition, ValueSet and CodeSystem resources are built from the tables on request.  A package that contains
the same canonical replaces the shipped definition.  Ids are the last parts of the canonicals.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ipf.fhir.model.packages import Packages
from ipf.fhir.profiles.library import PUBLISHERS, Structures, table_version
from ipf.fhir.profiles.rows import canonical
from ipf.fhir.profiles.tables import CODE_SYSTEMS, STRUCTURES, VALUE_SETS, Table, tables

Json = dict[str, Any]
KINDS = {"StructureDefinition": STRUCTURES, "ValueSet": VALUE_SETS, "CodeSystem": CODE_SYSTEMS}
"""The resource types, and their tables."""


class Catalog:
    """Own definitions and those of packages, by id and by canonical."""

    def __init__(self, packages: Packages, structures: Structures) -> None:
        self._packages = packages
        self._structures = structures
        self._ids: dict[str, dict[str, str]] = {}

    def by_id(self, resource_type: str, id: str) -> Json | None:
        """The definition with this id; None when there is none."""
        entry = self._packages.by_id(resource_type, id)
        if entry is not None:
            return entry.resource()
        url = self._urls(resource_type).get(id)
        return self.by_url(resource_type, url) if url is not None else None

    def by_url(self, resource_type: str, url: str) -> Json | None:
        """The definition with this canonical, complete; None when there is none."""
        entry = self._packages.find(url, resource_type)
        if entry is not None:
            return entry.resource()
        if resource_type == "StructureDefinition":
            return self._structures.complete(url)
        return own_resource(resource_type, url)

    def urls(self, resource_type: str) -> Iterator[str]:
        """The canonicals of all of one type."""
        own = set(self._urls(resource_type).values())
        yield from sorted(own)
        for entry in self._packages.newest(resource_type):
            if entry.url not in own:
                yield entry.url

    def _urls(self, resource_type: str) -> dict[str, str]:
        """id -> canonical of the definitions in the tables."""
        found = self._ids.get(resource_type)
        if found is None:
            known = KINDS.get(resource_type)
            rows = [url for _, table in (tables(known) if known else ()) for url in table]
            found = self._ids[resource_type] = {url_id(url): _canonical_of(resource_type, url) for url in rows}
        return found


@lru_cache(maxsize=1)
def supported_profiles() -> dict[str, list[str]]:
    """Resource type -> canonicals of the US Core and Backport profiles on it."""
    found: dict[str, list[str]] = {}
    for guide, table in tables(STRUCTURES):
        for url in sorted(table) if guide not in ("r4", "topics") else ():
            facts = table.get(url) or {}
            if facts.get("kind") == "resource" and not facts.get("abstract"):
                found.setdefault(facts["type"], []).append(canonical(url))
    return found


def url_id(url: str) -> str:
    """The id of a definition: the last part of its canonical, as far as an id may hold it."""
    last = url.rpartition("/")[2].replace("|", "-")
    return "".join(one if one.isalnum() or one in "-." else "-" for one in last)[:64]


def own_resource(resource_type: str, url: str) -> Json | None:
    """A ValueSet or CodeSystem of the tables."""
    bare, _, version = url.partition("|")
    for guide, table in tables(KINDS[resource_type]):
        facts = table.get(url) or table.get(bare)
        if facts is not None and version in ("", table_version(table)):
            head = _head(resource_type, bare, facts, table, guide)
            return {**head, **(_composition(facts) if resource_type == "ValueSet" else _concepts(facts))}
    return None


def _canonical_of(resource_type: str, url: str) -> str:
    return canonical(url) if resource_type == "StructureDefinition" else url


def _head(resource_type: str, url: str, facts: Json, table: Table, guide: str) -> Json:
    return {
        "resourceType": resource_type,
        "id": url_id(url),
        "url": url,
        "version": table_version(table),
        "name": facts.get("name") or url_id(url),
        "status": "active",
        "publisher": PUBLISHERS.get(guide, ""),
    }


def _composition(facts: Json) -> Json:
    found = {word: [_include(one) for one in facts[word]] for word in ("include", "exclude") if word in facts}
    return {"compose": found} if found else {}


def _include(facts: Json) -> Json:
    found: Json = {"system": facts["system"]} if "system" in facts else {}
    if "codes" in facts:
        found["concept"] = [
            {"code": one} if isinstance(one, str) else {"code": one[0], "display": one[1]} for one in facts["codes"]
        ]
    if "filters" in facts:
        found["filter"] = [{"property": name, "op": op, "value": value} for name, op, value in facts["filters"]]
    if "sets" in facts:
        found["valueSet"] = facts["sets"]
    return found


def _concepts(facts: Json) -> Json:
    found: Json = {"caseSensitive": not facts.get("any_case", False), "content": facts.get("content", "complete")}
    concepts = [_concept(*one) for one in facts.get("concepts", ())]
    return {**found, "concept": concepts} if concepts else found


def _concept(code: str, display: str = "", children: Any = (), properties: Any = None) -> Json:
    found: Json = {"code": code, "display": display or code}
    values = [(name, value) for name, several in (properties or {}).items() for value in several]
    if values:
        found["property"] = [_property(name, value) for name, value in values]
    if children:
        found["concept"] = [_concept(*one) for one in children]
    return found


def _property(name: str, value: Any) -> Json:
    return {"code": name, "valueBoolean": value} if isinstance(value, bool) else {"code": name, "valueCode": value}
