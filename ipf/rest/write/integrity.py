"""Optional referential integrity: no reference to a missing resource, no deletion of a referenced resource.

References to this server (`Type/id`, relative or below its base URL) are looked up before a unit is stored, taking the
writes of the unit into account.  The check runs before the write transaction: a concurrent deletion and a new reference
to the same resource may both succeed.  Converted messages are not checked.

For a caller with limits, what he may not see is missing: he can add no reference to it, and its references do not keep
him from deleting what he may delete.  Otherwise the answer would tell him of it.

Source: https://hl7.org/fhir/R4/http.html#integrity
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.fhir.model.reference import local_reference
from ipf.ports import FhirStore, Json, Version
from ipf.ports.fhir.integrity import Referrers
from ipf.ports.threads import LARGE, RunInThread, run_inline, yield_to_reactor
from ipf.rest.write.permission import limited, reachable, visible
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
        stored = await self._stored(unit, written)
        kept = {key for resource in stored.values() for key in references_in(resource, unit.base_url)}
        targets: dict[Key, str | None] = {}
        for number, entry in enumerate(written, 1):
            if number % LARGE == 0:
                await yield_to_reactor(run_in_thread)
            for target in references_in(_resource(entry, stored), unit.base_url):
                if target not in written_keys and (target not in kept or target in deleted):
                    targets.setdefault(target, entry.place)
        await self._check_targets(unit, targets, deleted)
        for entry in unit.entries:
            if entry.method is Method.DELETE:
                await self._check_referrers(unit, entry, deleted | written_keys)

    async def _stored(self, unit: Unit, written: Sequence[Entry]) -> dict[Key, Json]:
        """What is stored of the resources that a unit patches.  Of a caller with limits, of all that it writes: he may
        leave references where they are, also to what he does not see."""
        keys = [
            (entry.resource_type, entry.id)
            for entry in written
            if entry.id is not None and (entry.patch is not None or not unit.caller.is_unlimited)
        ]
        found: list[Version] = await self.store.read_many(unit.tenant, keys) if keys else []
        return {(one.resource_type, one.id): loads(one.body) for one in found if reachable(one, unit.caller)}

    async def _check_targets(
        self, unit: Unit, targets: dict[Key, str | None], deleted: set[tuple[str, str | None]]
    ) -> None:
        existing: set[tuple[str, str | None]] = set()
        keys = sorted(targets)
        for start in range(0, len(keys), LARGE):
            found = await self.store.read_many(unit.tenant, keys[start : start + LARGE])
            existing.update((version.resource_type, version.id) for version in visible(found, unit.caller))
        for (resource_type, id), place in targets.items():
            if (resource_type, id) not in existing - deleted:
                raise Problem(Category.INVALID, f"the referenced resource {resource_type}/{id} does not exist", place)

    async def _check_referrers(self, unit: Unit, entry: Entry, ignored: set[tuple[str, str | None]]) -> None:
        """Check a deletion; a conditional one for the resource that it matches now.

        What the caller does not see neither keeps him from deleting nor is it named.
        """
        target = await self._deleted(unit, entry)
        if target is None:
            return
        after, referrers = 0, list[str]()
        while not referrers:
            page = await self.referrers.referring(unit.tenant, target, after, _MOST)
            if not page:
                return
            after = page[-1].rid
            seen = [one for one in visible(page, unit.caller) if (one.resource_type, one.id) not in ignored]
            referrers = sorted(name for one in seen if (name := f"{one.resource_type}/{one.id}") != target)
        text = f"{target} is referenced by {', '.join(referrers[:_SHOWN])}"
        raise Problem(Category.CONFLICT, text, entry.place)

    async def _deleted(self, unit: Unit, entry: Entry) -> str | None:
        """`Type/id` of the resource that an entry deletes; None when there is none that the caller may know of."""
        if entry.id is not None:
            found: Sequence[Version] = await self.store.read_many(unit.tenant, [(entry.resource_type, entry.id)])
        elif entry.condition is not None:
            found = (await self.store.search(unit.tenant, limited(entry.condition, unit.caller))).matches
        else:
            found = ()
        if len(found) != 1 or not reachable(found[0], unit.caller):
            return None
        return f"{found[0].resource_type}/{found[0].id}"


def _resource(entry: Entry, stored: Mapping[Key, Json]) -> Json | None:
    """The resource that an entry will store; a patch by id is applied to the current version."""
    if entry.patch is None or entry.id is None:
        return entry.resource
    before = stored.get((entry.resource_type, entry.id))
    return None if before is None else entry.patch(before)


def references_in(value: Any, base_url: str = "") -> Iterator[Key]:
    """(type, id) of every reference below `value` to this server, which a request reached at `base_url`."""
    if isinstance(value, list):
        for item in value:
            yield from references_in(item, base_url)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name == "reference" and isinstance(item, str):
                literal = local_reference(item, base_url)
                if literal is not None:
                    yield literal.resource_type, literal.id
            else:
                yield from references_in(item, base_url)
