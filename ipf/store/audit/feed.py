"""The feed of the audit trail on PostgreSQL: `ports.audit.feed.AuditFeedStore`.

It follows `audit_chain` (`chain.py`), whose positions have no gaps, so that a reader with a position misses none.  Each
call is a transaction of its own and survives a crash.
"""

from __future__ import annotations

from collections.abc import Sequence

from ipf.ports.audit.feed import AuditFeedStore, FedRecord
from ipf.store.audit.rows import COLUMNS, audit_of
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import literal

_HOLD = """
INSERT INTO audit_feed AS f (name, held_by, held_until)
VALUES ('syslog', {worker}, now() + {seconds} * interval '1 second')
ON CONFLICT (name) DO UPDATE SET held_by = excluded.held_by, held_until = excluded.held_until
WHERE f.held_by = excluded.held_by OR f.held_until IS NULL OR f.held_until <= now()
RETURNING f.position"""

_AFTER = f"""
SELECT c.position, p.name, {COLUMNS}
FROM (SELECT * FROM audit_chain WHERE position > {{position}} ORDER BY position LIMIT {{limit}}) c
JOIN partitions p ON p.id = c.partition_id
LEFT JOIN LATERAL (
    SELECT r.* FROM audit_records r
    WHERE r.partition_id = c.partition_id AND r.recorded_at = c.recorded_at AND r.id = c.id
        AND c.surface IN ({{surfaces}})
) a ON true
ORDER BY c.position"""

_ADVANCE = """
UPDATE audit_feed SET position = greatest(position, {position})
WHERE name = 'syslog' AND held_by = {worker} AND held_until > now() RETURNING 1"""


class PostgresAuditFeed:
    """`ports.audit.feed.AuditFeedStore`."""

    def __init__(self, database: Database) -> None:
        self._all_tenants = database.all_tenants

    async def hold(self, worker: str, seconds: float) -> int | None:
        """See `AuditFeedStore.hold`."""
        rows = await self._all_tenants.many(_HOLD.format(worker=literal(worker), seconds=literal(float(seconds))))
        return int(rows[0][0]) if rows else None

    async def after(self, position: int, surfaces: Sequence[str], limit: int) -> list[FedRecord]:
        """See `AuditFeedStore.after`."""
        wanted = ",".join(map(literal, surfaces))
        rows = await self._all_tenants.many(_AFTER.format(position=int(position), limit=int(limit), surfaces=wanted))
        return [FedRecord(int(row[0]), None if row[4] is None else audit_of(row[1], row[2:])) for row in rows]

    async def advance(self, worker: str, position: int) -> bool:
        """See `AuditFeedStore.advance`."""
        return bool(await self._all_tenants.many(_ADVANCE.format(worker=literal(worker), position=int(position))))


_: type[AuditFeedStore] = PostgresAuditFeed
