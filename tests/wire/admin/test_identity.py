"""Identity conflicts over HTTP: the list, a conflict with its candidates, answers, and what they release."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID, uuid4

from twisted.logger import globalLogPublisher

from ipf.errors import Category, Problem
from ipf.ports import Claimed, Settlement, Status
from ipf.ports.identity import AnswerKind, ConflictKind, IdentityAnswer, IdentityFinding, IdentityKey
from ipf.rest.write.commit import commit
from ipf.rest.write.unit import Entry, Method, UnitResult, single
from ipf.telemetry.logs import record
from tests.wire.admin.operators import OperatorsTest, adt, now

MR = IdentityKey("urn:mrn", "MR", "4|711")
FINDING = IdentityFinding(
    ConflictKind.AMBIGUOUS, "Patient", (MR, IdentityKey("urn:ssn", "", "9")), ("Patient/a", "Patient/b"), None,
    "Bundle.entry[2]",
)  # fmt: skip
TAKE_A = {"answer": "take", "target": "Patient/a", "reason": "Hansen called"}


class IdentityTest(OperatorsTest):
    """On PostgreSQL; merges and answers are recorded by the test."""

    async def setUp(self) -> None:
        await super().setUp()
        self.rung: list[str] = []
        for name in ("inbox", "delivery"):
            self.notifier.subscribe(name, partial(self.rung.append, name))

    async def put(self, id: str, **members: Any) -> None:
        """Store a resource: a Patient unless members say otherwise."""
        resource = {"resourceType": "Patient", "id": id, **members}
        entry = Entry(Method.UPDATE, resource["resourceType"], id, resource)
        (result,) = await commit([single(entry, correlation_id=str(uuid4()))], self.fhir, self.matcher, now)
        self.assertIsInstance(result, UnitResult)

    async def conflict(
        self, finding: IdentityFinding = FINDING, status: Status = Status.FAILED, **message: Any
    ) -> tuple[Claimed, int]:
        """A message that fails with this finding, and the number of its conflict."""
        self.count = getattr(self, "count", 0) + 1
        await self.inbox.store([adt(self.count, **message)])
        (claim,) = await self.inbox.claim("w", 50)
        due = now() + timedelta(hours=1)
        await self.inbox.settle([
            Settlement(claim.id, claim.fence, status, 1, "hapi: permanent: x", due, permanent=True, conflict=finding)
        ])  # fmt: skip
        _, body = await self.ask("GET", f"/identity-conflicts?message_id={claim.id}&tenant=*")
        return claim, body["items"][0]["id"]

    async def stored(self) -> list[IdentityAnswer]:
        """The answers of all tenants, newest first."""
        return list((await self.answers.answers("*", 50, 0))[1])

    async def patients(self) -> None:
        """The candidates of FINDING."""
        await self.put(
            "a", active=True, birthDate="1970-05-17", gender="female",
            name=[{"family": "Hansen", "given": ["Kari", "M"]}],
            identifier=[{"system": "urn:mrn", "value": "4|711", "type": {"coding": [{"code": "MR"}]}}],
        )  # fmt: skip
        await self.put("b", name=[{"text": "K. Hansen"}])

    # -- reading

    async def test_a_conflict_says_what_to_do(self) -> None:
        """Query, candidates and answers; the list shows the same without the candidates' data."""
        await self.patients()
        claim, number = await self.conflict()
        _, page = await self.ask("GET", "/identity-conflicts")
        self.assertEqual((page["total"], page["limit"], page["offset"]), (1, 50, 0))
        status, body = await self.ask("GET", f"/identity-conflicts/{number}")
        resources = body.pop("candidate_resources")
        self.assertEqual((status, body), (200, page["items"][0]))
        query = dict(parse_qsl(urlsplit(body["query"]).query))
        self.assertEqual((body["query"].split("?")[0], query), ("Patient", {"identifier": "urn:mrn|4\\|711,urn:ssn|9"}))
        for word in ("merge", "take", "apart"):
            self.assertIn(f"{word}: ", body["what_to_do"])
        self.assertEqual(body["keys"][0], {"system": "urn:mrn", "type": "MR", "value": "4|711"})
        self.assertEqual((body["status"], body["message_id"], body["message_status"]), ("open", claim.id, "FAILED"))
        self.assertEqual([one["names"] for one in resources], [["Kari M Hansen"], ["K. Hansen"]])
        first = {"reference": "Patient/a", "active": True, "birth_date": "1970-05-17", "gender": "female"}
        self.assertEqual({name: resources[0][name] for name in first}, first)
        identifier = {"system": "urn:mrn", "type": "MR", "value": "4|711", "use": None}
        self.assertEqual(resources[0]["identifiers"], [identifier])

    async def test_a_candidate_that_is_gone(self) -> None:
        await self.put("a")
        _, number = await self.conflict()
        _, body = await self.ask("GET", f"/identity-conflicts/{number}")
        self.assertEqual([one["exists"] for one in body["candidate_resources"]], [True, False])

    async def test_filters(self) -> None:
        """They combine; another tenant is not shown."""
        await self.conflict(ordering_key=1)
        await self.conflict(replace(FINDING, resource_type="Encounter"), ordering_key=2, source_system="RIS")
        await self.conflict(ordering_key=3, tenant="north")
        for query, total in (
            ("", 2), ("status=open", 2), ("status=closed", 0), ("resource_type=Encounter", 1), ("source_system=RIS", 1),
            ("source_system=RIS&resource_type=Patient", 0), ("tenant=north", 1), ("tenant=*", 3), ("message_id=1", 1),
        ):  # fmt: skip
            self.assertEqual((await self.ask("GET", f"/identity-conflicts?{query}"))[1]["total"], total, query)
        for path, status, code in (
            ("?status=new", 400, "invalid_status"), ("?message_id=x", 400, "bad_request"), ("/x", 400, "bad_request"),
            ("?resource_type=%00", 400, "bad_request"), ("/99", 404, "not_found"),
        ):  # fmt: skip
            found, body = await self.ask("GET", f"/identity-conflicts{path}")
            self.assertEqual((found, body["error"]), (status, code), path)

    # -- answers

    async def test_take(self) -> None:
        """The answer is stored for the first identifier, the message is retried; the log names no reason."""
        await self.patients()
        claim, number = await self.conflict(status=Status.DEAD_LETTER)
        lines: list[Any] = []
        globalLogPublisher.addObserver(lines.append)
        self.addCleanup(globalLogPublisher.removeObserver, lines.append)
        status, body = await self.ask("POST", f"/identity-conflicts/{number}/answer", TAKE_A)
        self.assertEqual(
            (status, body["status"], body["answer"], body["target"]), (200, "answered", "take", "Patient/a")
        )
        self.assertEqual((body["retried"], body["converted_again"], body["answered_by"]), (1, 0, "admin token"))
        (stored,) = await self.stored()
        self.assertEqual((stored.resource_type, stored.key, stored.resource_id), ("Patient", MR.text, "a"))
        self.assertEqual((stored.kind, stored.reason, stored.tenant), (AnswerKind.TAKE, "Hansen called", "default"))
        self.assertEqual((self.merged, self.rung[-1:]), ([], ["inbox"]))
        self.assertEqual([one.id for one in await self.inbox.claim("w", 50)], [claim.id])
        said = [record(line)["message"] for line in lines if "audit_event" in str(record(line)["message"])]
        self.assertEqual(len(said), 1)
        self.assertIn("audit_event=identity_conflict_answered", said[0])
        self.assertNotIn("Hansen", said[0])
        self.assertNotIn("4|711", said[0])

    async def test_a_person_answers(self) -> None:
        """The person whom the console names is the author of the answer and of the merge."""
        await self.patients()
        _, number = await self.conflict()
        path = f"/identity-conflicts/{number}/answer"
        _, body = await self.ask("POST", path, TAKE_A | {"answer": "merge"}, X_Ipf_Actor="Zo%C3%AB Lang")
        self.assertEqual(body["answered_by"], "Zoë Lang")
        self.assertEqual([one.answered_by for one in await self.stored()], ["Zoë Lang"])
        self.assertEqual({one[3] for one in self.merged}, {"Zoë Lang"})

    async def test_apart(self) -> None:
        """The identifier gets a new id, the same one when the answer is repeated; the Patients stay as they are."""
        await self.patients()
        _, number = await self.conflict()
        path = f"/identity-conflicts/{number}/answer"
        targets = [(await self.ask("POST", path, {"answer": "apart"}))[1]["target"] for _ in range(2)]
        (stored,) = await self.stored()
        self.assertEqual(targets, [f"Patient/{stored.resource_id}"] * 2)
        self.assertEqual((str(UUID(stored.resource_id)), self.merged), (stored.resource_id, []))

    async def test_merge(self) -> None:
        """Every other candidate goes into the target; then the answer is stored and messages go on."""
        await self.patients()
        await self.put("c")
        finding = replace(FINDING, candidates=("Patient/a", "Patient/b", "Patient/c", "Patient/gone"))
        _, number = await self.conflict(finding)
        wanted = {"answer": "merge", "target": "Patient/b", "reason": "one"}
        _, body = await self.ask("POST", f"/identity-conflicts/{number}/answer", wanted)
        self.assertEqual([one[1:3] for one in self.merged], [("a", "b"), ("c", "b")])
        self.assertEqual({(one[0], *one[3:5]) for one in self.merged}, {("default", "admin token", "one")})
        (stored,) = await self.stored()
        self.assertEqual((body["retried"], stored.resource_id), (1, "b"))
        self.assertIn("delivery", self.rung)

    async def test_a_merge_that_was_interrupted(self) -> None:
        """The same answer completes it: what is merged already is no error; what another merge did is."""
        await self.put("a", link=[{"type": "replaced-by", "other": {"reference": "Patient/b"}}])
        await self.put("b")
        _, number = await self.conflict()

        async def done(*merge: str) -> None:
            raise Problem(Category.BUSINESS_RULE, "merged already")

        self.merge = done  # type: ignore[method-assign]
        await self._listen(None)
        wanted = {"answer": "merge", "target": "Patient/b"}
        status, _ = await self.ask("POST", f"/identity-conflicts/{number}/answer", wanted)
        self.assertEqual((status, len(await self.stored())), (200, 1))
        await self.put("a", link=[{"type": "replaced-by", "other": {"reference": "Patient/z"}}])
        for target in ("Patient/a", "Patient/b"):
            wanted["target"] = target
            status, body = await self.ask("POST", f"/identity-conflicts/{number}/answer", wanted)
            self.assertEqual((status, "Patient/z" in body["message"]), (409, True))

    async def test_a_merge_that_is_refused(self) -> None:
        """Nothing is answered, and the conflict stays open."""
        await self.patients()
        _, number = await self.conflict()

        async def refused(*merge: str) -> None:
            raise Problem(Category.BUSINESS_RULE, "the source is a subject of an open export")

        self.merge = refused  # type: ignore[method-assign]
        await self._listen(None)
        wanted = {"answer": "merge", "target": "Patient/b"}
        status, _ = await self.ask("POST", f"/identity-conflicts/{number}/answer", wanted)
        self.assertEqual((status, await self.stored()), (422, []))
        _, body = await self.ask("GET", f"/identity-conflicts/{number}")
        self.assertEqual(body["status"], "open")

    async def test_refusals(self) -> None:
        """400 names what is wrong; 404; 409 when the target is gone or nothing waits."""
        await self.put("a")
        _, number = await self.conflict()
        _, visit = await self.conflict(
            replace(FINDING, resource_type="Encounter", candidates=("Encounter/v",)), ordering_key=8
        )
        for which, body, status, text in (
            (number, {}, 400, "merge, apart, take"),
            (number, {"answer": "maybe"}, 400, "merge, apart, take"),
            (number, {"answer": "take"}, 400, "Patient/a, Patient/b"),
            (number, {"answer": "take", "target": "Patient/z"}, 400, "Patient/a, Patient/b"),
            (number, {"answer": "apart", "target": "Patient/a"}, 400, "no target"),
            (number, {"answer": "take", "target": 7}, 400, "target must be"),
            (number, {"answer": "take", "reason": "x" * 1001}, 400, "reason must be"),
            (number, {"answer": "take", "why": "x"}, 400, "JSON object"),
            (number, [], 400, "JSON object"),
            (number, {"answer": "take", "target": "Patient/b"}, 409, "does not exist"),
            (visit, {"answer": "merge", "target": "Encounter/v"}, 400, "only Patients"),
            (99, TAKE_A, 404, "no identity conflict"),
        ):
            found, shown = await self.ask("POST", f"/identity-conflicts/{which}/answer", body)
            self.assertEqual((found, text in shown["message"]), (status, True), (body, shown))
        self.assertEqual((await self.stored(), self.merged), ([], []))
        await self.inbox.retry(1)
        (claim,) = await self.inbox.claim("w", 50)
        await self.inbox.settle([Settlement(claim.id, claim.fence, Status.DELIVERED)])
        status, body = await self.ask("POST", f"/identity-conflicts/{number}/answer", TAKE_A)
        self.assertEqual((status, "closed" in body["message"]), (409, True))

    async def test_answers_can_be_revoked(self) -> None:
        """The list, newest first; a revoked one is gone."""
        await self.patients()
        _, number = await self.conflict()
        await self.ask("POST", f"/identity-conflicts/{number}/answer", TAKE_A)
        _, page = await self.ask("GET", "/identity-answers")
        (item,) = page["items"]
        shown = {
            "resource_type": "Patient",
            "key": MR.text,
            "answer": "take",
            "target": "Patient/a",
            "tenant": "default",
        }
        self.assertEqual({name: item[name] for name in shown}, shown)
        self.assertEqual((await self.ask("DELETE", f"/identity-answers/{item['id']}?tenant=north"))[0], 404)
        self.assertEqual((await self.ask("DELETE", f"/identity-answers/{item['id']}"))[0], 204)
        self.assertEqual((await self.ask("GET", "/identity-answers"))[1]["total"], 0)
        self.assertEqual((await self.ask("DELETE", "/identity-answers/x"))[0], 400)
