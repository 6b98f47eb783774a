"""The ledger of forwarded messages on PostgreSQL: `ports.messages.forwards.ForwardStore`.

A destination is filled in order of ids up to the horizon (`horizon.py`), so that it gets every message once, however
long it was away.  One process has the lease of a destination; its fencing token guards every change.  A row is removed
with its message; retention leaves messages that wait to be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from ipf.errors import Category, Problem
from ipf.ports.messages.forwards import (
    Candidate,
    DestinationRow,
    Forwarded,
    ForwardRow,
    ForwardStatus,
    ForwardStore,
    Matches,
    Pending,
)
from ipf.store.inbox.horizon import Horizon
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.quoting import bigints, literal

_HEAD = 4096
_LONGEST_ERROR = 500


class PostgresForwards:
    """`ForwardStore` in the inbox database.  `seconds`: a clock."""

    def __init__(self, database: Database, seconds: Callable[[], float]) -> None:
        self._database = database
        self.horizon = Horizon(database, seconds)

    async def begin(self, name: str, worker: str, seconds: float, since: datetime | None) -> int | None:
        """See `ForwardStore.begin`."""
        before = "" if since is None else f" WHERE received_at < {literal(since.isoformat())}::timestamptz"
        rows = await self._database.many(f"""
INSERT INTO forward_destinations AS d (name, filled_to, leased_by, leased_until, fence)
VALUES ({literal(name)}, coalesce((SELECT max(id) FROM message_bodies{before}), 0), {literal(worker)},
        now() + {_seconds(seconds)}, 1)
ON CONFLICT (name) DO UPDATE
SET leased_by = excluded.leased_by, leased_until = excluded.leased_until, fence = d.fence + 1
WHERE NOT d.paused AND (d.leased_until IS NULL OR d.leased_until <= now() OR d.leased_by = excluded.leased_by)
RETURNING fence""")
        return int(rows[0][0]) if rows else None

    async def renew(self, name: str, fence: int, seconds: float) -> bool:
        """See `ForwardStore.renew`."""
        return bool(await self._database.many(_renewal(name, fence, seconds)))

    async def fill(self, name: str, fence: int, matches: Matches, limit: int, *, whole: bool = False) -> int | None:
        """See `ForwardStore.fill`."""
        held = await self._database.maybe(f"SELECT filled_to FROM forward_destinations WHERE {_own(name, fence)}")
        if held is None:
            return None
        begin, horizon = int(held[0]), await self.horizon.move()
        if horizon <= begin:
            return 0
        raw = "raw_message" if whole else f"substring(raw_message FROM 1 FOR {_HEAD})"
        rows = await self._database.many(f"""
SELECT id, received_at, tenant, source_system, message_type, listener, charset, {raw}
FROM message_bodies WHERE id > {begin} AND id <= {horizon} AND source_protocol NOT IN ('FHIR_REST', 'EHR_NATIVE_API')
ORDER BY id LIMIT {limit}""")
        reached = int(rows[-1][0]) if len(rows) == limit else horizon
        ids = [one.id for one in (_candidate(row) for row in rows) if matches(one)]
        saved = await self._database.many(f"""
WITH held AS (
    UPDATE forward_destinations SET filled_to = {reached} WHERE {_own(name, fence)} RETURNING 1
), filled AS (
    INSERT INTO forwards (destination, message_id, due_at)
    SELECT {literal(name)}, b.id, now() FROM held, (
        SELECT id FROM message_bodies WHERE id = ANY ({bigints(ids)}) FOR KEY SHARE -- none that is removed meanwhile
    ) b ON CONFLICT DO NOTHING
)
SELECT 1 FROM held""")
        return len(rows) if saved else None

    async def next(self, name: str) -> Pending | None:
        """See `ForwardStore.next`."""
        rows = await self._database.many(f"""
SELECT f.message_id, b.raw_message, b.charset, f.attempts, extract(epoch FROM f.due_at - now())::double precision,
       b.correlation_id::text
FROM (SELECT * FROM forwards WHERE destination = {literal(name)} AND status = 'PENDING' ORDER BY message_id LIMIT 1) f
JOIN message_bodies b ON b.id = f.message_id""")
        return Pending(rows[0][0], bytes(rows[0][1]), *rows[0][2:]) if rows else None

    async def settle(self, name: str, fence: int, end: Forwarded, seconds: float) -> bool:
        """See `ForwardStore.settle`."""
        failed = 0 if end.status is ForwardStatus.SENT else 1
        ended = "NULL" if end.status is ForwardStatus.PENDING else "now()"
        rows = await self._database.many(f"""
WITH held AS ({_renewal(name, fence, seconds)})
UPDATE forwards SET status = {literal(end.status.value)}, attempts = attempts + {failed}, code = {literal(end.code)},
    error = {literal(end.text[:_LONGEST_ERROR])}, ended_at = {ended}, due_at = now() + {_seconds(end.retry_seconds)}
