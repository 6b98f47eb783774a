"""The ledger of deliveries, read: health of subscriptions and their attempts, newest first.  Nothing here writes."""

from __future__ import annotations

from ipf.fhir.model.json import loads
from ipf.ports import Attempt, AttemptPage, SubscriptionHealth
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.lookup import CURRENT_VERSION
from ipf.store.postgres.quoting import Statement
from ipf.store.postgres.writers import WRITERS_OF, writers_in

_HEALTH = f"""
SELECT s.rid, s.id, s.status, s.last_event_number, s.delivered_number, s.success_count, s.failure_count,
       s.last_attempt_at, s.last_attempt_succeeded, s.last_error, s.error, v.body, p.name, {WRITERS_OF}
FROM subscription_states s JOIN partitions p ON p.id = s.partition_id
JOIN resources r ON r.rid = s.rid {CURRENT_VERSION}
WHERE s.status <> 'deleted' AND """

HEALTH = Statement("delivery_health", "text, text", _HEALTH + "p.name = $1 AND s.id = $2")
HEALTHS = Statement(
    "delivery_healths", "text, integer", _HEALTH + "s.rid > 0 AND ($1 IS NULL OR p.name = $1) ORDER BY s.rid LIMIT $2"
)

# By (partition_id, id), for each partition.
TENANTS_OF = Statement(
    "delivery_tenants_of",
    "text",
    """
SELECT p.name FROM partitions p JOIN subscription_states s ON s.partition_id = p.id AND s.id = $1
WHERE s.status <> 'deleted' ORDER BY p.id""",
)

# The count comes with every row of the page, and alone when the page is empty.
HISTORY = Statement(
    "delivery_history",
    "text, text, integer, bigint",
    """
WITH one AS (
    SELECT s.rid FROM subscription_states s JOIN partitions p ON p.id = s.partition_id
    WHERE p.name = $1 AND s.id = $2 AND s.status <> 'deleted'
), counted AS (
    SELECT o.rid, (SELECT count(*) FROM delivery_attempts a WHERE a.subscription_rid = o.rid) AS total FROM one o
)
SELECT c.total, a.event_number, a.attempted_at, a.succeeded, a.http_status, a.duration_ms, a.error,
       a.correlation_id::text, a.kind, a.to_event_number
FROM counted c LEFT JOIN LATERAL (
    SELECT * FROM delivery_attempts a WHERE a.subscription_rid = c.rid
    ORDER BY a.attempted_at DESC, a.id DESC LIMIT $3 OFFSET $4
) a ON true
ORDER BY a.attempted_at DESC, a.id DESC""",
)

STATEMENTS = (HEALTH, HEALTHS, TENANTS_OF, HISTORY)


class Reports:
    """The reading half of `ports.DeliveryQueue`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._all_tenants = database.all_tenants

    async def health(self, tenant: str, subscription_id: str) -> SubscriptionHealth | None:
        """See `ports.DeliveryQueue.health`."""
        row = await self._database.for_tenant(tenant).maybe(HEALTH.call(tenant, subscription_id))
        return None if row is None else _health(row)

    async def tenants_of(self, subscription_id: str) -> list[str]:
        """See `ports.DeliveryQueue.tenants_of`."""
        return [row[0] for row in await self._all_tenants.many(TENANTS_OF.call(subscription_id))]

    async def healths(self, tenant: str | None, limit: int) -> list[SubscriptionHealth]:
        """See `ports.DeliveryQueue.healths`."""
        return [_health(row) for row in await self._all_tenants.many(HEALTHS.call(tenant, limit))]

    async def history(self, tenant: str, subscription_id: str, limit: int, offset: int) -> AttemptPage | None:
        """See `ports.DeliveryQueue.history`."""
        rows = await self._database.for_tenant(tenant).many(HISTORY.call(tenant, subscription_id, limit, offset))
        if not rows:
            return None
        return AttemptPage(int(rows[0][0]), tuple(_attempt(row[1:]) for row in rows if row[1] is not None))


def _attempt(row: Row) -> Attempt:
    number, attempted_at, *rest = row
    return Attempt(int(number), attempted_at, *rest)


def _health(row: Row) -> SubscriptionHealth:
    *counters, body, tenant, writers = row
    return SubscriptionHealth(*[*counters, loads(body), tenant, writers_in(writers)])
