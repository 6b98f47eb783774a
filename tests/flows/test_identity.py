"""Two Patients of one number: messages wait for an operator, and go on in order after each kind of answer."""

from __future__ import annotations

import asyncio
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.ports import Json
from tests.event_loop import run
from tests.faults.feed import admission
from tests.faults.scenario import Scenario
from tests.flows.test_cli import ipfctl
from tests.flows.test_end_to_end import answer_to
from tests.waiting import until

GROUP = "flows"


class IdentityTests(TestCase):
    def test_messages_wait_for_an_answer(self) -> None:
        """take, apart and merge; from the socket to the FHIR server, the queue and the trace."""
        run(self._answers())

    def test_dead_letters_wait_for_an_answer_too(self) -> None:
        """With IPF_PERMANENT_ERRORS=dead_letter each message ends at its first attempt; `ipfctl` releases all."""
        run(self._dead_letters())

    def test_later_messages_pass(self) -> None:
        """With IPF_PERMANENT_ERRORS_HOLD=false a message without a map does not hold its patient."""
        run(self._passing())

    async def _passing(self) -> None:
        async with Scenario(IPF_PERMANENT_ERRORS_HOLD="false") as scenario:
            self.scenario = scenario
            port = scenario.service.mllp_port
            unmapped = admission("U1", "P1", "+1").replace(b"ADT^A01^ADT_A01", b"ZZZ^Z01")
            self.assertEqual((await answer_to(port, unmapped))[1], b"MSA|AA|U1")
            await self.until(self.is_waiting, "U1")
            await self.send("M1", "P1", "+2")
            await self.until(self.is_delivered, "M1")
            row = await self.message("U1")
            self.assertEqual(
                (row["permanent"], "failed: no StructureMap" in row["last_error"]), (True, True), row["last_error"]
            )
            _, page = await self.ask("GET", "/admin/messages?permanent=true")
            self.assertEqual([item["source_id"] for item in page["items"]], ["U1"])

    async def _dead_letters(self) -> None:
        async with Scenario(IPF_PERMANENT_ERRORS="dead_letter") as scenario:
            self.scenario = scenario
            await self.send("M0", "P0", "+0")
            await self.until(self.is_delivered, "M0")
            self.identifier = (await self.patients("P0"))[0]["identifier"][0]
            one, _ = await self.pair("P1")
            for number in (1, 2, 3):
                await self.send(f"P1-{number}", "P1", f"+{number}")
                await self.until(self.is_dead, f"P1-{number}")
            _, page = await self.ask("GET", "/admin/identity-conflicts?status=open")
            self.assertEqual(page["total"], 3)
            number = str(page["items"][1]["id"])
            for arguments, status, words in (
                (("list", "--status", "open"), 1, ("3 identity conflicts", "ambiguous", one)),
                (
                    ("show", number),
                    0,
                    (f"{self.identifier['system']}|MR|P1", "merge: they are one person", "candidates"),
                ),
                (("answer", number), 1, ("name exactly one of --merge",)),
                (
                    ("answer", number, "--take", one, "--reason", "asked"),
                    0,
                    ("retried: 3 messages; converted again: 0 later messages",),
                ),
                (("list", "--status", "open"), 0, ("There are no identity conflicts.",)),
                (("answers",), 0, (one, "asked")),
            ):
                ended, said = await ipfctl(scenario.service.base_url, "identity", *arguments)
                self.assertEqual((ended, [word for word in words if word not in said]), (status, []), said)
            await self.all_delivered("P1")
            self.assertEqual(await self.phones(one.partition("/")[2]), ["+3", "+2", "+1", None])

    async def _answers(self) -> None:
        async with Scenario() as scenario:
            self.scenario = scenario
            await self.send("M0", "P0", "+0")
            await self.until(self.is_delivered, "M0")
            (first,) = await self.patients("P0")
            self.identifier = first["identifier"][0]
            await self._take()
            await self._apart()
            await self._merge()
            status, page = await self.ask("GET", "/admin/identity-conflicts?status=open")
            self.assertEqual((status, page["total"]), (200, 0))

    async def _take(self) -> None:
        one, other, conflict = await self.conflict("P1")
        self.assertEqual([item["reference"] for item in conflict["candidate_resources"]], [one, other])
        self.assertEqual(conflict["keys"][0]["value"], "P1")
        row = (await self.ask("GET", f"/admin/messages/{conflict['message_id']}"))[1]
        self.assertTrue(row["last_error"].startswith("storing ADT_A"), row["last_error"])
        self.assertNotIn("P1", row["last_error"])
        done = await self.answer(conflict, "P1", {"answer": "take", "target": other, "reason": "asked"})
        self.assertEqual((done["retried"], done["converted_again"]), (1, 0))
        left, taken = await self.patients("P1")
        self.assertEqual((left["meta"]["versionId"], "telecom" in left), ("1", False))
        self.assertEqual(await self.phones(taken["id"]), ["+3", "+2", "+1", None])
        _, trace = await self.ask("GET", f"/admin/observe/trace/{row['correlation_id']}")
        (traced,) = trace["identity_conflicts"]
        shown = (traced["id"], traced["status"], traced["answer"], traced["target"])
        self.assertEqual(shown, (conflict["id"], "closed", "take", other))
        _, answers = await self.ask("GET", "/admin/identity-answers")
        self.assertEqual([(item["target"], item["reason"]) for item in answers["items"]], [(other, "asked")])

    async def _apart(self) -> None:
        _, _, conflict = await self.conflict("P2")
        done = await self.answer(conflict, "P2", {"answer": "apart"})
        patients = {f"Patient/{one['id']}": one for one in await self.patients("P2")}
        self.assertEqual(len(patients), 3)
        self.assertEqual([one["meta"]["versionId"] for one in patients.values()], ["1", "1", "3"])
        self.assertEqual(await self.phones(done["target"].partition("/")[2]), ["+3", "+2", "+1"])

    async def _merge(self) -> None:
        one, other, conflict = await self.conflict("P3")
        await self.answer(conflict, "P3", {"answer": "merge", "target": one})
        _, merged = await self.ask("GET", f"/fhir/{other}")
        self.assertEqual((merged["active"], merged["link"][0]["other"]["reference"]), (False, one))
        _, target = await self.ask("GET", f"/fhir/{one}")
        self.assertEqual(self.phone(target), "+3")
        _, visits = await self.ask("GET", f"/fhir/Encounter?subject={one}")
        self.assertEqual(visits["total"], 1)
        await self.until(self.is_audited, f"{other} {one}")
        _, found = await self.ask("GET", f"/fhir/Provenance?target={other}")
        told = [each["resource"] for each in found["entry"] if each["resource"].get("activity")]
        self.assertIn("merge", [each["activity"]["coding"][0]["code"] for each in told])

    async def is_audited(self, references: str) -> bool:
        """Whether each of both Patients has an AuditEvent of a merge."""
        totals = []
        for reference in references.split():
            _, found = await self.ask("GET", f"/fhir/AuditEvent?entity={reference}&subtype=operation")
            totals.append(found["total"])
        return all(totals)

    # -- steps

    async def pair(self, patient: str) -> list[str]:
        """Two stored Patients with one number."""
        references = []
        for _ in range(2):
            resource = {"resourceType": "Patient", "identifier": [{**self.identifier, "value": patient}]}
            status, created = await self.ask("POST", "/fhir/Patient", resource)
            self.assertEqual(status, 201, created)
            references.append(f"Patient/{created['id']}")
        return references

    async def conflict(self, patient: str) -> tuple[str, str, Json]:
        """Two stored Patients with one number, three messages about it: the references, and the open conflict."""
        references = await self.pair(patient)
        for number in (1, 2, 3):
            await self.send(f"{patient}-{number}", patient, f"+{number}")
        await self.until(self.is_waiting, f"{patient}-1")
        _, page = await self.ask("GET", "/admin/identity-conflicts?status=open")
        self.assertEqual([item["candidates"] for item in page["items"]], [references])
        states = [await self.message(f"{patient}-{number}") for number in (2, 3)]
        self.assertEqual([(one["status"], one["attempt_count"]) for one in states], [("RECEIVED", 0)] * 2)
        _, conflict = await self.ask("GET", f"/admin/identity-conflicts/{page['items'][0]['id']}")
        return references[0], references[1], conflict

    async def answer(self, conflict: Json, patient: str, body: Json) -> Json:
        """Answer it, and wait for the three messages."""
        status, done = await self.ask("POST", f"/admin/identity-conflicts/{conflict['id']}/answer", body)
        self.assertEqual((status, done.get("answer")), (200, body["answer"]), done)
        await self.all_delivered(patient)
        return done

    async def all_delivered(self, patient: str) -> None:
        for number in (1, 2, 3):
            await self.until(self.is_delivered, f"{patient}-{number}")

    async def send(self, control_id: str, patient: str, phone: str) -> None:
        segments = await answer_to(self.scenario.service.mllp_port, admission(control_id, patient, phone))
        self.assertEqual(segments[1], f"MSA|AA|{control_id}".encode())

    async def ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, Any]:
        return await asyncio.to_thread(self.scenario.service.request, method, path, body)

    async def message(self, control_id: str) -> Json:
        _, page = await self.ask("GET", f"/admin/messages?source_id={control_id}")
        row: Json = page["items"][0]
        return row

    async def is_delivered(self, control_id: str) -> bool:
        return (await self.message(control_id))["status"] == "DELIVERED"

    async def is_dead(self, control_id: str) -> bool:
        """A dead letter of one attempt."""
        row = await self.message(control_id)
        return (row["status"], row["attempt_count"]) == ("DEAD_LETTER", 1)

    async def is_waiting(self, control_id: str) -> bool:
        """Failed with a conflict, so that later messages are not tried."""
        return (await self.message(control_id))["permanent"] is True

    async def until(self, holds: Any, control_id: str) -> None:
        await until(lambda: holds(control_id))

    async def patients(self, value: str) -> list[Json]:
        """The Patients with this number, oldest first."""
        _, found = await self.ask("GET", f"/fhir/Patient?identifier={value}&_sort=_id")
        return [entry["resource"] for entry in found["entry"]]

    async def phones(self, id: str) -> list[str | None]:
        """The number of each version, newest first."""
        _, history = await self.ask("GET", f"/fhir/Patient/{id}/_history")
        return [self.phone(entry["resource"]) for entry in history["entry"]]

    def phone(self, patient: Json) -> str | None:
        """The first telephone number."""
        return next((one["value"] for one in patient.get("telecom", ())), None)
