"""The audit trail on PostgreSQL and in memory; what its blocks hold."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.ports.audit import ADMIN, AuditFilter, beginning
from ipf.ports.mapping import Origin
from ipf.store.audit.audit import PostgresAuditStore
from ipf.store.audit.blocks import SPAN, blocks_of, hashed, opened
from tests import postgres
from tests.contracts.audit import KIND, AuditContract, audit
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
        await self.trail.append([audit(1, agent="a\x00b"), audit(2, target="lone \ud800", agent="\udfff")])
        found = await self.trail.find("default", AuditFilter(), 2)
        self.assertEqual([(one.kind.agent, one.asked) for one in found], [("?", "lone ?"), ("a\x00b", "Patient/1")])

    async def test_searches_walk_indexes(self) -> None:
        for number in range(50):
            await self.trail.append([audit(number)])
        for condition in ("keys && ARRAY[1]", "true", "last_id < '0190f7a4-2b6e-7cc0-8a11-000000000003'"):
            plan = await self.database.many(
                f"EXPLAIN SELECT * FROM audit_blocks WHERE partition_id = 1 AND surface = 0 AND {condition} "
                "ORDER BY last_id DESC LIMIT 5"
            )
            text = "\n".join(row[0] for row in plan)
            self.assertNotIn("Seq Scan", text, condition)
            self.assertIn("audit_blocks_", text, condition)

    async def test_a_batch_is_few_rows(self) -> None:
        await self.trail.append([audit(0, tail=f"7{number:03x}-8000-000000000001") for number in range(500)])
        rows = await self.database.many("SELECT cardinality(kinds), counts FROM audit_blocks ORDER BY last_id")
        self.assertEqual(rows, [(1, [256]), (1, [244])])


class DividedAuditTests(AuditContract, TestCase):
    """On PostgreSQL with tenants, within the role of row-level security."""

    async def setUp(self) -> None:
        self.trail = PostgresAuditStore(await postgres.database(self, "fhir", tenants=True))


class BlockTests(TestCase):
    """Packing, without a database."""

    def test_what_stands_beside_the_records(self) -> None:
        other = KIND._replace(outcome=8, user="", agent="b")
        (block,) = blocks_of([audit(2), audit(1), audit(3, **other._asdict(), entities=("Basic/7",), patients=())])
        self.assertEqual((block.first_id, block.last_id), (audit(1).id, audit(3).id))
        self.assertEqual((len(block.kinds), list(block.counts)), (2, [2, 1]))
        keys = (
            "e:Patient/1", "e:Basic/7", "a:client-a\thttps://idp.example", "a:Practitioner/7", "n:client-a", "o:0",
            "x:R", "i:read", "a:b\thttps://idp.example", "n:b", "o:8",
            *(f"c:{audit(one).correlation_id}" for one in (1, 2, 3)),
        )  # fmt: skip
        self.assertEqual(block.keys, sorted(map(hashed, keys)))

    def test_records_come_back(self) -> None:
        audits = [
            audit(1), audit(2, origin=Origin("urn:a", "REG", (("ward", "4"),))), audit(3, target=None, agent="\u00e9"),
        ]  # fmt: skip
        (block,) = blocks_of(audits)
        records = opened("default", "fhir", block.kinds, block.body)
        self.assertEqual([records.audit(place) for place in range(3)], audits)
        self.assertEqual(records.audit(2).asked, "Patient/1")

    def test_where_blocks_end(self) -> None:
        table = {
            "as many as a row holds": ([audit(0, tail=f"{n:04}") for n in range(600)], [256, 256, 88]),
            "ten seconds": ([audit(n) for n in range(25)], [10, 10, 5]),
            "a surface": ([audit(n, surface=ADMIN if n % 2 else "fhir") for n in range(5)], [3, 2]),
            "a tenant": ([audit(n, tenant=str(n)) for n in range(3)], [1, 1, 1]),
            "many names": ([audit(0, entities=tuple(f"Basic/{n}" for n in range(499)))] * 9, [4, 4, 1]),
        }
        for name, (audits, expected) in table.items():
            blocks = blocks_of(audits)
            self.assertEqual([sum(block.counts) for block in blocks], expected, name)
            self.assertEqual(blocks_of(audits), blocks, name)
            for block in blocks:
                ats = opened("", "", block.kinds, block.body).ats
                self.assertLess(ats[-1] - ats[0], SPAN)

    def test_a_block_is_small(self) -> None:
        """A record of a read takes some 50 bytes."""
        (block,) = blocks_of([
            audit(
                0, at=audit(0).at + n, target=None, entities=(f"Patient/b{n * 7 % 300}/_history/1",), patients=(),
                tail=f"7{n:03x}-8000-000000000001",
                correlation_id=f"{beginning(audit(0).at)}7cc0-8a11-{n * 0x9e3779b97f4a % 2**48:012x}",
            )
            for n in range(200)
        ])  # fmt: skip
        self.assertLess(len(block.body) + 4 * len(block.keys), 200 * 50)
