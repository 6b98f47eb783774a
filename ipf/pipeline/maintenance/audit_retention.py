"""Audit records that are older than they are to be kept go, a few at a time, when the operator asked for it.

`SUBSCRIPTION_SERVICE_AUDIT_RETENTION_DAYS` alone is for information, as the interface specification says; the second
switch `IPF_AUDIT_PURGE` makes it a rule.  Several processes may do this at once: a record goes once.  Each batch is a
transaction of its own, so a kill loses nothing that matters.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from twisted.logger import Logger

from ipf.errors import StoreUnreachable
from ipf.ports import Clock
from ipf.ports.audit import AuditStore
from ipf.telemetry.logs import event_line

log = Logger()

BATCH = 200  # rows, each of up to 256 records
EVERY_SECONDS = 3600.0
PAUSE_SECONDS = 0.05


class AuditRetention:
    """`run` removes what is too old now; `pause` waits between batches, so that daily work goes on beside it."""

    def __init__(self, store: AuditStore, days: int, clock: Clock, pause: Callable[[float], Awaitable[object]]) -> None:
        self._store = store
        self._days = days
        self._clock = clock
        self._pause = pause

    async def run(self) -> None:
        """A store that is away is tried again at the next run."""
        before, removed = self._clock() - timedelta(days=self._days), 0
        try:
            while count := await self._store.purge(before, BATCH):
                removed += count
                await self._pause(PAUSE_SECONDS)
        except StoreUnreachable:
            log.info(event_line("audit_retention_interrupted", removed=removed))
        if removed:
            log.info(event_line("audit_retention", removed=removed, days=self._days))
