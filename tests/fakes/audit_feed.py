"""The feed of audit records in memory: `ports.audit_feed`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ipf.ports.audit.feed import AuditFeedStore, FedRecord
from ipf.ports.audit.records import Audit


class MemoryAuditFeed:
    """`AuditFeedStore`.  `chain`: the records by position, from 1; None: removed.  `seconds`: the time of leases."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.chain: list[Audit | None] = []
        self.position = 0
        self._seconds = seconds
        self._worker, self._until = "", 0.0

    async def hold(self, worker: str, seconds: float) -> int | None:
        """See `AuditFeedStore.hold`."""
        if worker != self._worker and self._seconds() < self._until:
            return None
        self._worker, self._until = worker, self._seconds() + seconds
        return self.position

    async def after(self, position: int, surfaces: Sequence[str], limit: int) -> list[FedRecord]:
        """See `AuditFeedStore.after`."""
        found = enumerate(self.chain[position : position + limit], position + 1)
        return [FedRecord(at, one if one and one.context.surface in surfaces else None) for at, one in found]

    async def advance(self, worker: str, position: int) -> bool:
        """See `AuditFeedStore.advance`."""
        if worker != self._worker or self._seconds() >= self._until:
            return False
        self.position = max(self.position, position)
        return True


_: type[AuditFeedStore] = MemoryAuditFeed
