"""Statistics of messages: queue sizes, counts over time, dead letters, traces.

Queries never read message bodies.  A background stage (`count_received`) counts the messages of each hour once into
`received_hours`; a query counts only the last minutes, from an index.  Undelivered messages are counted from the list
index, which has few such rows; all others are delivered.

The same stage keeps `message_senders` and `received_minutes`, which `senders.py` reads.

A row may be committed later than it was received, at most by the timeout of the inbox, so the stage counts up to
`LAG_SECONDS` ago.  Messages deleted by retention stay counted; messages deleted by an operator do not (a trigger).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from ipf.ports import MessageRow, Status
from ipf.ports.messages.statistics import (
    MessageStatistics,
    SendersNow,
    Trace,
    TracedDelivery,
    TracedEvent,
    TracedMessage,
    TracedResource,
)
from ipf.store.inbox.conflicts import conflict_row, of_correlation
from ipf.store.inbox.senders import senders
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.quoting import literal

LAG_SECONDS = 90  # longer than the sum of the timeouts of a statement and of the inbox
STEP_DAYS = 1  # counted in one step
LONGEST_TRACE = 1000  # rows of each kind
ROLLUP_DAYS = 100  # longer than the longest window of a query
MINUTES_KEPT = 180  # of the counts by minute

_OPEN = "('RECEIVED'::message_status), ('TRANSFORMING'), ('FAILED'), ('DEAD_LETTER')"
# A loose index scan: the list index begins with the tenant.
TENANTS = """WITH RECURSIVE tenants AS (
    (SELECT tenant FROM message_states WHERE original_id IS NULL ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT s.tenant FROM message_states s WHERE s.original_id IS NULL AND s.tenant > t.tenant
            ORDER BY s.tenant LIMIT 1) FROM tenants t WHERE t.tenant IS NOT NULL
), known AS (SELECT tenant FROM tenants WHERE tenant IS NOT NULL)"""

_QUEUE = f"""{TENANTS}, open AS (
    SELECT w.status, n.count FROM known k CROSS JOIN (VALUES {_OPEN}) AS w(status) CROSS JOIN LATERAL (
        SELECT count(*) FROM message_states s
        WHERE s.tenant = k.tenant AND s.status = w.status AND s.original_id IS NULL) n
)
SELECT status::text, sum(count) FROM open GROUP BY status
UNION ALL
SELECT 'all', c.kept + (SELECT count(*) FROM message_bodies b WHERE b.received_at >= c.until) FROM received_counted c"""

_OLDEST = f"""{TENANTS}
SELECT min(n.received_at) FROM known k
CROSS JOIN (VALUES ('RECEIVED'::message_status), ('TRANSFORMING'), ('FAILED')) AS w(status) CROSS JOIN LATERAL (
    SELECT s.received_at FROM message_states s
    WHERE s.tenant = k.tenant AND s.status = w.status AND s.original_id IS NULL
    ORDER BY s.received_at, s.id LIMIT 1) n"""

_ROW = """b.id, b.received_at, b.source_protocol, b.source_system, b.source_id, b.message_type, s.status::text,
    s.attempt_count, s.last_attempt_at, s.last_error, s.delivered_at, b.correlation_id::text, b.tenant,
    s.permanent, s.next_attempt_at"""

_COUNT = f"""
WITH state AS MATERIALIZED (
    SELECT c.until, least(now() - interval '{LAG_SECONDS} seconds', interval '{STEP_DAYS} days' + greatest(c.until,
        coalesce((SELECT b.received_at FROM message_bodies b WHERE b.received_at >= c.until
                  ORDER BY b.received_at LIMIT 1), now()))) AS next
    FROM received_counted c FOR UPDATE OF c SKIP LOCKED
), counted AS MATERIALIZED (
    SELECT date_trunc('hour', b.received_at) AS hour, b.tenant, b.source_system, count(*) AS count,
        min(b.received_at) AS first_seen, max(b.received_at) AS last_seen, max(b.id) AS last_id
    FROM message_bodies b
    WHERE b.received_at >= (SELECT until FROM state) AND b.received_at < (SELECT next FROM state)
    GROUP BY 1, 2, 3
), added AS (
    INSERT INTO received_hours AS h SELECT hour, tenant, source_system, count FROM counted
    ON CONFLICT (hour, tenant, source_system) DO UPDATE SET count = h.count + excluded.count
), heard AS (
    INSERT INTO message_senders AS s
    SELECT tenant, source_system, min(first_seen), max(last_seen), max(last_id) FROM counted GROUP BY 1, 2
    ON CONFLICT (tenant, source_system) DO UPDATE SET
        last_seen = greatest(s.last_seen, excluded.last_seen), last_id = greatest(s.last_id, excluded.last_id)
), minutes AS (
    INSERT INTO received_minutes AS m
    SELECT date_trunc('minute', b.received_at), b.tenant, b.source_system, count(*) FROM message_bodies b
    WHERE b.received_at >= greatest((SELECT until FROM state), now() - interval '{MINUTES_KEPT} minutes')
        AND b.received_at < (SELECT next FROM state)
    GROUP BY 1, 2, 3
    ON CONFLICT (minute, tenant, source_system) DO UPDATE SET count = m.count + excluded.count
), old_minutes AS (
    DELETE FROM received_minutes WHERE minute < now() - interval '{MINUTES_KEPT} minutes'
), forgotten AS (
    DELETE FROM message_senders s WHERE s.last_seen < now() - interval '{ROLLUP_DAYS} days'
        AND NOT EXISTS (SELECT FROM counted c WHERE c.tenant = s.tenant AND c.source_system = s.source_system)
), removed AS (
    DELETE FROM received_hours WHERE hour < now() - interval '{ROLLUP_DAYS} days'
        AND hour < (SELECT until FROM state)
)
UPDATE received_counted r SET until = s.next, kept = r.kept + coalesce((SELECT sum(count) FROM counted), 0)
FROM state s WHERE s.next > s.until
RETURNING r.until < now() - interval '{2 * LAG_SECONDS} seconds'"""


class PostgresMessageStatistics:
    """`ports.MessageStatistics` on both databases."""

    def __init__(self, inbox: Database, fhir: Database) -> None:
        self._inbox = inbox
        self._fhir = fhir.all_tenants

    async def queue(self) -> Mapping[Status, int]:
        """See `MessageStatistics.queue`."""
        found = {row[0]: int(row[1]) for row in await self._inbox.many(_QUEUE)}
        every = found.pop("all", 0)
        counts = {status: found.get(status.value, 0) for status in Status}
        counts[Status.DELIVERED] = max(every - sum(counts.values()), 0)
        return counts

    async def oldest_waiting(self) -> datetime | None:
        """See `MessageStatistics.oldest_waiting`."""
        oldest: datetime | None = (await self._inbox.one(_OLDEST))[0]
        return oldest

    async def throughput(
        self, since: datetime, source_system: str | None, unit: str
    ) -> Sequence[tuple[datetime, Status, int]]:
        """See `MessageStatistics.throughput`."""
        received: dict[datetime, int] = {}
        found: list[tuple[datetime, Status, int]] = []
        for start, status, count in await self._inbox.many(_throughput(since, source_system, unit)):
            if status is None:
                received[start] = received.get(start, 0) + int(count)
            else:
                found.append((start, Status(status), int(count)))
        for start, _, count in found:
            received[start] = received.get(start, 0) - count
        return found + [(start, Status.DELIVERED, left) for start, left in received.items() if left > 0]

    async def senders(self, now: datetime) -> SendersNow:
        """See `MessageStatistics.senders`."""
        return await senders(self._inbox, TENANTS, now)

    async def newest(self, limit: int) -> Sequence[MessageRow]:
        """See `MessageStatistics.newest`."""
        rows = await self._inbox.many(
            f"SELECT {_ROW} FROM message_bodies b JOIN message_states s ON s.id = b.id "
            f"ORDER BY b.received_at DESC, b.id DESC LIMIT {int(limit)}"
        )
        return [message(row) for row in rows]

    async def dead_letters(self, limit: int) -> tuple[int, Sequence[MessageRow]]:
        """See `MessageStatistics.dead_letters`."""
        rows = await self._inbox.many(_dead_letters(limit))
        return (int(rows[0][0]), [message(row[1:]) for row in rows if row[1] is not None]) if rows else (0, [])

    async def trace(self, correlation_id: str) -> Trace:
        """See `MessageStatistics.trace`."""
        of = literal(correlation_id)
        messages = await self._inbox.many(_MESSAGES.format(id=of, limit=LONGEST_TRACE))
        conflicts = await self._inbox.many(of_correlation(correlation_id, LONGEST_TRACE))
        resources = await self._fhir.many(_RESOURCES.format(id=of, limit=LONGEST_TRACE))
        events = await self._fhir.many(_EVENTS.format(id=of, limit=LONGEST_TRACE))
        deliveries = await self._fhir.many(_DELIVERIES.format(id=of, limit=LONGEST_TRACE))
        return Trace(
            tuple(TracedMessage(message(row[4:]), *row[:4]) for row in messages),
            tuple(TracedResource(*row) for row in resources),
            tuple(TracedEvent(*row) for row in events),
            tuple(TracedDelivery(*row) for row in deliveries),
            tuple(conflict_row(row) for row in conflicts),
        )

    async def count_received(self) -> bool:
        """See `MessageStatistics.count_received`."""
        row = await self._inbox.maybe(_COUNT)
        return bool(row and row[0])


def message(row: Row) -> MessageRow:
    """The row of `_ROW`."""
    fields: Row = (*row[:6], Status(row[6]), *row[7:])
    return MessageRow(*fields)


def _throughput(since: datetime, source_system: str | None, unit: str) -> str:
    """(start, NULL, received) and (start, state, messages received in the interval that are not delivered)."""
    start, of = literal(since), "" if source_system is None else literal(source_system)
    cut = f"date_trunc({literal(unit)},"
    sender = f"AND source_system = {of}" if of else ""
    # A subquery, not a join, so that the planner always looks up the few open rows by id.
    is_of = f"WHERE (SELECT b.source_system FROM message_bodies b WHERE b.id = o.id) = {of}" if of else ""
    # Each state as a literal: of a list of states the planner does not know that they are rare, and reads all messages.
    each = " UNION ALL ".join(
        f"SELECT s.id, s.received_at, s.status FROM known k JOIN message_states s ON s.tenant = k.tenant"
        f" AND s.status = '{status}' AND s.original_id IS NULL AND s.received_at >= {start}"
        for status in Status if status is not Status.DELIVERED
    )  # fmt: skip
    return f"""{TENANTS}, open AS MATERIALIZED ({each})
