"""A patient is forgotten end to end: nothing in either database holds his data or the ids of his resources any more."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import run
from tests.faults.scenario import Scenario
from tests.flows.test_cli import ipfctl
from tests.flows.test_end_to_end import answer_to
from tests.waiting import PATIENCE
from tests.wire.admin.operators import check

MARKED = "zwmark"
HIS, OTHER = ("zwmark77", "Zwmarkname^Zwmarkfirst"), ("P2", "Hansen^Kari")
KEPT_TABLES = re.compile(r"audit_|erasures$")
CELLS = """
SELECT table_name, column_name, data_type FROM information_schema.columns
WHERE table_schema = 'public' AND table_name IN (SELECT relname FROM pg_class WHERE relkind IN ('r', 'p'))
ORDER BY 1, 2"""


def admission(number: str, trigger: str, patient: str, name: str, phone: str = "1") -> bytes:
    """An ADT message."""
    mark = MARKED if patient == HIS[0] else "plain"
    text = (
        f"MSH|^~\\&|FEED|GENERAL|IPF|IPF|20260102030405||ADT^{trigger}^ADT_A01|{number}|P|2.5.1\r"
        "EVN|A01|20260102030405\r"
        f"PID|1||{patient}^^^GENERAL^MR||{name}||19700315|F|||{mark}street 1||{phone}^PRN^PH\r"
        f"PV1|1|I|W3^301^2^GENERAL||||D1^Solberg^Silje^^^Dr^^^NPI|||MED|||||||||V{patient}^^^GENERAL^VN\r"
    )
    return b"\x0b" + text.encode() + b"\x1c\r"


def result(number: str, patient: str, name: str, kind: str = "ORU^R01^ORU_R01") -> bytes:
    """A laboratory result, or with an unknown type a message that fails."""
    mark = MARKED if patient == HIS[0] else "plain"
    text = (
        f"MSH|^~\\&|FEED|GENERAL|IPF|IPF|20260102030405||{kind}|{number}|P|2.5.1\r"
        f"PID|1||{patient}^^^GENERAL^MR||{name}||19700315|F\r"
        f"OBR|1|O{patient}^LAB|F{patient}^LAB|718-7^Hemoglobin^LN|||20260102030405|||||||||||||||20260102|||F\r"
        f"OBX|1|ST|718-7^Hemoglobin^LN||{mark}result||||||F|||20260102030405\r"
    )
    return b"\x0b" + text.encode() + b"\x1c\r"


REJECTED = b"\x0bXXX|^~\\&|no header\rPID|1||zwmark77^^^GENERAL^MR||Zwmarkname^Zwmarkfirst\r\x1c\r"


class ErasureFlow(TestCase):
    """One run over a real service."""

    def test_nothing_remains(self) -> None:
        """Messages, versions, events, an export, a dead letter, a reject; and another patient who stays whole."""
        run(self._flow())

    async def _flow(self) -> None:
        async with Scenario(IPF_MAX_ATTEMPTS="1") as scenario:
            await self._fill(scenario)
            service = scenario.service
            _, found = await asyncio.to_thread(service.get, "/fhir/Patient?identifier=zwmark77")
            patient = found["entry"][0]["resource"]["id"]
            others = await self._others(scenario)
            ids = await self._ids(scenario, patient)
            self.assertGreater(len(ids), 2)
            before = self._remains(scenario, [MARKED, *ids])
            for table in (
                "resource_versions",
                "index_text",
                "message_bodies",
                "message_text",
                "rejects",
                "export_parts",
            ):
                self.assertTrue(any(place.startswith(table) for place in before), (table, before))
            shown = await self._asked(service, patient, 200, {})
            self.assertEqual(shown["in_the_way"]["resources"], [], shown)
            self.assertGreaterEqual(shown["counts"]["messages"], 4, shown)
            self.assertEqual((shown["counts"]["dead_letters"], shown["counts"]["rejects"]), (1, 1), shown)
            self.assertGreaterEqual(shown["counts"]["exports"], 1)
            self.assertGreaterEqual(shown["counts"]["events"], 2)
            self.assertEqual(self._remains(scenario, [MARKED, *ids]), before, "a dry run changes nothing")
            wrong = {"dry_run": False, "reason": "asked for", "confirm": "0" * 64}
            await self._asked(service, patient, 409, wrong)
            self.assertEqual(self._remains(scenario, [MARKED, *ids]), before, "a refusal changes nothing")
            done = await self._asked(service, patient, 200, wrong | {"confirm": shown["confirm"]})
            self.assertEqual(done["receipt"]["counts"], shown["counts"])
            self.assertEqual(self._remains(scenario, [MARKED, *ids]), {})
            receipt = json.dumps(done["receipt"])
            self.assertFalse([mark for mark in (MARKED, *ids) if mark in receipt])
            self.assertEqual(await self._others(scenario), others)
            await self._asked(service, patient, 404, {})
            _, page = await asyncio.to_thread(service.get, "/admin/erasures")
            self.assertEqual([one["id"] for one in page["items"]], [done["receipt"]["id"]])
            own = "SELECT count(*), count(*) FILTER (WHERE strpos(lower(a::text), 'zwmark') > 0)"
            audited = scenario.sql("fhir", f"{own} FROM audit_records a WHERE interaction = 'forget'")
            self.assertEqual((int(audited[0][0]) > 0, audited[0][1]), (True, "0"))
            await self._still_works(scenario)
            await self._by_command(scenario)

    async def _fill(self, scenario: Scenario) -> None:
        port = scenario.service.mllp_port
        for number, (patient, name) in enumerate((HIS, OTHER)):
            for frame in (
                admission(f"A{number}", "A01", patient, name),
                admission(f"B{number}", "A08", patient, name, "zwmarkphone" if number == 0 else "7"),
                result(f"C{number}", patient, name), result(f"D{number}", patient, name, "ZZZ^Z01"),
            ):  # fmt: skip
                self.assertTrue((await answer_to(port, frame))[1].startswith(b"MSA|AA"))
        await answer_to(port, REJECTED)
        await self._until(scenario, "ipf", "SELECT count(*) FROM message_states WHERE status = 'DELIVERED'", "6")
        await self._until(scenario, "ipf", "SELECT count(*) FROM message_states WHERE status = 'DEAD_LETTER'", "2")
        await self._until(scenario, "ipf", "SELECT count(*) FROM message_text", "8")
        behind = "SELECT count(*) FROM subscription_states WHERE delivered_number < last_event_number"
        await self._until(scenario, "fhir", behind, "0")
        status, _ = await asyncio.to_thread(
            scenario.service.request,
            "GET",
            "/fhir/$export",
            None,
            {"Accept": "application/fhir+json", "Prefer": "respond-async"},
        )
        self.assertEqual(status, 202)
        await self._until(scenario, "fhir", "SELECT count(*) FROM export_jobs WHERE status = 'done'", "1")

    async def _by_command(self, scenario: Scenario) -> None:
        """The other patient, by ipfctl: without a reason nothing is changed."""
        await self._until(scenario, "ipf", "SELECT count(*) FROM message_states WHERE status = 'TRANSFORMING'", "0")
        behind = "SELECT count(*) FROM subscription_states WHERE delivered_number < last_event_number"
        await self._until(scenario, "fhir", behind, "0")
        base = scenario.service.base_url
        _, found = await asyncio.to_thread(scenario.service.get, "/fhir/Patient?identifier=P2")
        patient = f"Patient/{found['entry'][0]['resource']['id']}"
        ended, said = await ipfctl(base, "forget", patient)
        self.assertEqual((ended, "messages 5" in said), (0, True), said)
        ended, said = await ipfctl(base, "forget", patient, "--reason", "asked for", "--yes")
        self.assertEqual((ended, "is erased" in said), (0, True), said)
        self.assertEqual(scenario.sql("ipf", "SELECT count(*) FROM message_bodies"), [["0"]])
        ended, said = await ipfctl(base, "forget", patient)
        self.assertEqual((ended, "nothing is stored" in said), (1, True), said)

    async def _until(self, scenario: Scenario, database: str, query: str, wanted: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while (found := scenario.psql(query, database).strip()) != wanted:
                await asyncio.sleep(0.1)
        self.assertEqual(found, wanted)

    async def _others(self, scenario: Scenario) -> list[list[str]]:
        """All that is stored of the other patient: his resources with their texts, and his messages."""
        _, found = await asyncio.to_thread(scenario.service.get, "/fhir/Patient?identifier=P2")
        patient = found["entry"][0]["resource"]["id"]
        rows = scenario.sql("fhir", "SELECT rid, version_id, md5(body) FROM resource_versions"
                            f" WHERE strpos(body, '{patient}') > 0 ORDER BY 1, 2")  # fmt: skip
        messages = scenario.sql("ipf", "SELECT id, md5(raw_message) FROM message_bodies"
                                " WHERE position('P2'::bytea IN raw_message) > 0 ORDER BY 1")  # fmt: skip
        self.assertEqual((len(messages), len(rows) > 3), (4, True))
        return rows + messages

    async def _ids(self, scenario: Scenario, patient: str) -> list[str]:
        """The ids of the Patient and of the resources that refer to him."""
        rows = scenario.sql("fhir", "SELECT DISTINCT r.id FROM resources r JOIN resource_versions v USING (rid)"
                            f" WHERE strpos(v.body, 'Patient/{patient}') > 0")  # fmt: skip
        return [patient, *(row[0] for row in rows)]

    async def _asked(self, service: Any, patient: str, status: int, body: dict[str, Any]) -> dict[str, Any]:
        found, shown = await asyncio.to_thread(service.request, "POST", f"/admin/patients/{patient}/forget", body)
        self.assertEqual(found, status, shown)
        check("POST", f"/admin/patients/{patient}/forget", status, shown)
        return dict(shown)

    def _remains(self, scenario: Scenario, marks: list[str]) -> dict[str, int]:
        """Rows by column in which a mark stands, in both databases; without the audit trail and the receipts."""
        found = {}
        for database in ("ipf", "fhir"):
            for table, column, kind in scenario.sql(database, CELLS):
                if KEPT_TABLES.match(table):
                    continue
                text = f"encode({column}, 'escape')" if kind == "bytea" else f"{column}::text"
                tests = " OR ".join(f"strpos(lower({text}), '{mark.lower()}') > 0" for mark in marks)
                count = int(scenario.psql(f"SELECT count(*) FROM {table} WHERE {tests}", database).strip())
                if count:
                    found[f"{table}.{column}"] = count
        return found

    async def _still_works(self, scenario: Scenario) -> None:
        """A later message of the other patient becomes a version and a notification."""
        known = len(scenario.sink.bodies)
        await answer_to(scenario.service.mllp_port, admission("E1", "A08", *OTHER, "5"))
        self.assertTrue(await scenario.sink.until(known + 1, PATIENCE))
