"""`ports.Referrers` in memory, on the index entries of a MemoryFhirStore."""

from __future__ import annotations

from ipf.ports import Version
from ipf.ports.fhir.integrity import Referrers
from tests.fakes.resources import MemoryFhirStore


class MemoryReferrers:
    """See `ports.Referrers`."""

    def __init__(self, store: MemoryFhirStore) -> None:
        self._store = store

    async def referring(self, tenant: str, reference: str, after: int, limit: int) -> list[Version]:
        """See `ports.Referrers.referring`."""
        found = [
            self._store.versions[key][-1]
            for key, entries in self._store.entries.items()
            if key[0] == tenant and any(value == reference for _, value in entries.texts)
        ]
        live = [version for version in found if version.rid > after and not version.deleted]
        return sorted(live, key=lambda version: version.rid)[:limit]


_: type[Referrers] = MemoryReferrers
