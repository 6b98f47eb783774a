"""The history of many resources, on PostgreSQL and in memory."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.store.resources import history
from ipf.store.resources.history import PostgresHistories
from ipf.store.resources.resources import PostgresFhirStore
from tests import postgres
from tests.contracts import histories
from tests.contracts.resources import patient
from tests.fakes import MemoryFhirStore
from tests.fakes.history import MemoryHistories


class MemoryHistoriesTests(histories.HistoriesContract, TestCase):
    def setUp(self) -> None:
        self.store = store = MemoryFhirStore()
        self.histories = MemoryHistories(store)


class PostgresHistoriesTests(histories.HistoriesContract, TestCase):
    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir")
        self.store = PostgresFhirStore(self.database)
        self.histories = PostgresHistories(self.database)

    async def test_types_that_are_not_rare(self) -> None:
        """The other way to the same answer."""
        self.patch(history, "RARE", 0)
        await self.test_order_and_bounds()

    async def test_the_index_is_walked(self) -> None:
        """A page of the whole history sorts nothing."""
        await self.create(*(patient(f"p{number}") for number in range(500)))
        first, last = "0001-01-01T00:00:00+00:00", "9999-12-31T00:00:00+00:00"
        for upwards, start in ((False, last), (True, first)):
            call = history.ALL[upwards].call("default", first, None, None, start, 0, 0, 10)
            plan = "\n".join(row[0] for row in await self.database.many(f"EXPLAIN {call}"))
            self.assertIn("resource_versions_time", plan)
            self.assertNotIn("Sort", plan)
