"""Formats and required codes on every way of writing, with validation off; parameters of a create."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from ipf.fhir.model.json import dumps, loads
from ipf.fhir.topics.basic import TOPIC_TYPES
from ipf.ports import Answer, Json
from tests.rest.world import OnMemory, issues, patient

JSON_PATCH = "application/json-patch+json"
BAD: Json = {"resourceType": "Patient", "birthDate": "2020-13-45"}
BASIC: Json = {"resourceType": "Basic", "code": {"text": "x"}}
PLACE = "Patient.birthDate"
OPERATIONS = [{"op": "add", "path": "/birthDate", "value": "yesterday"}]
PARTS = [
    {"name": "type", "valueCode": "add"},
    {"name": "path", "valueString": "Patient"},
    {"name": "name", "valueString": "birthDate"},
    {"name": "value", "valueString": "yesterday"},
]
FHIRPATH_PATCH: Json = {"resourceType": "Parameters", "parameter": [{"name": "operation", "part": PARTS}]}
BINARY_PATCH: Json = {
    "resourceType": "Binary", "contentType": JSON_PATCH, "data": b64encode(dumps(OPERATIONS)).decode(),
}  # fmt: skip
XML = b'<Patient xmlns="http://hl7.org/fhir"><birthDate value="2020-13-45"/></Patient>'
SUBSCRIPTION: Json = {
    "resourceType": "Subscription", "status": "requested", "reason": "x", "criteria": "Patient?",
    "channel": {"type": "rest-hook", "endpoint": "https://x.test/a", "payload": "application/fhir+json"},
}  # fmt: skip


def bundle(kind: str, method: str, url: str, resource: Json, **request: str) -> Json:
    """A Bundle with a good entry and this one."""
    return {
        "resourceType": "Bundle",
        "type": kind,
        "entry": [
            {
                "resource": {"resourceType": "Basic", "code": {"text": "x"}},
                "request": {"method": "POST", "url": "Basic"},
            },
            {"resource": resource, "request": {"method": method, "url": url, **request}},
        ],
    }


class StructureTests(OnMemory):
    async def test_every_write(self) -> None:
        """422 with the place; nothing is stored."""
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        inside = f"Bundle.entry[1].resource ({PLACE})"
        json_patch = {"content_type": JSON_PATCH}
        for method, url, body, headers, place in (
            ("POST", "Patient", BAD, {}, PLACE),
            ("POST", "Patient", BAD, {"if_none_exist": "identifier=urn:x|1"}, PLACE),
            ("POST", "Patient", XML, {"content_type": "application/fhir+xml"}, PLACE),
            ("PUT", "Patient/b", {**BAD, "id": "b"}, {}, PLACE),
            ("PUT", "Patient?identifier=urn:x|1", BAD, {}, PLACE),
            ("PATCH", "Patient/a", OPERATIONS, json_patch, PLACE),
            ("PATCH", "Patient?identifier=urn:mrn|1", OPERATIONS, json_patch, PLACE),
            ("PATCH", "Patient/a", FHIRPATH_PATCH, {}, PLACE),
            ("POST", "", bundle("transaction", "POST", "Patient", BAD), {}, inside),
            ("POST", "", bundle("transaction", "PUT", "Patient/b", {**BAD, "id": "b"}), {}, inside),
            ("POST", "", bundle("transaction", "PUT", "Patient?identifier=urn:x|1", BAD), {}, inside),
            ("POST", "", bundle("transaction", "PATCH", "Patient/a", BINARY_PATCH), {}, inside),
            ("POST", "", bundle("transaction", "PATCH", "Patient/a", FHIRPATH_PATCH), {}, inside),
            ("POST", "Observation", {"resourceType": "Observation", "effectiveDateTime": "yesterday"}, {},
             "Observation.effectiveDateTime"),
            ("POST", "Binary", {"resourceType": "Binary", "contentType": "a/b", "data": "%%%"}, {}, "Binary.data"),
            ("POST", "Binary", b"x", {"content_type": "no media type"}, "Binary.contentType"),
            ("POST", "Subscription", {**SUBSCRIPTION, "end": "tomorrow"}, {}, "Subscription.end"),
            ("POST", "Subscription", {**SUBSCRIPTION, "status": "on"}, {}, "Subscription.status"),
            ("POST", "SubscriptionTopic", {"resourceType": "SubscriptionTopic", "status": "on"}, {},
             "SubscriptionTopic.status"),
            ("POST", "Basic", {"resourceType": "Basic", "created": "2024-02-30"}, {}, "Basic.created"),
            ("POST", "StructureDefinition", {"resourceType": "StructureDefinition", "kind": "x"}, {},
             "StructureDefinition.kind"),
            ("POST", "ValueSet", {"resourceType": "ValueSet", "status": "x"}, {}, "ValueSet.status"),
            ("POST", "CodeSystem", {"resourceType": "CodeSystem", "content": "x"}, {}, "CodeSystem.content"),
            ("POST", "ConceptMap", {"resourceType": "ConceptMap", "date": "x"}, {}, "ConceptMap.date"),
        ):  # fmt: skip
            if method == "PATCH" and not headers:
                headers = {"content_type": "application/fhir+json"}
            answer: Answer = await self.world.send(method, url, body, **headers)
            self.assertEqual((answer.status, issues(answer)[0][2]), (422, place), (method, url, body))
        self.assertEqual(await self.world.store.counts(), {"Patient": 1})
        self.assertEqual(len(await self.world.versions("Patient/a")), 1)
        self.assertIn("SubscriptionTopic", TOPIC_TYPES)

    async def test_a_batch_refuses_the_entry_alone(self) -> None:
        answer = await self.world.send("POST", "", bundle("batch", "POST", "Patient", BAD))
        statuses = [one["response"]["status"][:3] for one in loads(answer.body)["entry"]]
        self.assertEqual((answer.status, statuses), (200, ["201", "422"]))

    async def test_what_was_stored_before_can_be_mended(self) -> None:
        """A resource of an earlier version of the server with a wrong date: read, and patched with a good one."""
        from tests.rest.world import put, unit

        await self.world.commit(unit(put({**BAD, "id": "old"})))
        self.assertEqual((await self.world.send("GET", "Patient/old")).status, 200)
        other: list[Any] = [{"op": "add", "path": "/active", "value": True}]
        refused = await self.world.send("PATCH", "Patient/old", other, content_type=JSON_PATCH)
        self.assertEqual((refused.status, issues(refused)[0][2]), (422, PLACE))
        mended = [*other, {"op": "replace", "path": "/birthDate", "value": "2020-12-24"}]
        self.assertEqual((await self.world.send("PATCH", "Patient/old", mended, content_type=JSON_PATCH)).status, 200)

    async def test_a_create_has_no_parameters(self) -> None:
        """400 that names the parameter and If-None-Exist; `_format` and `_pretty` are for the response."""
        answer = await self.world.send("POST", "Patient?identifier=urn:x|1&_format=json", patient("1"))
        self.assertEqual((answer.status, issues(answer)[0][2]), (400, "identifier"))
        self.assertIn("If-None-Exist", issues(answer)[0][1])
        for kind in ("transaction", "batch"):
            sent = bundle(kind, "POST", "Patient?identifier=urn:x|1", patient("1"))
            answer = await self.world.send("POST", "", sent)
            if kind == "batch":
                outcome = loads(answer.body)["entry"][1]["response"]["outcome"]["issue"][0]
                self.assertEqual(outcome["expression"], ["Bundle.entry[1].request.url"])
                self.assertIn("ifNoneExist", outcome["diagnostics"])
            else:
                self.assertEqual((answer.status, issues(answer)[0][2]), (400, "Bundle.entry[1].request.url"))
        self.assertNotIn("Patient", await self.world.store.counts())
        for url in ("Patient?_format=json", "Patient?_pretty=true&_format=json", "Patient"):
            self.assertEqual((await self.world.send("POST", url, patient("1"))).status, 201, url)
