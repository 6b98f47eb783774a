"""Hourly maintenance of the audit trail: partitions ahead of time, retention.

The partitions of this month and the next are made before records need them.

`SUBSCRIPTION_SERVICE_AUDIT_RETENTION_DAYS` alone is for information, as the interface specification says.  With
`IPF_AUDIT_PURGE` older records are removed: whole months by dropping their partitions, the rest a few rows at a time.
A signed head says so first, and their links are removed last.

Several processes may do this at once.  Each batch is a transaction of its own, so a crash loses nothing.  When the
store cannot be reached, the next run goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from twisted.logger import Logger

from ipf.errors import StoreUnreachable
from ipf.pipeline.maintenance.audit_chain import AuditChain, whole_seconds
from ipf.ports import Clock
from ipf.ports.audit.records import AuditStore
from ipf.telemetry.logs import event_line

log = Logger()

BATCH = 500  # rows that are removed at a time
EVERY_SECONDS = 3600.0
PAUSE_SECONDS = 0.05
_AHEAD = timedelta(days=31)


class AuditMaintenance:
    """`run` does what is due now; `pause` waits between batches.  `days`: how long records are kept; None: for ever."""

    def __init__(
        self,
        store: AuditStore,
        days: int | None,
        clock: Clock,
        pause: Callable[[float], Awaitable[object]],
        chain: AuditChain | None = None,
    ) -> None:
        self._store = store
        self._days = days
        self._clock = clock
        self._pause = pause
        self._chain = chain

    async def run(self) -> None:
        """One run."""
        try:
            for moment in (self._clock(), self._clock() + _AHEAD):
                await self._store.ensure_month(moment)
            if self._days is not None:
                await self._purge(self._days)
        except StoreUnreachable:
            log.info(event_line("audit_maintenance_interrupted"))

    async def _purge(self, days: int) -> None:
        before = whole_seconds(self._clock() - timedelta(days=days))
        chain = self._chain
        if chain is not None:
            await chain.retire(before)
        removed = await self._repeat(lambda: self._store.purge(before, BATCH))
        if chain is not None:
            await self._repeat(lambda: chain.remove_links(BATCH))
        if removed:
            log.info(event_line("audit_retention", removed=removed, days=days))

    async def _repeat(self, batch: Callable[[], Awaitable[int]]) -> int:
        """Batch after batch until one has nothing left; how many records all of them had."""
        total = 0
        while count := await batch():
            total += count
            await self._pause(PAUSE_SECONDS)
        return total
