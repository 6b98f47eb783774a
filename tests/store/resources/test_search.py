"""Searches on PostgreSQL and in memory, and the plans of the ones that must be fast."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet import defer

from ipf.app.runtime.process import run_in_thread
from ipf.errors import Category, Problem
from ipf.fhir.index.words import index_words
from ipf.fhir.search.language.query import parse_criteria
from ipf.store.postgres import connection, prepared
from ipf.store.postgres.prepared import DynamicStatement
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.resources import reindex
from ipf.store.resources.reindex import PostgresReindexQueue
from ipf.store.resources.resources import PostgresFhirStore
from ipf.store.resources.searches import run as search_run
from ipf.store.resources.searches import texts as search_texts
from ipf.store.resources.searches.query import SearchSql, query_parameters
from ipf.store.resources.searches.words import prepare_words
from tests import postgres
from tests.contracts import search as contract
from tests.contracts.resources import change, identified, ids, patient
from tests.contracts.search import NAMES, WORLD
from tests.fakes import MemoryFhirStore


class MemorySearchTest(contract.SearchContract):
    """The fake."""

    def setUp(self) -> None:
        self.store = MemoryFhirStore()

    async def _refused(self, criteria: str, token: str) -> None:
        """The fake's tokens are offsets."""


class PostgresSearchTest(contract.SearchContract):
    """The real one."""

    async def setUp(self) -> None:
        self.patch(prepared, "PREPARE_FROM", 1)
        self.database = await postgres.database(self, "fhir")
        self.store = PostgresFhirStore(self.database)

    async def test_repeated_statements_are_prepared(self) -> None:
        """Searches that differ in their values share a statement, and a connection keeps a bounded number of them."""
        self.patch(prepared, "PREPARE_FROM", 2)
        self.patch(connection, "MAX_PREPARED", 2)
        database = await postgres.database(self, "fhir", size=1)
        self.store = PostgresFhirStore(database)
        await self.create(*(identified(f"p{n}", f"{n}") | {"gender": "male"} for n in range(3)))
        for criteria, count in (
            ("Patient?identifier=urn:mrn|1", 0), ("Patient?identifier=urn:mrn|2", 1), ("Patient?_id=p1", 1),
            ("Patient?_id=p2", 2), ("Patient?gender=male&identifier=urn:mrn|0", 2),
            ("Patient?gender=male&identifier=urn:mrn|1", 2), ("Patient?identifier=urn:mrn|1", 2),
        ):  # fmt: skip
            self.assertEqual(await self.found(criteria), [f"p{criteria[-1]}"])
            rows = await database.many("SELECT name FROM pg_prepared_statements WHERE name LIKE 'shape%'")
            self.assertEqual(len(rows), count, criteria)

    async def test_a_search_that_takes_too_long_is_refused(self) -> None:
        """The server cancels it; the connection goes on to serve others."""
        self.patch(prepared, "QUESTION_SECONDS", 0.05)
        database = await postgres.database(self, "fhir", size=1)
        endless = database.run_dynamic(DynamicStatement("SELECT pg_sleep(600)", prepared.Parameters()))
        refused = await self.assertFailure(defer.Deferred.fromCoroutine(endless), Problem)
        self.assertEqual((refused.category, refused.category.value.http_status), (Category.COSTLY, 400))
        self.assertIn("takes longer than 0.05 seconds", refused.text)
        self.assertEqual(await database.many("SHOW statement_timeout"), [("0",)])
        self.assertEqual(database.usage, (1, 0, 0))

    async def test_a_value_that_cannot_be_stored_costs_no_connection(self) -> None:
        """It is refused before one is taken."""
        database = await postgres.database(self, "fhir", size=1)
        self.store = PostgresFhirStore(database)
        for _ in range(3):
            search = defer.Deferred.fromCoroutine(self.store.search("default", parse_criteria("Patient?_id=a%1Fb")))
            await self.assertFailure(search, Problem)
        self.assertEqual(await self.found("Patient?_id=a"), [])

    async def test_many_at_the_other_end(self) -> None:
        """Chains over more resources than are put into the statement one by one, on tables without statistics."""
        self.patch(search_run, "MAX_CHAIN_IDS", 100)
        people = [identified(f"p{n}", f"{n}") | {"gender": "male"} for n in range(350)]
        await self.create(*people)
        seen = [
            {"resourceType": "Encounter", "id": f"e{n}", "status": "finished", "class": {"code": "AMB"},
             "subject": {"reference": f"Patient/p{n}"}} for n in range(350)
        ]  # fmt: skip
        await self.create(*seen)
        query = parse_criteria("Encounter?patient.gender=male&_summary=count")
        self.assertEqual((await self.store.search("default", query)).total, 350)
        query = parse_criteria("Patient?_has:Encounter:patient:status=finished&_summary=count")
        self.assertEqual((await self.store.search("default", query)).total, 350)

    async def test_what_is_walked(self) -> None:
        """The same orders and chains where so many match that an index is read in the order of the search."""
        self.patch(search_run, "MAX_CANDIDATES", 1)
        await self.test_orders_are_paged_by_key()

    async def test_several_values_that_are_walked(self) -> None:
        self.patch(search_run, "MAX_CANDIDATES", 0)
        await self.test_orders_of_several_values()

    async def test_many_texts(self) -> None:
        """So many under one parameter that the index is searched as a whole."""
        self.patch(search_texts, "MAX_TEXTS", 0)
        await self.test_texts_of_codes()

    async def test_a_resource_that_cannot_be_indexed_keeps_no_other(self) -> None:
        """It keeps the entries that it has, and the job ends."""
        await self.create(*WORLD)
        await self.database.many(
            "DELETE FROM index_text WHERE param IN (SELECT id FROM search_parameters WHERE code LIKE '%:text');"
            "INSERT INTO reindex_jobs (partition_id, resource_types, parameters, reason, until_rid)"
            " SELECT 1, string_agg(DISTINCT resource_type, ','), '', 'texts of codes', max(rid) FROM resources"
        )
        original = reindex.extract

        def failing(resource: Any) -> Any:
            if resource["resourceType"] == "Patient":
                raise ZeroDivisionError("Hansen")
            return original(resource)

        self.patch(reindex, "extract", failing)
        queue = PostgresReindexQueue(self.database)
        while await queue.is_open():
            await queue.run_batch(4)
        self.assertEqual({one.status for one in await queue.jobs("default", 10)}, {"done"})
        self.patch(search_run, "MAX_FILTERED", 0)
        self.assertEqual(await self.found("Observation?code:text=fever"), ["temp"])
        self.assertTrue(self.flushLoggedErrors(ZeroDivisionError))

    async def test_a_batch_of_large_resources_is_smaller(self) -> None:
        """A resource that is larger than a batch is one by itself.  Its reading is left to a thread."""
        await self.create(*NAMES)
        self.patch(reindex, "_CHARACTERS", 1)
        queue = PostgresReindexQueue(self.database, run_in_thread)
        wanted = (await queue.request("default", ("Patient",), "")).of_count
        self.assertGreater(wanted, 1)
        for count in range(1, wanted + 1):
            await queue.run_batch(200)
            (job,) = await queue.jobs("default", 1)
            self.assertEqual((job.done_count, job.status == "done"), (count, count == wanted))

    async def test_many_values_of_a_name(self) -> None:
        """As many values as a search may have."""
        await self.create(*NAMES)
        values = ",".join(["quinones", *(f"x{n}" for n in range(4_990))])
        self.assertEqual(await self.found(f"Patient?family={values}"), ["luz"])

    async def test_full_text_by_index(self) -> None:
        """The same answers from index entries, of earlier resources once the job has indexed them."""
        self.patch(search_run, "MAX_FILTERED", 0)
        index_words(True)
        self.addCleanup(index_words, False)
        await prepare_words(self.database, True)
        await self.test_full_text()

    async def test_full_text_with_tenants(self) -> None:
        """The same behind the policies of row-level security."""
        self.database = await postgres.database(self, "fhir", tenants=True)
        self.store = PostgresFhirStore(self.database)
        await self.test_full_text_by_index()
        self.assertEqual((await self.store.search("north", parse_criteria("Condition?_text=bone"))).total, 0)

    async def test_full_text_of_earlier_resources(self) -> None:
        """Resources are read until a job has indexed them; a search that would read too many names the setting."""
        self.patch(search_run, "MAX_FILTERED", 0)
        await self.full_text_world()
        for is_on, named in ((False, "IPF_FHIR_FULL_TEXT"), (True, "job is not done")):
            index_words(is_on)
            self.addCleanup(index_words, False)
            await prepare_words(self.database, is_on)
            search = defer.Deferred.fromCoroutine(self.found("Condition?_content=smoker"))
            self.assertIn(named, str(await self.assertFailure(search, Problem)))
        queue = PostgresReindexQueue(self.database)
        while await queue.is_open():
            await queue.run_batch(2)
        self.assertEqual(await self.found("Condition?_content=smoker"), ["one", "three"])
        await prepare_words(self.database, True)
        self.assertEqual(await queue.is_open(), False)
        await prepare_words(self.database, False)
        await prepare_words(self.database, True)
        self.assertEqual((await queue.is_open(), await self.database.many("SELECT 1 FROM index_words")), (True, []))

    async def test_chains_that_stay_in_the_statement(self) -> None:
        """The table of questions without any chain resolved, from candidates and as sets."""
        self.patch(search_run, "MAX_CHAIN_IDS", 0)
        self.patch(search_run, "MAX_REFERRING", 0)
        await self.test_queries()

    async def test_chains_as_sets(self) -> None:
        self.patch(search_run, "MAX_CHAIN_IDS", 0)
        self.patch(search_run, "MAX_REFERRING", 0)
        self.patch(search_run, "MAX_CANDIDATES", -1)
        await self.test_queries()

    async def test_pages_do_not_move_while_others_write(self) -> None:
        """A page that continues behind a key is not shifted by rows that come or go before it."""
        await self.create(*({"resourceType": "Patient", "id": f"p{n}", "birthDate": f"19{n}0"} for n in range(1, 8)))
        query = replace(parse_criteria("Patient?_sort=birthdate"), count=3)
        page = await self.store.search("default", query)
        await self.create({"resourceType": "Patient", "id": "older", "birthDate": "1900"})
        page = await self.store.search("default", query, page.next)
        self.assertEqual([one.id for one in page.matches], ["p4", "p5", "p6"])

    async def test_pages_backwards_while_others_write(self) -> None:
        """A page before ends where the later one began: no match is repeated."""
        rids = await self.create(*(patient(f"p{n}") for n in range(6)))
        query = replace(parse_criteria("Patient"), count=2)
        first = await self.store.search("default", query)
        second = await self.store.search("default", query, first.next)
        await self.write(change(rids[1], patient("p1"), 2, patient("p1"), deleted=True))
        await self.create(patient("p6"))
        back = await self.store.search("default", replace(query, backwards=True), second.previous)
        self.assertEqual((ids(back.matches), back.previous), (["p0"], None))
        again = await self.store.search("default", query, back.next)
        self.assertEqual(ids(again.matches), ["p2", "p3"])

    async def test_plans_use_index_scans(self) -> None:
        """With many rows and statistics, the three searches that count most read no table as a whole."""
        await self.create(identified("p", "1"))
        symbols = SymbolTable(self.database)
        queries = [parse_criteria(text) for text in (
            "Patient?identifier=urn:mrn|7", "Observation?patient=7&code=http://loinc.org|c1&date=ge2020",
            "Observation?subject=Patient/7,Patient/9&_sort=-date",
        )]  # fmt: skip
        parameters = set().union(*(query_parameters(query) for query in queries))
        await symbols.ensure(("default",), parameters)
        subject, code, date = (symbols.parameter("Observation", one) for one in ("subject", "code", "date"))
        rows = "FROM generate_series(1, 10000) n"
        for insert in (
            f"resources SELECT -n, 1, 'Observation', 'x' || n, 1, now(), false {rows}",
            f"resource_versions SELECT -n, 1, 1, now(), 'PUT', false, gen_random_uuid(), '{{}}' {rows}",
            f"index_text SELECT 1, {subject}, 'Patient/' || n / 40, -n {rows}",
            f"index_text SELECT 1, {code}, 'c' || n % 20 || E'\\thttp://loinc.org', -n {rows}",
            f"index_date SELECT 1, {date}, n, n + 1, -n {rows}",
        ):
            await self.database.many(f"INSERT INTO {insert}")
        await self.database.many("ANALYZE")
        for query in queries:
            settings, _, select = SearchSql("default", query, symbols).page(21).text.rpartition(";\n")
            plan = "\n".join(row[0] for row in await self.database.many(f"{settings};\nEXPLAIN {select}"))
            for table in ("resources", "resource_versions", "index_text", "index_date"):
                self.assertNotIn(f"Seq Scan on {table}", plan, plan)

    async def test_plans_of_heavy_questions(self) -> None:
        """Pages in an order, and chains to many, read few rows by an index, whether tables have statistics or not."""
        await self._observations(3000)
        database, run = self.database, self.database.run_dynamic
        statements: list[DynamicStatement] = []

        async def recorded(statement: DynamicStatement, prologue: str = "") -> list[tuple[Any, ...]]:
            statements.append(statement)
            return await run(statement, prologue)

        self.patch(database, "run_dynamic", recorded)
        self.patch(search_run, "MAX_CHAIN_IDS", 10)
        for number, limit in enumerate((100, 100_000)):  # walks, then candidates
            self.patch(search_run, "MAX_CANDIDATES", limit)
            for criteria, *scans in (
                ("Observation?category=lab&_sort=-date", "Backward using index_date_pkey", "index_date_of"),
                ("Observation?status=final&_sort=code,-date", "Presorted Key: o0.val", "index_date_of"),
                ("Observation?_sort=code,-date", "Presorted Key: o0.val", "Presorted Key: o0.val"),
                (
                    "Observation?patient.gender=male&encounter.class=AMB&code=urn:c|c1",
                    "resources_walk",
                    "index_text_of",
                ),
                ("Observation?patient.gender=male&category=lab&_sort=-date", "index_text_of", "index_text_of"),
                ("Observation?patient=Patient/p7&category=lab", "index_text_of", "index_text_of"),
            ):
                statements.clear()
                await self.store.search("default", replace(parse_criteria(criteria), count=20, total="none"))
                plan = await self._plan(statements[-1])
                self.assertIn(scans[number], plan, (criteria, limit))
                for word in ("Seq Scan", "Hash Join", "Merge Join", "Materialize"):
                    self.assertNotIn(word, plan)
            await database.all_tenants.many("ANALYZE")

    async def test_plans_of_heavy_questions_with_tenants(self) -> None:
        """Row-level security adds a condition to each table, and changes no plan."""
        self.database = await postgres.database(self, "fhir", tenants=True)
        self.store = PostgresFhirStore(self.database)
        await self.test_plans_of_heavy_questions()
        self.patch(search_run, "MAX_CHAIN_IDS", 0)
        self.patch(search_run, "MAX_REFERRING", 0)
        await self.database.all_tenants.many("TRUNCATE resources, resource_versions, index_text, index_date")
        await self.test_queries()

    async def _plan(self, statement: DynamicStatement) -> str:
        settings, _, select = statement.text.rpartition(";\n")
        rows = await self.database.for_tenant("default").many(f"{settings};\nEXPLAIN {select}")
        return "\n".join(row[0] for row in rows)

    async def _observations(self, count: int) -> None:
        """Observations, Encounters and Patients, as rows."""
        symbols = SymbolTable(self.database)
        await symbols.ensure(("default",), {
            *(("Observation", code) for code in ("subject", "encounter", "code", "category", "status", "date")),
            ("Patient", "gender"), ("Encounter", "class"),
        })  # fmt: skip
        rows = f"FROM generate_series(1, {count}) n"
        values = {
            "subject": f"'Patient/p' || n % {count // 20}", "encounter": "'Encounter/e' || n",
            "code": "'c' || n % 20 || E'\\turn:c'", "category": "'lab' || E'\\turn:k'", "status": "E'final\\t'",
        }  # fmt: skip
        inserts = [
            *(f"resources SELECT n * 10 + {k}, 1, '{type_}', '{type_[0].lower()}' || n, 1, now(), false {rows}"
              for k, type_ in enumerate(("Observation", "Encounter", "Patient"))),
            f"resource_versions SELECT n * 10, 1, 1, now(), 'PUT', false, gen_random_uuid(), '{{}}' {rows}",
            *(f"index_text SELECT 1, {symbols.parameter('Observation', code)}, {val}, n * 10 {rows}"
              for code, val in values.items()),
            f"index_text SELECT 1, {symbols.parameter('Encounter', 'class')}, E'AMB\\turn:k', n * 10 + 1 {rows}",
            f"index_text SELECT 1, {symbols.parameter('Patient', 'gender')}, E'male\\t', n * 10 + 2 {rows}",
            f"index_date SELECT 1, {symbols.parameter('Observation', 'date')}, n, n + 1, n * 10 {rows}",
        ]  # fmt: skip
        for insert in inserts:
            await self.database.all_tenants.many(f"INSERT INTO {insert}")
