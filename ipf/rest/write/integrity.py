"""Referential integrity, when an operator asks for it: no reference to what is not there, no deletion of what is used.

References of this server's own kind (`Type/id`, relative or below its base URL) are looked up before a unit is stored;
what the unit itself brings or takes counts.  It is a check at the door, as of the moment before the write: a deletion
and a new reference to the same resource at the same instant can still pass each other.  Converted messages bring their
references with them and are not checked.

Source: https://hl7.org/fhir/R4/http.html#integrity
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.fhir.model.reference import parse_reference
from ipf.ports import FhirStore, Json
from ipf.ports.integrity import Referrers
from ipf.ports.threads import LARGE, RunInThread, here, turn
from ipf.rest.write.unit import Entry, Method, Unit

_SHOWN = 3
_MOST = 50

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Integrity:
    """The check, on a store."""

    store: FhirStore
    referrers: Referrers

    async def check(self, unit: Unit, run_in_thread: RunInThread = here) -> None:
        """Problem INVALID (422) for a reference to nothing, CONFLICT (409) for a deletion of what is referred to."""
        written = [entry for entry in unit.entries if entry.method is not Method.DELETE]
        deleted = {(entry.resource_type, entry.id) for entry in unit.entries if entry.method is Method.DELETE}
        brought = {(entry.resource_type, entry.id) for entry in written if entry.id is not None}
        wanted: dict[Key, str | None] = {}
        for number, entry in enumerate(written, 1):
            if number % LARGE == 0:
                await turn(run_in_thread)
            for target in references_in(await self._resource(entry, unit.tenant)):
                if target not in brought:
                    wanted.setdefault(target, entry.place)
        await self._must_be_there(unit.tenant, wanted, deleted)
        for entry in unit.entries:
            if entry.method is Method.DELETE:
                await self._must_be_unused(unit.tenant, entry, deleted | brought)

    async def _resource(self, entry: Entry, tenant: str) -> Json | None:
        """What an entry will store; of a patch by id, as it would be now."""
        if entry.patch is None or entry.id is None:
            return entry.resource
        found = await self.store.read_many(tenant, [(entry.resource_type, entry.id)])
        return entry.patch(loads(found[0].body)) if found else None

    async def _must_be_there(
        self, tenant: str, wanted: dict[Key, str | None], deleted: set[tuple[str, str | None]]
    ) -> None:
        there: set[tuple[str, str | None]] = set()
        keys = sorted(wanted)
        for start in range(0, len(keys), LARGE):
            found = await self.store.read_many(tenant, keys[start : start + LARGE])
            there.update((version.resource_type, version.id) for version in found)
        for (resource_type, id), place in wanted.items():
            if (resource_type, id) not in there - deleted:
                raise Problem(Category.INVALID, f"a reference to {resource_type}/{id}, which is not there", place)

    async def _must_be_unused(self, tenant: str, entry: Entry, excused: set[tuple[str, str | None]]) -> None:
        """A deletion by search is checked for the resource it finds now."""
        id = entry.id
        if id is None and entry.condition is not None:
            found = (await self.store.search(tenant, entry.condition)).matches
            id = found[0].id if len(found) == 1 else None
        if id is None:
            return
        names = await self.referrers.referrers(tenant, f"{entry.resource_type}/{id}", _MOST)
        left = [name for name in names if tuple(name.split("/")) not in excused]
        if left:
            text = f"{entry.resource_type}/{id} is referred to by {', '.join(left[:_SHOWN])}"
            raise Problem(Category.CONFLICT, text, entry.place)


def references_in(value: Any) -> Iterator[Key]:
    """(type, id) of every relative reference below `value`."""
    if isinstance(value, list):
        for item in value:
            yield from references_in(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name == "reference" and isinstance(item, str):
                literal = parse_reference(item)
                if literal is not None and not literal.base:
                    yield literal.resource_type, literal.id
            else:
                yield from references_in(item)
