"""Terminology operations on loaded code systems, and value sets in searches."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from ipf.fhir.model.json import loads
from ipf.fhir.model.packages import Packages
from ipf.ports import Caller, Json
from ipf.rest.terminology.searches import TenantTerminology
from ipf.rest.write.conformance import Conformance
from tests.rest.world import OnMemory, OnPostgres, Suite, World

VS = "http://hl7.org/fhir/ValueSet/"
GENDER = "http://hl7.org/fhir/administrative-gender"
OWN: Json = {
    "resourceType": "CodeSystem",
    "id": "own",
    "url": "http://x.test/cs",
    "status": "active",
    "content": "complete",
    "concept": [
        {"code": "a", "display": "Letter A", "concept": [{"code": "a1", "display": "A one"}, {"code": "a2"}]},
        {"code": "b"},
    ],
}
OWN_SET: Json = {
    "resourceType": "ValueSet",
    "id": "own",
    "url": "http://x.test/vs",
    "status": "active",
    "compose": {
        "include": [{"system": "http://x.test/cs", "filter": [{"property": "concept", "op": "is-a", "value": "a"}]}],
        "exclude": [{"system": "http://x.test/cs", "concept": [{"code": "a2"}]}],
    },
}
OWN_MAP: Json = {
    "resourceType": "ConceptMap",
    "id": "own",
    "url": "http://x.test/map",
    "status": "active",
    "group": [
        {
            "source": "http://x.test/cs",
            "target": GENDER,
            "element": [{"code": "a", "target": [{"code": "female", "equivalence": "wider"}]}],
        }
    ],
}


def validated(world: World) -> None:
    """Give the world's server definitions, and its searches value sets."""
    world.conformance = Conformance(Packages, world.store, lambda: world.now)
    world.terminology = TenantTerminology(world.conformance)


def said(answer: Any) -> dict[str, Any]:
    """Parameters by name; the last of each."""
    values = loads(answer.body)["parameter"]
    return {one["name"]: next((item for name, item in one.items() if name != "name"), None) for one in values}


