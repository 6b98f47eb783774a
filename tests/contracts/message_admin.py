"""The contract of `ports.MessageAdmin`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.ports import Inbox, Job, MessageAdmin, MessageFilter, NewJob, Rejected, Selection, Settlement, Status
from ipf.ports.messages.inbox import EVERY_TENANT
from tests.contracts.clock import CLOCK
from tests.contracts.inbox import received

START = datetime(2026, 1, 1, tzinfo=UTC)
EVERY = MessageFilter(tenant=EVERY_TENANT)
ALL = Selection(None, MessageFilter())


def new_job(kind: str, selection: Selection = ALL, *, following: bool = True, per_second: int = 100) -> NewJob:
    """A request for a job."""
    return NewJob(kind, selection, {"shown": kind}, following, per_second)


class MessageAdminContract(TestCase):
    """Tests for a subclass that sets `self.inbox` and `self.admin` in `setUp`."""

    inbox: Inbox
    admin: MessageAdmin

    async def _end(self, status: Status, *messages: Any, error: str = "no map 7", **changes: Any) -> list[int]:
        """Messages that ended so; their ids."""
        await self.inbox.store(messages)
        claims = await self.inbox.claim("w", 50)
        due = CLOCK() + timedelta(hours=1) if status is Status.FAILED else None
        ends = [Settlement(claim.id, claim.fence, status, 1, error, due) for claim in claims]
        await self.inbox.settle([replace(end, **changes) for end in ends])
        return [claim.id for claim in claims]

    async def _done(self, job: Job, limit: int = 50) -> Job:
        """Work until nothing is open."""
        while await self.admin.run_batch(limit) is not None:
            pass
        return await self._known(job.id)

    async def _known(self, number: int) -> Job:
        found = await self.admin.job(number)
        assert found is not None
        return found

    async def _refused(self, work: Any, category: Category) -> None:
        refused = await self.assertFailure(Deferred.fromCoroutine(work), Problem)
        self.assertIs(refused.category, category)

    async def _states(self) -> dict[int, Status]:
        return {row.id: row.status for row in (await self.inbox.page(EVERY, 50, 0)).rows}

    # -- looking

    async def test_last_conversion_of_a_message(self) -> None:
        (one,) = await self._end(Status.DELIVERED, received(), map_url="urn:a|1", transform_ms=1.5)
        (passed,) = await self._end(Status.DELIVERED, received())
        found = await self.admin.transformed(one)
        self.assertEqual((found.map_url, found.duration_ms), ("urn:a|1", 1.5))
        for number in (passed, 999):
            found = await self.admin.transformed(number)
            self.assertEqual((found.map_url, found.duration_ms), (None, None))
        await self._done(await self.admin.start_job(new_job("replay", Selection((one,), EVERY)), 10))
        await self._end(Status.DELIVERED, map_url="urn:b|2", transform_ms=0.5)
        self.assertEqual((await self.admin.transformed(one)).map_url, "urn:b|2", "that of its newest conversion")

    async def test_rejects(self) -> None:
        for number in range(5):
            tenant = "north" if number == 4 else "default"
            one = Rejected(START + timedelta(seconds=number), "6f1e1b5e-0c38-4b3c-9c51-0242ac120002", "lab", "10.0.0.1",
                           f"reason {number}", b"\x00\xff" * number, 1000, tenant)  # fmt: skip
            await self.inbox.reject(one)
        total, rows = await self.admin.rejects("default", 3, 0)
        self.assertEqual((total, [row.reason for row in rows]), (4, ["reason 3", "reason 2", "reason 1"]))
        self.assertEqual({row.raw for row in rows}, {None})
        total, rows = await self.admin.rejects("default", 3, 3)
        self.assertEqual((total, [row.reason for row in rows]), (4, ["reason 0"]))
        self.assertEqual((await self.admin.rejects("default", 3, 9)), (4, []))
        total, rows = await self.admin.rejects(EVERY_TENANT, 50, 0)
        self.assertEqual((total, rows[0].tenant), (5, "north"))
        known = await self.admin.get_reject(rows[0].id)
        assert known is not None
        shown = (known.raw, known.size, known.listener, known.peer)
        self.assertEqual(shown, (b"\x00\xff" * 4, 1000, "lab", "10.0.0.1"))
        await self.admin.delete_reject(known.id)
        self.assertIsNone(await self.admin.get_reject(known.id))
        await self._refused(self.admin.delete_reject(known.id), Category.NOT_FOUND)

    async def test_error_groups(self) -> None:
        """Numbers, identifiers and quoted texts do not make a difference; the largest group is first."""
        for error in ('no code "A" in row 1', 'no code "B" in row 22', "no code 'C' in row 3", "away", "no map 7"):
            await self._end(Status.DEAD_LETTER, received(), error=error)
        await self._end(Status.DEAD_LETTER, received(tenant="north"), error="away")
        await self._end(Status.FAILED, received(), error="away")
        total, groups = await self.admin.error_groups("default", 50, 0)
        self.assertEqual((total, groups[0].count, {group.count for group in groups[1:]}), (3, 3, {1}))
        self.assertEqual((groups[0].sample[:7], groups[0].newest_id), ("no code", 3))
        self.assertLessEqual(groups[0].first_received_at, groups[0].last_received_at)
        _, last = await self.admin.error_groups("default", 1, 2)
        self.assertEqual(list(last), [groups[2]])
        total, groups = await self.admin.error_groups(EVERY_TENANT, 50, 0)
        self.assertEqual((total, sorted(group.count for group in groups)), (3, [1, 2, 3]))
        of_group = Selection(None, EVERY, next(group.fingerprint for group in groups if group.sample == "away"))
        self.assertEqual(await self.admin.select(of_group, 50), [4, 6], "dead letters alone, of every tenant")

    async def test_selections(self) -> None:
        """Ids and filters combine; in order of id, at most so many; always of one tenant unless EVERY_TENANT."""
        ids = await self._end(Status.DELIVERED, *(received(f"S{n}") for n in range(4)), received(tenant="north"))
        for selection, limit, found in (
            (ALL, 50, ids[:4]), (ALL, 2, ids[:2]), (Selection((ids[3], ids[1], 999), MessageFilter()), 50, [2, 4]),
            (Selection(None, EVERY), 50, ids), (Selection((ids[4],), MessageFilter()), 50, []),
            (Selection((ids[4],), EVERY), 50, [5]), (Selection((), MessageFilter()), 50, []),
            (Selection((1, 2), MessageFilter(source_id="S1")), 50, [2]),
            (Selection(None, MessageFilter(status=Status.FAILED)), 50, []),
        ):  # fmt: skip
            self.assertEqual(await self.admin.select(selection, limit), found, selection)

    # -- jobs

    async def test_a_job_and_its_list(self) -> None:
        await self._end(Status.DEAD_LETTER, received(), received(), received(tenant="north"))
        first = await self.admin.start_job(new_job("retry", per_second=5), 2)
        self.assertEqual((first.kind, first.status, first.total, first.per_second), ("retry", "requested", 2, 5))
        self.assertEqual((first.selection, first.tenant, first.error), ({"shown": "retry"}, "default", None))
        empty = await self.admin.start_job(new_job("discard", Selection((), MessageFilter())), 2)
        self.assertEqual((empty.status, empty.total), ("done", 0), "nothing to do")
        north = await self.admin.start_job(new_job("retry", Selection((3,), EVERY)), 2)
        several = await self.admin.start_job(new_job("retry", Selection(None, EVERY)), 3)
        self.assertEqual((north.tenant, several.tenant), ("north", EVERY_TENANT))
        await self._refused(self.admin.start_job(new_job("retry"), 1), Category.COSTLY)
        for tenant, status, found in (
            ("default", None, [several, empty, first]), ("north", None, [several, north]), ("south", None, [several]),
            (EVERY_TENANT, None, [several, north, empty, first]), ("default", "done", [empty]), ("north", "done", []),
        ):  # fmt: skip
            total, jobs = await self.admin.jobs(tenant, status, 50, 0)
            self.assertEqual(total, len(found), (tenant, status))
            self.assertEqual([job.id for job in jobs], [job.id for job in found], (tenant, status))
        total, jobs = await self.admin.jobs("default", None, 1, 1)
        self.assertEqual((total, [job.id for job in jobs]), (3, [empty.id]))
        self.assertIsNone(await self.admin.job(999))

    async def test_cancelling(self) -> None:
        await self._end(Status.DEAD_LETTER, received(), received(), received())
        job = await self.admin.start_job(new_job("retry"), 10)
        self.assertEqual(await self.admin.run_batch(1), (1, 100))
        self.assertEqual((await self._known(job.id)).status, "running")
        cancelled = await self.admin.cancel_job(job.id)
        self.assertEqual((cancelled.status, cancelled.done_count, cancelled.changed_count), ("cancelled", 1, 1))
        self.assertIsNone(await self.admin.run_batch(50))
        self.assertEqual(list((await self._states()).values()).count(Status.RECEIVED), 1, "what is done stays done")
        await self._refused(self.admin.cancel_job(job.id), Category.CONFLICT)
        await self._refused(self.admin.cancel_job(999), Category.NOT_FOUND)

    async def test_retry_and_discard(self) -> None:
        """Only dead letters (retry: also failed ones) change; the others are counted as skipped."""
        (delivered,) = await self._end(Status.DELIVERED, received())
        (failed,) = await self._end(Status.FAILED, received())
        dead = await self._end(Status.DEAD_LETTER, received(), received())
        three = Selection((delivered, failed, dead[0]), EVERY)
        job = await self._done(await self.admin.start_job(new_job("discard", three), 9))
        counts = (job.status, job.total, job.done_count, job.changed_count, job.skipped_count)
        self.assertEqual(counts, ("done", 3, 3, 1, 2))
        self.assertIsNone(await self.inbox.get(dead[0]))
        job = await self._done(await self.admin.start_job(new_job("retry"), 9), 2)
        counts = (job.status, job.total, job.done_count, job.changed_count, job.skipped_count)
        self.assertEqual(counts, ("done", 3, 3, 2, 1))
        row = await self.inbox.get(failed)
        assert row is not None
        self.assertEqual((row.status, row.attempt_count, row.last_error, row.next_attempt_at),
                         (Status.RECEIVED, 0, None, None))  # fmt: skip
        self.assertEqual((await self._states())[delivered], Status.DELIVERED)

    async def test_replay(self) -> None:
        """Delivered messages are converted again after all others, then later ones of their patients, each once."""
        messages = [received(key=key) for key in (7, 7, 8, 7)]
        for message in messages:
            await self._end(Status.DELIVERED, message)
        job = await self._done(await self.admin.start_job(new_job("replay", Selection((1, 2), EVERY)), 9), 1)
        counts = (job.total, job.changed_count, job.following_count, job.skipped_count)
        self.assertEqual(counts, (2, 2, 2, 0), "4 follows 1, and 2")
        claims = await self.inbox.claim("w", 50)
        self.assertEqual([claim.original_id for claim in claims], [1, 4, 2, 4])
        self.assertEqual(set((await self._states()).values()), {Status.DELIVERED}, "the rows stay as they are")

    async def test_replay_alone(self) -> None:
        """`following` false; FAILED and DEAD_LETTER are retried; waiting messages do not change."""
        await self._end(Status.DELIVERED, received(key=7))
        await self._end(Status.DELIVERED, received(key=7))
        (dead,) = await self._end(Status.DEAD_LETTER, received(key=9))
        await self.inbox.store([received(key=10)])
        ids = (1, dead, 4)
        job = await self._done(await self.admin.start_job(new_job("replay", Selection(ids, EVERY), following=False), 9))
        self.assertEqual((job.changed_count, job.following_count, job.skipped_count), (2, 0, 1))
        claims = await self.inbox.claim("w", 50)
        self.assertEqual({(claim.id, claim.original_id) for claim in claims} - {(dead, None), (4, None)}, {(5, 1)})

    async def test_jobs_come_one_after_another(self) -> None:
        await self._end(Status.DEAD_LETTER, received(), received())
        first = await self.admin.start_job(new_job("retry", Selection((1,), EVERY)), 9)
        second = await self.admin.start_job(new_job("discard", Selection((1, 2), EVERY)), 9)
        await self.admin.run_batch(50)
        self.assertEqual((await self._known(first.id)).status, "done")
        self.assertEqual((await self._known(second.id)).status, "requested")
        ended = await self._done(second)
        self.assertEqual((ended.changed_count, ended.skipped_count), (1, 1), "1 is no dead letter any more")
