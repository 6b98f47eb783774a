"""Optional referential integrity: no reference to a missing resource, no deletion of a referenced resource.

References to this server (`Type/id`, relative or below its base URL) are looked up before a unit is stored, taking the
writes of the unit into account.  The check runs before the write transaction: a concurrent deletion and a new reference
to the same resource may both succeed.  Converted messages are not checked.

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
from ipf.ports.threads import LARGE, RunInThread, run_inline, yield_to_reactor
from ipf.rest.write.unit import Entry, Method, Unit

_SHOWN = 3
_MOST = 50

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Integrity:
    """The integrity check of one store."""

    store: FhirStore
    referrers: Referrers

    async def check(self, unit: Unit, run_in_thread: RunInThread = run_inline) -> None:
        """Problem INVALID (422): a reference to a missing resource; CONFLICT (409): deletion of a referenced one."""
        written = [entry for entry in unit.entries if entry.method is not Method.DELETE]
        deleted = {(entry.resource_type, entry.id) for entry in unit.entries if entry.method is Method.DELETE}
        written_keys = {(entry.resource_type, entry.id) for entry in written if entry.id is not None}
        targets: dict[Key, str | None] = {}
        for number, entry in enumerate(written, 1):
            if number % LARGE == 0:
                await yield_to_reactor(run_in_thread)
            for target in references_in(await self._resource(entry, unit.tenant)):
                if target not in written_keys:
                    targets.setdefault(target, entry.place)
        await self._check_targets(unit.tenant, targets, deleted)
        for entry in unit.entries:
            if entry.method is Method.DELETE:
                await self._check_referrers(unit.tenant, entry, deleted | written_keys)

    async def _resource(self, entry: Entry, tenant: str) -> Json | None:
        """The resource that an entry will store; a patch by id is applied to the current version."""
        if entry.patch is None or entry.id is None:
            return entry.resource
        found = await self.store.read_many(tenant, [(entry.resource_type, entry.id)])
        return entry.patch(loads(found[0].body)) if found else None

    async def _check_targets(
        self, tenant: str, targets: dict[Key, str | None], deleted: set[tuple[str, str | None]]
    ) -> None:
        existing: set[tuple[str, str | None]] = set()
        keys = sorted(targets)
        for start in range(0, len(keys), LARGE):
            found = await self.store.read_many(tenant, keys[start : start + LARGE])
            existing.update((version.resource_type, version.id) for version in found)
        for (resource_type, id), place in targets.items():
            if (resource_type, id) not in existing - deleted:
                raise Problem(Category.INVALID, f"the referenced resource {resource_type}/{id} does not exist", place)

    async def _check_referrers(self, tenant: str, entry: Entry, ignored: set[tuple[str, str | None]]) -> None:
        """Check a deletion; a conditional one for the resource that it matches now."""
        id = entry.id
        if id is None and entry.condition is not None:
            found = (await self.store.search(tenant, entry.condition)).matches
            id = found[0].id if len(found) == 1 else None
        if id is None:
            return
        names = await self.referrers.referrers(tenant, f"{entry.resource_type}/{id}", _MOST)
        referrers = [name for name in names if tuple(name.split("/")) not in ignored]
        if referrers:
            text = f"{entry.resource_type}/{id} is referenced by {', '.join(referrers[:_SHOWN])}"
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
