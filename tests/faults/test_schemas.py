"""Two hospitals in one database, each in the two schemas that etc/citus/distribute.sql makes, through a kill of both.

On Citus each of these schemas is on one node.  Here there is no Citus: one PostgreSQL server holds all of them, and a
user has no rights on the schemas of the other hospital.  A statement that named or reached one would fail.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import Scenario
from tests.replication import Server, program, scratch_folder, why_not

GROUP = "failover"

SCRIPT = Path(__file__).resolve().parents[2] / "etc/citus/distribute.sql"
HOSPITALS = ("north", "south")
DATABASE = "hospitals"


class SchemasTests(TestCase):
    timeout = LIMIT

    def setUp(self) -> None:
        if reason := why_not():
            self.skipTest(reason)
        self.folder = scratch_folder("ipf-schemas-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.server = Server(self.folder, "server")
        self.server.create()
        self.server.start()
        self.addCleanup(self.server.stop, "immediate")
        self.server.sql(f"CREATE DATABASE {DATABASE}")
        script = self.folder / "distribute.sql"
        shutil.copy(SCRIPT, script)
        script.chmod(0o644)
        for hospital in HOSPITALS:
            values = ("-v", f"hospital={hospital}", "-v", "password=it's secret")
            program("psql", "-X", "-q", *values, "-f", str(script), "-d", self.server.dsn(DATABASE))

    def test_two_hospitals(self) -> None:
        """Each hospital has its own messages, resources and events; both services are killed and go on."""
        run(self._two_hospitals())

    async def _two_hospitals(self) -> None:
        async with AsyncExitStack() as stack:
            scenarios = [await stack.enter_async_context(self._scenario(hospital)) for hospital in HOSPITALS]
            for scenario in scenarios:
                scenario.feed.start()
            for scenario in scenarios:
                await scenario.feed.until(40)
                scenario.service.kill()
                scenario.service.start()
            for scenario in scenarios:
                await scenario.ready()
                await scenario.feed.more(40)
                await scenario.feed.stop()
                await scenario.settled()
                self.assertEqual(scenario.broken_promises(), [])
            self._apart(scenarios)
            for scenario in scenarios:
                await self._use(scenario)

    def _apart(self, scenarios: list[Scenario]) -> None:
        """All tables are in the hospitals' schemas, and each hospital hears only its own notifications."""
        tables = "SELECT DISTINCT schemaname FROM pg_tables WHERE schemaname !~ '^(pg_|information_schema)' ORDER BY 1"
        wanted = "\n".join(f"{hospital}_{kind}" for hospital in HOSPITALS for kind in ("fhir", "inbox"))
        self.assertEqual(self.server.sql(tables, DATABASE).strip(), wanted)
        listeners = "SELECT DISTINCT usename, query FROM pg_stat_activity WHERE query LIKE 'SELECT pg_notify(%'"
        rows = [row.split("|") for row in self.server.sql(listeners, DATABASE).splitlines()]
        self.assertTrue(rows)
        for user, query in rows:
            self.assertIn(f"'ipf_bell:{user}'", query)
        counts = [scenario.sql("ipf", "SELECT count(*) FROM ingested_messages") for scenario in scenarios]
        self.assertEqual(counts, [[[str(len(scenario.feed.accepted))]] for scenario in scenarios])

    async def _use(self, scenario: Scenario) -> None:
        """What reads and writes many tables answers as elsewhere."""
        get, request = scenario.service.get, scenario.service.request
        for path in ("/fhir/Patient?name=hansen&_total=accurate", "/fhir/Patient/_history", "/fhir/AuditEvent?_count=5",
                     "/fhir/Encounter?subject:Patient.family=hansen&_include=Encounter:subject",
                     "/admin/messages?q=hansen", "/admin/observe/system", "/admin/retention?dry_run=true",
                     "/actuator/health", "/admin/unread-fields"):  # fmt: skip
            status, answer = await asyncio.to_thread(get, path)
            self.assertEqual(status, 200, (path, answer))
        bundle = {"resourceType": "Bundle", "type": "transaction", "entry": [
            {"request": {"method": "POST", "url": "Patient"},
             "resource": {"resourceType": "Patient", "gender": "other"}},
            {"request": {"method": "PUT", "url": "Basic/1"}, "resource": {
                "resourceType": "Basic", "id": "1", "code": {"text": "test"}}}]}  # fmt: skip
        status, answer = await asyncio.to_thread(request, "POST", "/fhir", bundle)
        self.assertEqual(status, 200, answer)

    def _scenario(self, hospital: str) -> Scenario:
        def url(kind: str) -> str:
            return self.server.dsn(DATABASE).replace("user=ipf", f"user={hospital}_{kind} password='it\\'s secret'")

        scenario = Scenario(IPF_DB_URL=url("inbox"), IPF_FHIR_DB_URL=url("fhir"))
        kinds = {"ipf": "inbox", "fhir": "fhir"}

        def psql(query: str, kind: str) -> str:
            return program("psql", "-X", "-q", "-A", "-t", "-d", url(kinds[kind]), "-c", query)

        scenario.psql = psql
        return scenario
