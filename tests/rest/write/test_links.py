"""Links between the entries of a transaction, replaced by the type of the element: POST /fhir to the stored resource.

Source: https://hl7.org/fhir/R4/http.html#trules: "resource references, elements of type uri, url, oid, uuid, and
<a href="" & <img src="" in the narrative.  Elements of type canonical are not replaced."
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import loads
from ipf.fhir.structure.check import structure_issues
from ipf.ports import Json
from ipf.rest.write.links import Links, rewrite
from tests.rest.world import BASE, OnMemory, Suite, World, patient

URN = "urn:uuid:0190f7a4-2b6e-7cc0-8a11-2f6d3c1b9e55"
OID = "urn:oid:1.2.276.0.76"
REPLACED = {"uri", "url", "oid", "uuid"}
URL = "http://example.org/extension"
NARRATIVES = [
    ('<a href="{}">x</a>', True),
    ("<a class='b' href = '{}'>x</a>", True),
    ('<img alt="a > b" src="{}"/>', True),
    ("<p>{}</p>", False),
    ('<p>href="{}"</p>', False),
    ('<a name="{}">x</a>', False),
    ("<a title=\" href='{}'\">x</a>", False),
    ('<p title="{}">x</p>', False),
    ('<a href="{}1">x</a>', False),
]


def texts_of(type_path: str, name: str) -> Iterator[tuple[str, bool]]:
    """(JSON name, whether links are replaced) of an element that may have a text."""
    element = definitions().element(type_path, name)
    assert element is not None
    for one in element.types:
        if one in definitions().primitive_types:
            is_reference = (type_path, name) == ("Reference", "reference")
            yield element.json_name(one), one in REPLACED or is_reference


def extensions() -> Iterator[tuple[Json, bool]]:
    """An extension for each type of value, and each text of each data type, that is valid with the name of an entry."""
    value = definitions().element("Extension", "value")
    assert value is not None
    for kind in value.types:
        name = value.json_name(kind)
        if kind in definitions().primitive_types:
            yield {"url": URL, name: OID if kind == "oid" else URN}, kind in REPLACED
            continue
        for member, element in definitions().members(kind).items():
            for json_name, is_replaced in texts_of(kind, member):
                yield {"url": URL, name: {json_name: [URN] if element.many else URN}}, is_replaced


def valid_extensions() -> list[tuple[Json, bool]]:
    """Those that the structure of R4 allows."""
    found = [
        (extension, is_replaced)
        for extension, is_replaced in extensions()
        if not structure_issues({"resourceType": "Basic", "extension": [extension]})
    ]
    assert len(found) > 80, len(found)
    return found


def entry(resource: Json, full_url: str | None = None) -> Json:
    """A POST entry."""
    made: Json = {"resource": resource, "request": {"method": "POST", "url": resource["resourceType"]}}
    return made if full_url is None else {**made, "fullUrl": full_url}


class LinkSuite(Suite):
    world: World

    async def stored(self, *resources: Json, **names: str) -> list[Json]:
        """What a transaction with a Patient (URN) and an Organization (OID) makes of the resources."""
        people = entry(patient("1"), URN), entry({"resourceType": "Organization", "name": "o"}, OID)
        entries = [*people, *(entry(one, names.get(one["resourceType"])) for one in resources)]
        bundle = {"resourceType": "Bundle", "type": "transaction", "entry": entries}
        answer = await self.world.send("POST", "", bundle)
        self.assertEqual(answer.status, 200, answer.body)
        found = [one["response"]["location"] for one in loads(answer.body)["entry"]]
        found = [one.removeprefix(f"{BASE}/").partition("/_history")[0] for one in found]
        self.person, self.organization = found[:2]
        return [await self.world.body(one) for one in found[2:]]

    def expected(self, value: Any, is_replaced: bool) -> Any:
        """The value as it has to be stored."""
        if isinstance(value, dict):
            return {name: self.expected(one, is_replaced) for name, one in value.items()}
        if isinstance(value, list):
            return [self.expected(one, is_replaced) for one in value]
        return {URN: self.person, OID: self.organization}.get(value, value) if is_replaced else value

    async def test_each_type_of_extension(self) -> None:
        table = valid_extensions()
        found = await self.stored(*({"resourceType": "Basic", "extension": [one]} for one, _ in table))
        for (extension, is_replaced), one in zip(table, found, strict=True):
            self.assertEqual(one["extension"], [self.expected(extension, is_replaced)], extension)

    async def test_each_place_of_an_extension(self) -> None:
        """In contained resources, data types, primitives, modifiers and extensions of extensions."""
        table = [
            *[one for one in valid_extensions() if "Reference" not in str(one[0])][::7],
            ({"url": URL, "valueUri": URN}, True),
            ({"url": URL, "valueString": URN}, False),
            ({"url": URL, "valueReference": {"reference": URN}}, True),
        ]
        every = [one for one, _ in table]
        places: list[Json] = [
            {"contained": [{"resourceType": "Organization", "id": "o", "extension": every}]},
            {"modifierExtension": every},
            {"birthDate": "1990-01-01", "_birthDate": {"extension": every}},
            {"name": [{"given": ["a", None], "_given": [None, {"extension": every}]}]},
            {"contact": [{"name": {"extension": every, "family": "x"}}]},
            {"extension": [{"url": URL, "extension": every}]},
        ]
        found = await self.stored(*({"resourceType": "Patient", **one} for one in places))
        expected = [self.expected(one, is_replaced) for one, is_replaced in table]
        for place, one in zip(places, found, strict=True):
            self.assertIn(repr(expected), repr(one), place)

    async def test_other_elements(self) -> None:
        """Identifiers, canonicals, narratives, uris named reference, and lists."""
        identifier = {"system": "urn:ietf:rfc:3986", "value": URN}
        sent: list[tuple[Json, set[str]]] = [
            ({"resourceType": "QuestionnaireResponse", "status": "completed", "questionnaire": URN}, set()),
            ({"resourceType": "DocumentReference", "status": "current", "masterIdentifier": identifier}, set()),
            ({"resourceType": "Patient", "identifier": [{"system": URN, "value": URN}]}, {"system"}),
            ({"resourceType": "Immunization", "education": [{"reference": URN, "documentType": URN}]}, {"reference"}),
            ({"resourceType": "CarePlan", "instantiatesUri": [URN, "x"], "instantiatesCanonical": [URN]}, {"x"}),
            ({"resourceType": "Observation", "status": "final", "valueString": URN, "code": {"text": URN}}, set()),
            ({"resourceType": "Basic", "meta": {"source": URN, "profile": [URN]}, "code": {"text": "x"}}, {"source"}),
            ({"resourceType": "Task", "status": "draft", "focus": {"reference": URN, "display": URN}}, {"reference"}),
        ]
        found = await self.stored(*(one for one, _ in sent))
        for (resource, _), one in zip(sent, found, strict=True):
            self.assertEqual({**one, "id": 0, "meta": 0}, {**self.marked(resource), "id": 0, "meta": 0})
        self.assertEqual(found[6]["meta"]["source"], self.person)
        self.assertEqual(found[6]["meta"]["profile"], [URN])

    def marked(self, resource: Json) -> Json:
        """The resource as it has to be stored, by the names of the elements that are links."""
        links = {"system", "reference", "instantiatesUri", "source"}
        return {name: self._marked(name in links, one, links) for name, one in resource.items()}

    def _marked(self, is_link: bool, value: Any, links: set[str]) -> Any:
        if isinstance(value, dict):
            return {name: self._marked(name in links, one, links) for name, one in value.items()}
        if isinstance(value, list):
            return [self._marked(is_link, one, links) for one in value]
        return self.person if is_link and value == URN else value

    async def test_narratives(self) -> None:
        def narrative(text: str) -> Json:
            return {"status": "generated", "div": f'<div xmlns="http://www.w3.org/1999/xhtml">{text}</div>'}

        found = await self.stored(
            *({"resourceType": "Basic", "text": narrative(one.format(URN))} for one, _ in NARRATIVES)
        )
        for (text, is_replaced), one in zip(NARRATIVES, found, strict=True):
            self.assertEqual(one["text"], narrative(text.format(self.person if is_replaced else URN)), text)

    async def test_canonical_urls_of_entries(self) -> None:
        """A `fullUrl` that is the canonical url of its resource means it where definitions are named."""
        url = "http://example.org/CodeSystem/c"
        system = {"resourceType": "CodeSystem", "url": url, "status": "draft", "content": "complete"}
        coded = {"coding": [{"system": url, "code": "c"}]}
        referring = {"resourceType": "Basic", "code": coded, "subject": {"reference": url}}
        stored, basic = await self.stored(system, referring, CodeSystem=url)
        self.assertEqual((stored["url"], basic["code"]), (url, coded))
        self.assertEqual(basic["subject"], {"reference": f"CodeSystem/{stored['id']}"})

    async def test_bundles_as_resources(self) -> None:
        """The entries of a stored Bundle are meant before those of the transaction."""
        inner = "urn:uuid:0190f7a4-2b6e-7cc0-8a11-2f6d3c1b9e56"
        basic = {"resourceType": "Basic", "subject": {"reference": inner}, "author": {"reference": URN}}
        entries = [{"fullUrl": inner, "resource": basic}]
        document = {"resourceType": "Bundle", "type": "collection", "entry": entries}
        (found, _) = await self.stored(document, patient("2"), Patient=inner)
        stored = found["entry"][0]
        self.assertEqual((stored["fullUrl"], stored["resource"]["subject"]), (inner, {"reference": inner}))
        self.assertEqual(stored["resource"]["author"], {"reference": self.person})

    async def test_uris_that_look_like_conditional_references(self) -> None:
        """`Expression.reference` and others of the name are no Reference."""
        url = f"{BASE}/Patient/1"
        education = [{"reference": "Patient?identifier=none"}, {"reference": url}]
        (found,) = await self.stored({"resourceType": "Immunization", "education": education})
        self.assertEqual(found["education"], education)

    async def test_batch(self) -> None:
        """The entries of a batch do not refer to each other, so nothing is replaced."""
        basic = {"resourceType": "Basic", "extension": [{"url": URL, "valueUri": URN}], "subject": {"reference": URN}}
        bundle = {"resourceType": "Bundle", "type": "batch", "entry": [entry(patient("1"), URN), entry(basic)]}
        answer = await self.world.send("POST", "", bundle)
        location = loads(answer.body)["entry"][1]["response"]["location"]
        found = await self.world.body(location.removeprefix(f"{BASE}/").partition("/_history")[0])
        self.assertEqual({**found, "id": 0, "meta": 0}, {**basic, "id": 0, "meta": 0})


class LinkOnMemoryTests(LinkSuite, OnMemory):
    pass


class EveryElementTests(TestCase):
    def test_every_text_of_every_type(self) -> None:
        """Each element of R4 that may have a text, alone, in each type and inner structure."""
        names = {URN: "Patient/1"}
        links = Links(names, names, names)
        tested = 0
        for resource_type in sorted(definitions().resource_types):
            for resource, is_replaced in _resources(resource_type, resource_type, ()):
                is_replaced = is_replaced and "fullUrl" not in repr(resource)  # it names the entry itself
                found = repr(rewrite(resource, links))
                self.assertEqual((URN in found, "Patient/1" in found), (not is_replaced, is_replaced), resource)
                tested += 1
        self.assertGreater(tested, 2500)


def _resources(resource_type: str, path: str, seen: tuple[str, ...]) -> Iterator[tuple[Json, bool]]:
    """Resources with one text each, in the type itself and in its inner structures."""
    for value, is_replaced in _structures(path, seen):
        yield {**value, "resourceType": resource_type}, is_replaced


def _structures(path: str, seen: tuple[str, ...]) -> Iterator[tuple[Json, bool]]:
    for name, element in definitions().members(path).items():
        for json_name, is_replaced in texts_of(path, name):
            yield {json_name: [URN] if element.many else URN}, is_replaced
        inner = element.types[0]
        if "." in inner and inner not in seen:
            for value, is_replaced in _structures(inner, (*seen, inner)):
                yield {name: [value] if element.many else value}, is_replaced
