"""PATCH: JSON Patch and FHIRPath Patch, by id, by search, and in Bundles; updates with If-None-Match."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from twisted.internet import defer

from ipf.fhir.model.json import dumps, loads
from ipf.ports import Answer, Json
from tests.rest.world import OnMemory, OnPostgres, issues, patient

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
XML_PATCH = "application/xml-patch+xml"


def replace_family(name: str) -> list[Json]:
    """A JSON Patch."""
    return [{"op": "replace", "path": "/name/0/family", "value": name}]


def set_active(value: bool = True) -> Json:
    """A FHIRPath Patch."""
    parts = [
        {"name": "type", "valueCode": "add"},
        {"name": "path", "valueString": "Patient"},
        {"name": "name", "valueString": "active"},
        {"name": "value", "valueBoolean": value},
    ]
    return {"resourceType": "Parameters", "parameter": [{"name": "operation", "part": parts}]}


def entry(method: str, url: str, resource: Json | None = None, **request: str) -> Json:
    """A Bundle entry."""
    made: Json = {"request": {"method": method, "url": url, **request}}
    return made if resource is None else {**made, "resource": resource}


def set_birth_date(value: str) -> bytes:
    """An XML Patch."""
    return (
        f'<diff xmlns:q="http://hl7.org/fhir"><add sel="q:Patient"><q:birthDate value="{value}"/></add></diff>'.encode()
    )


def as_binary(patch: Any, content_type: str = JSON_PATCH) -> Json:
    """A patch in a Binary, for a Bundle entry."""
    data = patch if isinstance(patch, bytes) else dumps(patch)
    return {"resourceType": "Binary", "contentType": content_type, "data": b64encode(data).decode()}


class PatchTests(OnMemory):
    async def patch(self, url: str, body: Any, content_type: str = JSON_PATCH, **headers: str) -> Answer:
        """One PATCH."""
        return await self.world.send("PATCH", url, body, content_type=content_type, **headers)

    async def bundle(self, kind: str, *entries: Json) -> Answer:
        """A transaction or batch."""
        bundle = {"resourceType": "Bundle", "type": kind, "entry": list(entries)}
        return await self.world.send("POST", "", bundle, prefer="return=representation")

    async def test_json_patch_and_fhirpath_patch(self) -> None:
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        answer = await self.patch("Patient/a", replace_family("Neu"))
        self.assertEqual((answer.status, dict(answer.headers)["ETag"]), (200, 'W/"2"'))
        answer = await self.patch("Patient/a", set_active(), "application/fhir+json")
        stored = loads(answer.body)
        self.assertEqual(
            (stored["name"][0]["family"], stored["active"], stored["meta"]["versionId"]), ("Neu", True, "3")
        )
        self.assertEqual(
            [version.method for version in await self.world.versions("Patient/a")], ["PUT", "PATCH", "PATCH"]
        )
        xml = b'<Parameters xmlns="http://hl7.org/fhir"/>'
        unchanged = await self.patch("Patient/a", xml, "application/fhir+xml")
        self.assertEqual((unchanged.status, dict(unchanged.headers)["ETag"]), (200, 'W/"3"'))

    async def test_merge_patch_and_xml_patch(self) -> None:
        """By id, by search, and in a Bundle."""
        await self.world.send("PUT", "Patient/a", patient("1", id="a", language="de"))
        answer = await self.patch("Patient/a", {"active": True, "language": None}, MERGE_PATCH)
        self.assertEqual((answer.status, dict(answer.headers)["ETag"]), (200, 'W/"2"'))
        answer = await self.patch("Patient?identifier=urn:mrn|1", set_birth_date("1970-01-01"), XML_PATCH)
        stored = loads(answer.body)
        del stored["meta"]
        self.assertEqual(stored, patient("1", id="a", active=True, birthDate="1970-01-01"))
        answer = await self.bundle(
            "transaction",
            entry("PATCH", "Patient/a", as_binary({"birthDate": None}, MERGE_PATCH)),
            entry("GET", "Patient/a"),
        )
        self.assertEqual(answer.status, 200, answer.body)
        self.assertNotIn("birthDate", loads(answer.body)["entry"][1]["resource"])
        answer = await self.bundle("batch", entry("PATCH", "Patient/a", as_binary(set_birth_date("1971"), XML_PATCH)))
        self.assertEqual(loads(answer.body)["entry"][0]["resource"]["birthDate"], "1971")

    async def test_plain_json(self) -> None:
        """Its form says which patch it is: a list of operations, members to merge, or Parameters."""
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        for sent in (replace_family("Neu"), {"language": "de"}, set_active()):
            answer = await self.patch("Patient/a", sent, "application/json")
            self.assertEqual(answer.status, 200, answer.body)
        stored = loads(answer.body)
        found = stored["name"][0]["family"], stored["language"], stored["active"], stored["meta"]["versionId"]
        self.assertEqual(found, ("Neu", "de", True, "4"))
        for sent in (patient("1"), b"1", b"null"):
            self.assertEqual((await self.patch("Patient/a", sent, "application/json")).status, 400)

    async def test_conditions(self) -> None:
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        self.assertEqual((await self.patch("Patient/a", replace_family("x"), if_match='W/"2"')).status, 412)
        self.assertEqual((await self.patch("Patient/a", replace_family("x"), if_match='W/"1"')).status, 200)
        url = "Patient?identifier=urn:mrn|1"
        self.assertEqual((await self.patch(url, replace_family("y"))).status, 200)
        self.assertEqual((await self.patch("Patient?identifier=urn:mrn|2", replace_family("y"))).status, 404)
        self.assertEqual((await self.patch("Patient", replace_family("y"))).status, 400)
        await self.world.send("POST", "Patient", patient("1"))
        self.assertEqual((await self.patch(url, replace_family("y"))).status, 412)
        await self.world.send("DELETE", "Patient/a")
        self.assertEqual((await self.patch("Patient/a", replace_family("y"))).status, 410)
        self.assertEqual((await self.patch("Patient/none", replace_family("y"))).status, 404)

    async def test_refused(self) -> None:
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        for body, content_type, status, code in (
            (b"<diff/>", XML_PATCH, 400, "structure"),
            (set_birth_date("2020-13-01"), XML_PATCH, 422, "invalid"),
            (b'<diff><replace sel="f:Patient/f:id/@value">b</replace></diff>', XML_PATCH, 422, "invalid"),
            (
                b'<diff><replace sel="f:Patient"><Group xmlns="http://hl7.org/fhir"/></replace></diff>',
                XML_PATCH,
                422,
                "invalid",
            ),
            ([], MERGE_PATCH, 400, "structure"),
            ({"id": None}, MERGE_PATCH, 422, "invalid"),
            ({"resourceType": "Group"}, MERGE_PATCH, 422, "invalid"),
            ({"nonsense": 1}, MERGE_PATCH, 400, "structure"),
            (b"x", "text/plain", 415, "not-supported"),
            (b"x", "", 415, "not-supported"),
            (b"{", JSON_PATCH, 400, "structure"),
            ({"op": "add"}, JSON_PATCH, 400, "structure"),
            ([{"op": "test", "path": "/id", "value": "b"}], JSON_PATCH, 422, "invalid"),
            ([{"op": "remove", "path": "/photo"}], JSON_PATCH, 422, "invalid"),
            ([{"op": "replace", "path": "/id", "value": "b"}], JSON_PATCH, 422, "invalid"),
            ([{"op": "replace", "path": "", "value": {"resourceType": "Group"}}], JSON_PATCH, 422, "invalid"),
            ([{"op": "replace", "path": "", "value": 1}], JSON_PATCH, 422, "invalid"),
            ([{"op": "add", "path": "/nonsense", "value": 1}], JSON_PATCH, 400, "structure"),
            (patient("1"), "application/fhir+json", 400, "value"),
            ({"resourceType": "Parameters", "parameter": [{"name": "x"}]}, "application/fhir+json", 400, "structure"),
            ({"resourceType": "Parameters", "parameter": 1}, "application/fhir+json", 400, "structure"),
        ):
            answer = await self.patch("Patient/a", body, content_type)
            self.assertEqual((answer.status, issues(answer)[0][0]), (status, code), body)
        self.assertEqual(len(await self.world.versions("Patient/a")), 1)

    async def test_in_a_transaction(self) -> None:
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        await self.world.send("PUT", "Patient/b", patient("2", id="b"))
        general = {"name": "value", "valueReference": {"reference": "urn:uuid:p"}}
        link = set_active()
        link["parameter"][0]["part"][2:] = [{"name": "name", "valueString": "generalPractitioner"}, general]
        answer = await self.bundle(
            "transaction",
            entry("PATCH", "Patient/a", link),
            entry("PATCH", "Patient?identifier=urn:mrn|2", as_binary(replace_family("Neu"))),
            {**entry("POST", "Practitioner", {"resourceType": "Practitioner"}), "fullUrl": "urn:uuid:p"},
        )
        self.assertEqual(answer.status, 200, answer.body)
        one, two, three = loads(answer.body)["entry"]
        made = f"Practitioner/{three['resource']['id']}"
        self.assertEqual(one["resource"]["generalPractitioner"], [{"reference": made}])
        self.assertEqual(two["resource"]["name"][0]["family"], "Neu")
        self.assertEqual([item["response"]["status"][:3] for item in (one, two, three)], ["200", "200", "201"])

    async def test_refused_in_bundles(self) -> None:
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        for patch, status, place in (
            (patient("1"), 400, "Bundle.entry[0].resource"),
            ({**as_binary([]), "contentType": "text/plain"}, 415, "Bundle.entry[0]"),
            ({**as_binary([]), "data": "%"}, 422, "Bundle.entry[0].resource (Binary.data)"),
            (as_binary([{"op": "remove", "path": "/x"}]), 422, "Bundle.entry[0].resource (operation[0])"),
        ):
            answer = await self.bundle("transaction", entry("PATCH", "Patient/a", patch))
            self.assertEqual((answer.status, issues(answer)[0][2]), (status, place), patch)
        twice = [entry("PATCH", "Patient/a", set_active()), entry("PATCH", "Patient/a", as_binary(replace_family("x")))]
        self.assertEqual((await self.bundle("transaction", *twice)).status, 400)
        both = await self.bundle("batch", *twice)
        self.assertEqual([item["response"]["status"] for item in loads(both.body)["entry"]], ["200 OK", "200 OK"])
        self.assertEqual((await self.world.body("Patient/a"))["active"], True)

    async def test_update_with_if_none_match(self) -> None:
        body = patient("1", id="a")
        self.assertEqual((await self.world.send("PUT", "Patient/a", body, if_none_match="*")).status, 201)
        self.assertEqual((await self.world.send("PUT", "Patient/a", body, if_none_match="*")).status, 412)
        self.assertEqual((await self.world.send("PUT", "Patient/a", body, if_none_match='W/"1"')).status, 412)
        url = "Patient?identifier=urn:mrn|1"
        self.assertEqual((await self.world.send("PUT", url, patient("1"), if_none_match="*")).status, 412)
        await self.world.send("DELETE", "Patient/a")
        self.assertEqual((await self.world.send("PUT", "Patient/a", body, if_none_match="*")).status, 201)
        answer = await self.bundle("transaction", entry("PUT", "Patient/a", body, ifNoneMatch="*"))
        self.assertEqual(answer.status, 412)

    async def test_the_same_resource_twice_in_a_transaction(self) -> None:
        one, other = patient("1", id="a"), patient("2", id="a")
        for entries in (
            [entry("PUT", "Patient/a", one), entry("PUT", "Patient/a", other)],
            [entry("PUT", "Patient/a", one), entry("PUT", "Patient/a", one)],
            [entry("PUT", "Patient?identifier=urn:mrn|1", one), entry("PUT", "Patient/a", one)],
            [{**entry("POST", "Patient", one), "fullUrl": "urn:uuid:1"}] * 2,
        ):
            answer = await self.bundle("transaction", *entries)
            self.assertEqual(answer.status, 400, entries)
        self.assertEqual(await self.world.store.counts(), {})

    async def test_searches_and_operations_in_a_batch(self) -> None:
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        answer = await self.bundle(
            "batch",
            entry("POST", "Patient/_search?identifier=urn:mrn|1"),
            entry("GET", "Patient/a?_elements=identifier"),
            entry("GET", "Patient/a", ifNoneMatch='W/"1"'),
            entry("HEAD", "Patient/a"),
        )
        items = loads(answer.body)["entry"]
        self.assertEqual([item["response"]["status"][:3] for item in items], ["200", "200", "304", "200"])
        self.assertEqual(items[0]["resource"]["total"], 1)
        self.assertNotIn("name", items[1]["resource"])

    async def test_too_many_entries(self) -> None:
        answer = await self.bundle("batch", *[entry("GET", "Patient/a")] * 10_001)
        self.assertEqual((answer.status, issues(answer)[0][0]), (413, "too-costly"))


class ConcurrentPatchTests(OnPostgres):
    """The locks are PostgreSQL's."""

    async def test_concurrent_patches_are_all_applied(self) -> None:
        await self.world.send("PUT", "Patient/a", patient("1", id="a", name=[{"given": ["x"]}]))
        adds = [[{"op": "add", "path": "/name/0/given/-", "value": str(number)}] for number in range(8)]
        sent = [self.world.send("PATCH", "Patient/a", one, content_type=JSON_PATCH) for one in adds]
        answers = await defer.gatherResults([defer.Deferred.fromCoroutine(one) for one in sent])
        self.assertEqual({answer.status for answer in answers}, {200})
        given = (await self.world.body("Patient/a"))["name"][0]["given"]
        self.assertEqual(sorted(given), [*map(str, range(8)), "x"])
