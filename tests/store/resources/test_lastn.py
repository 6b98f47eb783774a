"""The last Observations of each code on PostgreSQL and in memory, and the plan of the statement."""

from __future__ import annotations

from ipf.fhir.search.language.query import parse_criteria
from ipf.store.postgres import prepared
from ipf.store.postgres.prepared import DynamicStatement
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.resources.resources import PostgresFhirStore
from ipf.store.resources.searches import lastn
from tests import postgres
from tests.contracts import lastn as contract
from tests.fakes import MemoryFhirStore


class MemoryLastnTest(contract.LastnContract):
    """The fake."""

    def setUp(self) -> None:
        self.store = MemoryFhirStore()


class PostgresLastnTest(contract.LastnContract):
    """The real one."""

    async def setUp(self) -> None:
        self.patch(prepared, "PREPARE_FROM", 1)
        self.database = await postgres.database(self, "fhir")
        self.store = PostgresFhirStore(self.database)

    async def test_questions_by_index_alone(self) -> None:
        """None of them reads matches."""
        read: list[str] = []

        async def reading(self_: lastn.Lastn, query: object) -> list[object]:
            read.append(str(query))
            return await original(self_, query)  # type: ignore[arg-type,return-value]

        original = lastn.Lastn._read
        self.patch(lastn.Lastn, "_read", reading)
        await self.test_questions()
        self.assertEqual(len(read), 0, read)

    async def test_behind_row_level_security(self) -> None:
        self.database = await postgres.database(self, "fhir", tenants=True)
        self.store = PostgresFhirStore(self.database)
        await self.test_questions()

    async def test_plan(self) -> None:
        """Steps and entries come from the index in order, whether tables have statistics or not."""
        await self.create(contract.seen("one", "a", "2024", category=contract.LAB))
        statements: list[DynamicStatement] = []
        run = self.database.run_dynamic

        async def recorded(statement: DynamicStatement, prologue: str = "") -> list[tuple[object, ...]]:
            statements.append(statement)
            return await run(statement, prologue)

        self.patch(self.database, "run_dynamic", recorded)
        await self._rows(20_000)
        for _ in range(2):
            statements.clear()
            query = parse_criteria("Observation?patient=p7&category=laboratory&code=c1")
            found = await self.store.lastn("default", query, 2, 100)
            self.assertEqual(found, [])
            settings, _, select = statements[-1].text.rpartition(";\n")
            rows = await self.database.many(f"{settings};\nEXPLAIN {select}")
            plan = "\n".join(row[0] for row in rows)
            self.assertEqual(plan.count("Backward using index_text_pkey"), 3, plan)
            for word in ("Seq Scan", "Hash Join", "Merge Join", "Materialize"):
                self.assertNotIn(word, plan)
            await self.database.all_tenants.many("ANALYZE")

    async def _rows(self, count: int) -> None:
        symbols = SymbolTable(self.database)
        await symbols.ensure(("default",), {("Observation", "category"), ("Observation", "$lastn")})
        rows = f"FROM generate_series(1, {count}) n"
        number = symbols.parameter("Observation", "$lastn")
        key = r"'Patient/p' || n % 20 || E'\n' || md5('c' || n % 30) || E'\n' || lpad(to_hex(n), 16, '0')"
        for insert in (
            f"resources SELECT -n, 1, 'Observation', 'x' || n, 1, now(), false {rows}",
            f"resource_versions SELECT -n, 1, 1, now(), 'PUT', false, gen_random_uuid(), '{{}}' {rows}",
            f"index_text SELECT 1, {number}, {key}, -n {rows}",
        ):
            await self.database.all_tenants.many(f"INSERT INTO {insert}")
