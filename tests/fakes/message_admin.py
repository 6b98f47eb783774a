"""Rejects, error groups and jobs in memory: the behaviour of `ipf/store/inbox/message_admin.py`, checked by
`tests/contracts/message_admin.py`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import md5

from ipf.errors import Category, Problem
from ipf.ports import ErrorGroup, Job, MessageAdmin, NewJob, RejectRow, Selection, Status, Transformed
from ipf.ports.messages.inbox import EVERY_TENANT
from tests.fakes.inbox import MemoryInbox, Row, selected

_ALIKE = re.compile(r"\"[^\"]*\"|'[^']*'|[0-9a-fA-F-]{16,}|[0-9]+")
_OPEN = ("requested", "running")
_DONE = (Status.DELIVERED, Status.TRANSFORMING)


@dataclass
class _Work:
    """A job, and its remaining messages."""

    job: Job
    left: list[int]


class MemoryMessageAdmin:
    """`ports.MessageAdmin` over a MemoryInbox."""

    def __init__(self, inbox: MemoryInbox) -> None:
        self._inbox = inbox
        self._works: dict[int, _Work] = {}
        self._gone: set[int] = set()

    async def transformed(self, message_id: int) -> Transformed:
        """See `ports.MessageAdmin.transformed`."""
        found = [
            row for row in self._inbox.rows.values()
            if message_id in (row.id, row.original_id) and row.status is Status.DELIVERED and row.map_url is not None
        ]  # fmt: skip
        newest = max(found, key=lambda row: row.id, default=None)
        return Transformed(None, None) if newest is None else Transformed(newest.map_url, newest.transform_ms)

    # -- rejects

    async def rejects(self, tenant: str, limit: int, offset: int) -> tuple[int, Sequence[RejectRow]]:
        """See `ports.MessageAdmin.rejects`."""
        rows = [replace(row, raw=None) for row in self._rejects() if tenant in (row.tenant, EVERY_TENANT)]
        rows.sort(key=lambda row: (row.received_at, row.id), reverse=True)
        return len(rows), rows[offset : offset + limit]

    async def get_reject(self, number: int) -> RejectRow | None:
        """See `ports.MessageAdmin.get_reject`."""
        return next((row for row in self._rejects() if row.id == number), None)

    async def delete_reject(self, number: int) -> None:
        """See `ports.MessageAdmin.delete_reject`."""
        if await self.get_reject(number) is None:
            raise Problem(Category.NOT_FOUND, f"there is no reject with id {number}")
        self._gone.add(number)

    def _rejects(self) -> list[RejectRow]:
        return [
            RejectRow(number, one.received_at, one.correlation_id, one.listener, one.peer, one.reason, one.size,
                      one.tenant, one.raw)
            for number, one in enumerate(self._inbox.rejects, 1) if number not in self._gone
        ]  # fmt: skip

    async def error_groups(self, tenant: str, limit: int, offset: int) -> tuple[int, Sequence[ErrorGroup]]:
        """See `ports.MessageAdmin.error_groups`."""
        groups: dict[str, list[Row]] = {}
        for row in self._inbox.rows.values():
            is_of = tenant in (row.message.tenant, EVERY_TENANT)
            if is_of and row.status is Status.DEAD_LETTER and row.original_id is None:
                groups.setdefault(fingerprint_of(row), []).append(row)
        found = [_group(fingerprint, rows) for fingerprint, rows in groups.items()]
        found.sort(key=lambda group: (-group.count, group.fingerprint))
        return len(found), found[offset : offset + limit]

    # -- jobs

    async def select(self, selection: Selection, limit: int) -> list[int]:
        """See `ports.MessageAdmin.select`."""
        found = [
            row.id for row in self._inbox.rows.values()
            if row.original_id is None and selected(row, selection.wanted)
            and (selection.ids is None or row.id in selection.ids)
            and (not selection.fingerprint or _is_alike(row, selection.fingerprint))
        ]  # fmt: skip
        return sorted(found)[:limit]

    async def start_job(self, job: NewJob, most: int) -> Job:
        """See `ports.MessageAdmin.start_job`."""
        ids = await self.select(job.selection, most + 1)
        if len(ids) > most:
            raise Problem(Category.COSTLY, f"a job may have {most} messages: narrow the selection")
        number, now = len(self._works) + 1, self._inbox.now()
        status = "requested" if ids else "done"
        tenants = {self._inbox.rows[one].message.tenant for one in ids}
        requested = job.selection.wanted.tenant
        tenant = tenants.pop() if requested == EVERY_TENANT and len(tenants) == 1 else requested
        made = Job(number, job.kind, job.shown, job.following, job.per_second, status, len(ids), 0, 0, 0, 0, None, now,
                   now, tenant)  # fmt: skip
        self._works[number] = _Work(made, ids)
        return made

    async def jobs(self, tenant: str, status: str | None, limit: int, offset: int) -> tuple[int, Sequence[Job]]:
        """See `ports.MessageAdmin.jobs`."""
        found = [
            work.job for work in reversed(self._works.values())
            if (tenant in (work.job.tenant, EVERY_TENANT) or work.job.tenant == EVERY_TENANT)
            and status in (None, work.job.status)
        ]  # fmt: skip
        return len(found), found[offset : offset + limit]

    async def job(self, number: int) -> Job | None:
        """See `ports.MessageAdmin.job`."""
        work = self._works.get(number)
        return None if work is None else work.job

    async def cancel_job(self, number: int) -> Job:
        """See `ports.MessageAdmin.cancel_job`."""
        work = self._works.get(number)
        if work is None:
            raise Problem(Category.NOT_FOUND, f"there is no job {number}")
        if work.job.status not in _OPEN:
            raise Problem(Category.CONFLICT, f"job {number} is {work.job.status}: only an open one can be cancelled")
        work.job = replace(work.job, status="cancelled")
        return work.job

    async def run_batch(self, limit: int) -> tuple[int, int] | None:
        """See `ports.MessageAdmin.run_batch`."""
        work = next((one for one in self._works.values() if one.job.status in _OPEN), None)
        if work is None:
            return None
        job, size = work.job, max(1, min(limit, work.job.per_second))
        ids, work.left = work.left[:size], work.left[size:]
        changed, followed = self._batch(job, ids, set(work.left))
        work.job = replace(
            job,
            status="running" if len(ids) == size else "done",
            done_count=job.done_count + len(ids),
            changed_count=job.changed_count + changed,
            following_count=job.following_count + followed,
            skipped_count=job.skipped_count + len(ids) - changed,
            updated_at=self._inbox.now(),
        )
        return len(ids), job.per_second

    def _batch(self, job: Job, ids: list[int], left: set[int]) -> tuple[int, int]:
        rows = [self._inbox.rows[one] for one in ids if one in self._inbox.rows]
        retried = [row for row in rows if row.status in (Status.FAILED, Status.DEAD_LETTER)]
        if job.kind == "discard":
            dead = {row.id for row in rows if row.status is Status.DEAD_LETTER}
            deleted = [row.id for row in self._inbox.rows.values() if row.id in dead or row.original_id in dead]
            for number in deleted:
                del self._inbox.rows[number]
            return len(dead), 0
        again = [row for row in rows if row.status in _DONE]
        following = self._following(rows, left) if job.kind == "replay" and job.following else []
        following = [row for row in following if row not in again]
        for row in retried:
            self._inbox.put_back(row)
        if job.kind == "replay":
            for row in sorted([*again, *following], key=lambda row: row.id):
                self._inbox.convert_again(row, 1, f"job/{job.id}")
            return len(again) + len(retried), len(following)
        return len(retried), 0

    def _following(self, rows: list[Row], left: set[int]) -> list[Row]:
        """Later messages of the same patients, without those that the job has yet to process."""
        first: dict[tuple[str, int], int] = {}
        for row in rows:
            key = row.message.ordering_key
            if key is not None and row.status is not Status.RECEIVED:
                place = (row.message.tenant, key)
                first[place] = min(first.get(place, row.id), row.id)
        return [
            row for row in self._inbox.rows.values()
            if row.original_id is None and row.message.ordering_key is not None
            and row.id > first.get((row.message.tenant, row.message.ordering_key), row.id)
            and row.status is not Status.DEAD_LETTER and not (row.status in _DONE and row.id in left)
        ]  # fmt: skip


def fingerprint_of(row: Row) -> str:
    """The fingerprint of an error, as the database computes it."""
    return md5(_ALIKE.sub("?", row.last_error or "").encode()).hexdigest()[:12]


def _is_alike(row: Row, fingerprint: str) -> bool:
    return row.status is Status.DEAD_LETTER and fingerprint_of(row) == fingerprint


def _group(fingerprint: str, rows: list[Row]) -> ErrorGroup:
    times = [row.message.received_at for row in rows]
    sample = max(row.last_error or "" for row in rows)
    return ErrorGroup(fingerprint, len(rows), sample, max(row.id for row in rows), min(times), max(times))


_: type[MessageAdmin] = MemoryMessageAdmin
