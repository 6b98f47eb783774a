"""$validate, the validation mode, and the built-in definitions."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import dumps, loads
from ipf.fhir.model.packages import Packages
from ipf.fhir.validation import findings as limits
from ipf.ports import Caller, Json
from ipf.rest.write.conformance import Conformance
from tests.rest.world import OnMemory, World, issues

US_CORE = "http://hl7.org/fhir/us/core/StructureDefinition/"
BACKPORT = "http://hl7.org/fhir/uv/subscriptions-backport/StructureDefinition/"
VALID: Json = {"resourceType": "Patient", "gender": "female"}
WRONG: Json = {"resourceType": "Patient", "communication": [{"preferred": True}]}
"""Without a language, which R4 requires."""
PLACE = "Patient.communication[0]"
PROFILE: Json = {
    "resourceType": "StructureDefinition",
    "url": "http://x.test/StructureDefinition/p",
    "name": "P",
    "status": "active",
    "kind": "resource",
    "abstract": False,
    "type": "Patient",
    "baseDefinition": "http://hl7.org/fhir/StructureDefinition/Patient",
    "derivation": "constraint",
    "differential": {"element": [{"id": "Patient.birthDate", "path": "Patient.birthDate", "min": 1}]},
}


def validated(world: World, mode: str = "off") -> None:
    """Give the server conformance resources."""
    world.conformance = Conformance(Packages, world.store, lambda: world.now, mode)


def errors(answer: Any) -> list[str]:
    """Places of the errors in an OperationOutcome."""
    outcome = loads(answer.body)
    return [one["expression"][0] for one in outcome["issue"] if one["severity"] == "error"]


class ValidateInMemory(OnMemory):
    """Rows of requests."""

    async def test_of_a_type(self) -> None:
        validated(self.world)
        answer = await self.world.send("POST", "Patient/$validate", VALID)
        self.assertEqual((answer.status, errors(answer)), (200, []))
        answer = await self.world.send("POST", "Patient/$validate", WRONG)
        self.assertEqual((answer.status, errors(answer)), (200, [PLACE]))
        answer = await self.world.send("POST", "Observation/$validate", VALID)
        self.assertEqual(errors(answer), ["Patient"])
        counts = await self.world.store.counts()
        self.assertEqual(sum(counts.values()), 0)

    async def test_invariants_whose_paths_begin_with_the_name_of_the_type(self) -> None:
        """Of R4 (app-4), and of a stored profile."""
        validated(self.world)
        actor = {"status": "accepted", "actor": {"reference": "Patient/1"}}
        reason = {"cancelationReason": {"text": "x"}, "participant": [actor]}
        for status, expected in (("proposed", ["Appointment"]), ("cancelled", [])):
            appointment = {"resourceType": "Appointment", "status": status, **reason}
            self.assertEqual(errors(await self.world.send("POST", "Appointment/$validate", appointment)), expected)
        expression = "Patient.deceased.exists() implies (Patient.active.exists() and Patient.active = false)"
        rule = {"key": "x-1", "severity": "error", "human": "x", "expression": expression}
        differential = {"element": [{"id": "Patient", "path": "Patient", "constraint": [rule]}]}
        await self.world.send("POST", "StructureDefinition", {**PROFILE, "differential": differential})
        for members, expected in (
            ({"deceasedBoolean": True}, ["Patient"]),
            ({"_deceasedDateTime": {"id": "x"}, "deceasedDateTime": "2024", "active": True}, ["Patient"]),
            ({"deceasedBoolean": True, "active": False}, []),
            ({"active": True}, []),
        ):
            resource = {"resourceType": "Patient", **members}
            answer = await self.world.send("POST", f"Patient/$validate?profile={PROFILE['url']}", resource)
            self.assertEqual(errors(answer), expected, members)

    async def test_one_of_several_types_and_profiles_has_to_fit(self) -> None:
        """A stored profile on Bundle whose entries are Patients with a date of birth, or Organizations."""
        validated(self.world)
        types = [{"code": "Patient", "profile": [PROFILE["url"]]}, {"code": "Organization"}]
        element = {"id": "Bundle.entry.resource", "path": "Bundle.entry.resource", "type": types}
        made = {**PROFILE, "url": "http://x.test/StructureDefinition/b", "type": "Bundle"}
        made["baseDefinition"] = "http://hl7.org/fhir/StructureDefinition/Bundle"
        made["differential"] = {"element": [element]}
        for one in (PROFILE, made):
            await self.world.send("POST", "StructureDefinition", one)
        for resource, expected in (
            ({"resourceType": "Patient", "birthDate": "1990"}, []),
            ({"resourceType": "Organization", "name": "x"}, []),
            ({"resourceType": "Patient"}, ["Bundle.entry[0].resource"]),
            ({"resourceType": "Basic", "code": {"text": "x"}}, ["Bundle.entry[0].resource"]),
        ):
            entry = {"fullUrl": "urn:uuid:0190f7a4-2b6e-7cc0-8a11-2f6d3c1b9e55", "resource": resource}
            bundle = {"resourceType": "Bundle", "type": "collection", "entry": [entry]}
            answer = await self.world.send("POST", f"Bundle/$validate?profile={made['url']}", bundle)
            self.assertEqual(errors(answer), expected, resource)

    async def test_with_a_profile(self) -> None:
        validated(self.world)
        profile = US_CORE + "us-core-patient"
        answer = await self.world.send("POST", f"Patient/$validate?profile={profile}", VALID)
        self.assertEqual(errors(answer), ["Patient", "Patient"])  # identifier and name
        named = {"name": "profile", "valueUri": profile}
        parameters = {"resourceType": "Parameters", "parameter": [{"name": "resource", "resource": VALID}, named]}
        answer = await self.world.send("POST", "Patient/$validate", parameters)
        self.assertEqual(errors(answer), ["Patient", "Patient"])
        answer = await self.world.send("POST", "Patient/$validate", {**VALID, "meta": {"profile": [profile]}})
        self.assertEqual(errors(answer), ["Patient", "Patient"])
        answer = await self.world.send("POST", "Patient/$validate?profile=http://x.test/none", VALID)
        self.assertIn("not-found", {code for code, _, _ in issues(answer)})

    async def test_of_an_instance(self) -> None:
        validated(self.world)
        await self.world.send("PUT", "Patient/a", {**WRONG, "id": "a"})
        for method in ("GET", "POST"):
            answer = await self.world.send(method, "Patient/a/$validate")
            self.assertEqual((answer.status, errors(answer)), (200, [PLACE]), method)
        answer = await self.world.send("POST", "Patient/a/$validate?mode=update", {**VALID, "id": "b"})
        self.assertEqual(errors(answer), ["Patient.id"])
        self.assertEqual((await self.world.send("GET", "Patient/none/$validate")).status, 404)
        self.assertEqual((await self.world.send("GET", "Patient/a/$validate?mode=delete")).status, 200)
        self.assertEqual((await self.world.send("POST", "Patient/a/$validate?mode=destroy", VALID)).status, 400)
        self.assertEqual((await self.world.send("POST", "Patient/$validate?x=1", VALID)).status, 400)

    async def test_unreadable_resource_is_not_found(self) -> None:
        """Findings quote the resource: outside the limits of a scope it is not found."""
        validated(self.world)
        await self.world.send("PUT", "Patient/a", {**WRONG, "id": "a"})
        for scope, status in (("system/Patient.r?_id=a", 200), ("system/Patient.r?_id=b", 404)):
            self.world.caller = Caller("ada", scopes=(scope,))
            for url in ("Patient/a/$validate", "Patient/a/$validate?mode=delete"):
                self.assertEqual((await self.world.send("GET", url)).status, status, (scope, url))

    async def test_stored_profile_applies_at_once(self) -> None:
        validated(self.world, "enforce")
        resource = {**VALID, "meta": {"profile": [PROFILE["url"]]}}
        self.assertEqual((await self.world.send("POST", "Patient", resource)).status, 201)  # not known: a warning
        self.assertEqual((await self.world.send("PUT", "StructureDefinition/p", {**PROFILE, "id": "p"})).status, 201)
        self.assertEqual((await self.world.send("POST", "Patient", resource)).status, 422)
        self.assertEqual((await self.world.send("DELETE", "StructureDefinition/p")).status, 204)
        self.assertEqual((await self.world.send("POST", "Patient", resource)).status, 201)

    async def test_a_stored_profile_cannot_widen_its_base(self) -> None:
        """The derived profile makes optional what its base requires: still required; the profile itself is refused."""
        validated(self.world, "enforce")
        child = {**PROFILE, "url": "http://x.test/StructureDefinition/c", "baseDefinition": PROFILE["url"]}
        wider = {"id": "Patient.birthDate", "path": "Patient.birthDate", "min": 0}
        child["differential"] = {"element": [wider, {"id": "Patient.gender", "path": "Patient.gender", "min": 1}]}
        self.assertEqual((await self.world.send("POST", "StructureDefinition", PROFILE)).status, 201)
        refused = await self.world.send("POST", "StructureDefinition", child)
        self.assertEqual((refused.status, errors(refused)), (422, ["StructureDefinition.differential.element[0]"]))
        validated(self.world, "warn")
        self.assertEqual((await self.world.send("POST", "StructureDefinition", child)).status, 201)
        for members, expected in (
            ({"gender": "female"}, ["Patient"]),
            ({"birthDate": "1990"}, ["Patient"]),
            ({"gender": "female", "birthDate": "1990"}, []),
        ):
            resource = {"resourceType": "Patient", **members}
            answer = await self.world.send("POST", f"Patient/$validate?profile={child['url']}", resource)
            self.assertEqual(errors(answer), expected, members)

    async def test_stored_questionnaire_applies_at_once(self) -> None:
        validated(self.world, "enforce")
        url = "http://x.test/Questionnaire/q"
        asked = [{"linkId": "a", "type": "boolean", "required": True}]
        form = {"resourceType": "Questionnaire", "id": "q", "url": url, "status": "active", "item": asked}
        response = {"resourceType": "QuestionnaireResponse", "status": "completed", "questionnaire": url}
        answered = {**response, "item": [{"linkId": "a", "answer": [{"valueBoolean": True}]}]}
        self.assertEqual((await self.world.send("POST", "QuestionnaireResponse", response)).status, 201)
        self.assertEqual((await self.world.send("PUT", "Questionnaire/q", form)).status, 201)
        self.assertEqual((await self.world.send("POST", "QuestionnaireResponse", response)).status, 422)
        self.assertEqual((await self.world.send("POST", "QuestionnaireResponse", answered)).status, 201)
        answer = await self.world.send("POST", "QuestionnaireResponse/$validate", response)
        self.assertEqual(errors(answer), ["QuestionnaireResponse"])


class ModeTests(OnMemory):
    """off, warn, enforce."""

    async def test_off(self) -> None:
        validated(self.world)
        answer = await self.world.send("POST", "Patient", WRONG)
        self.assertEqual(answer.status, 201)
        self.assertNotIn("X-FHIR-Request-Validation", dict(answer.headers))

    async def test_warn_accepts_and_reports(self) -> None:
        validated(self.world, "warn")
        answer = await self.world.send("POST", "Patient", WRONG, prefer="return=OperationOutcome")
        self.assertEqual((answer.status, errors(answer)), (201, [PLACE]))
        self.assertNotIn("X-FHIR-Request-Validation", dict(answer.headers))
        answer = await self.world.send("PUT", "Patient/m", {**WRONG, "id": "m"}, prefer="return=minimal")
        self.assertEqual((answer.status, answer.body), (201, b""))
        self.assertIn(PLACE, dict(answer.headers)["X-FHIR-Request-Validation"])
        answer = await self.world.send("PUT", "Patient/a", {**WRONG, "id": "a"})
        self.assertEqual((answer.status, loads(answer.body)["communication"]), (201, WRONG["communication"]))
        header = loads(dict(answer.headers)["X-FHIR-Request-Validation"])
        self.assertEqual(header["issue"][0]["expression"], [PLACE])
        bundle = {"resourceType": "Bundle", "type": "transaction", "entry": [entry(WRONG)]}
        answer = await self.world.send("POST", "", bundle)
        outcome = loads(answer.body)["entry"][0]["response"]["outcome"]
        self.assertIn(PLACE, [one.get("expression", [""])[0] for one in outcome["issue"]])

    async def test_rules_beyond_their_budget(self) -> None:
        """$validate names it, and mode enforce refuses what cannot be checked within it."""
        self.patch(limits, "MOST_STEPS", 20_000)
        validated(self.world, "enforce")
        expensive = {"key": "x-1", "severity": "error", "human": "h", "expression": "%resource.descendants().exists()"}
        differential = {"element": [{"id": "Basic.identifier", "path": "Basic.identifier", "constraint": [expensive]}]}
        base = "http://hl7.org/fhir/StructureDefinition/Basic"
        profile = {"resourceType": "StructureDefinition", "id": "p", "url": "http://x.test/p", "name": "P",
                   "status": "active", "kind": "resource", "abstract": False, "type": "Basic",
                   "derivation": "constraint", "baseDefinition": base, "differential": differential}  # fmt: skip
        answer = await self.world.send("PUT", "StructureDefinition/p", profile)
        self.assertEqual(answer.status, 201, answer.body)
        for number, status in ((3, 201), (400, 422)):
            numbers = [{"system": "urn:x", "value": str(one)} for one in range(number)]
            basic = {"resourceType": "Basic", "meta": {"profile": ["http://x.test/p"]}, "code": {"text": "x"}}
            answer = await self.world.send("POST", "Basic", {**basic, "identifier": numbers})
            self.assertEqual(answer.status, status, answer.body[:300])
            told = await self.world.send("POST", "Basic/$validate", {**basic, "identifier": numbers})
            self.assertEqual((told.status, b"too-costly" in told.body), (200, status == 422))
            self.assertEqual(b"20000 steps" in told.body, status == 422)

    async def test_enforce_refuses(self) -> None:
        validated(self.world, "enforce")
        answer = await self.world.send("POST", "Patient", WRONG)
        self.assertEqual((answer.status, errors(answer)), (422, [PLACE]))
        self.assertEqual((await self.world.send("PUT", "Patient/a", {**WRONG, "id": "a"})).status, 422)
        self.assertEqual((await self.world.send("PUT", "Patient/a", {**VALID, "id": "a"})).status, 201)
        operations = [{"op": "add", "path": "/communication", "value": WRONG["communication"]}]
        patched = await self.world.send(
            "PATCH", "Patient/a", dumps(operations), content_type="application/json-patch+json"
        )
        self.assertEqual((patched.status, errors(patched)), (422, [PLACE]))
        bundle = {"resourceType": "Bundle", "type": "transaction", "entry": [entry(VALID), entry(WRONG)]}
        answer = await self.world.send("POST", "", bundle)
        self.assertEqual((answer.status, errors(answer)), (422, [f"Bundle.entry[1].resource ({PLACE})"]))
        self.assertEqual((await self.world.store.counts()).get("Patient"), 1)
        answer = await self.world.send("POST", "", {**bundle, "type": "batch"})
        statuses = [one["response"]["status"] for one in loads(answer.body)["entry"]]
        self.assertEqual([one[:3] for one in statuses], ["201", "422"])


class DefinitionsInMemory(OnMemory):
    """Built-in StructureDefinitions, ValueSets and CodeSystems."""

    async def test_new_server_has_builtin_definitions(self) -> None:
        validated(self.world)
        for url in (US_CORE + "us-core-patient", BACKPORT + "backport-subscription"):
            answer = await self.world.send("GET", f"StructureDefinition?url={url}")
            found = loads(answer.body)
            self.assertEqual((answer.status, found["total"], len(found["entry"])), (200, 1, 1), url)
            resource = found["entry"][0]["resource"]
            self.assertEqual(resource["url"], url)
            self.assertTrue(resource["snapshot"]["element"])
            read = await self.world.send("GET", f"StructureDefinition/{resource['id']}")
            self.assertEqual(loads(read.body)["url"], url)
            counted = loads((await self.world.send("GET", f"StructureDefinition?url={url}&_summary=count")).body)
            self.assertEqual((counted["total"], counted.get("entry")), (1, None))
        value_set = "http://hl7.org/fhir/ValueSet/administrative-gender"
        answer = await self.world.send("GET", f"ValueSet?url={value_set}")
        self.assertEqual(loads(answer.body)["total"], 1)
        self.assertEqual((await self.world.send("GET", "CodeSystem/administrative-gender")).status, 200)
        self.assertEqual((await self.world.send("GET", "StructureDefinition/none")).status, 404)

    async def test_profiles_are_in_the_capability_statement(self) -> None:
        validated(self.world)
        resources = loads((await self.world.send("GET", "metadata")).body)["rest"][0]["resource"]
        stated = {one["type"]: one.get("supportedProfile", []) for one in resources}
        self.assertEqual(stated["Patient"], [US_CORE + "us-core-patient"])
        self.assertEqual(stated["Subscription"], [BACKPORT + "backport-subscription"])
        self.assertIn(US_CORE + "us-core-blood-pressure", stated["Observation"])
        self.assertEqual(stated["Basic"], [])

    async def test_unselective_searches_return_stored_resources_only(self) -> None:
        validated(self.world)
        await self.world.send("PUT", "StructureDefinition/p", {**PROFILE, "id": "p"})
        self.assertEqual(loads((await self.world.send("GET", "StructureDefinition")).body)["total"], 1)

    async def test_stored_definitions_take_precedence(self) -> None:
        validated(self.world)
        url = US_CORE + "us-core-patient"
        await self.world.send("PUT", "StructureDefinition/mine", {**PROFILE, "id": "mine", "url": url})
        found = loads((await self.world.send("GET", f"StructureDefinition?url={url}")).body)
        self.assertEqual((found["total"], found["entry"][0]["resource"]["id"]), (1, "mine"))


def entry(resource: Json) -> Json:
    """A create in a Bundle."""
    return {"resource": resource, "request": {"method": "POST", "url": "Patient"}}
