"""The FHIR store on PostgreSQL and in memory; and the plans of the real one's hot statements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from ipf.fhir.search.language.query import parse_criteria
from ipf.ports import Lookup
from ipf.ports.queries.search import Query, Sort
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.resources.resources import PostgresFhirStore
from ipf.store.resources.searches.query import SearchSql
from tests import postgres
from tests.contracts import resources as contract
from tests.contracts.resources import identified, ids, patient
from tests.fakes import MemoryFhirStore


class MemoryFhirStoreTest(contract.FhirStoreContract):
    """The fake."""

    def setUp(self) -> None:
        self.store = self.memory = MemoryFhirStore()

    async def numbers(self, subscription_rid: int) -> list[int]:
        """From the stream."""
        return [event.number for event in self.memory.streams[subscription_rid].events]


class PostgresFhirStoreTest(contract.FhirStoreContract):
    """The real one."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir")
        self.store = PostgresFhirStore(self.database)

    async def numbers(self, subscription_rid: int) -> list[int]:
        """From the table."""
        sql = f"SELECT event_number FROM subscription_events WHERE subscription_rid = {subscription_rid} ORDER BY 1"
        return [row[0] for row in await self.database.many(sql)]

    async def test_two_processes(self) -> None:
        """What one process was first to name, another finds; their internal numbers do not meet."""
        other = PostgresFhirStore(self.database)
        async with other.transaction() as transaction:
            await transaction.look_up(Lookup(conditions=[("north", parse_criteria("Patient?identifier=1"))]))
        await self.create(identified("p", "1"), tenant="north")
        async with other.transaction() as transaction:
            answers = await transaction.look_up(Lookup(conditions=[("north", parse_criteria("Patient?identifier=1"))]))
        self.assertEqual(ids(answers.by_condition[0]), ["p"])
        self.assertNotEqual(await other.new_rid(), await self.store.new_rid())

    async def test_other_orders_are_paged_by_offset(self) -> None:
        """By name descending, missing last, also across pages."""
        await self.create(*(patient(f"p{n}", name=[{"family": f"F{n}"}]) for n in range(5)), patient("none"))
        query = replace(Query("Patient"), sort=(Sort("family", "text", True),), count=4)
        page = await self.store.search("default", query)
        self.assertEqual(ids(page.matches), ["p4", "p3", "p2", "p1"])
        page = await self.store.search("default", query, page.next)
        self.assertEqual((ids(page.matches), page.total, page.next), (["p0", "none"], 6, None))

    async def test_full_table_plans(self) -> None:
        """With 50,000 resources and statistics, the lookup uses index scans."""
        await self.create(identified("p", "1"))
        await self.database.many(
            "INSERT INTO resources SELECT -n, 1, 'Patient', 'x' || n, 1, now(), false FROM generate_series(1, 50000) n;"
            "INSERT INTO resource_versions SELECT -n, 1, 1, now(), 'PUT', false, gen_random_uuid(), '{}' "
            "FROM generate_series(1, 50000) n;"
            "INSERT INTO index_text SELECT 1, 1, 'v' || n || E'\\ts', -n FROM generate_series(1, 50000) n"
        )
        await self.database.many(
            "INSERT INTO resource_versions SELECT -1, n, 1, now(), 'PUT', false, gen_random_uuid(), '{}' "
            "FROM generate_series(2, 300) n; UPDATE resources SET version_id = 300 WHERE rid = -1"
        )
        await self.database.many("ANALYZE")
        await self._see_one_version_alone()
        for call, indexes in (
            ("fhir_look_up('{1}', 'Patient', 'p', '{1}', '{1}', 'v1', '{}', '')",
             ("index_text_pkey", "resources_partition_id_resource_type_id_key", "resource_versions_pkey")),
            ("fhir_read(1, 'Patient', 'p')", ("resources_partition_id_resource_type_id_key", "resource_versions_pkey")),
            ("fhir_update_resources('{1}', '{1}', '{2}', '2024-01-01Z', '{f}', 1)", ("resources_pkey",)),
            ("fhir_remove_index_text('1', '{1}', 'v1', '{1}')", ("index_text_pkey",)),
        ):  # fmt: skip
            plan = "\n".join(row[0] for row in await self.database.many(f"EXPLAIN EXECUTE {call}"))
            for index in indexes:
                self.assertIn(index, plan)
            for table in ("resources", "resource_versions", "index_text"):
                self.assertNotIn(f"Seq Scan on {table}", plan)

    async def _see_one_version_alone(self) -> None:
        """Of a resource with 300 versions that an identifier or an id finds, the current one is read and no other."""
        sql = SearchSql(
            "default", parse_criteria("Patient?identifier=s|v1"), cast(SymbolTable, cast(Any, _FirstNumbers()))
        )
        for query in (
            "EXECUTE fhir_look_up('{1}', 'Patient', 'x1', '{1}', '{1}', E'v1\\ts', '{}', '')",
            "EXECUTE fhir_match('{1}', '{1}', E'v1\\ts')",
            sql.page(21).text,
        ):
            plan = "\n".join(row[0] for row in await self.database.many(f"EXPLAIN (ANALYZE, TIMING OFF) {query}"))
            self.assertIn("actual rows=1.00", plan)
            self.assertNotIn("actual rows=300.00", plan)


class _FirstNumbers:
    def partition(self, tenant: str) -> int:
        return 1

    def parameter(self, resource_type: str, code: str) -> int:
        return 1
