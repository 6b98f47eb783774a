"""Reading the state of subscriptions and their events, and sending events again.

Leaves: leases without a token (for reading only) and events with the exact bodies of the versions that fired.
"""

from __future__ import annotations

from ipf.fhir.model.json import loads
from ipf.ports import Event, Lease
from ipf.store.deliveries.websockets import event_of
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.lookup import CURRENT_VERSION
from ipf.store.postgres.quoting import Statement
from ipf.store.postgres.tenant_scope import Executor

PEEK = Statement(
    "delivery_peek",
    "text, text",
    f"""
SELECT p.name, s.rid, s.id, now(), v.body, s.attempt_count, s.failing_since, s.last_event_number
FROM subscription_states s JOIN partitions p ON p.id = s.partition_id
JOIN resources r ON r.rid = s.rid {CURRENT_VERSION}
WHERE p.name = $1 AND s.id = $2 AND s.status <> 'deleted' AND NOT r.deleted""",
)

ENDED = Statement(
    "delivery_ended",
    "integer",
    """
SELECT p.name, s.id FROM subscription_states s JOIN partitions p ON p.id = s.partition_id
WHERE s.ends_at <= now() AND s.ends_at IS NOT NULL AND s.status IN ('requested', 'active', 'error')
ORDER BY s.ends_at LIMIT $1""",
)

EVENT_RANGE = Statement(
    "delivery_event_range",
    "text, text, bigint, bigint, integer",
    """
SELECT e.event_number, r.resource_type, r.id, e.version_id, e.occurred_at, e.correlation_id::text, v.body, v.method
FROM subscription_states s JOIN partitions p ON p.id = s.partition_id
JOIN subscription_events e ON e.subscription_rid = s.rid AND e.event_number BETWEEN $3 AND $4
JOIN resources r ON r.rid = e.resource_rid
JOIN resource_versions v ON v.rid = e.resource_rid AND v.version_id = e.version_id
WHERE p.name = $1 AND s.id = $2 AND s.status <> 'deleted' ORDER BY e.event_number LIMIT $5""",
)

# Revokes the lease, so that notifications under way are not settled and do not advance the cursor.
# $4: the last event to send again; after it the cursor returns to its present position.  Overlapping ranges merge.
RESEND = Statement(
    "delivery_resend",
    "text, text, bigint, bigint",
    """
UPDATE subscription_states s
SET delivered_number = least(s.delivered_number, $3 - 1),
    resend_until = CASE WHEN s.resend_until IS NOT NULL THEN greatest(s.resend_until, $4)
                        WHEN $4 < s.delivered_number THEN $4 END,
    resume_number = CASE WHEN s.resend_until IS NULL THEN s.delivered_number ELSE s.resume_number END,
    resend_token = s.lease_token + 1,
    lease_token = s.lease_token + 1, lease_until = NULL, leased_by = NULL, ready_at = now()
FROM partitions p
WHERE p.id = s.partition_id AND p.name = $1 AND s.id = $2 AND s.status = 'active' AND s.channel_type <> 'websocket'
RETURNING CASE WHEN s.resend_until IS NULL THEN s.last_event_number - s.delivered_number
               ELSE s.resend_until - s.delivered_number + s.last_event_number - s.resume_number END""",
)

STATEMENTS = (PEEK, ENDED, EVENT_RANGE, RESEND)


class Lifecycle:
    """The part of `ports.DeliveryQueue` that activation and the operations on subscriptions use."""

    _database: Database
    _all_tenants: Executor

    async def peek(self, tenant: str, subscription_id: str) -> Lease | None:
        """See `ports.DeliveryQueue.peek`."""
        row = await self._database.for_tenant(tenant).maybe(PEEK.call(tenant, subscription_id))
        return None if row is None else _peeked(row)

    async def ended(self, limit: int) -> list[tuple[str, str]]:
        """See `ports.DeliveryQueue.ended`."""
        return [(row[0], row[1]) for row in await self._all_tenants.many(ENDED.call(limit))]

    async def event_range(self, tenant: str, subscription_id: str, first: int, last: int, limit: int) -> list[Event]:
        """See `ports.DeliveryQueue.event_range`."""
        rows = await self._database.for_tenant(tenant).many(
            EVENT_RANGE.call(tenant, subscription_id, first, last, limit)
        )
        return [event_of(row) for row in rows]

    async def resend(self, tenant: str, subscription_id: str, first: int, last: int) -> int | None:
        """See `ports.DeliveryQueue.resend`."""
        row = await self._database.for_tenant(tenant).maybe(RESEND.call(tenant, subscription_id, first, last))
        return None if row is None else int(row[0])


def _peeked(row: Row) -> Lease:
    tenant, rid, id_, now, body, attempts, failing_since, number = row
    return Lease(tenant, rid, id_, 0, now, loads(body), attempts, failing_since, int(number))