FROM held WHERE destination = {literal(name)} AND message_id = {end.message_id} AND status = 'PENDING'
RETURNING message_id""")
        return bool(rows)

    async def release(self, worker: str) -> None:
        """See `ForwardStore.release`."""
        await self._database.many(f"""
UPDATE forward_destinations SET leased_until = NULL, fence = fence + 1
WHERE leased_by = {literal(worker)} AND leased_until IS NOT NULL""")

    async def holders(self) -> Sequence[str]:
        """See `ForwardStore.holders`."""
        rows = await self._database.many(
            "SELECT DISTINCT leased_by FROM forward_destinations WHERE leased_until > now()"
        )
        return [row[0] for row in rows]

    async def destinations(self) -> Sequence[DestinationRow]:
        """See `ForwardStore.destinations`."""
        rows = await self._database.many("""
SELECT d.name, d.paused, n.pending, n.dead, n.sent, b.received_at, n.last_sent_at, h.error, h.message_id,
       coalesce(h.attempts, 0)
FROM forward_destinations d
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE status = 'PENDING') AS pending,
           count(*) FILTER (WHERE status = 'DEAD_LETTER') AS dead,
           count(*) FILTER (WHERE status = 'SENT') AS sent, max(ended_at) FILTER (WHERE status = 'SENT') AS last_sent_at
    FROM forwards WHERE destination = d.name
) n
LEFT JOIN LATERAL (
    SELECT * FROM forwards WHERE destination = d.name AND status = 'PENDING' ORDER BY message_id LIMIT 1
) h ON true
LEFT JOIN message_bodies b ON b.id = h.message_id
ORDER BY d.name""")
        return [DestinationRow(*row) for row in rows]

    async def messages(
        self, name: str, status: ForwardStatus | None, limit: int, offset: int
    ) -> tuple[int, Sequence[ForwardRow]]:
        """See `ForwardStore.messages`."""
        wanted = f"destination = {literal(name)}" + (f" AND status = {literal(status.value)}" if status else "")
        total = await self._database.one(f"SELECT count(*) FROM forwards WHERE {wanted}")
        rows = await self._database.many(f"""
SELECT f.message_id, f.status, f.attempts, f.code, f.error, f.ended_at, b.message_type, b.source_id
FROM (SELECT * FROM forwards WHERE {wanted} ORDER BY message_id LIMIT {limit} OFFSET {offset}) f
JOIN message_bodies b ON b.id = f.message_id ORDER BY f.message_id""")
        return int(total[0]), [ForwardRow(row[0], ForwardStatus(row[1]), *row[2:]) for row in rows]

    async def retry(self, name: str, message_id: int | None) -> int:
        """See `ForwardStore.retry`."""
        one = "" if message_id is None else f" AND message_id = {message_id}"
        rows = await self._database.many(f"""
UPDATE forwards SET status = 'PENDING', attempts = 0, due_at = now(), ended_at = NULL
WHERE destination = {literal(name)} AND status = 'DEAD_LETTER'{one} RETURNING message_id""")
        return len(rows)

    async def skip(self, name: str, message_id: int) -> None:
        """See `ForwardStore.skip`."""
        await self._change(f"""
UPDATE forwards SET status = 'DEAD_LETTER', ended_at = now()
WHERE destination = {literal(name)} AND message_id = {message_id} AND status = 'PENDING' RETURNING message_id""")

    async def pause(self, name: str, *, paused: bool) -> None:
        """See `ForwardStore.pause`.  A pause ends the lease, so that nothing more is sent."""
        ended = ", fence = fence + 1, leased_until = NULL" if paused else ""
        await self._change(f"""
WITH tried AS (
    UPDATE forwards SET due_at = now()
    WHERE destination = {literal(name)} AND status = 'PENDING' AND due_at > now() AND NOT {paused}
)
UPDATE forward_destinations SET paused = {paused}{ended}
WHERE name = {literal(name)} RETURNING name""")

    async def _change(self, statement: str) -> None:
        if not await self._database.many(statement):
            raise Problem(Category.NOT_FOUND, "there is no such destination, or no such pending message")


def _candidate(row: Row) -> Candidate:
    id, received_at, tenant, system, message_type, listener, charset, raw = row
    return Candidate(id, received_at, tenant, system, message_type, listener, charset, bytes(raw))


def _own(name: str, fence: int) -> str:
    return f"name = {literal(name)} AND fence = {fence} AND leased_until > now()"


def _renewal(name: str, fence: int, seconds: float) -> str:
    until = f"now() + {_seconds(seconds)}"
    return f"UPDATE forward_destinations SET leased_until = {until} WHERE {_own(name, fence)} RETURNING 1"


def _seconds(seconds: float) -> str:
    return f"{float(seconds)} * interval '1 second'"


_: type[ForwardStore] = PostgresForwards