SELECT {cut} hour), NULL, sum(count) FROM received_hours WHERE hour >= {start} {sender} GROUP BY 1
UNION ALL
SELECT {cut} received_at), NULL, count(*) FROM message_bodies
WHERE received_at >= greatest({start}, (SELECT until FROM received_counted)) {sender} GROUP BY 1
UNION ALL
SELECT {cut} o.received_at), o.status::text, count(*) FROM open o {is_of} GROUP BY 1, 2"""


def _dead_letters(limit: int) -> str:
    """The newest dead letters, each with the total; one row of NULLs with the total when there are none."""
    newest = f"ORDER BY s.received_at DESC, s.id DESC LIMIT {int(limit)}"
    dead = "s.status = 'DEAD_LETTER' AND s.original_id IS NULL"
    return f"""{TENANTS}, total AS (
    SELECT coalesce(sum(n.count), 0) AS total FROM known k CROSS JOIN LATERAL (
        SELECT count(*) FROM message_states s WHERE s.tenant = k.tenant AND {dead}) n
), newest AS (
    SELECT s.* FROM known k CROSS JOIN LATERAL (
        SELECT s.* FROM message_states s WHERE s.tenant = k.tenant AND {dead} {newest}) s
    {newest}
)
SELECT t.total, {_ROW} FROM total t LEFT JOIN newest s ON true LEFT JOIN message_bodies b ON b.id = s.id
ORDER BY s.received_at DESC, s.id DESC"""


_MESSAGES = f"""
SELECT b.listener, s.map_url, s.transform_ms, s.original_id, {_ROW.replace("b.id", "s.id", 1)}
FROM (
    SELECT m.id AS body, m.id FROM message_bodies m WHERE m.correlation_id = {{id}}
    UNION ALL
    SELECT m.id, c.id FROM message_bodies m JOIN message_states c ON c.original_id = m.id
    WHERE m.correlation_id = {{id}}
) f JOIN message_bodies b ON b.id = f.body JOIN message_states s ON s.id = f.id
ORDER BY s.id LIMIT {{limit}}"""

_RESOURCES = """
SELECT p.name, r.resource_type, r.id, v.version_id, v.method, v.last_updated
FROM resource_versions v JOIN resources r ON r.rid = v.rid JOIN partitions p ON p.id = v.partition_id
WHERE v.correlation_id = {id} ORDER BY v.last_updated, v.rid, v.version_id LIMIT {limit}"""

_EVENTS = """
SELECT s.id, e.event_number, r.resource_type, r.id, e.version_id, e.occurred_at
FROM subscription_events e JOIN subscription_states s ON s.rid = e.subscription_rid
JOIN resources r ON r.rid = e.resource_rid
WHERE e.correlation_id = {id} ORDER BY e.occurred_at, s.rid, e.event_number LIMIT {limit}"""

# An attempt that carried several events has the correlation id of one of them; the others are found by their number.
_DELIVERIES = """
WITH own AS (
    SELECT a.id FROM delivery_attempts a WHERE a.correlation_id = {id} ORDER BY a.id LIMIT {limit}
), shared AS (
    SELECT a.id FROM (
        SELECT e.subscription_rid, e.event_number FROM subscription_events e
        WHERE e.correlation_id = {id} ORDER BY e.subscription_rid, e.event_number LIMIT {limit}
    ) e CROSS JOIN LATERAL (
        SELECT a.id FROM delivery_attempts a
        WHERE a.subscription_rid = e.subscription_rid AND a.to_event_number >= e.event_number
          AND a.to_event_number IS NOT NULL AND a.event_number <= e.event_number
        ORDER BY a.to_event_number LIMIT 20
    ) a
)
SELECT s.id, a.event_number, a.attempted_at, a.succeeded, a.http_status, a.duration_ms, a.error, a.kind,
       coalesce(a.to_event_number, a.event_number)
FROM (SELECT id FROM own UNION SELECT id FROM shared) f JOIN delivery_attempts a ON a.id = f.id
JOIN subscription_states s ON s.rid = a.subscription_rid ORDER BY a.attempted_at, a.id LIMIT {limit}"""

_: type[MessageStatistics] = PostgresMessageStatistics
