"""The audit trail on PostgreSQL and in memory."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.store.audit import PostgresAuditStore
from tests import postgres
from tests.contracts.audit import AuditContract, audit
from tests.fakes.audit import MemoryAuditStore


class MemoryAuditTests(AuditContract, TestCase):
    """In memory."""

    def setUp(self) -> None:
        self.trail = MemoryAuditStore()


class PostgresAuditTests(AuditContract, TestCase):
    """On PostgreSQL."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir")
        self.trail = PostgresAuditStore(self.database)

    async def test_what_cannot_be_text_is_replaced(self) -> None:
        await self.trail.append([audit(1, agent="a\x00b"), audit(2, target="lone \ud800")])
        rows = await self.database.many("SELECT agent, target FROM audit_events ORDER BY id")
        self.assertEqual([rows[0][0], rows[1][1]], ["a b", "lone ?"])

    async def test_searches_walk_indexes(self) -> None:
        await self.trail.append([audit(number) for number in range(50)])
        for condition in ("keys && ARRAY[1::bigint]", "true", "recorded_at < now()"):
            plan = await self.database.many(
                f"EXPLAIN SELECT * FROM audit_events WHERE partition_id = 1 AND {condition} ORDER BY id DESC LIMIT 5"
            )
            text = "\n".join(row[0] for row in plan)
            self.assertNotIn("Seq Scan", text, condition)
            self.assertIn("audit_events_", text, condition)


class DividedAuditTests(AuditContract, TestCase):
    """On PostgreSQL with tenants, within the role of row-level security."""

    async def setUp(self) -> None:
        self.trail = PostgresAuditStore(await postgres.database(self, "fhir", tenants=True))
