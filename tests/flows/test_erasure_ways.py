"""What came in by every way is found by an erasure: no mark of a patient is left in databases, data folder or console.

A mark of each kind (name, number, address, free text, document, narrative, file name) comes in by each way; the dry run
names every table that the erasure changes.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import Scenario, scratch
from tests.flows.erasure_feed import (
    HIS,
    MARKED,
    OTHER,
    REJECTED,
    admission,
    dangling,
    header,
    is_audit,
    marked_files,
    remains,
    result,
    segments,
)
from tests.flows.test_end_to_end import answer_to
from tests.waiting import free_port, until

GROUP = "flows"
PDF = f"%PDF-1.4 {MARKED} document of {MARKED}"
MARKS = [MARKED, "endtYXJr", "p3bWFya", "6d21hcm"]
"""As a text, and what its base64 text has at each of the three places in a group."""
OPEN = "SELECT count(*) FROM message_states WHERE status NOT IN ('DELIVERED', 'DEAD_LETTER')"
TABLES = """SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
    AND relnamespace = 'public'::regnamespace ORDER BY 1"""
EXPECTED = {
    "message_bodies.raw_message", "message_text.words", "rejects.raw", "admin_jobs.selection", "saved_views.name",
    "saved_views.query", "resource_versions.body", "index_text.val", "jobs.asked", "jobs.answer",
}  # fmt: skip
"""Places that have a mark before, so that the scan is known to find it."""
DIV = '<div xmlns="http://www.w3.org/1999/xhtml">{text}</div>'
KEPT = frozenset(("erasures", "audit_keys"))
BACKGROUND = ("audit_", "observe_", "duties", "poll", "message_index_state", "message_chunks", "statistics")
"""Tables that other parts of the service write meanwhile."""


def document(number: str, patient: tuple[str, str]) -> bytes:
    """A result with an embedded document."""
    data = b64encode(PDF.encode()).decode()
    return segments(
        header(number, "ORU^R01^ORU_R01"), f"PID|1||{patient[0]}^^^GENERAL^MR||{patient[1]}||19700315|F",
        "OBR|1|D1^LAB|E1^LAB|11502-2^Report^LN|||20260102030405|||||||||||||||20260102|||F",
        f"OBX|1|ED|11502-2^{MARKED}report.pdf^LN||^application^pdf^Base64^{data}||||||F|||20260102030405",
    )  # fmt: skip


class ErasureWays(TestCase):
    """Runs over a real service."""

    timeout = LIMIT

    def test_every_way_in(self) -> None:
        run(self._flow())

    async def _flow(self) -> None:
        self.lab, self.watched = free_port(), scratch() / "drop"
        self.watched.mkdir()
        async with Scenario(
            IPF_MAX_ATTEMPTS="1", IPF_PERMANENT_ERRORS="dead_letter", IPF_HL7_HTTP_LISTEN=f"lab=tcp:{self.lab}",
            IPF_FILE_SOURCES=f"drop={self.watched}",
        ) as scenario:  # fmt: skip
            self.scenario = scenario
            await self._messages()
            patient = await self._patient()
            await self._resources(patient)
            await self._searches()
            ids = await self._ids(patient)
            marked = remains(scenario, MARKS)
            self.assertEqual(EXPECTED - set(marked), set(), marked)
            before = await self._rows()
            await self._forget(patient, before)
            left = {place: count for place, count in remains(scenario, [*MARKS, *ids]).items() if not is_audit(place)}
            self.assertEqual((left, dangling(scenario)), ({}, {}))
            data = Path(scenario.service.environment["IPF_DATA_DIR"])
            self.assertEqual(marked_files(data, [*MARKS, *ids]), [])
            named = {place.partition(".")[2] for place in remains(scenario, [MARKED])}
            self.assertLessEqual(named, {"target"}, "the audit trail has searches as they were asked")
            await self._others()

    # -- in

    async def _messages(self) -> None:
        """MLLP, HTTP, a watched folder, an operator; the other patient by MLLP."""
        for number, patient in enumerate((HIS, OTHER)):
            for frame in (admission(f"A{number}", "A01", patient), result(f"B{number}", patient)):
                await answer_to(self.scenario.service.mllp_port, frame)
        for frame in (document("D0", HIS), result("X0", HIS, "ZZZ^Z01"), REJECTED):
            await answer_to(self.scenario.service.mllp_port, frame)
        status, _ = await self._ask("POST", "/admin/ingest", result("I0", HIS)[1:-2], kind="text/plain")
        self.assertEqual(status, 200)
        status, answered = await asyncio.to_thread(self._over_http, document("H0", HIS)[1:-2])
        self.assertEqual(status, 200, answered)
        name = f"{MARKED}-name.hl7"
        (self.watched / f".{name}").write_bytes(admission("F0", "A08", HIS, f"{MARKED}phone")[1:-2])
        (self.watched / f".{name}").rename(self.watched / name)
        await until((self.watched / "done" / name).exists, "the file is taken")
        await self._until("ipf", OPEN, "0")
        await self._until("ipf", "SELECT count(*) FROM message_bodies", "9")

    def _over_http(self, message: bytes) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/hl7-v2"}
        with urlopen(Request(f"http://127.0.0.1:{self.lab}/", message, headers)) as answer:
            return answer.status, answer.read()

    async def _patient(self) -> str:
        _, page = await self._ask("GET", f"/fhir/Patient?identifier={HIS[0]}")
        (entry,) = page["entry"]
        return str(entry["resource"]["id"])

    async def _resources(self, patient: str) -> None:
        """FHIR: created, in a transaction, as raw and as JSON Binaries, updated and deleted."""
        subject = {"reference": f"Patient/{patient}"}
        status, shown = await self._ask("POST", "/fhir/Binary", PDF.encode(), kind="application/pdf")
        self.assertEqual(status, 201, shown)
        own = await self._create({"resourceType": "Binary", "contentType": "text/plain", "securityContext": subject,
                                  "data": b64encode(PDF.encode()).decode()})  # fmt: skip
        self.assertTrue(own)
        (raw,) = [row[0] for row in self.scenario.sql("fhir", "SELECT id FROM resources WHERE resource_type = 'Binary'"
                                                      f" AND id <> '{own}'")]  # fmt: skip
        observation = {
            "resourceType": "Observation", "status": "final", "code": {"text": f"{MARKED} code"}, "subject": subject,
            "text": {"status": "generated", "div": DIV.format(text=f"{MARKED} narrative")},
            "valueString": f"{MARKED} value", "note": [{"text": f"{MARKED} note"}],
        }  # fmt: skip
        await self._create(observation)
        await self._create(observation | {"subject": await self._logical(patient)})
        deleted = await self._create(observation)
        self.assertEqual((await self._ask("DELETE", f"/fhir/Observation/{deleted}"))[0], 204)
        content = [{"attachment": {"url": f"Binary/{raw}", "title": f"{MARKED}file.pdf"}}]
        entries = [
            {"resource": {"resourceType": "DocumentReference", "status": "current", "subject": subject,
                          "content": content}, "request": {"method": "POST", "url": "DocumentReference"}},
            {"resource": {"resourceType": "RelatedPerson", "patient": subject, "name": [{"family": f"{MARKED}kin"}],
                          "address": [{"line": [f"{MARKED} street 2"]}]},
             "request": {"method": "POST", "url": "RelatedPerson"}},
        ]  # fmt: skip
        bundle = {"resourceType": "Bundle", "type": "transaction", "entry": entries}
        status, shown = await self._ask("POST", "/fhir", bundle)
        self.assertEqual(status, 200, shown)

    async def _logical(self, patient: str) -> dict[str, Any]:
        """A Reference by his number alone."""
        _, shown = await self._ask("GET", f"/fhir/Patient/{patient}")
        number = {name: shown["identifier"][0][name] for name in ("system", "value")}
        return {"identifier": number, "display": f"{MARKED}name"}

    async def _searches(self) -> None:
        """Views of the console, selections of jobs, criteria of Subscriptions, an asynchronous search."""
        for query in (f"patient={HIS[0]}", f"text={MARKED}note", "status=FAILED"):
            view = {"area": "messages", "name": query.partition("=")[0], "query": query}
            self.assertEqual((await self._ask("POST", "/admin/views", view))[0], 200)
        view = {"area": "messages", "name": f"{MARKED}name, {MARKED}first", "query": ""}
        self.assertEqual((await self._ask("POST", "/admin/views", view))[0], 200)
        await self._until(
            "ipf", "SELECT (SELECT count(*) FROM message_bodies) - (SELECT count(*) FROM message_text)", "0"
        )
        for filter_ in ({"patient": HIS[0]}, {"text": f"{MARKED}note"}, {"text": f"{MARKED}name"}):
            status, job = await self._ask("POST", "/admin/messages/replay", {"filter": filter_, "following": False})
            self.assertEqual(status, 202, job)
        await self._until("ipf", "SELECT count(*) FROM admin_jobs WHERE status <> 'done'", "0")
        await self._until("ipf", OPEN, "0")
        for criteria in (f"Patient?identifier={HIS[0]}", f"Patient?name={MARKED}name", "Patient?active=false"):
            channel = {"type": "rest-hook", "endpoint": "http://127.0.0.1:9/hook", "payload": "application/fhir+json"}
            await self._create({"resourceType": "Subscription", "status": "requested", "reason": "r",
                                "criteria": criteria, "channel": channel})  # fmt: skip
        headers = {"Accept": "application/fhir+json", "Prefer": "respond-async"}
        path = f"/fhir/Patient?name={MARKED}name"
        status, _ = await asyncio.to_thread(self.scenario.service.request, "GET", path, None, headers)
        self.assertEqual(status, 202)
        await self._until("fhir", "SELECT count(*) FROM jobs WHERE status <> 'done'", "0")

    # -- out

    async def _forget(self, patient: str, before: dict[str, list[list[str]]]) -> None:
        """The dry run names what is in the way, and each table that the erasure changes then."""
        path, chosen = f"/admin/patients/{patient}/forget", {"redact": ["*"], "uncertain_messages": "remove"}
        _, shown = await self._ask("POST", path, {})
        self.assertEqual([one.partition("/")[0] for one in shown["in_the_way"]["resources"]], ["Subscription"] * 2)
        _, shown = await self._ask("POST", path, chosen)
        counts, places = shown["counts"], shown["places"]
        self.assertEqual((counts["resources.Binary"], counts["rejects"], counts["saved_views"]), (2, 1, 3), shown)
        self.assertEqual((counts["operator_jobs"], counts["jobs"], counts["redacted"]), (3, 1, 2), shown)
        body = {**chosen, "dry_run": False, "reason": "asked for", "confirm": shown["confirm"]}
        status, done = await self._ask("POST", path, body)
        self.assertEqual((status, done.get("receipt", {}).get("counts")), (200, counts), done)
        after = await self._rows()
        changed = {table for table in before if before[table] != after[table]} - KEPT
        said = {table for kind, tables in places.items() for table in tables
                if counts.get(kind) or kind in ("resources", "receipt")}  # fmt: skip
        self.assertEqual(changed - said, set())

    async def _rows(self) -> dict[str, list[list[str]]]:
        """A digest of each table of both databases."""
        found = {}
        for database in ("ipf", "fhir"):
            for (table,) in self.scenario.sql(database, TABLES):
                if not table.startswith(BACKGROUND):
                    digest = (
                        f"SELECT count(*), md5(coalesce(string_agg(t::text, ' ' ORDER BY t::text), '')) FROM {table} t"
                    )
                    found[table] = self.scenario.sql(database, digest)
        return found

    async def _others(self) -> None:
        """The other patient is whole, and so is what names nobody."""
        _, page = await self._ask("GET", f"/fhir/Patient?identifier={OTHER[0]}")
        (entry,) = page["entry"]
        self.assertEqual(entry["resource"]["name"][0]["family"], "Hansen")
        _, views = await self._ask("GET", "/admin/views?area=messages")
        self.assertEqual([one["name"] for one in views["items"]], ["status"])
        _, page = await self._ask("GET", "/fhir/Subscription?criteria=Patient?active=false")
        self.assertEqual(page["total"], 1)

    # -- steps

    async def _create(self, resource: dict[str, Any]) -> str:
        status, created = await self._ask("POST", f"/fhir/{resource['resourceType']}", resource)
        self.assertEqual(status, 201, created)
        return str(created["id"])

    async def _ids(self, patient: str) -> list[str]:
        """The ids of what belongs to him."""
        rows = self.scenario.sql("fhir", f"""SELECT DISTINCT r.id FROM resources r JOIN resource_versions v USING (rid)
            WHERE r.resource_type <> 'Subscription' AND (r.id = '{patient}' OR strpos(v.body, 'Patient/{patient}') > 0)
        """)  # fmt: skip
        return [row[0] for row in rows]

    async def _ask(self, method: str, path: str, body: Any = None, kind: str = "") -> tuple[int, Any]:
        headers = {"Content-Type": kind, "Accept": "application/fhir+json"} if kind else None
        return await asyncio.to_thread(self.scenario.service.request, method, path, body, headers)

    async def _until(self, database: str, query: str, wanted: str) -> None:
        await until(lambda: self.scenario.psql(query, database).strip() == wanted, f"{wanted}: {query}")
