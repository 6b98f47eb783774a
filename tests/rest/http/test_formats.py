"""Presentation of responses: JSON, XML, pretty, selected elements; and Binary as raw content."""

from __future__ import annotations

from base64 import b64encode

from ipf.fhir.model.json import loads
from ipf.fhir.xml.writer import from_xml
from ipf.ports import Answer, Json
from tests.rest.world import OnMemory, issues, patient

JSON, XML = "application/fhir+json;charset=utf-8", "application/fhir+xml;charset=utf-8"
FULL: Json = {
    "resourceType": "Patient",
    "id": "a",
    "text": {"status": "generated", "div": '<div xmlns="http://www.w3.org/1999/xhtml">A</div>'},
    "identifier": [{"system": "urn:mrn", "value": "1"}],
    "name": [{"family": "Muster"}],
    "photo": [{"title": "p"}],
    "multipleBirthInteger": 2,
    "contact": [{"name": {"family": "B"}}],
    "link": [{"other": {"reference": "Patient/b"}, "type": "seealso"}],
    "extension": [{"url": "u", "valueDecimal": 1}],
}


class FormatTests(OnMemory):
    async def get(self, url: str, **headers: str) -> Answer:
        """One read."""
        return await self.world.send("GET", url, **headers)

    async def resource(self, url: str) -> Json:
        """The result of a read, without server-assigned elements but with meta.tag."""
        answer = await self.get(url)
        self.assertEqual(answer.status, 200, answer.body)
        found: Json = loads(answer.body)
        return found

    async def test_content_negotiation(self) -> None:
        await self.world.send("PUT", "Patient/a", FULL)
        for url, accept, content_type in (
            ("Patient/a", "application/fhir+xml", XML),
            ("Patient/a", "application/xml", XML),
            ("Patient/a", "application/fhir+xml;q=0.5, application/fhir+json;q=0.9", JSON),
            ("Patient/a", "application/fhir+xml;q=0.9, application/fhir+json;q=0.5", XML),
            ("Patient/a", "application/fhir+xml, application/fhir+json", JSON),
            ("Patient/a", "application/fhir+xml;q=0, */*", JSON),
            ("Patient/a", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", JSON),
            ("Patient/a?_format=xml", "application/fhir+json", XML),
            ("Patient/a?_format=application/fhir+xml", "*/*", XML),
            ("Patient/a?_format=json", "application/fhir+xml", JSON),
        ):
            answer = await self.get(url, accept=accept)
            self.assertEqual((answer.status, answer.content_type), (200, content_type), (url, accept))
            body = from_xml(answer.body) if content_type == XML else loads(answer.body)
            self.assertEqual(body["name"], FULL["name"])

    async def test_every_response_as_xml(self) -> None:
        await self.world.send("PUT", "Patient/a", FULL)
        for url in ("Patient?identifier=urn:mrn|1", "Patient/a/_history", "metadata", "Patient/a/_history/1"):
            answer = await self.get(url, accept="application/fhir+xml")
            self.assertEqual((answer.status, answer.content_type), (200, XML), url)
            again = from_xml(answer.body)
            if again["resourceType"] == "Bundle":
                self.assertEqual(again["entry"][0]["resource"]["photo"], FULL["photo"])
        missing = await self.get("Patient/b", accept="application/fhir+xml")
        self.assertEqual((missing.status, from_xml(missing.body)["resourceType"]), (404, "OperationOutcome"))

    async def test_xml_requests(self) -> None:
        body = b'<Patient xmlns="http://hl7.org/fhir"><id value="x"/><birthDate value="2000-01"/></Patient>'
        answer = await self.world.send("PUT", "Patient/x", body, content_type="application/fhir+xml; charset=utf-8")
        self.assertEqual((answer.status, loads(answer.body)["birthDate"]), (201, "2000-01"))
        bad = await self.world.send("PUT", "Patient/x", b"<Patient>", content_type="application/fhir+xml")
        self.assertEqual((bad.status, issues(bad)[0][0]), (400, "structure"))

    async def test_pretty(self) -> None:
        await self.world.send("PUT", "Patient/a", FULL)
        answer = await self.get("Patient/a?_pretty=true")
        self.assertIn(b'\n  "id": "a",\n', answer.body)
        self.assertEqual(loads(answer.body)["name"], FULL["name"])

    async def test_selected_elements(self) -> None:
        await self.world.send("PUT", "Patient/a", FULL)
        always = {"resourceType", "id", "meta"}
        for asked, names in (
            ("_summary=true", {"identifier", "name", "link"}),
            ("_summary=text", {"text"}),
            ("_summary=data", set(FULL) - {"text"}),
            ("_elements=name,multipleBirth", {"name", "multipleBirthInteger"}),
            ("_elements=Patient.photo", {"photo"}),
        ):
            for url in (f"Patient/a?{asked}", f"Patient/a/_history/1?{asked}"):
                found = await self.resource(url)
                self.assertEqual(set(found), always | names, asked)
                self.assertEqual(found["meta"]["tag"][0]["code"], "SUBSETTED")
        whole = await self.resource("Patient/a?_summary=false")
        self.assertEqual((set(whole), "tag" in whole["meta"]), (always | set(FULL), False))
        for elements, named in (
            ("", "element names"), ("nme", "nme is no element of Patient"), ("name,name.family", "name.family"),
            ("Observation.nme", "nme is no element of Observation"), ("name,,photo", ""), ("Observation.value", ""),
        ):  # fmt: skip
            answer = await self.get(f"Patient?_elements={elements}")
            self.assertEqual(answer.status, 400 if named else 200, elements)
            self.assertIn(named.encode(), answer.body)
        for url, status in (
            ("Patient?_include=Patient:general-practitioner&_elements=qualification", 200), ("?_elements=value", 200),
            ("?_elements=nme", 400), ("Patient/a/Observation?_elements=value", 200), ("Patient/a/*?_elements=nme", 400),
            ("Patient/a/Observation?_elements=photo", 400), ("Patient/a/_history?_elements=photo", 200),
        ):  # fmt: skip
            self.assertEqual((await self.get(url)).status, status, url)

    async def test_mandatory_elements_stay(self) -> None:
        observation = {"resourceType": "Observation", "id": "o", "status": "final", "code": {"text": "x"},
                       "valueString": "y", "note": [{"text": "n"}]}  # fmt: skip
        await self.world.send("PUT", "Observation/o", observation)
        found = await self.resource("Observation/o?_elements=value")
        self.assertEqual(set(found), {"resourceType", "id", "meta", "status", "code", "valueString"})

    async def test_searches_and_their_links(self) -> None:
        for number in ("1", "2"):
            await self.world.send("POST", "Patient", patient(number, photo=[{"title": "p"}]))
        found = await self.resource("Patient?_count=1&_elements=identifier")
        self.assertEqual(set(found["entry"][0]["resource"]), {"resourceType", "id", "meta", "identifier"})
        links = {link["relation"]: link["url"] for link in found["link"]}
        self.assertEqual({url.endswith("_elements=identifier") for url in links.values()}, {True})
        self.assertIn("next", links)

    async def test_binary_content(self) -> None:
        content = bytes(range(256))
        sent = {"content_type": "image/png", "x_security_context": "Patient/a"}
        made = await self.world.send("PUT", "Binary/b", content, **sent)
        self.assertEqual(made.status, 201)
        stored = await self.resource("Binary/b?_format=json")
        self.assertEqual((stored["contentType"], stored["data"]), ("image/png", b64encode(content).decode()))
        for accept in ("*/*", "image/png", "text/html,*/*;q=0.8"):
            answer = await self.get("Binary/b", accept=accept)
            self.assertEqual((answer.status, answer.content_type, answer.body), (200, "image/png", content), accept)
        headers = dict((await self.get("Binary/b", accept="image/png")).headers)
        self.assertEqual((headers["X-Content-Type-Options"], headers["X-Security-Context"]), ("nosniff", "Patient/a"))
        self.assertEqual((await self.get("Binary/b", accept="application/fhir+json")).content_type, JSON)
        self.assertEqual((await self.get("Binary/b", accept="application/fhir+xml")).content_type, XML)
        created = await self.world.send("POST", "Binary", b"a,b", content_type="text/csv")
        self.assertEqual(created.status, 201)
        self.assertEqual((await self.world.send("POST", "Binary", b"", content_type="text/csv")).status, 400)
        self.assertEqual((await self.get("Binary/none", accept="image/png")).status, 404)

    async def test_options(self) -> None:
        answer = await self.world.send("OPTIONS", "Patient/a")
        self.assertEqual((answer.status, "GET" in dict(answer.headers)["Allow"]), (204, True))
