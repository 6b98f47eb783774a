"""`_include` and `_revinclude` of canonical URLs."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from ipf.ports import OPEN, Caller, Json
from tests.rest.world import OnMemory, OnSharedPostgres, Suite, World

Q, M, P = "http://a.example/Questionnaire/q", "http://a.example/Measure/m", "http://a.example/plan"


def definition(kind: str, id: str, url: str | None, version: str | None = None, **members: Any) -> Json:
    """A resource with a canonical URL."""
    named = {name: value for name, value in (("url", url), ("version", version)) if value is not None}
    return {"resourceType": kind, "id": id, "status": "active", **named, **members}


def answers(id: str, questionnaire: str) -> Json:
    """A QuestionnaireResponse."""
    return {"resourceType": "QuestionnaireResponse", "id": id, "status": "completed", "questionnaire": questionnaire}


WORLD = [
    definition("Questionnaire", "q1", Q, "1"),
    definition("Questionnaire", "q2", Q, "2"),
    definition("Questionnaire", "plain", None),
    definition("Measure", "m", M),
    definition("Measure", "same-url", Q, "1"),
    definition("PlanDefinition", "p", P, library=["http://a.example/lib|1.0"]),
    definition("Library", "lib", "http://a.example/lib", "1.0", type={"text": "x"}),
    definition("Library", "later", "http://a.example/lib", "1.0.1", type={"text": "x"}),
    answers("one", f"{Q}|1"),
    answers("any", Q),
    answers("three", f"{Q}|3"),
    answers("other", f"{Q}x"),
    answers("local", "Questionnaire/plain"),
    answers("by-url", "http://localhost:8090/fhir/Questionnaire/plain"),
    {"resourceType": "MeasureReport", "id": "mr", "status": "complete", "type": "summary", "measure": M,
     "period": {"start": "2026-01-01"}},
    {"resourceType": "CarePlan", "id": "cp", "status": "active", "intent": "plan",
     "subject": {"reference": "Patient/x"},
     "instantiatesCanonical": [P, f"{Q}|2"]},
]  # fmt: skip

INCLUDES = [
    ("QuestionnaireResponse?_id=one&_include=QuestionnaireResponse:questionnaire", ["Questionnaire/q1"]),
    ("QuestionnaireResponse?_id=any&_include=QuestionnaireResponse:questionnaire",
     ["Questionnaire/q1", "Questionnaire/q2"]),
    ("QuestionnaireResponse?_id=any&_include=QuestionnaireResponse:questionnaire:Questionnaire",
     ["Questionnaire/q1", "Questionnaire/q2"]),
    ("QuestionnaireResponse?_id=any&_include=QuestionnaireResponse:questionnaire:Measure", []),
    ("QuestionnaireResponse?_id=three,other&_include=QuestionnaireResponse:questionnaire", []),
    ("QuestionnaireResponse?_id=local,by-url&_include=QuestionnaireResponse:questionnaire", ["Questionnaire/plain"]),
    ("QuestionnaireResponse?_id=one&_include=*", ["Questionnaire/q1"]),
    ("MeasureReport?_include=MeasureReport:measure", ["Measure/m"]),
    ("CarePlan?_include=CarePlan:instantiates-canonical", ["PlanDefinition/p", "Questionnaire/q2"]),
    ("CarePlan?_include=CarePlan:instantiates-canonical:PlanDefinition", ["PlanDefinition/p"]),
    ("CarePlan?_include=CarePlan:instantiates-canonical&_include:iterate=PlanDefinition:depends-on",
     ["Library/lib", "PlanDefinition/p", "Questionnaire/q2"]),
    ("Questionnaire?_id=q1&_revinclude=QuestionnaireResponse:questionnaire",
     ["QuestionnaireResponse/any", "QuestionnaireResponse/one"]),
    ("Questionnaire?_id=q2&_revinclude=QuestionnaireResponse:questionnaire", ["QuestionnaireResponse/any"]),
    ("Questionnaire?_id=plain&_revinclude=QuestionnaireResponse:questionnaire", ["QuestionnaireResponse/local"]),
    ("Questionnaire?_id=q2&_revinclude=*", ["CarePlan/cp", "QuestionnaireResponse/any"]),
    ("Library?_id=lib&_revinclude=PlanDefinition:depends-on", ["PlanDefinition/p"]),
    ("Library?_id=later&_revinclude=PlanDefinition:depends-on", []),
    ("Measure?_revinclude=MeasureReport:measure", ["MeasureReport/mr"]),
]  # fmt: skip


class CanonicalIncludeSuite(Suite):
    world: World

    async def setUp(self) -> None:
        await super().setUp()
        for one in WORLD:
            answer = await self.world.send("PUT", f"{one['resourceType']}/{one['id']}", one)
            self.assertEqual(answer.status, 201, answer.body)

    async def included(self, url: str) -> list[str]:
        """`Type/id` of what is included."""
        answer = await self.world.send("GET", url)
        self.assertEqual(answer.status, 200, answer.body)
        found = [one["resource"] for one in loads(answer.body)["entry"] if one["search"]["mode"] == "include"]
        return sorted(f"{one['resourceType']}/{one['id']}" for one in found)

    async def test_included(self) -> None:
        for url, expected in INCLUDES:
            self.assertEqual(await self.included(url), expected, url)

    async def test_limits_of_the_caller(self) -> None:
        """What the caller does not see is not included."""
        ask = "QuestionnaireResponse?_id=any&_include=QuestionnaireResponse:questionnaire"
        back = "Questionnaire?_id=q1&_revinclude=QuestionnaireResponse:questionnaire"
        self.addCleanup(setattr, self.world, "caller", OPEN)
        for scopes, url, expected in (
            ("system/QuestionnaireResponse.rs", ask, []),
            ("system/QuestionnaireResponse.rs system/Questionnaire.rs?version=2", ask, ["Questionnaire/q2"]),
            ("system/Questionnaire.rs", back, []),
            ("system/Questionnaire.rs system/QuestionnaireResponse.rs?_id=any", back, ["QuestionnaireResponse/any"]),
        ):
            self.world.caller = Caller("ada", "app", tuple(scopes.split()))
            self.assertEqual(await self.included(url), expected, (scopes, url))

    async def test_limit_of_a_page(self) -> None:
        self.world.max_page_size = 1
        answer = await self.world.send(
            "GET", "QuestionnaireResponse?_id=any&_include=QuestionnaireResponse:questionnaire"
        )
        modes = [one["search"]["mode"] for one in loads(answer.body)["entry"]]
        self.assertEqual(sorted(modes), ["include", "match", "outcome"])


class CanonicalIncludeMemoryTests(CanonicalIncludeSuite, OnMemory):
    pass


class CanonicalIncludePostgresTests(CanonicalIncludeSuite, OnSharedPostgres):
    """SQL includes."""
