"""Whose grants count for a Subscription, on PostgreSQL and in memory."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.store.resources.resources import PostgresFhirStore
from ipf.store.resources.writing.grants import PostgresGrants
from tests import postgres
from tests.contracts import grants
from tests.fakes import MemoryFhirStore
from tests.fakes.grants import MemoryGrants


class MemoryGrantsTests(grants.GrantsContract, TestCase):
    def setUp(self) -> None:
        self.store = store = MemoryFhirStore()
        self.grants = MemoryGrants(store)


class PostgresGrantsTests(grants.GrantsContract, TestCase):
    async def setUp(self) -> None:
        database = await postgres.database(self, "fhir")
        self.store = PostgresFhirStore(database)
        self.grants = PostgresGrants(database)
