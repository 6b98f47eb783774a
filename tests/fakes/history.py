"""`ports.Histories` in memory, on the versions of a MemoryFhirStore."""

from __future__ import annotations

from datetime import datetime

from ipf.ports.history import Histories, HistoryCursor
from ipf.ports.resources import Version
from tests.fakes.resources import MemoryFhirStore


class MemoryHistories:
    """See `ports.Histories`."""

    def __init__(self, store: MemoryFhirStore) -> None:
        self._store = store

    async def page(
        self,
        tenant: str,
        resource_type: str | None,
        limit: int,
        since: datetime | None = None,
        before: HistoryCursor | None = None,
    ) -> list[Version]:
        """See `ports.Histories.page`."""
        self._store.check()
        found = [
            version
            for key, versions in self._store.versions.items()
            for version in versions
            if key[0] == tenant
            and resource_type in (None, key[1])
            and (since is None or version.last_updated >= since)
            and (before is None or HistoryCursor.of(version) < before)
        ]
        return sorted(found, key=HistoryCursor.of, reverse=True)[:limit]


_: type[Histories] = MemoryHistories
