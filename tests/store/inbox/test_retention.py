"""Retention on PostgreSQL: deleted rows, kept rows, and the lease of a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from twisted.trial.unittest import TestCase

from ipf.store.inbox.retention import PostgresPruner
from ipf.store.postgres.database import Database
from tests import postgres
from tests.store.inbox.test_statistics import message

DAY = timedelta(days=1)
NOW = datetime.now(UTC)
BEFORE = NOW - 10 * DAY
OWN = "6f1e1b5e-0c38-4b3c-9c51-0242ac120002"


async def ids(database: Database, table: str, column: str = "id") -> list[int]:
    """The remaining rows."""
    return [row[0] for row in await database.many(f"SELECT {column} FROM {table} ORDER BY 1")]


class PrunerTests(TestCase):
    async def setUp(self) -> None:
        self.inbox = await postgres.database(self, "ipf", size=2)
        self.fhir = await postgres.database(self, "fhir", size=2)
        self.pruner = PostgresPruner(self.inbox, self.fhir)

    async def all_of(self, kind: str) -> int:
        """Prune all batches; the dry run must have the same count."""
        expected = await self.pruner.count(kind, BEFORE)
        removed, cursor = 0, ""
        while cursor is not None:
            count, cursor = await self.pruner.prune(kind, BEFORE, cursor)
            removed += count
        self.assertEqual(removed, expected, kind)
        return removed

    async def test_messages(self) -> None:
        """Old delivered messages with their conversions and receipts; no open, failed or recent ones."""
        old, young = NOW - 20 * DAY, NOW - 2 * DAY
        deleted = [await message(self.inbox, n, "DELIVERED", old, correlation=OWN if n == 1 else None) for n in (1, 2)]
        kept = [await message(self.inbox, 10 + n, status, old) for n, status in enumerate(("FAILED", "DEAD_LETTER"))]
        kept += [await message(self.inbox, 20, "DELIVERED", old, ended=young)]
        kept += [await message(self.inbox, 21, "DELIVERED", young)]
        converting = await message(self.inbox, 22, "DELIVERED", old)
        for number, (original, status) in enumerate(((deleted[0], "DELIVERED"), (converting, "RECEIVED"))):
            await self.inbox.many(
                f"INSERT INTO message_states (id, tenant, status, received_at, ready_at, original_id, delivered_at)"
                f" VALUES ({1000 + number}, 'default', '{status}', now(), now(), {original}, '{old.isoformat()}')"
            )
        await self.fhir.many(
            f"INSERT INTO receipts (partition_id, key, correlation_id) VALUES (1, 'message/{OWN}', '{OWN}'),"
            f" (1, 'message/{OWN}/conversion/1000', '{OWN}'), (1, 'message/7f1e1b5e', '{OWN}')"
        )
        self.assertEqual(await self.all_of("messages"), 2)
        self.assertEqual(await ids(self.inbox, "message_bodies"), sorted([*kept, converting]))
        self.assertEqual(await ids(self.inbox, "message_states"), sorted([*kept, converting, 1001]))
        self.assertEqual(await ids(self.fhir, "receipts", "key"), ["message/7f1e1b5e"])
        self.assertEqual(await self.all_of("messages"), 0)
        self.assertEqual(await self.all_of("dead_letters"), 1)

    async def test_many(self) -> None:
        """Several batches; rejects in the same way."""
        await self.inbox.many(
            "INSERT INTO rejects (tenant, received_at, correlation_id, listener, peer, reason, size, raw)"
            f" SELECT 'default', now() - n * interval '1 day', '{OWN}', 'l', 'p', 'r', 1, ''"
            " FROM generate_series(1200, 1, -1) n"
        )
        self.assertEqual(await self.all_of("rejects"), 1190)

    async def test_deliveries(self) -> None:
        """Old attempts; old events if acknowledged or if the subscription is deleted."""
        await self.fhir.many(
            "INSERT INTO subscription_states (rid, partition_id, id, status, last_event_number, delivered_number)"
            " VALUES (1, 1, 'a', 'active', 90, 80), (2, 1, 'b', 'deleted', 3, 0), (3, 1, 'c', 'error', 2, 0);"
            "INSERT INTO subscription_events SELECT s.rid, n, 5, 1,"
            " now() - CASE WHEN n <= 85 THEN interval '20 days' ELSE interval '1 day' END,"
            f" '{OWN}' FROM subscription_states s, generate_series(1, s.last_event_number) n;"
            "INSERT INTO delivery_attempts (subscription_rid, event_number, attempted_at, succeeded, duration_ms,"
            f" correlation_id) SELECT 1, n, now() - (20 - n) * interval '1 day', true, 1, '{OWN}'"
            " FROM generate_series(1, 19) n"
        )
        self.assertEqual(await self.all_of("attempts"), 9)
        self.assertEqual(await self.all_of("events"), 83)
        left = await self.fhir.many("SELECT subscription_rid, count(*) FROM subscription_events GROUP BY 1 ORDER BY 1")
        self.assertEqual(left, [(1, 10), (3, 2)])

    async def test_versions(self) -> None:
        """The age of a version counts from its replacement; current versions and those of pending events stay."""
        await self.fhir.many(
            "INSERT INTO partitions (name) VALUES ('north');"
            "INSERT INTO resources VALUES (1, 1, 'Patient', 'a', 3, now(), false), "
            " (2, 2, 'Patient', 'b', 2, now(), false), (3, 1, 'Patient', 'c', 1, now(), false);"
            f"INSERT INTO resource_versions SELECT rid, v, p, now() - d * interval '1 day', 'PUT', false, '{OWN}', ''"
            " FROM (VALUES (1, 1, 1, 30), (1, 2, 1, 20), (1, 3, 1, 5), (2, 1, 2, 40), (2, 2, 2, 30), (3, 1, 1, 50))"
            " AS t(rid, v, p, d);"
        )
        awaited = (
            "INSERT INTO subscription_states (rid, partition_id, id, status, last_event_number, delivered_number)"
            " VALUES (9, 1, 'a', 'active', 1, 0);"
            f"INSERT INTO subscription_events VALUES (9, 1, 2, 1, now() - interval '40 days', '{OWN}')"
        )
        await self.fhir.many(awaited)
        removed, cursor = 0, ""
        while cursor is not None:
            count, cursor = await self.pruner.prune("versions", BEFORE, cursor)
            removed += count
        self.assertEqual(removed, 1)
        await self.fhir.many("UPDATE subscription_states SET delivered_number = 1")
        self.assertEqual(await self.all_of("versions"), 1)
        left = await self.fhir.many("SELECT rid, version_id FROM resource_versions ORDER BY 1, 2")
        self.assertEqual(left, [(1, 2), (1, 3), (2, 2), (3, 1)])

    async def test_a_run_has_one_holder(self) -> None:
        """Acquired, renewed, lost on expiry; the next run starts later, or at once on request."""
        pruner = self.pruner
        self.assertIsNone((await pruner.last_run()).began_at)
        self.assertTrue(await pruner.hold_run("a", 60, None))
        self.assertFalse(await pruner.hold_run("b", 60, None))
        self.assertFalse(await pruner.hold_run("b", 60, {}))
        self.assertTrue(await pruner.hold_run("a", -1, {"messages": 3}))
        self.assertTrue(await pruner.hold_run("b", 60, None))
        self.assertFalse(await pruner.hold_run("a", 60, {}))
        await pruner.end_run("b", {"messages": 4})
        last = await pruner.last_run()
        self.assertEqual((last.result, last.held_by), ({"messages": 4}, None))
        self.assertIsNotNone(last.ended_at)
        self.assertFalse(await pruner.hold_run("a", 60, None))
        await pruner.request_run()
        self.assertTrue(await pruner.hold_run("a", 60, None))