class TerminologyTests(OnMemory):
    """Tables of requests."""

    async def test_expand(self) -> None:
        validated(self.world)
        answer = await self.world.send("GET", f"ValueSet/$expand?url={VS}administrative-gender")
        expansion = loads(answer.body)["expansion"]
        codes = [one["code"] for one in expansion["contains"]]
        self.assertEqual((answer.status, expansion["total"], codes), (200, 4, ["male", "female", "other", "unknown"]))
        answer = await self.world.send("GET", "ValueSet/administrative-gender/$expand?filter=MALE&count=1")
        expansion = loads(answer.body)["expansion"]
        self.assertEqual((expansion["total"], len(expansion["contains"])), (2, 1))
        sent = {"resourceType": "Parameters", "parameter": [{"name": "valueSet", "resource": OWN_SET}]}
        self.assertEqual((await self.world.send("POST", "ValueSet/$expand", sent)).status, 400)  # cs is not loaded
        answer = await self.world.send("GET", f"ValueSet/$expand?url={VS}condition-code")
        self.assertIn("http://snomed.info/sct", loads(answer.body)["issue"][0]["diagnostics"])
        rows = [
            (f"ValueSet/$expand?url={VS}nothing", 404),
            (f"ValueSet/$expand?url={VS}condition-code", 400),  # SNOMED CT
            ("ValueSet/$expand", 400),
            (f"ValueSet/$expand?url={VS}administrative-gender&count=x", 400),
            (f"ValueSet/$expand?url={VS}administrative-gender&x=1", 400),
            (f"Patient/$expand?url={VS}administrative-gender", 404),
        ]
        for url, status in rows:
            self.assertEqual((await self.world.send("GET", url)).status, status, url)

    async def test_an_expansion_beyond_its_budget(self) -> None:
        validated(self.world)
        await self.world.send("PUT", "CodeSystem/own", {**OWN, "concept": [{"code": f"c{n}"} for n in range(1000)]})
        worst = {**OWN_SET, "compose": {"include": [{"system": "http://x.test/cs"}] * 5000}}
        await self.world.send("PUT", "ValueSet/own", worst)
        sent = {"resourceType": "Parameters", "parameter": [{"name": "valueSet", "resource": worst}]}
        for method, url, body in (
            ("POST", "ValueSet/$expand", sent),
            ("GET", "Observation?code:in=http://x.test/vs", None),
        ):
            answer = await self.world.send(method, url, body)
            issue = loads(answer.body)["issue"][0]
            self.assertEqual((answer.status, issue["code"]), (400, "too-costly"), (url, issue))
            self.assertIn("more than 1000000 steps", issue["diagnostics"])

    async def test_stored_resources(self) -> None:
        validated(self.world)
        await self.world.send("PUT", "CodeSystem/own", OWN)
        await self.world.send("PUT", "ValueSet/own", OWN_SET)
        for url in ("ValueSet/$expand?url=http://x.test/vs", "ValueSet/own/$expand"):
            answer = await self.world.send("GET", url)
            codes = {one["code"] for one in loads(answer.body)["expansion"]["contains"]}
            self.assertEqual(codes, {"a", "a1"}, url)
        hostile = {"system": "http://x.test/cs", "filter": [{"property": "code", "op": "regex", "value": "(?=a)a"}]}
        sent = {**OWN_SET, "compose": {"include": [hostile]}}
        body = {"resourceType": "Parameters", "parameter": [{"name": "valueSet", "resource": sent}]}
        answer = await self.world.send("POST", "ValueSet/$expand", body)
        text = loads(answer.body)["issue"][0]["diagnostics"]
        self.assertEqual(answer.status, 400)
        self.assertIn("http://x.test/vs cannot be listed: filter on codes of http://x.test/cs: the regular", text)
        answer = await self.world.send("GET", "CodeSystem/$lookup?system=http://x.test/cs&code=a")
        self.assertEqual(said(answer)["display"], "Letter A")
        self.assertEqual(said(answer)["property"][1]["valueCode"], "a2")
        for scope, status in (("system/ValueSet.r?_id=own", 200), ("system/ValueSet.r?_id=other", 404)):
            self.world.caller = Caller("ada", scopes=(scope,))
            self.assertEqual((await self.world.send("GET", "ValueSet/own/$expand")).status, status, scope)

    async def test_context(self) -> None:
        """Rows of (StructureDefinition, element, codes of its value set, or status)."""
        validated(self.world)
        await self._store_profile()
        base = "http://hl7.org/fhir/StructureDefinition/"
        rows: list[tuple[str, str, Any]] = [
            (f"{base}Patient", "Patient.gender", {"male", "female", "other", "unknown"}),
            (f"{base}Patient|4.0.1", "Patient.gender", {"male", "female", "other", "unknown"}),
            (f"{base}Patient", "Patient.identifier.use", {"usual", "official", "temp", "secondary", "old"}),
            (f"{base}Timing", "Timing.repeat.durationUnit", {"s", "min", "h", "d", "wk", "mo", "a"}),
            ("http://x.test/p", "Observation.value[x]", {"a", "a1"}),
            ("http://x.test/p", "Observation.valueCodeableConcept", {"a", "a1"}),
            ("http://x.test/p", "Observation.valueQuantity", 400),
            ("http://x.test/p", "Observation.valueX", 400),
            (f"{base}Patient", "Patient.birthDate", 400),
            (f"{base}Patient", "Patient.id.x", 400),
            (f"{base}Patient", "Patient" + ".x" * 31, 400),
            (f"{base}Patient", "Patient" + ".x" * 30, 400),
            (f"{base}Patient", "", 400),
            ("", "Patient.gender", 400),
            (f"{base}Nothing", "Nothing.x", 404),
            (f"{base}Patient|9", "Patient.gender", 404),
        ]
        for url, path, expected in rows:
            answer = await self.world.send("GET", f"ValueSet/$expand?context={quote(f'{url}#{path}')}")
            if isinstance(expected, int):
                self.assertEqual(answer.status, expected, (url, path))
                self.assertEqual(loads(answer.body)["issue"][0]["expression"], ["context"])
            else:
                found = {one["code"] for one in loads(answer.body)["expansion"]["contains"]}
                self.assertEqual(found, expected, (url, path))

    async def test_context_with_other_parameters(self) -> None:
        validated(self.world)
        await self._store_profile()
        patient = f"context={quote('http://hl7.org/fhir/StructureDefinition/Patient#Patient.gender')}"
        own = f"context={quote('http://x.test/p#Observation.value[x]')}"
        for url, status in (
            (f"ValueSet/$expand?{patient}&contextDirection=incoming", 200),
            (f"ValueSet/$expand?{patient}&contextDirection=sideways", 400),
            (f"ValueSet/$expand?url={VS}administrative-gender&contextDirection=incoming", 400),
            (f"ValueSet/$expand?{patient}&url={VS}administrative-gender", 400),
            (f"ValueSet/administrative-gender/$expand?{patient}", 400),
            (f"CodeSystem/$validate-code?{patient}&url={GENDER}&code=male", 400),
        ):
            self.assertEqual((await self.world.send("GET", url)).status, status, url)
        for code, expected in (("male", True), ("x", False)):
            answer = await self.world.send("GET", f"ValueSet/$validate-code?{patient}&system={GENDER}&code={code}")
            self.assertEqual(said(answer)["result"], expected)
        for scopes, status in (
            (("system/ValueSet.r", "system/StructureDefinition.r"), 200),
            (("system/ValueSet.r", "system/StructureDefinition.r?_id=other"), 404),
            (("system/ValueSet.r",), 404),
        ):
            self.world.caller = Caller("ada", scopes=scopes)
            self.assertEqual((await self.world.send("GET", f"ValueSet/$expand?{own}")).status, status, scopes)

    async def _store_profile(self) -> None:
        """A profile with a value set on `Observation.value[x]`."""
        binding = {"strength": "required", "valueSet": "http://x.test/vs"}
        value = {"id": "Observation.value[x]", "path": "Observation.value[x]", "binding": binding,
                 "type": [{"code": "CodeableConcept"}]}  # fmt: skip
        profile = {
            "resourceType": "StructureDefinition", "id": "p", "url": "http://x.test/p", "name": "P", "status": "active",
            "kind": "resource", "abstract": False, "type": "Observation", "derivation": "constraint",
            "baseDefinition": "http://hl7.org/fhir/StructureDefinition/Observation",
            "differential": {"element": [{"id": "Observation", "path": "Observation"}, value]},
        }  # fmt: skip
        for one in (OWN, OWN_SET, profile):
            answer = await self.world.send("PUT", f"{one['resourceType']}/{one['id']}", one)
            self.assertEqual(answer.status, 201, answer.body)

    async def test_hostile_value_sets(self) -> None:
        """Each is 400 with the place and the rule: sent, or stored and asked for."""
        validated(self.world)
        await self.world.send("PUT", "CodeSystem/own", OWN)
        cs = "http://x.test/cs"
        rows: list[tuple[Json, str]] = [
            ({"system": cs, "filter": [{"property": "code", "op": "regex"}]}, "include[0].filter[0] has no value"),
            ({"system": cs, "filter": [{"value": "a"}]}, "filter[0] has no property and no op"),
            ({"system": cs, "concept": [{"display": "x"}]}, "concept[0] has no code"),
            ({"system": cs, "filter": {"value": "a"}}, "a list is expected"),
            ({"system": 3}, "a value of type uri is expected"),
            ({"valueSet": [3]}, "a value of type canonical is expected"),
        ]
        for number, (hostile, reason) in enumerate(rows):
            sent = {**OWN_SET, "id": f"h{number}", "url": f"{cs}/{number}", "compose": {"include": [hostile]}}
            parameters = [{"name": "valueSet", "resource": sent}, {"name": "code", "valueCode": "a"}]
            for operation, count in (("$expand", 1), ("$validate-code", 2)):
                body = {"resourceType": "Parameters", "parameter": parameters[:count]}
                answer = await self.world.send("POST", f"ValueSet/{operation}", body)
                self.assertEqual(answer.status, 400, hostile)
                self.assertIn(reason, loads(answer.body)["issue"][0]["diagnostics"])
            if (await self.world.send("PUT", f"ValueSet/h{number}", sent)).status == 201:
                answer = await self.world.send("GET", f"ValueSet/$expand?url={cs}/{number}")
                self.assertEqual((answer.status, reason in answer.body.decode()), (400, True), hostile)
        codings: list[Json] = [{"valueCoding": {"code": []}}, {"valueCoding": {"system": 1, "code": "a"}}]
        for coding in codings:
            body = {"resourceType": "Parameters", "parameter": [{"name": "coding", **coding}]}
            for operation in ("CodeSystem/$lookup", "CodeSystem/$validate-code", "ConceptMap/$translate"):
                answer = await self.world.send("POST", operation, body)
                self.assertEqual(answer.status, 400, (operation, coding))

    async def test_validate_code(self) -> None:
        validated(self.world)
        await self.world.send("PUT", "CodeSystem/own", OWN)
        gender, system = f"ValueSet/$validate-code?url={VS}administrative-gender", f"&system={GENDER}"
        rows = [
            (f"{gender}{system}&code=male", True),
            (f"{gender}&code=male", True),
            (f"{gender}{system}&code=man", False),
            (f"{gender}&system=http://x.test/cs&code=male", False),
            (f"{gender}{system}&code=male&display=Female", False),
            (f"{gender}{system}&code=male&display=male", True),
            ("CodeSystem/$validate-code?url=http://x.test/cs&code=a1", True),
            ("CodeSystem/$validate-code?url=http://x.test/cs&code=c", False),
            ("CodeSystem/own/$validate-code?code=b", True),
        ]
        for url, expected in rows:
            answer = await self.world.send("GET", url)
            self.assertEqual((answer.status, said(answer).get("result")), (200, expected), url)
        for url, meant in (
            (f"{gender}{system}&code=Male", "did you mean 'male'?"),
            (f"{gender}{system}&code=Femal", "did you mean 'female'?"),
            (f"{gender}&system=http://x.test/cs&code=male", f"did you mean '{GENDER}|male'?"),
            (f"CodeSystem/$validate-code?url={GENDER}&code=Female", "did you mean 'female'?"),
            ("CodeSystem/$validate-code?url=http://unitsofmeasure.org&code=mmHg", "did you mean 'mm[Hg]'?"),
        ):
            message = str(said(await self.world.send("GET", url))["message"])
            self.assertTrue(message.endswith(meant), message)
        unknown = f"ValueSet/$validate-code?url={VS}condition-code&system=http://snomed.info/sct&code=1"
        self.assertEqual((await self.world.send("GET", unknown)).status, 422)
        concept = {"coding": [{"system": "http://x.test/cs", "code": "a"}, {"system": GENDER, "code": "male"}]}
        named = [
            {"name": "url", "valueUri": VS + "administrative-gender"},
            {"name": "codeableConcept", "valueCodeableConcept": concept},
        ]
        answer = await self.world.send(
            "POST", "ValueSet/$validate-code", {"resourceType": "Parameters", "parameter": named}
        )
        self.assertTrue(said(answer)["result"])

    async def test_lookup(self) -> None:
        validated(self.world)
        answer = await self.world.send("GET", f"CodeSystem/$lookup?system={GENDER}&code=male")
        self.assertEqual((said(answer)["name"], said(answer)["display"]), ("AdministrativeGender", "Male"))
        for url, status in (
            (f"CodeSystem/$lookup?system={GENDER}&code=man", 404),
            ("CodeSystem/$lookup?system=http://snomed.info/sct&code=1", 404),
            (f"CodeSystem/$lookup?system={GENDER}", 400),
        ):
            self.assertEqual((await self.world.send("GET", url)).status, status, url)

    async def test_units(self) -> None:
        """A unit has its name; another text is refused with the unit that was meant."""
        validated(self.world)
        answer = await self.world.send("GET", "CodeSystem/$lookup?system=http://unitsofmeasure.org&code=mm[Hg]")
        self.assertEqual(answer.status, 200)
        self.assertIn("mercury", said(answer)["display"])
        answer = await self.world.send("GET", "CodeSystem/$lookup?system=http://unitsofmeasure.org&code=mmHg")
        self.assertEqual(answer.status, 404)
        self.assertIn("mm[Hg]", loads(answer.body)["issue"][0]["diagnostics"])

    async def test_translate(self) -> None:
        validated(self.world)
        await self.world.send("PUT", "ConceptMap/own", OWN_MAP)
        rows = [
            ("ConceptMap/$translate?url=http://x.test/map&system=http://x.test/cs&code=a", True),
            ("ConceptMap/own/$translate?system=http://x.test/cs&code=a", True),
            ("ConceptMap/own/$translate?system=http://x.test/cs&code=b", False),
            (f"ConceptMap/own/$translate?system={GENDER}&code=female&reverse=true", True),
            (f"ConceptMap/$translate?system=http://x.test/cs&code=a&targetsystem={GENDER}", True),
            ("ConceptMap/$translate?system=http://terminology.hl7.org/CodeSystem/v2-0001&code=F", True),
        ]
        for url, expected in rows:
            answer = await self.world.send("GET", url)
            self.assertEqual((answer.status, said(answer).get("result")), (200, expected), url)
        answer = await self.world.send("GET", rows[0][0])
        parts = {one["name"]: one for one in said(answer)["match"]}
        self.assertEqual(parts["equivalence"]["valueCode"], "wider")
        self.assertEqual(parts["concept"]["valueCoding"], {"system": GENDER, "code": "female"})
        self.assertEqual(
            (await self.world.send("GET", "ConceptMap/$translate?url=http://x.test/no&code=a")).status, 404
        )


