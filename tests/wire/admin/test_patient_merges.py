"""Merges of Patients through the admin API: functions on values, over the FHIR server's merge."""

from __future__ import annotations

from typing import Any

from ipf.app.listeners.patient_merges import patient_merge_admin
from ipf.errors import Problem
from ipf.fhir.model.json import dumps, loads
from ipf.ports import Answer, Json, Request
from ipf.wire.admin.messages import refusal
from ipf.wire.admin.patients.merges import merge, undo
from tests.pipeline.test_worker import MemoryNotifier
from tests.rest.world import BASE, CORRELATION_ID, OnPostgres
from tests.wire.admin.operators import check

BODY: Json = {"source": "Patient/s", "target": "Patient/t", "reason": "checked"}


class PatientMergeTests(OnPostgres):
    async def setUp(self) -> None:
        await super().setUp()
        self.seen: list[tuple[Request, Answer]] = []
        self.rung: list[str] = []
        notifier = MemoryNotifier()
        notifier.subscribe("delivery", lambda: self.rung.append("delivery"))
        self.admin = patient_merge_admin(
            self.world.repository, notifier, "admin token", lambda request, answer, began: self.note(request, answer)
        )
        for resource in (
            {"resourceType": "Patient", "id": "s"},
            {"resourceType": "Patient", "id": "t"},
            {"resourceType": "Basic", "id": "b", "code": {"text": "x"}, "subject": {"reference": "Patient/s"}},
        ):
            answer = await self.world.send("PUT", f"{resource['resourceType']}/{resource['id']}", resource)
            self.assertEqual(answer.status, 201)

    def note(self, request: Request, answer: Answer) -> None:
        """What the audit trail gets."""
        self.seen.append((request, answer))

    async def ask(self, path: str, body: Any, query: tuple[tuple[str, str], ...] = ()) -> tuple[int, Any]:
        """The response, checked against the OpenAPI document."""
        request = Request("POST", tuple(path.split("/")), query, {}, dumps(body), BASE, CORRELATION_ID)
        try:
            answer = await (undo if path.endswith("/undo") else merge)(self.admin, request)
        except Problem as problem:
            answer = refusal(problem)
        shown = loads(answer.body)
        check("POST", f"/admin/{path}", answer.status, shown)
        return answer.status, shown

    async def subject(self) -> str:
        """Whom the resource is about."""
        found: str = (await self.world.body("Basic/b"))["subject"]["reference"]
        return found

    async def test_merge_and_back(self) -> None:
        found = {"source": "Patient/s", "target": "Patient/t", "tenant": "default"}
        status, body = await self.ask("patient-merges", {**BODY, "preview": True})
        self.assertEqual((status, body), (200, {**found, "preview": True, "moved": {"Basic": 1}}))
        self.assertEqual((await self.subject(), self.seen, self.rung), ("Patient/s", [], []))
        status, body = await self.ask("patient-merges", BODY)
        self.assertEqual((status, body), (200, {**found, "preview": False, "moved": {"Basic": 1}}))
        self.assertEqual((await self.subject(), self.rung), ("Patient/t", ["delivery"]))
        status, body = await self.ask("patient-merges/undo", BODY)
        self.assertEqual((status, body), (200, {**found, "preview": False, "moved": {"Basic": 1}}))
        self.assertEqual(await self.subject(), "Patient/s")
        told = [
            ("/".join(request.path), request.caller.subject, [one.id for one in answer.about])
            for request, answer in self.seen
        ]
        self.assertEqual(told, [("Patient/$merge", "admin token", ["s", "t"]),
                                ("Patient/t/$unmerge", "admin token", ["s", "t"])])  # fmt: skip
        provenances = loads((await self.world.send("GET", "Provenance?_count=10")).body)["entry"]
        self.assertEqual(
            [(one["resource"]["agent"], one["resource"]["reason"]) for one in provenances],
            [([{"who": {"display": "admin token"}}], [{"text": "checked"}])] * 2,
        )

    async def test_refusals(self) -> None:
        for path, body, status, text in (
            ("patient-merges", {}, 400, "source must be a reference such as Patient/a1"),
            ("patient-merges", {**BODY, "target": "t"}, 400, "target must be a reference"),
            ("patient-merges", {**BODY, "target": "Encounter/t"}, 400, "target must be a reference"),
            ("patient-merges", {**BODY, "force": True}, 400, "the body is a JSON object with source, target"),
            ("patient-merges", {**BODY, "preview": "yes"}, 400, "preview must be true or false"),
            ("patient-merges", {**BODY, "reason": "a\nb"}, 400, "reason must be a text"),
            ("patient-merges", {**BODY, "target": "Patient/s"}, 422, "are the same Patient"),
            ("patient-merges", {**BODY, "target": "Patient/none"}, 404, "Patient/none does not exist"),
            ("patient-merges/undo", BODY, 422, "Patient/s is not merged into Patient/t"),
            ("patient-merges/undo", {**BODY, "preview": True}, 400, "the body is a JSON object with source, target"),
        ):
            found, shown = await self.ask(path, body)
            self.assertEqual(found, status, (body, shown))
            self.assertIn(text, shown["message"])
        status, shown = await self.ask("patient-merges", BODY, (("tenant", "*"),))
        self.assertEqual((status, shown["message"]), (400, "a merge is within one tenant"))
        status, shown = await self.ask("patient-merges", BODY, (("tenant", "north"),))
        self.assertEqual((status, shown["message"]), (404, "Patient/s does not exist"))
        self.assertEqual((self.seen, await self.subject()), ([], "Patient/s"))
