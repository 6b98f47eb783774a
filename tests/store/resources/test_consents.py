"""Consents that decisions on access are made of, on PostgreSQL and in memory."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.store.resources.resources import PostgresFhirStore
from ipf.store.resources.writing.consents import PostgresConsents
from tests import postgres
from tests.contracts import consents
from tests.contracts.resources import change
from tests.fakes import MemoryFhirStore
from tests.fakes.consents import MemoryConsents


class MemoryConsentsTests(consents.ConsentsContract, TestCase):
    def setUp(self) -> None:
        self.store = store = MemoryFhirStore()
        self.source = MemoryConsents(store)


class PostgresConsentsTests(consents.ConsentsContract, TestCase):
    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir")
        self.store = PostgresFhirStore(self.database)
        self.source = PostgresConsents(self.database)

    async def test_what_cannot_deny_is_not_read_at_a_start(self) -> None:
        """Only its row: of a hospital whose patients all signed a permission, the bodies would be gigabytes."""
        permission = consents.consent("a", provision={"type": "permit"})
        await self.write(change(await self.store.new_rid(), permission))
        (found,) = await self.source.page(0, 10)
        self.assertIsNone(found.resource)
