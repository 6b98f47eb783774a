"""`ports.CreatorGrants` in memory, on a MemoryFhirStore."""

from __future__ import annotations

from collections.abc import Sequence

from ipf.ports.grants import CreatorGrants, Writer
from tests.fakes.resources import MemoryFhirStore


class MemoryGrants:
    """See `ports.CreatorGrants`."""

    def __init__(self, store: MemoryFhirStore) -> None:
        self._store = store

    async def writers(self, tenant: str, subscription_id: str, version_id: int) -> Sequence[Writer] | None:
        """See `ports.CreatorGrants.writers`."""
        current = self._store.current((tenant, "Subscription", subscription_id))
        if current is None or current.version_id != version_id:
            return None
        for rid, stream in self._store.streams.items():
            if (stream.state.tenant, stream.state.id) == (tenant, subscription_id):
                return tuple(self._store.creators.get(rid, {}).values())
        return ()


_: type[CreatorGrants] = MemoryGrants
