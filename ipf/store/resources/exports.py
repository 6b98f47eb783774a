"""`ports.Exports` on PostgreSQL.

A part and the progress of its job are written in one transaction, guarded by the token of the lease.  After a crash the
next worker continues behind the last part; no resource is exported twice or left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ipf.fhir.model.json import dumps, loads
from ipf.ports.fhir.exports import ExportJob, ExportPart, Exports
from ipf.ports.fhir.resources import Version
from ipf.store.postgres.callers import read_caller, written_caller
from ipf.store.postgres.database import Database, Row, Session
from ipf.store.postgres.lookup import VERSION_COLUMNS, version
from ipf.store.postgres.quoting import Statement, array, printable, script
from ipf.store.postgres.symbols import ADD_PARTITIONS

_PARTITION = "(SELECT p.id FROM partitions p WHERE p.name = $1)"
_COLUMNS = """p.name, j.id, j.request_url, j.level, j.types, j.since, j.transaction_time, j.expires_at, j.status,
    j.error, j.type_number, j.after_rid, j.exported, j.lease_token, j.deident, j.filters,
    j.caller"""

CREATE = Statement(
    "export_create",
    "text, text, text, text, text, timestamptz, timestamptz, timestamptz, text, text, text",
    f"""
INSERT INTO export_jobs
    (partition_id, id, request_url, level, types, since, transaction_time, expires_at, caller, deident, filters)
VALUES ({_PARTITION}, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)""",
)
GET = Statement(
    "export_get",
    "text, text",
    f"""
SELECT {_COLUMNS} FROM export_jobs j JOIN partitions p ON p.id = j.partition_id
WHERE j.partition_id = {_PARTITION} AND j.id = $2 AND j.expires_at > now()""",
)
REMOVE = Statement(
    "export_remove", "text, text", f"DELETE FROM export_jobs WHERE partition_id = {_PARTITION} AND id = $2 RETURNING 1"
)
# A lease whose holder's connection is gone is free at once.  If PostgreSQL has reused the process id, it runs out.
LEASE = Statement(
    "export_lease",
    "double precision",
    f"""
WITH free AS (
    SELECT partition_id, id FROM export_jobs
    WHERE status = 'running' AND (lease_until IS NULL OR lease_until < now()
        OR NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = holder))
    ORDER BY lease_until NULLS FIRST LIMIT 1 FOR UPDATE SKIP LOCKED
), leased AS (
    UPDATE export_jobs j SET lease_until = now() + make_interval(secs => $1), lease_token = lease_token + 1,
        holder = pg_backend_pid()
    FROM free WHERE j.partition_id = free.partition_id AND j.id = free.id RETURNING j.*
)
SELECT {_COLUMNS} FROM leased j JOIN partitions p ON p.id = j.partition_id""",
)
PAGE = Statement(
    "export_page",
    "text, text, bigint, timestamptz, timestamptz, integer",
    f"""
SELECT {VERSION_COLUMNS}
FROM resources r CROSS JOIN LATERAL (
    SELECT * FROM resource_versions v WHERE v.rid = r.rid AND v.last_updated <= $4 ORDER BY v.version_id DESC LIMIT 1
) v
WHERE r.partition_id = {_PARTITION} AND r.resource_type = $2 AND r.rid > $3 AND NOT r.deleted
  AND NOT v.deleted AND ($5 IS NULL OR v.last_updated >= $5)
ORDER BY r.rid LIMIT $6""",
)
# A stored hash would cost every write an index; reading all rids of a type for some thousand places is cheap enough.
PLACES = Statement(
    "export_places",
    "text, text, bigint, bigint, bigint",
    f"""
SELECT o.place, o.rid FROM (
    SELECT (hashint8extended(r.rid, $4) & 9223372036854775806) + 1 AS place, r.rid FROM resources r
    WHERE r.partition_id = {_PARTITION} AND r.resource_type = $2 AND NOT r.deleted
) o
WHERE o.place > $3 ORDER BY o.place FETCH FIRST ($5) ROWS WITH TIES""",
)
VERSIONS = Statement(
    "export_versions",
    "bigint[], timestamptz, timestamptz",
    f"""
SELECT {VERSION_COLUMNS}
FROM unnest($1) WITH ORDINALITY a(rid, n) JOIN resources r ON r.rid = a.rid CROSS JOIN LATERAL (
    SELECT * FROM resource_versions v WHERE v.rid = r.rid AND v.last_updated <= $2 ORDER BY v.version_id DESC LIMIT 1
) v
WHERE NOT r.deleted AND NOT v.deleted AND ($3 IS NULL OR v.last_updated >= $3)
ORDER BY a.n""",
)
PROGRESS = Statement(
    "export_progress",
    "text, text, bigint, text, text, integer, bigint, bigint",
    f"""
UPDATE export_jobs SET status = $4, error = $5, type_number = $6, after_rid = $7, exported = $8, lease_until = NULL
WHERE partition_id = {_PARTITION} AND id = $2 AND lease_token = $3 RETURNING 1""",
)
INSERT_PART = Statement(
    "export_insert_part",
    "text, text, text, integer, text",
    f"""