class ValueSetSearchSuite(Suite):
    world: World

    async def test_value_sets_in_searches(self) -> None:
        validated(self.world)
        await self.world.send("PUT", "CodeSystem/own", OWN)
        await self.world.send("PUT", "ValueSet/own", OWN_SET)
        for code in ("a", "a1", "a2", "b"):
            coding = {"coding": [{"system": "http://x.test/cs", "code": code}]}
            resource = {"resourceType": "Observation", "id": code, "status": "final", "code": coding}
            await self.world.send("PUT", f"Observation/{code}", resource)
        rows = [
            ("Observation?code:in=http://x.test/vs", {"a", "a1"}),
            ("Observation?code:not-in=http://x.test/vs", {"a2", "b"}),
            ("Observation?code:below=http://x.test/cs|a", {"a", "a1", "a2"}),
            ("Observation?code:above=http://x.test/cs|a1", {"a", "a1"}),
        ]
        for url, expected in rows:
            found = loads((await self.world.send("GET", url)).body)
            self.assertEqual({one["resource"]["id"] for one in found.get("entry", ())}, expected, url)
        self.assertEqual((await self.world.send("GET", "Observation?code:in=http://x.test/none")).status, 404)


class ValueSetSearchInMemory(ValueSetSearchSuite, OnMemory):
    """On the store in memory."""


class ValueSetSearchOnPostgres(ValueSetSearchSuite, OnPostgres):
    """SQL compares the codes."""
