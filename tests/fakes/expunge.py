"""`ports.fhir.expunge.ExpungeStore` in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from ipf.ports.fhir.expunge import DEFINITION_TYPES, ExpungeCursor, ExpungeRequest, ExpungeStep, ExpungeStore, Record
from ipf.ports.fhir.resources import Version
from tests.fakes.exports import MemoryExports
from tests.fakes.jobs import MemoryJobs
from tests.fakes.resources import Key, MemoryFhirStore


class MemoryExpungeStore:
    """See `ExpungeStore`.  `holds`: as Patient/1 or tenant:Patient/1.  No event counts as delivered."""

    def __init__(
        self, store: MemoryFhirStore, exports: MemoryExports, jobs: MemoryJobs, holds: Collection[str] = ()
    ) -> None:
        self._store = store
        self._exports = exports
        self._jobs = jobs
        self._holds = holds

    async def expunge(
        self, wanted: ExpungeRequest, limit: int, after: ExpungeCursor, record: Record = lambda versions: ()
    ) -> ExpungeStep:
        """See `ExpungeStore.expunge`."""
        found = [
            (key, version)
            for key, versions in self._store.versions.items()
            for version in versions
            if _is_wanted(wanted, key, version, versions[-1]) and (version.rid, version.version_id) > after
        ]
        found.sort(key=lambda one: (one[1].rid, one[1].version_id))
        kept: Counter[str] = Counter()
        removed: list[Version] = []
        for key, version in found[:limit]:
            reason = self._reason(key, version)
            kept.update([reason] if reason else [])
            if not reason:
                self._remove(key, version)
                removed.append(version)
        self._store.audits += record(removed) if removed else ()
        last = found[limit - 1][1] if len(found) >= limit else None
        return ExpungeStep(removed, kept, None if last is None else ExpungeCursor(last.rid, last.version_id))

    def _reason(self, key: Key, version: Version) -> str:
        tenant, name = key[0], f"{key[1]}/{key[2]}"
        versions = self._store.versions[key]
        for hold in self._holds:
            of, _, patient = hold.rpartition(":")
            if of in ("", tenant) and (patient == name or any(f'"{patient}"'.encode() in v.body for v in versions)):
                return "legal-hold"
        if (key[1:], version.version_id) in self._of_events(tenant):
            return "event"
        if any(one is version for one in self._exports.running(tenant)):
            return "export"
        if self._jobs.names(tenant, key[1], key[2]):
            return "job"
        if any(f'"{name}/_history/{version.version_id}"'.encode() in body for body in self._provenances(tenant)):
            return "provenance"
        if version is versions[-1]:
            return "definition" if key[1] in DEFINITION_TYPES else "versions" if len(versions) > 1 else ""
        return ""

    def _of_events(self, tenant: str) -> set[tuple[tuple[str, str], int]]:
        """The versions of the events, and those before them."""
        events = [event for stream in self._store.streams.values() if stream.state.tenant == tenant
                  and stream.state.status != "deleted" for event in stream.events]  # fmt: skip
        return {((event.resource_type, event.id), event.version_id - back) for event in events for back in (0, 1)}

    def _provenances(self, tenant: str) -> list[bytes]:
        return [found[-1].body for key, found in self._store.versions.items() if key[:2] == (tenant, "Provenance")]

    def _remove(self, key: Key, version: Version) -> None:
        versions = self._store.versions[key]
        versions.remove(version)
        if not versions:
            del self._store.versions[key]
            self._store.entries.pop(key, None)


def _is_wanted(wanted: ExpungeRequest, key: Key, version: Version, newest: Version) -> bool:
    asked = wanted.tenant, wanted.resource_type, wanted.id, wanted.version_id
    if any(one is not None and one != value for one, value in zip(asked, (*key, version.version_id), strict=True)):
        return False
    if version is newest:
        return version.deleted and wanted.deleted
    return wanted.previous or (wanted.deleted and newest.deleted)


_: type[ExpungeStore] = MemoryExpungeStore
