"""`ports.Histories` in memory, on the versions of a MemoryFhirStore."""

from __future__ import annotations

from ipf.ports.fhir.history import Histories, HistoryCursor
from ipf.ports.fhir.resources import FhirTransaction, Version
from ipf.ports.queries.history_filter import EVERY_VERSION, HistoryFilter
from tests.fakes.resources import MemoryFhirStore, wanted_of


class MemoryHistories:
    """See `ports.Histories`."""

    def __init__(self, store: MemoryFhirStore) -> None:
        self._store = store

    def within(self, transaction: FhirTransaction) -> MemoryHistories:
        """See `ports.Histories.within`."""
        return MemoryHistories(self._store.within(transaction))

    async def page(
        self,
        tenant: str,
        resource_type: str | None,
        limit: int,
        wanted: HistoryFilter = EVERY_VERSION,
        start: HistoryCursor | None = None,
    ) -> list[Version]:
        """See `ports.Histories.page`."""
        self._store.check()
        found = [
            version
            for key, versions in self._store.versions.items()
            for version in wanted_of(versions, wanted)
            if key[0] == tenant and resource_type in (None, key[1])
        ]
        found.sort(key=HistoryCursor.of, reverse=not wanted.oldest_first)
        if start is not None:
            found = [one for one in found if (HistoryCursor.of(one) > start) == wanted.oldest_first]
        return [one for one in found if HistoryCursor.of(one) != start][:limit]

    async def count(self, tenant: str, resource_type: str, id: str) -> int:
        """See `ports.Histories.count`."""
        return len(self._store.versions.get((tenant, resource_type, id), ()))


_: type[Histories] = MemoryHistories
