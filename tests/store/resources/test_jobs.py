"""Jobs on PostgreSQL and in memory."""

from __future__ import annotations

from dataclasses import replace

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.store.resources.jobs import PostgresJobs
from ipf.store.resources.resources import PostgresFhirStore
from tests import postgres
from tests.contracts import jobs
from tests.contracts.clock import CLOCK
from tests.contracts.jobs import job
from tests.fakes import MemoryFhirStore
from tests.fakes.jobs import MemoryJobs


class MemoryJobsTests(jobs.JobsContract, TestCase):
    def setUp(self) -> None:
        self.store = store = MemoryFhirStore()
        self.jobs = MemoryJobs(store, CLOCK)


class PostgresJobsTests(jobs.JobsContract, TestCase):
    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir", now=CLOCK)
        self.store = PostgresFhirStore(self.database)
        self.jobs = PostgresJobs(self.database)

    async def test_a_lease_ends_with_its_holder(self) -> None:
        """A worker that was killed holds nothing."""
        await self.jobs.create(job("a"))
        self.assertIsNotNone(await self.jobs.lease(600))
        self.assertIsNone(await self.jobs.lease(600))
        await self.database.all_tenants.many("UPDATE jobs SET holder = 0")  # no process has this number
        again = await self.jobs.lease(600)
        self.assertEqual(again and again.token, 2)

    async def test_what_cannot_be_stored(self) -> None:
        for body in (b"\xff", b"a\x00b"):
            with self.assertRaises(Problem):
                await self.jobs.create(replace(job("a"), body=body))
