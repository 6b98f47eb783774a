"""`ports.ConsentSource` on a MemoryFhirStore."""

from __future__ import annotations

from collections.abc import Sequence

from ipf.fhir.model.json import loads
from ipf.ports import Json
from ipf.ports.fhir.consents import ConsentSource, StoredConsent
from tests.fakes.resources import Key, MemoryFhirStore


class MemoryConsents:
    """Reads Consents of a store that others write.  `reads`: number of calls of `page` and `changes`."""

    def __init__(self, store: MemoryFhirStore) -> None:
        self._store = store
        self.reads = 0

    async def epoch(self) -> int:
        """See `ports.ConsentSource.epoch`."""
        self._store.check()
        return self._store.consent_epoch

    async def page(self, after_rid: int, limit: int) -> Sequence[StoredConsent]:
        """See `ports.ConsentSource.page`."""
        self.reads += 1
        found = [
            StoredConsent(tenant, rid, resource)
            for rid, (tenant, key, _) in sorted(self._store.consents.items())
            if rid > after_rid and (resource := self._resource(key)) is not None
        ]
        return found[:limit]

    async def changes(self, since: int) -> Sequence[StoredConsent]:
        """See `ports.ConsentSource.changes`."""
        self.reads += 1
        return [
            StoredConsent(tenant, rid, self._resource(key))
            for rid, (tenant, key, epoch) in sorted(self._store.consents.items())
            if epoch > since
        ]

    def _resource(self, key: Key) -> Json | None:
        version = self._store.current(key)
        return None if version is None or version.deleted else loads(version.body)


_: type[ConsentSource] = MemoryConsents
