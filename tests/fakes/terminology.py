"""Imported code systems and closure tables in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ipf.errors import Category, Problem
from ipf.fhir.index.words import words as words_of
from ipf.fhir.terminology.rules import holds, rewritten
from ipf.ports.fhir.terminology import (
    Above,
    Among,
    ClosureTables,
    CodeSystems,
    Designation,
    Facts,
    ImportedSystem,
    Listed,
    ParentOf,
    Rule,
)
from ipf.ports.fhir.terminology_import import NewSystem


class MemoryCodeSystems:
    """`ports.CodeSystems`; `load` and `remove` are those of the loader.  `used_codes`: what resources have."""

    def __init__(self) -> None:
        self._systems: dict[int, tuple[ImportedSystem, NewSystem]] = {}
        self._next = 1
        self.used_codes: set[str] = set()

    def load(self, system: NewSystem) -> None:
        """Import a system."""
        self.remove(system.url, system.version)
        for number, (one, new) in list(self._systems.items()):
            if one.url == system.url:
                self._systems[number] = (_made(number, new, False), new)
        self._systems[self._next] = (_made(self._next, system, True), system)
        self._next += 1

    def remove(self, url: str, version: str) -> None:
        """Remove one version."""
        for number, (one, _) in list(self._systems.items()):
            if (one.url, one.version) == (url, version):
                del self._systems[number]

    async def imported(self) -> Sequence[ImportedSystem]:
        """See the port."""
        return sorted((one for one, _ in self._systems.values()), key=lambda one: (one.url, one.id))

    async def facts(self, system: ImportedSystem, codes: Collection[str]) -> Mapping[str, Facts]:
        """See the port."""
        new = self._new(system)
        return {code: _facts(new, code) for code in codes if code in new.concepts}

    async def page(
        self, system: ImportedSystem, rule: Rule, words: Sequence[str], offset: int, limit: int
    ) -> tuple[Sequence[Listed], int | None]:
        """See the port."""
        new = self._new(system)
        rule = self._plain(new, rule)
        found = []
        for one in sorted(new.concepts.values(), key=lambda each: (len(each.display or each.code), each.code)):
            texts = [one.code, one.display, *(each.value for each in one.designations)]
            own = [word for text in texts for word in words_of(text)]
            if holds(rule, _facts(new, one.code)) and all(any(each.startswith(word) for each in own) for word in words):
                found.append(Listed(one.code, one.display or one.code, one.is_active, one.is_abstract, one.definition))
        return found[offset : offset + limit], len(found)

    async def values(self, system: ImportedSystem, name: str, limit: int) -> Sequence[str]:
        """See the port."""
        concepts = self._new(system).concepts.values()
        if name in ("code", "display"):
            return [getattr(one, name) for one in concepts][:limit]
        return sorted({value for one in concepts for each, value in one.properties if each == name})[:limit]

    async def designations(self, system: ImportedSystem, codes: Collection[str]) -> Mapping[str, Sequence[Designation]]:
        """See the port."""
        concepts = self._new(system).concepts
        return {code: concepts[code].designations for code in codes if code in concepts and concepts[code].designations}

    async def children(self, system: ImportedSystem, code: str, limit: int) -> Sequence[str]:
        """See the port."""
        return sorted(one.code for one in self._new(system).concepts.values() if code in one.parents)[:limit]

    async def used(
        self, tenant: str, resource_type: str, parameters: Sequence[str], system: ImportedSystem, rule: Rule, limit: int
    ) -> frozenset[str]:
        """See the port."""
        new = self._new(system)
        known = [code for code in self.used_codes if code in new.concepts]
        rule = self._plain(new, rule)
        return frozenset([code for code in known if holds(rule, _facts(new, code))][:limit])

    def _new(self, system: ImportedSystem) -> NewSystem:
        if system.id not in self._systems:
            raise Problem(Category.UNAVAILABLE, f"the code system {system.url} is being replaced by another import")
        return self._systems[system.id][1]

    def _plain(self, new: NewSystem, rule: Rule) -> Rule:
        def change(part: Rule) -> Rule:
            if isinstance(part, Above):
                return Among(_facts(new, part.code).ancestors if part.code in new.concepts else frozenset())
            if isinstance(part, ParentOf):
                return Among(frozenset(new.concepts[part.code].parents if part.code in new.concepts else ()))
            return part

        return rewritten(rule, change)


class MemoryClosureTables:
    """`ports.ClosureTables`."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], dict[tuple[str, str], int]] = {}
        self._versions: dict[tuple[str, str], int] = {}

    async def start(self, tenant: str, name: str) -> None:
        """See the port."""
        self._tables[tenant, name], self._versions[tenant, name] = {}, 0

    async def add(self, tenant: str, name: str, codes: Collection[tuple[str, str]]) -> int | None:
        """See the port."""
        table = self._tables.get((tenant, name))
        if table is None:
            return None
        new = [one for one in codes if one not in table]
        if new:
            self._versions[tenant, name] += 1
        table.update(dict.fromkeys(new, self._versions[tenant, name]))
        return self._versions[tenant, name]

    async def concepts(self, tenant: str, name: str) -> Mapping[tuple[str, str], int] | None:
        """See the port."""
        table = self._tables.get((tenant, name))
        return None if table is None else dict(table)


def _made(number: int, new: NewSystem, is_current: bool) -> ImportedSystem:
    languages = {one.language for concept in new.concepts.values() for one in concept.designations if one.language}
    return ImportedSystem(
        number, new.url, new.version, new.name, is_current, new.is_case_sensitive, len(new.concepts),
        new.properties, tuple(sorted(languages)),
    )  # fmt: skip


def _facts(new: NewSystem, code: str) -> Facts:
    one = new.concepts[code]
    found, pending = {code}, [code]
    while pending:
        for parent in new.concepts[pending.pop()].parents:
            if parent not in found:
                found.add(parent)
                pending.append(parent)
    return Facts(
        code, one.display or code, one.is_active, one.is_abstract, one.definition,
        frozenset(one.parents), frozenset(found), frozenset(one.properties),
    )  # fmt: skip


_: type[CodeSystems] = MemoryCodeSystems
_tables: type[ClosureTables] = MemoryClosureTables
