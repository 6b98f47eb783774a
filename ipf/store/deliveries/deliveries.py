"""`ports.DeliveryQueue` on PostgreSQL: pending events by subscription, leased; `reports.py` reads the ledger.

Arrives: requests for leases and results of leases from `pipeline/deliver`.  Leaves: events in order of number.  A
subscription is one row.  `ready_at` is the end of its lease while it is leased and the end of the backoff after a
failure, so one index of due rows is enough.  The settled cursor (`delivered_number`) survives a crash.  A lease that is
not settled expires and its events are sent again (at least once).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter

from ipf.fhir.model.json import loads
from ipf.ports import EVENT, Attempt, DeliveryEnd, DeliveryQueue, Event, Json, Lease
from ipf.ports.delivery import Settled
from ipf.store.deliveries.lifecycle import STATEMENTS as LIFECYCLE
from ipf.store.deliveries.lifecycle import Lifecycle
from ipf.store.deliveries.reports import STATEMENTS as REPORTS
from ipf.store.deliveries.reports import Reports
from ipf.store.deliveries.websockets import STATEMENTS as WEBSOCKETS
from ipf.store.deliveries.websockets import WebsocketEvents, event_of
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.lookup import CURRENT_VERSION
from ipf.store.postgres.quoting import Statement, joined, printable, script
from ipf.store.postgres.symbols import SymbolTable

FIRST_EVENTS = 20
"""Events of each subscription that come with its lease."""
_MAX_PARSED = 4096

_EVENT = """e.event_number, r.resource_type, r.id, e.version_id, e.occurred_at, e.correlation_id::text, v.body, v.method
    FROM subscription_events e JOIN resources r ON r.rid = e.resource_rid
    JOIN resource_versions v ON v.rid = e.resource_rid AND v.version_id = e.version_id"""


# The next events of a row: those to be sent again first, then those after the newest delivered one.
def _next(row: str) -> str:
    return f"""e.event_number > {row}.delivered_number
    AND e.event_number <= coalesce({row}.resend_until, 9223372036854775807)"""


# The body of the Subscription comes with its first event only.  During a concurrent write a lease may see fewer events
# than the row counts; the worker reads again before it settles.
_LEASED = f"""leased AS (
    UPDATE subscription_states s
    SET lease_token = s.lease_token + 1, lease_until = $3, ready_at = $3, leased_by = $1
    FROM due d WHERE s.rid = d.rid
    RETURNING s.*
)
SELECT p.name, s.rid, s.id, s.lease_token, s.lease_until, CASE WHEN coalesce(n.n, 1) = 1 THEN v.body END,
       s.attempt_count, s.failing_since, s.last_event_number, s.resend_token,
       n.event_number, n.resource_type, n.id, n.version_id, n.occurred_at, n.correlation_id, n.body, n.method
FROM leased s JOIN partitions p ON p.id = s.partition_id
JOIN resources r ON r.rid = s.rid {CURRENT_VERSION}
LEFT JOIN LATERAL (
    SELECT row_number() OVER (ORDER BY e.event_number) AS n, {_EVENT}
    WHERE e.subscription_rid = s.rid AND {_next("s")} ORDER BY e.event_number LIMIT $4
) n ON true
WHERE NOT r.deleted ORDER BY s.rid, n.event_number"""

LEASE = Statement(
    "delivery_lease",
    "text, integer, timestamptz, integer",
    """
WITH due AS (
    SELECT rid FROM subscription_states
    WHERE status = 'active' AND last_event_number > delivered_number AND channel_type <> 'websocket'
      AND ready_at <= now()
    ORDER BY ready_at, rid LIMIT $2 FOR UPDATE SKIP LOCKED
), """
    + _LEASED,
)

HEARTBEATS = Statement(
    "delivery_heartbeats",
    "text, integer, timestamptz, integer",
    """
WITH due AS (
    SELECT rid FROM subscription_states
    WHERE status = 'active' AND heartbeat_at IS NOT NULL AND channel_type <> 'websocket'
      AND heartbeat_at <= now() AND ready_at <= now() AND (ends_at IS NULL OR ends_at > now())
    ORDER BY heartbeat_at, rid LIMIT $2 FOR UPDATE SKIP LOCKED
), """
    + _LEASED,
)

EVENTS = Statement(
    "delivery_events",
    "bigint, bigint, integer",
    f"""
SELECT e.event_number, r.resource_type, r.id, e.version_id, e.occurred_at, e.correlation_id::text, v.body,
       v.method
