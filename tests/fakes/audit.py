"""`ports.AuditStore` in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from ipf.ports.audit.records import Audit, AuditFilter, AuditStore, keys_of


class MemoryAuditStore:
    """Rows in a dictionary; `failing`: raised by the next calls of `append`."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Audit] = {}
        self.failing: Exception | None = None
        self.appends = 0

    async def append(self, audits: Sequence[Audit]) -> None:
        """See `ports.AuditStore.append`."""
        self.appends += 1
        if self.failing is not None:
            raise self.failing
        for audit in audits:
            self.rows.setdefault((audit.context.tenant, audit.id), audit)

    async def find(
        self, tenant: str, wanted: AuditFilter, limit: int, after: str | None = None, *, oldest_first: bool = False
    ) -> list[Audit]:
        """See `ports.AuditStore.find`."""
        found = sorted(self._matching(tenant, wanted), key=lambda one: one.id, reverse=not oldest_first)
        if after is not None:
            found = [one for one in found if (one.id > after if oldest_first else one.id < after)]
        return found[:limit]

    async def page(self, tenant: str | None, wanted: AuditFilter, limit: int, offset: int) -> tuple[int, list[Audit]]:
        """See `ports.AuditStore.page`."""
        found = sorted(self._matching(tenant, wanted), key=lambda one: one.id, reverse=True)
        return len(found), found[offset : offset + limit]

    async def count(self, tenant: str, wanted: AuditFilter) -> int:
        """See `ports.AuditStore.count`."""
        return len(list(self._matching(tenant, wanted)))

    async def purge(self, before: datetime, limit: int) -> int:
        """See `ports.AuditStore.purge`."""
        expired = [key for key, audit in self.rows.items() if audit.recorded_at < before][:limit]
        for key in expired:
            del self.rows[key]
        return len(expired)

    async def ensure_month(self, moment: datetime) -> None:
        """See `ports.AuditStore.ensure_month`."""

    def _matching(self, tenant: str | None, wanted: AuditFilter) -> Iterator[Audit]:
        for audit in self.rows.values():
            if (tenant is None or audit.context.tenant == tenant) and _passes(audit, wanted):
                yield audit


def _passes(audit: Audit, wanted: AuditFilter) -> bool:
    keys, context = set(keys_of(audit)), audit.context
    sets = (
        (wanted.ids, audit.id), (wanted.agents, context.agent), (wanted.actions, context.action),
        (wanted.outcomes, context.outcome), (wanted.interactions, context.interaction),
    )  # fmt: skip
    return (
        wanted.surface in (None, context.surface)
        and all(not keys.isdisjoint(group) for group in wanted.keys)
        and (wanted.since is None or audit.recorded_at >= wanted.since)
        and (wanted.until is None or audit.recorded_at <= wanted.until)
        and all(allowed is None or value in allowed for allowed, value in sets)
    )


_: type[AuditStore] = MemoryAuditStore
