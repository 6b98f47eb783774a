"""Rejects, error groups, and jobs on many messages, on PostgreSQL (the inbox database).

One transaction commits a batch of a job and the progress of the job.  After a crash another process continues the job
without loss or repetition.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import CancelledError

from ipf.errors import Category, Problem, StoreUnreachable, WriteConflict
from ipf.fhir.model.json import dumps, loads
from ipf.ports import ErrorGroup, Job, MessageAdmin, NewJob, RejectRow, Selection, Transformed
from ipf.ports.messages.inbox import EVERY_TENANT
from ipf.store.inbox import jobs_sql
from ipf.store.inbox.admin import is_of
from ipf.store.inbox.pages import where
from ipf.store.inbox.text_search import of_tenant, search
from ipf.store.postgres.database import Database, Row, Session
from ipf.store.postgres.quoting import Statement, bigints, joined, literal, printable

_REJECT = "id, received_at, correlation_id::text, listener, peer, reason, size, tenant"

TRANSFORMED = Statement(
    "message_admin_transformed",
    "bigint",
    """
SELECT map_url, transform_ms FROM message_states
WHERE (id = $1 OR (original_id IS NOT NULL AND original_id = $1)) AND status = 'DELIVERED' AND map_url IS NOT NULL
ORDER BY id DESC LIMIT 1""",
)
ONE_REJECT = Statement("message_admin_reject", "bigint", f"SELECT {_REJECT}, raw FROM rejects WHERE id = $1")
DELETE_REJECT = Statement("message_admin_delete_reject", "bigint", "DELETE FROM rejects WHERE id = $1 RETURNING id")

STATEMENTS = (TRANSFORMED, ONE_REJECT, DELETE_REJECT, *jobs_sql.STATEMENTS)

_GROUPS = """
SELECT error_fingerprint(coalesce(last_error, '')), count(*), max(last_error), max(id), min(received_at),
       max(received_at)