FROM subscription_states s
JOIN subscription_events e ON e.subscription_rid = s.rid AND {_next("s")}
JOIN resources r ON r.rid = e.resource_rid
JOIN resource_versions v ON v.rid = e.resource_rid AND v.version_id = e.version_id
WHERE s.rid = $1 AND s.lease_token = $2 AND s.lease_until IS NOT NULL AND s.status = 'active'
ORDER BY e.event_number LIMIT $3""",
)

# Attempts, one parameter a column, then their sums and the newest one.
_ATTEMPTS = r"""
WITH attempts AS MATERIALIZED (
    SELECT * FROM unnest(string_to_array($%d, E'\x1f')::bigint[], string_to_array($%d, E'\x1f')::timestamptz[],
        string_to_array($%d, E'\x1f')::boolean[], string_to_array($%d, E'\x1f', E'\x1e')::integer[],
        string_to_array($%d, E'\x1f')::integer[], string_to_array($%d, E'\x1f', E'\x1e'),
        string_to_array($%d, E'\x1f')::uuid[], string_to_array($%d, E'\x1f'),
        string_to_array($%d, E'\x1f', E'\x1e')::bigint[]) WITH ORDINALITY
        AS t(event_number, attempted_at, succeeded, http_status, duration_ms, error, correlation_id, kind, last, n)
), tally AS (
    SELECT count(*) FILTER (WHERE succeeded) AS successes, count(*) FILTER (WHERE NOT succeeded) AS failures,
           min(attempted_at) FILTER (WHERE NOT succeeded) AS first_failure FROM attempts
), newest AS (
    SELECT attempted_at, succeeded, error FROM attempts ORDER BY n DESC LIMIT 1
), """
_COUNTED = """
        success_count = s.success_count + t.successes, failure_count = s.failure_count + t.failures,
        last_attempt_at = coalesce(l.attempted_at, s.last_attempt_at),
        last_attempt_succeeded = coalesce(l.succeeded, s.last_attempt_succeeded),
        last_error = CASE WHEN l.succeeded IS NULL THEN s.last_error ELSE l.error END,
        heartbeat_at = CASE WHEN l.succeeded THEN now() + s.heartbeat_seconds * interval '1 second'
                            ELSE s.heartbeat_at END"""
_LEDGER = """
    RETURNING s.rid, s.delivered_number, s.lease_until, s.resend_until
), ledger AS (
    INSERT INTO delivery_attempts (subscription_rid, event_number, attempted_at, succeeded, http_status, duration_ms,
        error, correlation_id, kind, to_event_number)
    SELECT m.rid, a.event_number, a.attempted_at, a.succeeded, a.http_status, a.duration_ms, a.error,
        a.correlation_id, a.kind, a.last
    FROM mine m CROSS JOIN attempts a ORDER BY a.n
)
"""
_COLUMNS = ", text" * 9

# $3 delivered_to, $4 retry_at, $5 attempt_count, $6 keep_until, $7 number of further events, then the attempts.
# After the last event that is sent again the cursor returns to its former position.
_ACKNOWLEDGED = "least(greatest(s.delivered_number, $3), s.last_event_number)"
_REACHED = f"""CASE WHEN {_ACKNOWLEDGED} >= s.resend_until THEN greatest({_ACKNOWLEDGED}, s.resume_number)
            ELSE {_ACKNOWLEDGED} END"""
_KEPT = f"""$6::timestamptz IS NOT NULL AND s.status = 'active'
            AND ($7::integer = 0 OR s.last_event_number > {_REACHED})"""
_MORE = f"""SELECT m.lease_until IS NOT NULL, n.* FROM mine m LEFT JOIN LATERAL (
    SELECT {_EVENT}
    WHERE m.lease_until IS NOT NULL AND e.subscription_rid = m.rid AND {_next("m")}
    ORDER BY e.event_number LIMIT $7
) n ON true ORDER BY n.event_number"""
SETTLE = Statement(
    "delivery_settle",
    "bigint, bigint, bigint, timestamptz, integer, timestamptz, integer" + _COLUMNS,
    _ATTEMPTS % tuple(range(8, 17))
    + f"""mine AS (
    UPDATE subscription_states s SET
        delivered_number = {_REACHED},
        resend_until = CASE WHEN {_ACKNOWLEDGED} < s.resend_until THEN s.resend_until END,
        attempt_count = $5,
        failing_since = CASE WHEN $5 > 0 THEN coalesce(s.failing_since, t.first_failure, now()) END,
        ready_at = CASE WHEN {_KEPT} THEN $6 ELSE coalesce($4, now()) END,
        lease_until = CASE WHEN {_KEPT} THEN $6 END,
        leased_by = CASE WHEN {_KEPT} THEN s.leased_by END,"""
    + _COUNTED
    + """
    FROM tally t LEFT JOIN newest l ON true
    WHERE s.rid = $1 AND s.lease_token = $2 AND s.lease_until IS NOT NULL"""
    + _LEDGER
    + _MORE,
)

# The frequent case, at a quarter less: one acknowledged notification of one event.
# $4 event_number, $5 attempted_at, $8 http_status, $9 duration_ms, $10 correlation_id; the others as above.
SETTLE_ONE = Statement(
    "delivery_settle_one",
    "bigint, bigint, bigint, bigint, timestamptz, timestamptz, integer, integer, integer, uuid",
    f"""
WITH mine AS (
    UPDATE subscription_states s SET
        delivered_number = {_REACHED},
        resend_until = CASE WHEN {_ACKNOWLEDGED} < s.resend_until THEN s.resend_until END,
        attempt_count = 0, failing_since = NULL,
        ready_at = CASE WHEN {_KEPT} THEN $6 ELSE now() END,
        lease_until = CASE WHEN {_KEPT} THEN $6 END,
        leased_by = CASE WHEN {_KEPT} THEN s.leased_by END,
        success_count = s.success_count + 1, last_attempt_at = $5, last_attempt_succeeded = true, last_error = NULL,
        heartbeat_at = now() + s.heartbeat_seconds * interval '1 second'
    WHERE s.rid = $1 AND s.lease_token = $2 AND s.lease_until IS NOT NULL
    RETURNING s.rid, s.delivered_number, s.lease_until, s.resend_until
), ledger AS (
    INSERT INTO delivery_attempts
        (subscription_rid, event_number, attempted_at, succeeded, http_status, duration_ms, correlation_id)
    SELECT m.rid, $4, $5, true, $8, $9, $10 FROM mine m
)
"""
    + _MORE,
)

RECORD = Statement(
    "delivery_record",
    "text, text" + _COLUMNS,
    _ATTEMPTS % tuple(range(3, 12))
    + "mine AS (\n    UPDATE subscription_states s SET"
    + _COUNTED
    + """
    FROM tally t LEFT JOIN newest l ON true, partitions p
    WHERE p.name = $1 AND s.partition_id = p.id AND s.id = $2 AND s.status <> 'deleted'"""
    + _LEDGER
    + "SELECT rid FROM mine",
)

REQUESTED = Statement(
    "delivery_requested",
    "integer",
    """
SELECT p.name, s.id FROM subscription_states s JOIN partitions p ON p.id = s.partition_id
WHERE s.status = 'requested' AND (s.ends_at IS NULL OR s.ends_at > now()) ORDER BY s.rid LIMIT $1""",
)

# Scans the primary key: subscriptions are few, and an index on the status would be written with every event.
ACTIVE = Statement(
    "delivery_active", "", "SELECT count(*) FILTER (WHERE status = 'active') FROM subscription_states WHERE rid > 0"
)

HOLDERS = Statement(
    "delivery_holders",
    "",
    "SELECT DISTINCT leased_by FROM subscription_states"
    " WHERE rid > 0 AND lease_until > now() AND leased_by IS NOT NULL",
)

RELEASE = Statement(
    "delivery_release",
    "text",
    """
UPDATE subscription_states
SET lease_token = lease_token + 1, lease_until = NULL, leased_by = NULL, ready_at = now()
WHERE rid > 0 AND leased_by = $1 AND lease_until > now()
RETURNING rid""",
)

STATEMENTS = (
    LEASE, HEARTBEATS, EVENTS, SETTLE, SETTLE_ONE, RECORD, REQUESTED, ACTIVE, HOLDERS, RELEASE, *REPORTS, *WEBSOCKETS,
    *LIFECYCLE,
)  # fmt: skip


def columns(attempts: Sequence[Attempt]) -> Iterator[str]:
    """The columns of attempts, as parameters of the statements above."""
    yield joined(attempt.event_number for attempt in attempts)
    yield joined(attempt.attempted_at for attempt in attempts)
    yield joined(attempt.succeeded for attempt in attempts)
    yield joined(attempt.http_status for attempt in attempts)
    yield joined(attempt.duration_ms for attempt in attempts)
    yield joined(printable(attempt.error) for attempt in attempts)
    yield joined(attempt.correlation_id for attempt in attempts)
    yield joined(attempt.kind for attempt in attempts)
    yield joined(attempt.to_event_number for attempt in attempts)


class PostgresDeliveryQueue(Reports, WebsocketEvents, Lifecycle):
    """`ports.DeliveryQueue` on a Database that was opened with `statements=STATEMENTS`."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._parsed: dict[int, tuple[str, Json]] = {}
        self._symbols = SymbolTable(database)

    async def lease(self, worker: str, limit: int, until: datetime) -> list[Lease]:
        """See `ports.DeliveryQueue.lease`."""
        return self._leases(await self._all_tenants.many(LEASE.call(worker, limit, until, FIRST_EVENTS)))

    async def heartbeats(self, worker: str, limit: int, until: datetime) -> list[Lease]:
        """See `ports.DeliveryQueue.heartbeats`."""
        return self._leases(await self._all_tenants.many(HEARTBEATS.call(worker, limit, until, FIRST_EVENTS)))

    def _leases(self, rows: Sequence[Row]) -> list[Lease]:
        """The leases of rows grouped by subscription, one row an event; a row without event when there is none."""
        leases = []
        for rid, group in groupby(rows, key=itemgetter(1)):
            found = list(group)
            tenant, _, id_, token, until, body, attempts, failing_since, last, resent, *_ = found[0]
            events = tuple(event_of(row[10:]) for row in found if row[10] is not None)
            row = tenant, rid, id_, token, until, self._resource(rid, body), attempts, failing_since, last
            leases.append(Lease(*row, events=events, resent=resent))
        return leases

    def _resource(self, rid: int, body: str) -> Json:
        """The parsed Subscription; the same object as long as its body is the same."""
        known = self._parsed.get(rid)
        if known is not None and known[0] == body:
            return known[1]
        if len(self._parsed) >= _MAX_PARSED:
            self._parsed.clear()
        resource: Json = loads(body)
        self._parsed[rid] = body, resource
        return resource

    async def events(self, lease: Lease, limit: int) -> list[Event]:
        """See `ports.DeliveryQueue.events`.  Nothing when the lease was lost."""
        rows = await self._all_tenants.many(EVENTS.call(lease.subscription_rid, lease.token, limit))
        return [event_of(row) for row in rows]

    async def settle(self, lease: Lease, end: DeliveryEnd) -> Settled | None:
        """See `ports.DeliveryQueue.settle`."""
        rows = await self._all_tenants.many(script(await self._note(end.audits), _settle_call(lease, end)))
        if not rows:
            return None
        return Settled(rows[0][0], tuple(event_of(row[1:]) for row in rows if row[1] is not None))

    async def record(self, tenant: str, subscription_id: str, attempts: Sequence[Attempt]) -> None:
        """See `ports.DeliveryQueue.record`."""
        await self._database.for_tenant(tenant).many(RECORD.call(tenant, subscription_id, *columns(attempts)))

    async def holders(self) -> list[str]:
        """See `ports.DeliveryQueue.holders`."""
        return [row[0] for row in await self._all_tenants.many(HOLDERS.call())]

    async def release(self, worker: str) -> int:
        """See `ports.DeliveryQueue.release`."""
        return len(await self._all_tenants.many(RELEASE.call(worker)))

    async def requested(self, limit: int) -> list[tuple[str, str]]:
        """See `ports.DeliveryQueue.requested`."""
        return [(row[0], row[1]) for row in await self._all_tenants.many(REQUESTED.call(limit))]

    async def active(self) -> int:
        """See `ports.DeliveryQueue.active`."""
        return int((await self._all_tenants.one(ACTIVE.call()))[0])


def _settle_call(lease: Lease, end: DeliveryEnd) -> str:
    held, (one, *others) = (lease.subscription_rid, lease.token, end.delivered_to), end.attempts or (None,)
    if one is None or others or not _is_plain(one) or end.retry_at is not None or end.attempt_count:
        return SETTLE.call(
            *held, end.retry_at, end.attempt_count, end.keep_until, end.more, *columns(end.attempts)
        )  # fmt: skip
    return SETTLE_ONE.call(
        *held, one.event_number, one.attempted_at, end.keep_until, end.more, one.http_status, one.duration_ms,
        one.correlation_id,
    )  # fmt: skip


def _is_plain(one: Attempt) -> bool:
    """Acknowledged, and of one event."""
    return one.succeeded and one.error is None and one.to_event_number is None and one.kind == EVENT


_: type[DeliveryQueue] = PostgresDeliveryQueue
