"""`ports.Jobs` on PostgreSQL.

The progress of a job is written under the token of its lease.  What a part of it wrote is a row of `job_results`, which
the transaction of the part inserts (`writing/statements.py`): after a crash the next worker passes over the parts
that have one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ipf.errors import Category, Problem
from ipf.ports.jobs import Job, JobFile, JobResult, Jobs
from ipf.store.postgres.callers import read_caller, written_caller
from ipf.store.postgres.database import Database, Row, Session
from ipf.store.postgres.quoting import Statement, printable, script
from ipf.store.postgres.symbols import ADD_PARTITIONS

_PARTITION = "(SELECT p.id FROM partitions p WHERE p.name = $1)"
_COLUMNS = """p.name, j.id, j.kind, j.asked, j.expires_at, j.caller, j.status, j.state, j.progress, j.answer,
    j.lease_token"""

CREATE = Statement(
    "job_create",
    "text, text, text, text, timestamptz, text, text, text",
    f"""
INSERT INTO jobs (partition_id, id, kind, asked, expires_at, caller, state, body, created_at)
VALUES ({_PARTITION}, $2, $3, $4, $5, $6, $7, $8, now())""",
)
GET = Statement(
    "job_get",
    "text, text",
    f"""
SELECT {_COLUMNS} FROM jobs j JOIN partitions p ON p.id = j.partition_id
WHERE j.partition_id = {_PARTITION} AND j.id = $2 AND (j.status = 'running' OR j.expires_at > now())""",
)
REMOVE = Statement(
    "job_remove", "text, text", f"DELETE FROM jobs WHERE partition_id = {_PARTITION} AND id = $2 RETURNING 1"
)
# A lease whose holder's connection is gone is free at once.  If PostgreSQL has reused the process id, it runs out.
LEASE = Statement(
    "job_lease",
    "double precision",
    f"""
WITH free AS (
    SELECT partition_id, id FROM jobs
    WHERE status = 'running' AND (lease_until IS NULL OR lease_until < now()
        OR NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = holder))
    ORDER BY lease_until NULLS FIRST, created_at LIMIT 1 FOR UPDATE SKIP LOCKED
), leased AS (
    UPDATE jobs j SET lease_until = now() + make_interval(secs => $1), lease_token = lease_token + 1,
        holder = pg_backend_pid()
    FROM free WHERE j.partition_id = free.partition_id AND j.id = free.id RETURNING j.*
)
SELECT {_COLUMNS}, j.body FROM leased j JOIN partitions p ON p.id = j.partition_id""",
)
PROGRESS = Statement(
    "job_progress",
    "text, text, bigint, text, text, text, text, timestamptz",
    f"""
UPDATE jobs SET status = $4, state = $5, progress = $6, answer = $7, lease_until = NULL, created_at = now(),
    expires_at = $8,
    body = CASE WHEN $4 = 'running' THEN body ELSE '' END
WHERE partition_id = {_PARTITION} AND id = $2 AND lease_token = $3 RETURNING 1""",
)
RENEW = Statement(
    "job_renew",
    "text, text, bigint, double precision, text",
    f"""
UPDATE jobs SET lease_until = now() + make_interval(secs => $4), progress = $5
WHERE partition_id = {_PARTITION} AND id = $2 AND lease_token = $3 RETURNING 1""",
)
INSERT_RESULT = Statement(
    "job_insert_result",
    "smallint, text, integer, text",
    "INSERT INTO job_results (partition_id, job_id, number, result) VALUES ($1, $2, $3, $4)",
)
RESULTS = Statement(
    "job_results_of",
    "text, text, integer, integer",
    f"""
SELECT number, result FROM job_results
WHERE partition_id = {_PARTITION} AND job_id = $2 AND number BETWEEN $3 AND $4""",
)
INSERT_FILE = Statement(
    "job_insert_file",
    "text, text, text, integer, text",
    f"""
