"""ConceptMaps, compiled to dictionaries.

What arrives: ConceptMap resources (R4), one or several in a JSON file, or the `conceptmap` blocks of a map.  What
leaves: tables for `translate`, one dictionary for each kind of result, so a translation is one lookup.  A code without
a row gives None, or what the table says of codes without a row (fixed, provided); it is never an error.

Source: https://hl7.org/fhir/R4/conceptmap.html, https://hl7.org/fhir/R4/conceptmap-operation-translate.html.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.mapping.language.hl7_tables import hl7_table
from ipf.mapping.language.model import ConceptTable
from ipf.ports import Json

PARTIAL = "urn:ipf:extension:partial"
"""Extension (boolean) of a partial ConceptMap: maps handle codes without a row, so these do not count as unmapped."""
NO_MATCH = frozenset(("unmatched", "disjoint", "not-related-to"))


class Table:
    """One ConceptMap.  The first matching target of a code wins.

    `without_match`: codes that the table maps to nothing on purpose; they do not count as unmapped.
    """

    def __init__(self, resource: Mapping[str, Any]) -> None:
        self.url = str(resource.get("url", ""))
        self.names = tuple(str(resource[key]) for key in ("id", "name") if resource.get(key))
        self.is_partial = {"url": PARTIAL, "valueBoolean": True} in resource.get("extension", ())
        self._codings: dict[str, Json] = {}
        self._by_system: dict[tuple[str, str], Json] = {}
        self._fixed: Json | None = None
        self._as_provided: str | None = None
        said: set[str] = set()
        for group in resource.get("group", ()):
            self._add(group)
            said |= {str(one.get("code", "")) for one in group.get("element", ()) if _says_no_match(one)}
        self.without_match = frozenset(said - self._codings.keys())

    def _add(self, group: Mapping[str, Any]) -> None:
        system, source = group.get("target"), str(group.get("source") or "").partition("|")[0]
        for element in group.get("element", ()):
            for target in element.get("target", ()):
                if target.get("code") and _relation(target) not in NO_MATCH:
                    code = str(element.get("code", ""))
                    coding = _coding(system, target)
                    self._codings.setdefault(code, coding)
                    self._by_system.setdefault((source, code), coding)
                    break
        unmapped = group.get("unmapped") or {}
        if unmapped.get("mode") == "fixed" and self._fixed is None:
            self._fixed = _coding(system, unmapped)
        if unmapped.get("mode") == "provided" and self._as_provided is None:
            self._as_provided = str(system or "")

    def results(self, wanted: str) -> dict[str, Any]:
        """Results by source code: `code`, `system`, `display`, or the whole Coding for any other word."""
        if wanted in ("code", "system", "display", "uri"):
            key = "code" if wanted == "uri" else wanted
            return {code: coding[key] for code, coding in self._codings.items() if key in coding}
        return dict(self._codings)

    def coding_of(self, system: str, code: str) -> Json | None:
        """The result for a code of a system: of a group for this system or for any; without a system, of any group."""
        if not system:
            return self._codings.get(code)
        return self._by_system.get((system, code)) or self._by_system.get(("", code))

    def without_row(self, code: str, wanted: str) -> Any:
        """The result for a code without a row: the fixed one, or the code as provided; None without such a rule."""
        found = self._fixed
        if found is None:
            if self._as_provided is None:
                return None
            found = _coding(self._as_provided, {"code": code})
        if wanted in ("code", "system", "display", "uri"):
            return found.get("code" if wanted == "uri" else wanted)
        return dict(found)


def _relation(target: Mapping[str, Any]) -> Any:
    return target.get("equivalence") or target.get("relationship")


def _says_no_match(element: Mapping[str, Any]) -> bool:
    targets = element.get("target") or ()
    return element.get("noMap") is True or (bool(targets) and all(_relation(one) in NO_MATCH for one in targets))


def _coding(system: Any, target: Mapping[str, Any]) -> Json:
    coding: Json = {"system": system} if system else {}
    coding.update({key: target[key] for key in ("code", "display") if target.get(key)})
    return coding


class Overrides:
    """Code mappings of operators for one sender; they take precedence over every table.  Immutable.

    What arrives: rows of (ConceptMap url, source code, Coding; None = the code has no target on purpose).
    """

    def __init__(self, rows: Iterable[tuple[str, str, Json | None]]) -> None:
        self.by_table: dict[str, dict[str, Json | None]] = {}
        for url, code, coding in rows:
            self.by_table.setdefault(url, {})[code] = coding

    def rows(self) -> list[tuple[str, str, Json | None]]:
        """The rows that arrived, for another process."""
        return [(url, code, coding) for url, table in self.by_table.items() for code, coding in table.items()]


class ConceptTables:
    """All tables that a map may name: by url, else by id or name; `#name` only those of the map itself.

    `further`: finds other ConceptMaps by canonical (those of packages, read on demand).
    """

    def __init__(
        self,
        resources: Iterable[Mapping[str, Any]] = (),
        further: Callable[[str], Mapping[str, Any] | None] = lambda canonical: None,
    ) -> None:
        self._by_url: dict[str, Table] = {}
        self._by_name: dict[str, Table] = {}
        self._further = further
        self.resources: dict[str, Mapping[str, Any]] = {}
        for resource in resources:
            self.add(resource)

    def add(self, resource: Mapping[str, Any]) -> None:
        """Add a ConceptMap; it replaces one with the same url."""
        table = Table(resource)
        self._by_url[table.url] = table
        self.resources[table.url] = resource
        for name in table.names:
            self._by_name[name] = table

    def find(self, name: str) -> Table | None:
        """By canonical (`|version` is ignored), id or name."""
        plain = name.partition("|")[0]
        found = self._by_url.get(plain) or self._by_name.get(plain) or self._by_url.get(name)
        if found is None:
            resource = hl7_table(plain) or self._further(name)
            if resource is not None:
                found = self._by_url[name] = Table(resource)
        return found

    def with_more(self, resources: Iterable[Mapping[str, Any]]) -> ConceptTables:
        """These tables and others, which take precedence."""
        made = ConceptTables(further=self._further)
        made._by_url, made._by_name, made.resources = dict(self._by_url), dict(self._by_name), dict(self.resources)
        for resource in resources:
            made.add(resource)
        return made

    def with_local(self, tables: Iterable[ConceptTable], url: str) -> ConceptTables:
        """These tables, and those of the map `url`: by `#name`, `url#name`, and their own url."""
        made = ConceptTables(further=self._further)
        made._by_url, made._by_name = dict(self._by_url), self._by_name
        for one in tables:
            table = Table(to_resource(one))
            made._by_url |= {one.url: table, f"#{one.local_name}": table, f"{url}#{one.local_name}": table}
        return made


def to_resource(table: ConceptTable) -> Json:
    """A `conceptmap` block as a contained ConceptMap resource: its id is the name without `#`."""
    systems = dict(table.prefixes)
    groups: dict[tuple[str, str], list[Json]] = {}
    for row in table.rows:
        target = row.target
        key = (row.source.prefix, target.prefix if target else "")
        answer: Json = {"code": target.code} if target else {}
        element = {"code": row.source.code, "target": [{**answer, "equivalence": row.equivalence}]}
        groups.setdefault(key, []).append(element)
    identifier = table.local_name
    return {
        "resourceType": "ConceptMap",
        "id": identifier,
        "url": table.url,
        "name": identifier,
        "status": "draft",
        "group": [_group(systems, key, elements, dict(table.unmapped)) for key, elements in groups.items()],
    }


def _group(systems: Mapping[str, str], key: tuple[str, str], elements: list[Json], unmapped: Mapping[str, str]) -> Json:
    group: Json = {"source": systems.get(key[0], key[0])}
    if key[1]:
        group["target"] = systems.get(key[1], key[1])
    group["element"] = elements
    mode = unmapped.get(key[0])
    if mode:
        group["unmapped"] = {"mode": "provided"} if mode == "provided" else {"mode": "fixed", "code": mode}
    return group


def load_tables(
    folder: Path, further: Callable[[str], Mapping[str, Any] | None] = lambda canonical: None
) -> ConceptTables:
    """Every ConceptMap in the `*.json` files of a folder.  Problem MAPPING names the invalid file."""
    tables = ConceptTables(further=further)
    for path in sorted(folder.glob("*.json")):
        name = f"{folder.name}/{path.name}"
        try:
            content = loads(path.read_bytes())
        except Problem as problem:
            raise Problem(Category.MAPPING, problem.text, name) from problem
        found = list(_concept_maps(content))
        if not found:
            raise Problem(Category.MAPPING, "holds no ConceptMap", name)
        for resource in found:
            tables.add(resource)
    return tables


def _concept_maps(content: Any) -> Iterator[Mapping[str, Any]]:
    """The ConceptMaps in a resource, a Bundle, or a list of resources."""
    if isinstance(content, list):
        for one in content:
            yield from _concept_maps(one)
    elif isinstance(content, dict) and content.get("resourceType") == "ConceptMap":
        yield content
    elif isinstance(content, dict) and content.get("resourceType") == "Bundle":
        for entry in content.get("entry", ()):
            yield from _concept_maps(entry.get("resource"))
