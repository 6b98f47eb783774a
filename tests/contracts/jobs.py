"""What every implementation of `ports.Jobs` does."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from ipf.errors import Problem
from ipf.ports import Caller, FhirStore, Lookup, Writes
from ipf.ports.jobs import Job, JobFile, JobResult, Jobs
from tests.contracts.clock import CLOCK
from tests.rest.world import Suite

NOW = datetime(2026, 1, 31, 8, 5, 9, 120000, UTC)
ADA = Caller("ada", "app", ("system/*.rs",), issuer="https://idp")


def job(id: str, tenant: str = "default", kind: str = "request") -> Job:
    """A new job that is kept for a long time."""
    return Job(tenant, id, kind, '{"method":"GET"}', datetime(2999, 1, 1, tzinfo=UTC), b'{"a":"\xc3\xa4\\\\b"}', ADA)


class JobsContract(Suite):
    """`jobs`, and the `store` that commits results."""

    jobs: Jobs
    store: FhirStore

    async def commit(self, *results: JobResult) -> None:
        """A transaction that writes nothing else."""
        async with self.store.transaction() as transaction:
            await transaction.look_up(Lookup())
            await transaction.commit(Writes(job_results=results))

    async def test_from_the_request_to_the_answer(self) -> None:
        await self.jobs.create(job("a"))
        found = await self.jobs.get("default", "a")
        self.assertEqual(found, replace(job("a"), body=b""))
        self.assertIsNone(await self.jobs.get("other", "a"))
        leased = await self.jobs.lease(30)
        assert leased is not None
        self.assertEqual(leased, replace(job("a"), token=1))
        self.assertIsNone(await self.jobs.lease(30))
        moved = replace(leased, state='{"n":1}', progress="1 of 2")
        self.assertTrue(await self.jobs.write(moved, JobFile("http://x", 1, b'{"a":1}\n')))
        again = await self.jobs.lease(30)
        assert again is not None
        self.assertEqual((again.state, again.progress, again.body), ('{"n":1}', "1 of 2", job("a").body))
        self.assertFalse(await self.jobs.write(moved))  # its lease is over
        self.assertTrue(await self.jobs.write(replace(again, status="done", answer=b'{"x":1}')))
        self.assertIsNone(await self.jobs.lease(30))
        done = await self.jobs.get("default", "a")
        assert done is not None
        self.assertEqual((done.status, done.answer, done.progress), ("done", b'{"x":1}', "1 of 2"))
        self.assertEqual(await self.jobs.files("default", "a"), [(1, "http://x", 1)])
        self.assertEqual(await self.jobs.file("default", "a", 1), b'{"a":1}\n')
        for number in (0, 2, 2**40):
            self.assertIsNone(await self.jobs.file("default", "a", number))

    async def test_a_job_that_is_removed_writes_no_more(self) -> None:
        await self.jobs.create(job("a"))
        leased = await self.jobs.lease(30)
        assert leased is not None
        self.assertFalse(await self.jobs.remove("other", "a"))
        self.assertTrue(await self.jobs.remove("default", "a"))
        self.assertFalse(await self.jobs.remove("default", "a"))
        self.assertFalse(await self.jobs.write(leased))
        with self.assertRaises(Problem):
            await self.commit(JobResult("default", "a", 0, "[]"))

    async def test_a_part_is_done_once(self) -> None:
        await self.jobs.create(job("a"))
        await self.jobs.create(job("b"))
        await self.commit(JobResult("default", "a", 0, "[0]"), JobResult("default", "a", 7, "[7]"))
        await self.commit(JobResult("default", "b", 0, "[1]"))
        with self.assertRaises(Problem):
            await self.commit(JobResult("default", "a", 7, "[8]"))
        self.assertEqual(await self.jobs.results("default", "a"), {0: "[0]", 7: "[7]"})
        self.assertEqual(await self.jobs.results("default", "a", 1, 7), {7: "[7]"})
        self.assertEqual(await self.jobs.results("other", "a"), {})

    async def test_what_is_done_expires(self) -> None:
        await self.jobs.create(replace(job("runs"), expires_at=CLOCK() - timedelta(hours=1)))
        self.assertEqual(await self.jobs.expire(), 0)
        leased = await self.jobs.lease(30)
        assert leased is not None
        self.assertIsNotNone(await self.jobs.get("default", "runs"))
        await self.jobs.write(replace(leased, status="done"))
        self.assertIsNone(await self.jobs.get("default", "runs"))
        self.assertEqual(await self.jobs.expire(), 1)
