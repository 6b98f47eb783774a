"""Corners of interactions: two types of one choice, GET of _search, parameters of a create, the ETag of metadata."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.structure.check import structure_issues
from ipf.ports import Caller, Json
from tests.rest.world import OnMemory

CODE = {"coding": [{"code": "a"}]}
OBSERVATION: Json = {"resourceType": "Observation", "id": "a", "status": "final", "code": CODE, "valueString": "x"}
EXTENSION = {"extension": [{"url": "urn:a", "valueCode": "b"}]}
OTHER: Json = {"valueQuantity": {"value": 1}}
TWO: Json = OBSERVATION | OTHER
XML = (
    b'<Observation xmlns="http://hl7.org/fhir"><id value="a"/><status value="final"/><code><text value="a"/></code>'
    b'<valueString value="x"/><valueQuantity><value value="1"/></valueQuantity></Observation>'
)


class ChoiceTests(TestCase):
    def test_every_choice_of_r4(self) -> None:
        """Two types of one choice are an issue at every element that has one; one type, with its `_`, is none."""
        known, checked = definitions(), 0
        for name in sorted(known.resource_types):
            for element in known.members(name).values():
                if not element.choice:
                    continue
                first, second = (element.json_name(kind) for kind in element.types[:2])
                said = [one.text for one in structure_issues({"resourceType": name, first: {}, second: {}})]
                self.assertTrue(any(f"{element.name}[x] has one value" in one for one in said), (element.path, said))
                one_type = {"resourceType": name, first: {}, f"_{first}": EXTENSION}
                said = [one.text for one in structure_issues(one_type)]
                self.assertFalse(any("has one value" in one for one in said), (element.path, said))
                checked += 1
        self.assertGreater(checked, 60)

    def test_the_sibling_of_a_primitive_counts(self) -> None:
        for members, count in (
            ({"valueString": "x", "_valueString": EXTENSION}, 0),
            ({"_valueString": EXTENSION}, 0),
            ({"_valueString": EXTENSION, **OTHER}, 1),
            ({"_valueString": EXTENSION, "_valueDateTime": EXTENSION}, 1),
            ({"valueString": "x", "effectiveDateTime": "2026"}, 0),
            ({"component": [{"code": CODE, "valueString": "x", **OTHER}]}, 1),
            ({"extension": [{"url": "urn:a", "valueString": "x", "valueCode": "y"}]}, 1),
        ):
            found = structure_issues({"resourceType": "Observation", "status": "final", "code": CODE, **members})
            self.assertEqual(len(found), count, (members, found))


class CornerTests(OnMemory):
    async def test_two_types_of_a_choice_are_refused_everywhere(self) -> None:
        await self.world.send("PUT", "Observation/a", OBSERVATION)
        add = [{"op": "add", "path": "/valueQuantity", "value": {"value": 1}}]
        parts = [
            {"name": "type", "valueCode": "add"}, {"name": "path", "valueString": "Observation"},
            {"name": "name", "valueString": "value"}, {"name": "value", "valueQuantity": {"value": 1}},
        ]  # fmt: skip
        patch = {"resourceType": "Parameters", "parameter": [{"name": "operation", "part": parts}]}
        xml_patch = (
            b'<diff xmlns="http://hl7.org/fhir"><add sel="/Observation/valueString" pos="after"><valueQuantity>'
            b'<value value="1"/></valueQuantity></add></diff>'
        )
        entry = {"resource": TWO, "request": {"method": "PUT", "url": "Observation/a"}}
        for method, url, body, kind in (
            ("POST", "Observation", dumps(TWO), "application/fhir+json"),
            ("PUT", "Observation/a", dumps(TWO), "application/fhir+json"),
            ("PUT", "Observation/a", XML, "application/fhir+xml"),
            ("PATCH", "Observation/a", dumps(add), "application/json-patch+json"),
            ("PATCH", "Observation/a", dumps(OTHER), "application/merge-patch+json"),
            ("PATCH", "Observation/a", dumps(patch), "application/fhir+json"),
            ("PATCH", "Observation/a", xml_patch, "application/xml-patch+xml"),
            (
                "POST",
                "",
                dumps({"resourceType": "Bundle", "type": "transaction", "entry": [entry]}),
                "application/json",
            ),
        ):
            answer = await self.world.send(method, url, body, content_type=kind)
            self.assertIn(answer.status, (400, 422), (method, kind, answer.body))
        self.assertEqual((await self.world.body("Observation/a"))["meta"]["versionId"], "1")

    async def test_a_search_by_get_of_search(self) -> None:
        await self.world.send("PUT", "Observation/a", {**OBSERVATION, "subject": {"reference": "Patient/p"}})
        await self.world.send("PUT", "Patient/p", {"resourceType": "Patient"})
        for url in ("Observation/_search?status=final", "Patient/p/Observation/_search", "_search?_type=Observation"):
            answer = await self.world.send("GET", url)
            self.assertEqual(
                (answer.status, [one["resource"]["id"] for one in loads(answer.body)["entry"]]), (200, ["a"]), url
            )
        for scope, status in (("system/Observation.s", 200), ("system/Observation.r", 401)):
            self.world.caller = Caller(subject="u", client="c", scopes=(scope,))
            self.assertEqual((await self.world.send("GET", "Observation/_search?status=final")).status, status)

    async def test_parameters_of_a_create(self) -> None:
        """What begins with `_` and is no search parameter is ignored; a search is refused."""
        for url, status in (
            ("Observation?_foo=1", 201), ("Observation?_pretty=true&_foo:bar=1", 201), ("Observation?_id=a", 400),
            ("Observation?_tag=a", 400), ("Observation?_has:Group:member:_id=a", 400), ("Observation?foo=1", 400),
        ):  # fmt: skip
            answer = await self.world.send("POST", url, {**OBSERVATION, "id": "b"})
            self.assertEqual(answer.status, status, (url, answer.body))

    async def test_the_etag_of_metadata(self) -> None:
        first = await self.world.send("GET", "metadata")
        tag = dict(first.headers)["ETag"]
        for sent, status in ((tag, 304), (tag.removeprefix("W/"), 304), ('W/"other"', 200), ("*", 304)):
            answer = await self.world.send("GET", "metadata", if_none_match=sent)
            self.assertEqual((answer.status, dict(answer.headers)["ETag"]), (status, tag), sent)
            self.assertEqual(bool(answer.body), status == 200)
