"""Events for websockets on PostgreSQL: read by every process that has clients, never leased.

A websocket client is connected to one process of several and receives events from then on, without a replay (interface
specification, "WebSocket").  Each process reads the events after the numbers that its clients have, and writes to the
ledger what it sent; the row's cursor follows the furthest process.  A crash disconnects the clients, which read missed
events with `$events`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipf.errors import StoreUnreachable
from ipf.fhir.model.json import loads
from ipf.fhir.model.redaction import redact_body
from ipf.ports import Attempt, Event, Lease
from ipf.ports.audit.records import Audit
from ipf.store.postgres.audit_calls import note, refuse
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.lookup import CURRENT_VERSION
from ipf.store.postgres.quoting import Statement, joined, printable, script
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.postgres.tenant_scope import Executor

SUBSCRIPTION = Statement(
    "delivery_websocket_subscription",
    "text, text",
    f"""
SELECT p.name, s.rid, s.id, s.last_event_number, now(), v.body
FROM subscription_states s JOIN partitions p ON p.id = s.partition_id
JOIN resources r ON r.rid = s.rid {CURRENT_VERSION}
WHERE p.name = $1 AND s.id = $2 AND s.status <> 'deleted' AND s.channel_type = 'websocket'""",
)

EVENTS_AFTER = Statement(
    "delivery_events_after",
    "text, text, integer",
    r"""
SELECT s.rid, e.event_number, r.resource_type, r.id, e.version_id, e.occurred_at, e.correlation_id::text, v.body,
       v.method
FROM unnest(string_to_array($1, E'\x1f')::bigint[], string_to_array($2, E'\x1f')::bigint[]) AS k(rid, known)
JOIN subscription_states s ON s.rid = k.rid AND s.last_event_number > k.known
     AND s.status = 'active' AND s.channel_type = 'websocket'
CROSS JOIN LATERAL (
    SELECT * FROM subscription_events WHERE subscription_rid = s.rid AND event_number > k.known
    ORDER BY event_number LIMIT $3
) e
JOIN resources r ON r.rid = e.resource_rid
JOIN resource_versions v ON v.rid = e.resource_rid AND v.version_id = e.version_id
ORDER BY s.rid, e.event_number""",
)

# Rows are locked in the same order as writers lock them to number events.
RECORD_SENT = Statement(
    "delivery_record_sent",
    "text, text, text, text, text, text, text, text, text",
    r"""
WITH attempts AS MATERIALIZED (
    SELECT * FROM unnest(string_to_array($1, E'\x1f')::bigint[], string_to_array($2, E'\x1f')::bigint[],
        string_to_array($3, E'\x1f')::timestamptz[], string_to_array($4, E'\x1f')::boolean[],
        string_to_array($5, E'\x1f')::integer[], string_to_array($6, E'\x1f', E'\x1e'),
        string_to_array($7, E'\x1f')::uuid[], string_to_array($8, E'\x1f'),
        string_to_array($9, E'\x1f', E'\x1e')::bigint[]) WITH ORDINALITY
        AS t(rid, event_number, attempted_at, succeeded, duration_ms, error, correlation_id, kind, last, n)
), tally AS (
    SELECT rid, count(*) FILTER (WHERE succeeded) AS successes, count(*) FILTER (WHERE NOT succeeded) AS failures,
        max(coalesce(last, event_number)) FILTER (WHERE succeeded) AS delivered_to, max(n) AS newest
    FROM attempts GROUP BY rid
), locked AS MATERIALIZED (
    SELECT s.rid FROM subscription_states s JOIN tally t ON t.rid = s.rid ORDER BY s.rid FOR UPDATE OF s
), mine AS (
    UPDATE subscription_states s SET
        delivered_number = least(greatest(s.delivered_number, t.delivered_to), s.last_event_number),
        success_count = s.success_count + t.successes, failure_count = s.failure_count + t.failures,
        last_attempt_at = a.attempted_at, last_attempt_succeeded = a.succeeded, last_error = a.error
    FROM locked l JOIN tally t ON t.rid = l.rid JOIN attempts a ON a.n = t.newest
    WHERE s.rid = l.rid
    RETURNING s.rid
)
INSERT INTO delivery_attempts
    (subscription_rid, event_number, attempted_at, succeeded, duration_ms, error, correlation_id, kind, to_event_number)
SELECT a.rid, a.event_number, a.attempted_at, a.succeeded, a.duration_ms, a.error, a.correlation_id, a.kind, a.last
FROM attempts a JOIN mine m ON m.rid = a.rid ORDER BY a.n""",
)

STATEMENTS = (SUBSCRIPTION, EVENTS_AFTER, RECORD_SENT)


class WebsocketEvents:
    """The part of `ports.DeliveryQueue` that websockets use."""

    _database: Database
    _all_tenants: Executor
    _symbols: SymbolTable

    async def websocket_subscription(self, tenant: str, subscription_id: str) -> Lease | None:
        """See `ports.DeliveryQueue.websocket_subscription`."""
        row = await self._database.for_tenant(tenant).maybe(SUBSCRIPTION.call(tenant, subscription_id))
        if row is None:
            return None
        name, rid, id_, number, now, body = row
        return Lease(name, rid, id_, 0, now, loads(body), 0, None, int(number))

    async def events_after(self, cursors: Mapping[int, int], limit: int) -> list[tuple[int, Event]]:
        """See `ports.DeliveryQueue.events_after`."""
        rows = await self._all_tenants.many(EVENTS_AFTER.call(joined(cursors.keys()), joined(cursors.values()), limit))
        return [(row[0], event_of(row[1:])) for row in rows]

    async def record_sent(self, attempts: Mapping[int, Sequence[Attempt]], audits: Sequence[Audit] = ()) -> None:
        """See `ports.DeliveryQueue.record_sent`."""
        flat = [(rid, attempt) for rid, made in attempts.items() for attempt in made]
        if not flat:
            return
        call = RECORD_SENT.call(
            joined(rid for rid, _ in flat),
            joined(attempt.event_number for _, attempt in flat),
            joined(attempt.attempted_at for _, attempt in flat),
            joined(attempt.succeeded for _, attempt in flat),
            joined(attempt.duration_ms for _, attempt in flat),
            joined(printable(attempt.error) for _, attempt in flat),
            joined(attempt.correlation_id for _, attempt in flat),
            joined(attempt.kind for _, attempt in flat),
            joined(attempt.to_event_number for _, attempt in flat),
        )
        await self._all_tenants.many(script(await self._note(audits), call))

    async def _note(self, audits: Sequence[Audit]) -> str:
        """The statement that writes audit records under a savepoint; "" when there are none."""
        if not audits:
            return ""
        tenants = {audit.context.tenant for audit in audits}
        try:
            await self._symbols.load(tenants)
            return note(audits, {tenant: self._symbols.partition(tenant) for tenant in tenants})
        except StoreUnreachable:
            raise
        except Exception as failed:
            return refuse(type(failed).__name__)


def event_of(row: Row) -> Event:
    """The event of a row; a Subscription in its body is redacted."""
    number, resource_type, id_, version_id, occurred_at, correlation_id, body, method = row
    return Event(
        number, resource_type, id_, version_id, occurred_at, correlation_id, redact_body(body.encode()), method
    )
