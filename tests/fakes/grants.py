"""`ports.CreatorGrants` in memory, on a MemoryFhirStore."""

from __future__ import annotations

from ipf.ports import Caller
from ipf.ports.grants import CreatorGrants
from tests.fakes.resources import MemoryFhirStore


class MemoryGrants:
    """See `ports.CreatorGrants`."""

    def __init__(self, store: MemoryFhirStore) -> None:
        self._store = store

    async def creator(self, tenant: str, subscription_id: str) -> Caller | None:
        """See `ports.CreatorGrants.creator`."""
        for rid, stream in self._store.streams.items():
            if (stream.state.tenant, stream.state.id) == (tenant, subscription_id):
                return self._store.creators.get(rid)
        return None


_: type[CreatorGrants] = MemoryGrants
