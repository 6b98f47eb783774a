"""Reindexing in batches: index entries of resources that are older than their search parameter.

A batch is one transaction of at most `limit` resources, fewer where they are large. It locks the job (other processes
skip it), takes the shared lock on the set of definitions, locks the rows of its resources against writers, writes the
missing entries and records its progress. A job of the default tenant (partition 1), whose definitions count for all,
covers the resources of all tenants; any other covers its own. Existing entries are no error. All committed batches
survive a crash. Old entries of a changed parameter are removed first, also in batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import loads
from ipf.ports import Change, ReindexJob, ReindexQueue, Version, Writes
from ipf.ports.queries.index import EMPTY
from ipf.ports.threads import RunInThread, run_inline
from ipf.store.postgres.database import Database, Row, Session
from ipf.store.postgres.lookup import SHARE_SUBSCRIPTIONS, VERSION_COLUMNS, version
from ipf.store.postgres.quoting import Statement, joined, printable, script
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.resources.writing.statements import index_calls, written_parameters, written_units

log = Logger()

_COLUMNS = """id, reason, resource_types, status, done_count,
    (SELECT count(*) FROM resources r WHERE r.resource_type = ANY(string_to_array(j.resource_types, ','))
     AND (j.partition_id = 1 OR r.partition_id = j.partition_id)
     AND r.rid <= j.until_rid AND NOT r.deleted), error, created_at, updated_at"""

TAKE = Statement(
    "reindex_take",
    "",
    """
SELECT id, partition_id, resource_types, parameters, last_rid, until_rid FROM reindex_jobs
WHERE status IN ('requested', 'running') ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED""",
)
OPEN = Statement("reindex_open", "", "SELECT 1 FROM reindex_jobs WHERE status IN ('requested', 'running') LIMIT 1")
BATCH = Statement(
    "reindex_batch",
    "text, bigint, bigint, integer, smallint",
    f"""
SELECT p.name, {VERSION_COLUMNS}
FROM (SELECT * FROM resources WHERE rid > $2 AND rid <= $3 AND NOT deleted AND ($5 = 1 OR partition_id = $5)
      AND resource_type = ANY(string_to_array($1, ',')) ORDER BY rid LIMIT $4 FOR UPDATE) r
JOIN resource_versions v ON v.rid = r.rid AND v.version_id = r.version_id
JOIN partitions p ON p.id = r.partition_id ORDER BY r.rid""",
)
CLEAR = tuple(
    Statement(
        f"reindex_clear_{table}",
        "text, integer",
        rf"""
WITH gone AS (
    DELETE FROM {table} WHERE ctid = ANY(ARRAY(
        SELECT i.ctid FROM {table} i WHERE i.param = ANY(string_to_array($1, E'\x1f')::smallint[]) LIMIT $2))
    RETURNING 1
)
SELECT count(*) FROM gone""",
    )
    for table in ("index_text", "index_date", "index_quantity", "index_words")
)
PROGRESS = Statement(
    "reindex_progress",
    "bigint, text, bigint, integer, text, text",
    """
UPDATE reindex_jobs SET status = $2, last_rid = $3, done_count = done_count + $4, parameters = $5, error = $6,
    updated_at = now() WHERE id = $1""",
)
REQUEST = Statement(
    "reindex_request",
    "smallint, text, text",
    f"""
