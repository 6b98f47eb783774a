"""The sequence of the audit trail and its feed, on PostgreSQL and in memory."""

from __future__ import annotations

from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase

from ipf.ports.audit.records import Audit
from ipf.store.audit.audit import PostgresAuditStore
from ipf.store.audit.feed import PostgresAuditFeed
from tests import postgres
from tests.audit_chains import chain_some
from tests.contracts.audit import audit
from tests.contracts.audit_feed import BOTH, AuditFeedContract
from tests.contracts.clock import CLOCK
from tests.fakes.audit_feed import MemoryAuditFeed


class MemoryFeedTests(AuditFeedContract, TestCase):
    """In memory."""

    def setUp(self) -> None:
        self.unchained: list[Audit] = []
        self.feed: MemoryAuditFeed = MemoryAuditFeed(lambda: CLOCK().timestamp())

    async def write(self, *audits: Audit) -> None:
        """See `AuditFeedContract`."""
        self.unchained += audits

    async def take_up(self, limit: int) -> int:
        """See `AuditFeedContract`."""
        taken, self.unchained = self.unchained[:limit], self.unchained[limit:]
        self.feed.chain += taken
        return len(taken)


class PostgresFeedTests(AuditFeedContract, TestCase):
    """On PostgreSQL."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir", now=CLOCK)
        self.trail = PostgresAuditStore(self.database)
        self.feed: PostgresAuditFeed = PostgresAuditFeed(self.database)

    async def write(self, *audits: Audit) -> None:
        """See `AuditFeedContract`."""
        await self.trail.append(audits)

    async def take_up(self, limit: int) -> int:
        """See `AuditFeedContract`."""
        return await chain_some(self.database, limit)

    async def test_a_record_that_is_committed_late_is_not_missed(self) -> None:
        """Its number of the waiting list is lower than that of a record that has its place already."""
        async with self.database.session() as session:
            await session.many("BEGIN")
            await session.many(
                "INSERT INTO audit_unchained (partition_id, surface, recorded_at, id) "
                "VALUES (1, 'fhir', now(), gen_random_uuid())"
            )
            await self.write(audit(1))
            self.assertEqual(await self.take_up(10), 1)
            await session.many("COMMIT")
        self.assertEqual(await self.take_up(10), 1)
        self.assertEqual([one.position for one in await self.feed.after(0, BOTH, 10)], [1, 2])

    async def test_removed_records_keep_their_places(self) -> None:
        await self.write(audit(1), audit(2))
        await self.take_up(10)
        await self.database.many(f"DELETE FROM audit_records WHERE id = '{audit(1).id}'")
        self.assertEqual(await self.feed.after(0, BOTH, 10), [(1, None), (2, audit(2))])

    async def test_several_processes_at_once(self) -> None:
        """No place twice, none left out."""
        await self.write(*[audit(number) for number in range(200)])
        for _ in range(20):
            work = [Deferred.fromCoroutine(self.take_up(7)) for _ in range(4)]
            await gatherResults(work)
        while await self.take_up(50):
            pass
        found = await self.feed.after(0, BOTH, 500)
        self.assertEqual([one.position for one in found], [*range(1, 201)])
        self.assertEqual([one.audit for one in found], [audit(number) for number in range(200)])

    async def test_a_batch_is_found_by_index(self) -> None:
        await self.write(*[audit(number) for number in range(400)])
        await self.take_up(1000)
        plan = await self.database.many(
            "EXPLAIN SELECT r.id FROM (SELECT * FROM audit_chain WHERE position > 5 ORDER BY position LIMIT 9) c "
            "LEFT JOIN LATERAL (SELECT * FROM audit_records r WHERE r.partition_id = c.partition_id "
            "AND r.recorded_at = c.recorded_at AND r.id = c.id) r ON true"
        )
        self.assertNotIn("Seq Scan on audit_records_y", "\n".join(row[0] for row in plan))