INSERT INTO job_files (partition_id, job_id, number, name, count, body)
SELECT {_PARTITION}, $2, coalesce(max(number), 0) + 1, $3, $4, $5 FROM job_files
WHERE partition_id = {_PARTITION} AND job_id = $2""",
)
FILES = Statement(
    "job_files_of",
    "text, text",
    f"SELECT number, name, count FROM job_files WHERE partition_id = {_PARTITION} AND job_id = $2 ORDER BY number",
)
FILE = Statement(
    "job_file",
    "text, text, integer",
    f"SELECT body FROM job_files WHERE partition_id = {_PARTITION} AND job_id = $2 AND number = $3",
)
EXPIRE = Statement("job_expire", "", "DELETE FROM jobs WHERE status <> 'running' AND expires_at < now() RETURNING 1")

STATEMENTS = (CREATE, GET, REMOVE, LEASE, RENEW, PROGRESS, INSERT_RESULT, RESULTS, INSERT_FILE, FILES, FILE, EXPIRE)

_HIGHEST_NUMBER = 2**31 - 1


class PostgresJobs:
    """`ports.Jobs` on a Database that was opened with the FHIR store's statements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, job: Job) -> None:
        """See `ports.Jobs.create`."""
        try:
            body = job.body.decode()
        except UnicodeDecodeError as refused:
            raise Problem(Category.MALFORMED, "the body is not UTF-8") from refused
        what = (job.tenant, job.id, job.kind, job.asked, job.expires_at, written_caller(job.caller), job.state)
        add = ADD_PARTITIONS.call(job.tenant)  # a tenant may ask before it writes
        await self._database.many(script(add, self._database.set_tenant(job.tenant), CREATE.call(*what, body)))

    async def get(self, tenant: str, id: str) -> Job | None:
        """See `ports.Jobs.get`."""
        row = await self._database.for_tenant(tenant).maybe(GET.call(tenant, id))
        return None if row is None else _job(row)

    async def remove(self, tenant: str, id: str) -> bool:
        """See `ports.Jobs.remove`."""
        return bool(await self._database.for_tenant(tenant).many(REMOVE.call(tenant, id)))

    async def lease(self, seconds: float) -> Job | None:
        """See `ports.Jobs.lease`."""
        row = await self._database.all_tenants.maybe(LEASE.call(seconds))
        return None if row is None else replace(_job(row[:-1]), body=row[-1].encode())

    async def renew(self, job: Job, seconds: float, progress: str) -> bool:
        """See `ports.Jobs.renew`."""
        call = RENEW.call(job.tenant, job.id, job.token, seconds, printable(progress))
        return bool(await self._database.for_tenant(job.tenant).many(call))

    async def write(self, job: Job, file: JobFile | None = None) -> bool:
        """See `ports.Jobs.write`."""

        async def work(session: Session) -> bool:
            how = job.status, job.state, printable(job.progress), job.answer.decode(), job.expires_at
            held = await session.many(PROGRESS.call(job.tenant, job.id, job.token, *how))
            if held and file is not None:
                name = printable(file.name)
                await session.many(INSERT_FILE.call(job.tenant, job.id, name, file.count, file.body.decode()))
            return bool(held)

        return await self._database.for_tenant(job.tenant).transact(work)

    async def results(self, tenant: str, id: str, first: int = 0, last: int = _HIGHEST_NUMBER) -> Mapping[int, str]:
        """See `ports.Jobs.results`."""
        rows = await self._database.for_tenant(tenant).many(RESULTS.call(tenant, id, first, last))
        return {int(number): str(result) for number, result in rows}

    async def files(self, tenant: str, id: str) -> Sequence[tuple[int, str, int]]:
        """See `ports.Jobs.files`."""
        rows = await self._database.for_tenant(tenant).many(FILES.call(tenant, id))
        return [(int(number), str(name), int(count)) for number, name, count in rows]

    async def file(self, tenant: str, id: str, number: int) -> bytes | None:
        """See `ports.Jobs.file`."""
        if not 0 < number <= _HIGHEST_NUMBER:
            return None
        row = await self._database.for_tenant(tenant).maybe(FILE.call(tenant, id, number))
        return None if row is None else str(row[0]).encode()

    async def expire(self) -> int:
        """See `ports.Jobs.expire`."""
        return len(await self._database.all_tenants.many(EXPIRE.call()))


def result_call(result: JobResult, partition: int) -> str:
    """The statement that stores the result of a part; it fails when the part is done or the job was removed."""
    return INSERT_RESULT.call(partition, result.job_id, result.number, result.result)


def _job(row: Row) -> Job:
    tenant, id, kind, asked, expires_at, caller, status, state, progress, answer, token = row
    return Job(
        tenant, id, kind, asked, expires_at, b"", read_caller(caller), status, state, progress, answer.encode(), token
    )


_: type[Jobs] = PostgresJobs