INSERT INTO reindex_jobs AS j (partition_id, resource_types, parameters, reason, until_rid)
SELECT $1, $2, '', $3, newest_rid() RETURNING {_COLUMNS}""",
)
JOBS = Statement(
    "reindex_jobs",
    "smallint, integer",
    f"SELECT {_COLUMNS} FROM reindex_jobs j WHERE partition_id = $1 ORDER BY id DESC LIMIT $2",
)

STATEMENTS = (TAKE, OPEN, BATCH, *CLEAR, PROGRESS, REQUEST, JOBS)

_CLEAR_BATCH = 20_000
_CHARACTERS = 100_000
"""How much text of resources a batch reads: the rows of its resources are locked meanwhile."""
_NIL = "00000000-0000-0000-0000-000000000000"
_BODY = 6  # the column of BATCH: after the tenant come VERSION_COLUMNS


class PostgresReindexQueue:
    """`ports.ReindexQueue` on the FHIR database."""

    def __init__(self, database: Database, run_in_thread: RunInThread = run_inline) -> None:
        """`run_in_thread`: reads the resources of a batch, one of which may take long."""
        self._all_tenants = database.all_tenants
        self._symbols = SymbolTable(database)
        self._run_in_thread = run_in_thread

    async def is_open(self) -> bool:
        """See `ports.ReindexQueue.is_open`."""
        return bool(await self._all_tenants.many(OPEN.call()))

    async def run_batch(self, limit: int) -> bool:
        """See `ports.ReindexQueue.run_batch`."""
        async with self._all_tenants.session() as session:
            rows = await session.many(script(SHARE_SUBSCRIPTIONS, TAKE.call()))
            if not rows:
                return False
            job, partition, types, parameters, last_rid, until_rid = rows[0]
            try:
                if parameters:
                    await self._clear(session, job, parameters, last_rid)
                else:
                    await self._batch(session, (job, partition, types, last_rid, until_rid), limit)
            except (StoreUnreachable, CancelledError):
                raise
            except Exception as error:
                failed = str(error) if isinstance(error, Problem) else f"unexpected {type(error).__name__}"
            else:
                return True
        await self._all_tenants.many(PROGRESS.call(job, "failed", last_rid, 0, "", printable(failed)))
        return True

    async def _clear(self, session: Session, job: int, parameters: str, last_rid: int) -> None:
        """Remove a batch of entries of the changed parameters; once none are left, the resources follow."""
        named = [tuple(one.split(".", 1)) for one in parameters.split(",")]
        await self._symbols.load((), [(name, code) for name, code in named])
        numbers = joined(self._symbols.parameter(name, code) for name, code in named)
        gone = 0
        for statement in CLEAR:
            gone += int((await session.many(statement.call(numbers, _CLEAR_BATCH)))[0][0])
        left = parameters if gone else ""
        await session.commit(PROGRESS.call(job, "running", last_rid, 0, left, None))

    async def _batch(self, session: Session, job: tuple[int, int, str, int, int], limit: int) -> None:
        id_, partition, types, last_rid, until_rid = job
        found = await session.many(BATCH.call(types, last_rid, until_rid, limit, partition))
        rows = _first(found, _CHARACTERS)
        status = "running" if len(found) == limit or len(rows) < len(found) else "done"
        reached = rows[-1][1] if rows else last_rid
        writes: Writes = await self._run_in_thread(lambda: Writes(list(_changes(rows))))
        await self._symbols.ensure({row[0] for row in rows}, written_parameters(writes))
        await self._symbols.ensure_units(written_units(writes))
        calls: list[str] = await self._run_in_thread(lambda: list(index_calls(writes, self._symbols)))
        await session.commit(script(*calls, PROGRESS.call(id_, status, reached, len(rows), "", None)))

    async def request(self, tenant: str, types: tuple[str, ...], reason: str) -> ReindexJob:
        """See `ports.ReindexQueue.request`."""
        await self._symbols.ensure((tenant,))
        return _job(await self._all_tenants.one(REQUEST.call(self._symbols.partition(tenant), ",".join(types), reason)))

    async def jobs(self, tenant: str, limit: int) -> list[ReindexJob]:
        """See `ports.ReindexQueue.jobs`."""
        await self._symbols.load((tenant,))
        return [_job(row) for row in await self._all_tenants.many(JOBS.call(self._symbols.partition(tenant), limit))]


def _first(rows: list[Row], characters: int) -> list[Row]:
    """The first rows whose resources have so many characters together; one at least, if there is one."""
    sizes = accumulate(len(row[_BODY]) for row in rows)
    return rows[: max(1, sum(size <= characters for size in sizes))]


def _changes(rows: Iterable[Row]) -> Iterator[Change]:
    """The changes of resources.  One that cannot be read keeps its entries; the others are indexed."""
    for row in rows:
        try:
            yield _change(row)
        except Exception:
            log.failure("event=reindex_left_out rid={rid}", event="reindex_left_out", rid=row[1])


def _change(row: Row) -> Change:
    """The current version as a change that adds all of its entries."""
    found: Version = replace(version(row[1:]), version_id=2)  # not new: entries may exist
    resource = loads(found.body)
    return Change(row[0], found, resource, EMPTY, extract(resource), _NIL, "update")


def _job(row: Row) -> ReindexJob:
    id_, reason, types, status, done, of, error, created_at, updated_at = row
    times = (one if one.tzinfo is not None else one.replace(tzinfo=UTC) for one in (created_at, updated_at))
    created, updated = times
    assert isinstance(created, datetime), "the column is a timestamptz"
    named = tuple(one for one in types.split(",") if one)
    return ReindexJob(id_, reason, named, status, done, of, error, created, updated)


_: type[ReindexQueue] = PostgresReindexQueue
