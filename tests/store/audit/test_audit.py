"""The audit trail on PostgreSQL and in memory: rows, partitions, records of earlier releases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.ports.audit.records import ADMIN, AuditFilter, millisecond_of
from ipf.ports.messages.mapping import Origin
from ipf.store.audit.audit import PostgresAuditStore
from tests import postgres
from tests.contracts.audit import START, AuditContract, audit
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

    async def partitions(self) -> dict[str, int]:
        """Names of the partitions without their prefix, and their numbers of records."""
        rows = await self.database.many("SELECT tableoid::regclass::text, count(*) FROM audit_records GROUP BY 1")
        return {name.removeprefix("audit_records_"): int(count) for name, count in rows}

    async def test_unstorable_characters_are_replaced(self) -> None:
        await self.trail.append([
            audit(1, agent="a\x00b\\u0000"), audit(2, target="lone \ud800", agent="\udfff", entities=("Basic/\x00",)),
        ])  # fmt: skip
        found = await self.trail.find("default", AuditFilter(), 2)
        shown = [(one.context.agent, one.request_target, one.entities[0]) for one in found]
        self.assertEqual(
            shown, [("?", "lone ?", "Basic/\ufffd"), ("a\ufffdb\\u0000", "Patient/1", "Patient/1/_history/2")]
        )

    async def test_searches_use_indexes(self) -> None:
        for first in range(0, 2000, 500):
            await self.trail.append([audit(n, entities=(f"Patient/{n}",)) for n in range(first, first + 500)])
        await self.database.many("ANALYZE audit_records")
        for condition, index in (
            ("keys && ARRAY['e:Patient/7']", "_keys_idx"), ("correlation_id = 'x'", "_correlation_id_idx"),
            ("true", "_pkey"), ("recorded_at < now()", "_pkey"),
        ):  # fmt: skip
            by_key = "SET LOCAL enable_indexscan = off;" if condition.startswith(("keys", "corr")) else ""
            plan = await self.database.many(
                f"{by_key}EXPLAIN SELECT * FROM audit_records WHERE partition_id = 1 AND {condition} "
                "ORDER BY recorded_at DESC, id DESC LIMIT 5"
            )
            text = "\n".join(row[0] for row in plan)
            self.assertNotIn("Seq Scan", text, condition)
            self.assertIn(index, text, condition)

    async def test_a_partition_for_each_month(self) -> None:
        """Bounds are months in UTC; the default partition stays empty."""
        end = millisecond_of(datetime(2026, 2, 1, tzinfo=UTC))
        await self.trail.append([audit(0), audit(1, at=end - 1), audit(2, at=end), audit(3, at=end + 300 * 86_400_000)])
        self.assertEqual(await self.partitions(), {"y2026m01": 2, "y2026m02": 1, "y2026m11": 1})
        self.assertEqual(await self.ids(AuditFilter()), [3, 2, 1, 0])

    async def test_no_record_is_lost_without_its_partition(self) -> None:
        """The default partition stores it; it moves when the month gets a partition."""
        self.trail._months.add(datetime(2026, 1, 1, tzinfo=UTC))
        await self.trail.append([audit(1)])
        self.assertEqual(await self.partitions(), {"default": 1})
        self.assertEqual(await self.ids(AuditFilter()), [1])
        for _ in range(2):
            await PostgresAuditStore(self.database).append([audit(2)])
        self.assertEqual((await self.partitions(), await self.ids(AuditFilter())), ({"y2026m01": 2}, [2, 1]))

    async def test_a_partition_that_cannot_be_made(self) -> None:
        """Is logged, and no record is lost."""
        await self.database.many("CREATE TABLE audit_records_y2026m01 (x int)")
        await self.database.many("DROP FUNCTION ensure_audit_month")
        await self.trail.append([audit(1)])
        self.assertEqual(await self.partitions(), {"default": 1})

    async def test_old_months_are_dropped(self) -> None:
        later = [audit(number, at=audit(0).at + 40 * 86_400_000 + number) for number in (5, 6)]
        await self.trail.append([audit(1), audit(2), audit(3), *later])
        self.assertEqual(await self.trail.purge(START + timedelta(days=40, milliseconds=6), 1), 3 + 1)
        self.assertEqual(await self.partitions(), {"y2026m03": 1})
        await self.trail.append([audit(4)])
        self.assertEqual(await self.partitions(), {"y2026m01": 1, "y2026m03": 1})

    async def test_each_record_waits_for_its_chain_once(self) -> None:
        """In the order of its records, one row for each that is new."""
        await self.trail.append([audit(2), audit(1)])
        await self.trail.append([audit(2), audit(3, surface=ADMIN)])
        waiting = await self.database.many(
            "SELECT partition_id, surface, recorded_at, id::text FROM audit_unchained ORDER BY position"
        )
        made = [audit(1), audit(2), audit(3, surface=ADMIN)]
        self.assertEqual(waiting, [(1, one.context.surface, one.recorded_at, one.id) for one in made])

    async def test_any_sql_client_can_read_it(self) -> None:
        await self.trail.append([audit(1, origin=Origin("urn:a", "REG", (("ward", "4"),)))])
        row = await self.database.one(
            "SELECT id::text, recorded_at, agent, interaction, patients, origin->>'source_system' FROM audit_records"
        )
        expected = (audit(1).id, audit(1).recorded_at, "client-a", "read", ["Patient/1"], "REG")
        self.assertEqual(row, expected)


class DividedAuditTests(AuditContract, TestCase):
    """On PostgreSQL with tenants, within the role of row-level security."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir", tenants=True)
        self.trail = PostgresAuditStore(self.database)

    async def test_a_partition_that_was_made_later(self) -> None:
        """Row security applies to it; only the owner may read the partition by name."""
        await self.trail.append([audit(1), audit(2, tenant="other")])
        counts = {table: f"SELECT count(*) FROM {table}" for table in ("audit_records", "audit_records_y2026m01")}
        for count in counts.values():
            self.assertEqual(await self.database.all_tenants.one(count), (2,))
        self.assertEqual(await self.database.for_tenant("default").one(counts["audit_records"]), (1,))
        with self.assertRaises(Problem):
            await self.database.for_tenant("default").one(counts["audit_records_y2026m01"])
        ((is_on,),) = await self.database.all_tenants.many(
            "SELECT relrowsecurity FROM pg_class WHERE relname = 'audit_records_y2026m01'"
        )
        self.assertTrue(is_on)
