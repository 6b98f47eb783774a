"""The answers of operators, on PostgreSQL (also with row-level security) and in memory."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.store.resources.identity import PostgresIdentityAnswers
from ipf.store.resources.resources import PostgresFhirStore
from tests import postgres
from tests.contracts import identity
from tests.fakes import MemoryFhirStore
from tests.fakes.identity import MemoryIdentityAnswers


class MemoryIdentityTests(identity.IdentityAnswersContract, TestCase):
    def setUp(self) -> None:
        self.store = store = MemoryFhirStore()
        self.identity_answers = MemoryIdentityAnswers(store)


class PostgresIdentityTests(identity.IdentityAnswersContract, TestCase):
    async def setUp(self) -> None:
        database = await postgres.database(self, "fhir")
        self.store = PostgresFhirStore(database)
        self.identity_answers = PostgresIdentityAnswers(database)


class RowSecurityIdentityTests(identity.IdentityAnswersContract, TestCase):
    async def setUp(self) -> None:
        database = await postgres.database(self, "fhir", tenants=True)
        self.store = PostgresFhirStore(database)
        self.identity_answers = PostgresIdentityAnswers(database)
