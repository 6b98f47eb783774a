"""$fhirpath: a FHIRPath expression on a resource that the client sends."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from ipf.fhir.model.packages import Packages
from ipf.ports import Caller, Json
from ipf.rest.resource_operations.fhirpath import MOST_CONTEXTS
from ipf.rest.resource_operations.fhirpath_results import MOST_ITEMS
from ipf.rest.write.conformance import Conformance
from ipf.security.audit.rules import FHIR, AuditRules, interaction_of
from tests.rest.world import OnMemory, issues

JSON_VALUE = "http://fhir.forms-lab.com/StructureDefinition/json-value"
VALUE_SET = "http://x.test/ValueSet/mine"
PATIENT: Json = {
    "resourceType": "Patient",
    "id": "p",
    "birthDate": "1970-01-01",
    "_birthDate": {"extension": [{"url": "http://x.test/e", "valueBoolean": True}]},
    "name": [{"family": "A", "given": ["B", "C"]}, {"family": "D"}],
    "contact": [{"name": {"family": "E"}}],
    "contained": [{"resourceType": "Organization", "id": "o", "name": "Clinic"}],
    "managingOrganization": {"reference": "#o"},
    "generalPractitioner": [{"reference": "Practitioner/1"}],
    "multipleBirthInteger": 2,
}
PARTS: tuple[tuple[str, list[Json]], ...] = (
    ("name.given", [{"name": "string", "valueString": "B"}, {"name": "string", "valueString": "C"}]),
    ("name.family.first() & '!'", [{"name": "string", "valueString": "A!"}]),
    ("name.exists()", [{"name": "boolean", "valueBoolean": True}]),
    ("name.count()", [{"name": "integer", "valueInteger": 2}]),
    ("1.50", [{"name": "decimal", "valueDecimal": 1.5}]),
    ("@2020-02", [{"name": "date", "valueDate": "2020-02"}]),
    ("@2020-02-03T10:00:00Z", [{"name": "dateTime", "valueDateTime": "2020-02-03T10:00:00Z"}]),
    ("@2020-02-03T10", [{"name": "dateTime", "valueString": "2020-02-03T10"}]),  # R4 has no such dateTime
    ("@T10:00:00", [{"name": "time", "valueTime": "10:00:00"}]),
    ("2 'mg'", [{"name": "Quantity", "valueQuantity":
                 {"value": 2, "unit": "mg", "system": "http://unitsofmeasure.org", "code": "mg"}}]),
    ("2 days", [{"name": "Quantity", "valueQuantity": {"value": 2, "unit": "days"}}]),
    ("name.last()", [{"name": "HumanName", "valueHumanName": {"family": "D"}}]),
    ("contact", [{"name": "Patient.contact",
                  "extension": [{"url": JSON_VALUE, "valueString": '{"name":{"family":"E"}}'}]}]),
    ("managingOrganization.resolve()", [{"name": "Organization", "resource": PATIENT["contained"][0]}]),
    ("generalPractitioner.resolve()", []),
    ("multipleBirth", [{"name": "integer", "valueInteger": 2}]),
    ("birthDate", [{"name": "date", "valueDate": "1970-01-01", "_valueDate": PATIENT["_birthDate"]}]),
    ("''", [{"name": "empty-string"}]),
    ("1.type()", [{"name": "TypeInfo",
                   "extension": [{"url": JSON_VALUE, "valueString": '{"namespace":"System","name":"Integer"}'}]}]),
    ("name.family.trace('t').count()", [
        {"name": "integer", "valueInteger": 2},
        {"name": "trace", "valueString": "t",
         "part": [{"name": "string", "valueString": "A"}, {"name": "string", "valueString": "D"}]}]),
    ("photo", []),
    ("%n & %resource.id & %rootResource.id", [{"name": "string", "valueString": "xpp"}]),
    ("%q.value", [{"name": "decimal", "valueDecimal": 3}]),
)  # fmt: skip
VARIABLES: Json = {"name": "variables", "part": [
    {"name": "n", "valueString": "x"}, {"name": "q", "valueQuantity": {"value": 3}},
]}  # fmt: skip


def asked(expression: Any, resource: Json | None = PATIENT, *more: Json, **texts: str) -> Json:
    """The Parameters of a call."""
    texts = {"expression": expression, **texts} if isinstance(expression, str) else texts
    found: list[Json] = [{"name": name, "valueString": text} for name, text in texts.items()]
    if resource is not None:
        found.append({"name": "resource", "resource": resource})
    return {"resourceType": "Parameters", "parameter": [*found, *more]}


class FhirPathTests(OnMemory):
    async def results(self, expression: str, *more: Json, resource: Json = PATIENT, **texts: str) -> list[Json]:
        """The parameters `result`."""
        answer = await self.world.send("POST", "$fhirpath", asked(expression, resource, *more, **texts))
        self.assertEqual(answer.status, 200, (expression, answer.body))
        return [one for one in loads(answer.body)["parameter"] if one["name"] == "result"]

    async def test_items_have_their_types(self) -> None:
        for expression, wanted in PARTS:
            (found,) = await self.results(expression, VARIABLES)
            self.assertEqual(found.get("part", []), wanted, expression)

    async def test_for_each_item_of_a_context(self) -> None:
        text = "given.trace('g').join(' ') | %context.family | %resource.id"
        found = await self.results(text, context="name")
        self.assertEqual([one["valueString"] for one in found], ["name[0]", "name[1]"])
        values = [[part.get("valueId", part.get("valueString")) for part in one["part"]] for one in found]
        self.assertEqual(values, [["B C", "A", "p", "g"], ["D", "p", "g"]])
        self.assertEqual(await self.results("1", context="photo"), [])

    async def test_the_answer_says_what_was_asked(self) -> None:
        body = asked("id", PATIENT, {"name": "validate", "valueBoolean": True}, context="$this")
        answer = loads((await self.world.send("POST", "$fhirpath", body)).body)
        parts = answer["parameter"][0]["part"]
        self.assertEqual([one["name"] for one in parts], ["evaluator", "expression", "context", "resource"])
        self.assertEqual(parts[3]["resource"], PATIENT)

    async def test_refused(self) -> None:
        many, wide = (
            {"resourceType": "Basic", "extension": [{"url": "http://x.test/e"}] * (most + 1)}
            for most in (MOST_CONTEXTS, MOST_ITEMS)
        )
        long = {"resourceType": "Basic", "id": "x", "extension": [{"url": "http://x.test/" + "e" * 9000}] * 20}
        for body, status, code, place in (
            (asked(None), 400, "required", "expression"),
            (asked("id", None), 400, "required", "resource"),
            (asked("id +"), 400, "value", "expression"),
            (asked("nothing()"), 400, "value", "expression"),
            (asked("id", PATIENT, context="id +"), 400, "value", "context"),
            (asked("name.family + 1"), 422, "invalid", "expression"),
            (asked("%unknown"), 422, "invalid", "expression"),
            (asked("1", PATIENT, context="%unknown"), 422, "invalid", "context"),
            (asked("repeat($this & 'x')"), 422, "invalid", "expression"),
            (asked("1", many, context="extension"), 400, "too-costly", "context"),
            (asked("extension", wide), 400, "too-costly", "expression"),
            (asked("extension.select(%resource)", {**long, "text": {"status": "empty", "div": "x" * 1_000_000}}),
             400, "too-costly", "expression"),
            (asked("id", {"resourceType": "Patient", "nonsense": 1}), 400, "structure",
             "Parameters.parameter[1].resource.nonsense"),
            (asked("id", PATIENT, {"name": "other", "valueString": "x"}), 400, "not-supported", "Parameters.parameter"),
            (asked("id", PATIENT, {"name": "expression", "valueString": "x"}), 400, "value", "expression"),
            (asked(None, PATIENT, {"name": "expression", "valueInteger": 1}), 400, "value", "expression"),
            (asked("id", PATIENT, {"name": "variables", "part": [{"name": "resource", "valueInteger": 1}]}),
             400, "value", "variables"),
            (PATIENT, 400, "value", "resourceType"),
        ):  # fmt: skip
            answer = await self.world.send("POST", "$fhirpath", body)
            self.assertEqual(
                (answer.status, issues(answer)[0][0], issues(answer)[0][2]), (status, code, place), str(body)[:400]
            )
        self.assertEqual((await self.world.send("GET", "$fhirpath")).status, 405)
        self.assertEqual((await self.world.send("POST", "$fhirpath?x=1", asked("id"))).status, 400)

    async def test_steps_are_shared_by_the_items_of_a_context(self) -> None:
        """A thousand items do not make a thousand evaluations of a million steps."""
        hundred = "(" + " | ".join(str(number) for number in range(100)) + ")"
        text = f"{hundred}.select({hundred}.where($this > 1000)).empty()"
        self.assertEqual(len(await self.results(text)), 1)
        body = asked(text, PATIENT, context=hundred)
        self.assertEqual((await self.world.send("POST", "$fhirpath", body)).status, 422)

    async def test_stored_resources_are_not_read(self) -> None:
        await self.world.send("PUT", "Practitioner/1", {"resourceType": "Practitioner", "id": "1"})
        self.assertEqual(await self.results("generalPractitioner.resolve()"), [{"name": "result"}])

    async def test_definitions(self) -> None:
        """Those of the server for everybody, the stored ones for those who may see them all."""
        self.world.conformance = Conformance(Packages, self.world.store, lambda: self.world.now)
        stored = {"resourceType": "ValueSet", "id": "v", "url": VALUE_SET, "status": "active",
                  "compose": {"include": [{"system": "urn:s", "concept": [{"code": "a"}]}]}}  # fmt: skip
        self.assertEqual((await self.world.send("PUT", "ValueSet/v", stored)).status, 201)
        coded = {"resourceType": "Basic", "code": {"coding": [{"system": "urn:s", "code": "a"}]}}
        mine, shipped = f"code.memberOf('{VALUE_SET}')", "name.given.elementDefinition().path.distinct()"
        yes = [{"name": "boolean", "valueBoolean": True}]
        path = [{"name": "string", "valueString": "HumanName.given"}]
        for caller, wanted in (
            (self.world.caller, yes),
            (Caller("ada", "app", ("system/*.rs",)), yes),
            (Caller("ada", "app", ("system/Patient.rs",)), []),
            (Caller("ada", "app", ("system/*.rs?_id=1",)), []),
        ):
            self.world.caller = caller
            self.assertEqual((await self.results(mine, resource=coded))[0].get("part", []), wanted, caller.scopes)
            self.assertEqual((await self.results(shipped))[0]["part"], path, caller.scopes)

    async def test_in_a_batch(self) -> None:
        """As an entry, like every operation that only reads."""
        entry = {"request": {"method": "POST", "url": "$fhirpath"}, "resource": asked("id")}
        body = {"resourceType": "Bundle", "type": "batch", "entry": [entry]}
        answer = loads((await self.world.send("POST", "", body)).body)
        self.assertEqual(answer["entry"][0]["response"]["status"][:3], "200", answer)

    async def test_stated_and_audited(self) -> None:
        statement = loads((await self.world.send("GET", "metadata")).body)
        self.assertIn("fhirpath", [one["name"] for one in statement["rest"][0]["operation"]])
        request = self.world.request("POST", "$fhirpath", asked("id"))
        name = interaction_of(request)
        kept = [AuditRules(reads=reads).surface(name, request, 200) for reads in (True, False)]
        self.assertEqual((name, kept), ("operation", [FHIR, None]))