INSERT INTO export_parts (partition_id, job_id, number, resource_type, count, body)
SELECT {_PARTITION}, $2, coalesce(max(number), 0) + 1, $3, $4, $5 FROM export_parts
WHERE partition_id = {_PARTITION} AND job_id = $2""",
)
PARTS = Statement(
    "export_parts_of",
    "text, text",
    f"""
SELECT number, resource_type, count FROM export_parts
WHERE partition_id = {_PARTITION} AND job_id = $2 ORDER BY number""",
)
PART = Statement(
    "export_part",
    "text, text, integer",
    f"""
SELECT resource_type, count, body FROM export_parts
WHERE partition_id = {_PARTITION} AND job_id = $2 AND number = $3""",
)
EXPIRE = Statement("export_expire", "", "DELETE FROM export_jobs WHERE expires_at < now() RETURNING 1")

STATEMENTS = (CREATE, GET, REMOVE, LEASE, PAGE, PLACES, VERSIONS, PROGRESS, INSERT_PART, PARTS, PART, EXPIRE)

_HIGHEST_NUMBER = 2**31 - 1


class PostgresExports:
    """`ports.Exports` on a Database that was opened with the FHIR store's statements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, job: ExportJob) -> None:
        """See `ports.Exports.create`."""
        what = (job.tenant, job.id, job.request_url, job.level, " ".join(job.types))
        times = job.since, job.transaction_time, job.expires_at
        filters = dumps(list(job.filters)).decode() if job.filters else None
        create = CREATE.call(*what, *times, written_caller(job.caller), job.deident, filters)
        add = ADD_PARTITIONS.call(job.tenant)  # a tenant may export before it writes
        await self._database.many(script(add, self._database.set_tenant(job.tenant), create))

    async def get(self, tenant: str, id: str) -> ExportJob | None:
        """See `ports.Exports.get`."""
        row = await self._database.for_tenant(tenant).maybe(GET.call(tenant, id))
        return None if row is None else _job(row)

    async def remove(self, tenant: str, id: str) -> bool:
        """See `ports.Exports.remove`."""
        return bool(await self._database.for_tenant(tenant).many(REMOVE.call(tenant, id)))

    async def lease(self, seconds: float) -> ExportJob | None:
        """See `ports.Exports.lease`."""
        row = await self._database.all_tenants.maybe(LEASE.call(seconds))
        return None if row is None else _job(row)

    async def page(self, job: ExportJob, limit: int) -> list[Version]:
        """See `ports.Exports.page`."""
        call = PAGE.call(job.tenant, job.resource_type, job.after_rid, job.transaction_time, job.since, limit)
        return [version(row) for row in await self._database.for_tenant(job.tenant).many(call)]

    async def places(self, job: ExportJob, seed: int, limit: int) -> Sequence[tuple[int, int]]:
        """See `ports.Exports.places`."""
        call = PLACES.call(job.tenant, job.resource_type, job.after_rid, seed, limit)
        return [(int(place), int(rid)) for place, rid in await self._database.for_tenant(job.tenant).many(call)]

    async def versions(self, job: ExportJob, rids: Sequence[int]) -> list[Version]:
        """See `ports.Exports.versions`."""
        call = VERSIONS.call(array(map(str, rids)), job.transaction_time, job.since)
        return [version(row) for row in await self._database.for_tenant(job.tenant).many(call)]

    async def write(self, job: ExportJob, part: ExportPart | None) -> bool:
        """See `ports.Exports.write`."""

        async def work(session: Session) -> bool:
            how = (job.status, printable(job.error), job.type_number, job.after_rid, job.exported)
            held = await session.many(PROGRESS.call(job.tenant, job.id, job.token, *how))
            if held and part is not None:
                body = part.body.decode()
                await session.many(INSERT_PART.call(job.tenant, job.id, part.resource_type, part.count, body))
            return bool(held)

        return await self._database.for_tenant(job.tenant).transact(work)

    async def parts(self, tenant: str, id: str) -> Sequence[tuple[int, str, int]]:
        """See `ports.Exports.parts`."""
        rows = await self._database.for_tenant(tenant).many(PARTS.call(tenant, id))
        return [(int(number), str(resource_type), int(count)) for number, resource_type, count in rows]

    async def part(self, tenant: str, id: str, number: int) -> ExportPart | None:
        """See `ports.Exports.part`."""
        if not 0 < number <= _HIGHEST_NUMBER:
            return None
        row = await self._database.for_tenant(tenant).maybe(PART.call(tenant, id, number))
        return None if row is None else ExportPart(row[0], row[1], row[2].encode())

    async def expire(self) -> int:
        """See `ports.Exports.expire`."""
        return len(await self._database.all_tenants.many(EXPIRE.call()))


def _job(row: Row) -> ExportJob:
    tenant, id, url, level, types, *rest, deident, filters, caller = row
    job = ExportJob(tenant, id, url, level, tuple(types.split()), *rest)
    return replace(job, caller=read_caller(caller), deident=deident, filters=tuple(loads(filters or "[]")))


_: type[Exports] = PostgresExports