FROM message_states WHERE {of_tenant} AND status = 'DEAD_LETTER' AND original_id IS NULL
GROUP BY 1 ORDER BY 2 DESC, 1"""

_MOST_FOUND = 200_000


class PostgresMessageAdmin:
    """`ports.MessageAdmin`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def transformed(self, message_id: int) -> Transformed:
        """See `ports.MessageAdmin.transformed`."""
        row = await self._database.maybe(TRANSFORMED.call(message_id))
        return Transformed(*row) if row is not None else Transformed(None, None)

    async def rejects(self, tenant: str, limit: int, offset: int) -> tuple[int, Sequence[RejectRow]]:
        """See `ports.MessageAdmin.rejects`."""
        listed = f"FROM rejects WHERE {is_of(tenant)}"
        order = f"ORDER BY received_at DESC, id DESC LIMIT {int(limit)} OFFSET {int(offset)}"
        rows = await self._database.many(f"SELECT {_REJECT}, count(*) OVER () {listed} {order}")
        if rows or not offset:
            return int(rows[0][-1]) if rows else 0, [RejectRow(*row[:-1]) for row in rows]
        return int((await self._database.one(f"SELECT count(*) {listed}"))[0]), []

    async def get_reject(self, number: int) -> RejectRow | None:
        """See `ports.MessageAdmin.get_reject`."""
        row = await self._database.maybe(ONE_REJECT.call(number))
        return None if row is None else _reject(row)

    async def delete_reject(self, number: int) -> None:
        """See `ports.MessageAdmin.delete_reject`."""
        if await self._database.maybe(DELETE_REJECT.call(number)) is None:
            raise Problem(Category.NOT_FOUND, f"there is no reject with id {number}")

    async def error_groups(self, tenant: str, limit: int, offset: int) -> tuple[int, Sequence[ErrorGroup]]:
        """See `ports.MessageAdmin.error_groups`."""
        rows = await self._database.many(_GROUPS.format(of_tenant=is_of(tenant)))
        return len(rows), [_group(row) for row in rows[offset : offset + limit]]

    # -- jobs

    async def select(self, selection: Selection, limit: int) -> list[int]:
        """See `ports.MessageAdmin.select`."""
        conditions = [where(selection.wanted)]
        ids: Sequence[int] | None = selection.ids
        if selection.wanted.text or selection.wanted.patient:
            found = await search(self._database, selection.wanted)
            if ids is not None:
                conditions.append(found.condition("b.id"))
            else:
                ids = await found.ids(self._database, _MOST_FOUND)
                if ids is None:
                    text = f"more than {_MOST_FOUND} messages contain this text: narrow the selection"
                    raise Problem(Category.COSTLY, text)
        if ids is not None:
            conditions.append(f"b.id = ANY({bigints(ids)})")
        if selection.fingerprint:
            conditions += ["s.status = 'DEAD_LETTER'", of_tenant(selection.wanted, "s.tenant")]
            conditions.append(f"error_fingerprint(coalesce(s.last_error, '')) = {literal(selection.fingerprint)}")
        query = (
            "SELECT b.id FROM message_bodies b JOIN message_states s ON s.id = b.id AND s.original_id IS NULL "
            f"WHERE {' AND '.join(conditions)} ORDER BY b.id LIMIT {int(limit)}"
        )
        return [int(row[0]) for row in await self._database.many(query)]

    async def start_job(self, job: NewJob, most: int) -> Job:
        """See `ports.MessageAdmin.start_job`."""
        ids = await self.select(job.selection, most + 1)
        if len(ids) > most:
            raise Problem(Category.COSTLY, f"a job may have {most} messages: narrow the selection")
        tenant = job.selection.wanted.tenant
        call = jobs_sql.START.call(
            tenant, job.kind, dumps(job.shown).decode(), job.following, job.per_second, joined(ids)
        )
        return _job(await self._database.one(call))

    async def jobs(self, tenant: str, status: str | None, limit: int, offset: int) -> tuple[int, Sequence[Job]]:
        """See `ports.MessageAdmin.jobs`."""
        where = f"({is_of(tenant)} OR tenant = {literal(EVERY_TENANT)})"
        where += "" if status is None else f" AND status = {literal(status)}"
        total = await self._database.one(f"SELECT count(*) FROM admin_jobs WHERE {where}")
        page = f"WHERE {where} ORDER BY id DESC LIMIT {int(limit)} OFFSET {int(offset)}"
        rows = await self._database.many(f"SELECT {jobs_sql.COLUMNS} FROM admin_jobs {page}")
        return int(total[0]), [_job(row) for row in rows]

    async def job(self, number: int) -> Job | None:
        """See `ports.MessageAdmin.job`."""
        row = await self._database.maybe(jobs_sql.JOB.call(number))
        return None if row is None else _job(row)

    async def cancel_job(self, number: int) -> Job:
        """See `ports.MessageAdmin.cancel_job`."""
        row = await self._database.maybe(jobs_sql.CANCEL.call(number))
        if row is not None:
            return _job(row)
        known = await self.job(number)
        if known is None:
            raise Problem(Category.NOT_FOUND, f"there is no job {number}")
        raise Problem(Category.CONFLICT, f"job {number} is {known.status}: only an open one can be cancelled")

    async def run_batch(self, limit: int) -> tuple[int, int] | None:
        """See `ports.MessageAdmin.run_batch`."""
        async with self._database.session() as session:
            taken = await session.maybe(jobs_sql.TAKE.call())
            if taken is None:
                return None
            number, _, _, _, per_second, after_id = taken
            try:
                count = await self._batch(session, taken, max(1, min(limit, per_second)))
            except (StoreUnreachable, WriteConflict):
                raise
            except CancelledError:
                raise
            except Exception as error:
                failed = str(error) if isinstance(error, Problem) else f"unexpected {type(error).__name__}"
            else:
                return count, int(per_second)
        await self._database.many(jobs_sql.PROGRESS.call(number, "failed", after_id, 0, 0, 0, printable(failed)))
        return 0, int(per_second)

    async def _batch(self, session: Session, taken: Row, limit: int) -> int:
        number, tenant, kind, following, _, after_id = taken
        ids = [int(row[0]) for row in await session.many(jobs_sql.NEXT.call(number, after_id, limit))]
        changed, followed = 0, 0
        if ids:
            changed, followed = (int(count) for count in await session.one(_call(kind, tenant, number, ids, following)))
        status = "running" if len(ids) == limit else "done"
        reached = ids[-1] if ids else after_id
        await session.commit(jobs_sql.PROGRESS.call(number, status, reached, len(ids), changed, followed, None))
        return len(ids)


def _call(kind: str, tenant: str, job: int, ids: list[int], following: bool) -> str:
    if kind == "replay":
        return jobs_sql.replay(tenant, job, ",".join(map(str, ids)), ids[-1], following)
    return (jobs_sql.RETRY if kind == "retry" else jobs_sql.DISCARD).call(tenant, joined(ids))


def _reject(row: Row) -> RejectRow:
    id_, received_at, correlation_id, listener, peer, reason, size, tenant, raw = row
    return RejectRow(id_, received_at, correlation_id, listener, peer, reason, size, tenant, bytes(raw))


def _group(row: Row) -> ErrorGroup:
    fingerprint, count, sample, newest, first, last = row
    return ErrorGroup(fingerprint, int(count), sample or "", newest, first, last)


def _job(row: Row) -> Job:
    return Job(row[0], row[1], loads(row[2]), *row[3:])


_: type[MessageAdmin] = PostgresMessageAdmin
