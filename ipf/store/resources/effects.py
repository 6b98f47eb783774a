"""Rows of the FHIR database with one correlation id: versions, events and delivery attempts."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from ipf.ports import EffectsStore, FhirEffects, FiredEvent, FiredNotification, WrittenVersion
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.quoting import literal

MAX_ROWS = 1000

_VERSIONS = f"""
SELECT r.resource_type, r.id, v.version_id,
       CASE WHEN v.deleted THEN 'deleted' WHEN v.version_id = 1 THEN 'created' ELSE 'updated' END, v.last_updated
FROM resource_versions v JOIN resources r ON r.rid = v.rid JOIN partitions p ON p.id = v.partition_id
WHERE v.correlation_id = $2 AND p.name = $1 ORDER BY v.last_updated, v.rid, v.version_id LIMIT {MAX_ROWS}"""
_EVENTS = f"""
SELECT s.rid, s.id, s.status, e.event_number, r.resource_type || '/' || r.id, v.body,
       e.event_number <= s.delivered_number, s.channel_type
FROM subscription_events e JOIN subscription_states s ON s.rid = e.subscription_rid
JOIN partitions p ON p.id = s.partition_id JOIN resources r ON r.rid = e.resource_rid
LEFT JOIN resources o ON o.rid = s.rid LEFT JOIN resource_versions v ON v.rid = o.rid AND v.version_id = o.version_id
WHERE e.correlation_id = $2 AND p.name = $1 ORDER BY e.occurred_at, s.rid, e.event_number LIMIT {MAX_ROWS}"""
# Attempts that carried the event first bear its correlation id; those that carried several are found by their range.
_ATTEMPTS = f"""
SELECT s.id, e.event_number, a.attempted_at, a.succeeded, a.http_status, a.duration_ms, a.error
FROM subscription_events e JOIN subscription_states s ON s.rid = e.subscription_rid
JOIN partitions p ON p.id = s.partition_id
CROSS JOIN LATERAL (
    SELECT * FROM delivery_attempts a WHERE a.correlation_id = e.correlation_id
       AND a.subscription_rid = e.subscription_rid AND a.event_number = e.event_number AND a.to_event_number IS NULL
    UNION ALL
    SELECT * FROM (
        SELECT * FROM delivery_attempts a WHERE a.to_event_number IS NOT NULL
           AND a.subscription_rid = e.subscription_rid AND a.to_event_number >= e.event_number
        ORDER BY a.to_event_number LIMIT 50
    ) a WHERE a.event_number <= e.event_number
) a
WHERE e.correlation_id = $2 AND p.name = $1 AND a.kind = 'event-notification'
ORDER BY a.attempted_at, a.id LIMIT {MAX_ROWS}"""


class PostgresEffects:
    """`ports.EffectsStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def effects(self, tenant: str, correlation_id: str) -> FhirEffects:
        """See `ports.EffectsStore.effects`."""
        rows = self._database.for_tenant(tenant)
        versions = await rows.many(_for_message(_VERSIONS, tenant, correlation_id))
        events = await rows.many(_for_message(_EVENTS, tenant, correlation_id))
        attempts = await rows.many(_for_message(_ATTEMPTS, tenant, correlation_id)) if events else []
        return FhirEffects(
            [WrittenVersion(*row) for row in versions],
            [_event(row) for row in events],
            [FiredNotification(*row) for row in attempts],
        )


def _for_message(query: str, tenant: str, correlation_id: str) -> str:
    """The query for one message; operators run it rarely, so it is not prepared."""
    return query.replace("$1", literal(tenant)).replace("$2", literal(correlation_id))


def _event(row: Row) -> FiredEvent:
    _, id_, status, number, resource, body, delivered, channel_type = row
    subscription: dict[str, Any] = loads(body) if body else {}
    channel = subscription.get("channel") or {}
    return FiredEvent(
        id_, status, number, resource, channel.get("type") or channel_type, channel.get("endpoint"),
        subscription.get("criteria") or "", delivered,
    )  # fmt: skip


_: type[EffectsStore] = PostgresEffects
