"""Composition/$document on the in-memory world and on PostgreSQL."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from ipf.fhir.structure.check import check_structure
from ipf.ports import OPEN, Answer, Caller, Json
from ipf.rest.documents import document
from tests.rest.world import BASE, OnMemory, issues, patient


def ref(target: str) -> Json:
    """A Reference."""
    return {"reference": target}


def composition(id: str = "c", **members: Any) -> Json:
    """A Composition about Patient/a."""
    return {
        "resourceType": "Composition", "id": id, "status": "final", "type": {"text": "x"}, "date": "2024-01-01",
        "title": "x", "subject": ref("Patient/a"), "author": [ref(f"{BASE}/Practitioner/d")],
        "custodian": ref("Organization/o"), "section": [{"title": "s", "entry": [ref("Observation/o1")]}], **members,
    }  # fmt: skip


RESOURCES: tuple[Json, ...] = (
    patient("1", id="a", managingOrganization=ref("Organization/o")),
    {"resourceType": "Practitioner", "id": "d"},
    {"resourceType": "Organization", "id": "o", "partOf": ref("Organization/parent")},
    {"resourceType": "Organization", "id": "parent"},
    {"resourceType": "Observation", "id": "o1", "status": "final", "code": {"text": "x"}, "subject": ref("Patient/a"),
     "hasMember": [ref("Observation/o2"), ref("Observation/gone"), ref("https://other.example.org/Observation/9")]},
    {"resourceType": "Observation", "id": "o2", "status": "final", "code": {"text": "x"}, "subject": ref("Patient/a"),
     "derivedFrom": [ref("Observation/o1")]},
    {"resourceType": "Observation", "id": "apart", "status": "final", "code": {"text": "x"},
     "subject": ref("Patient/a")},
    composition(),
)  # fmt: skip
ALL = ["Composition/c", "Patient/a", "Practitioner/d", "Organization/o", "Observation/o1", "Organization/parent",
       "Observation/o2"]  # fmt: skip


class MemoryDocument(OnMemory):
    async def fill(self) -> None:
        """Store them."""
        self.world.caller = OPEN
        for one in RESOURCES:
            answer = await self.world.send("PUT", f"{one['resourceType']}/{one['id']}", one)
            self.assertEqual(answer.status, 201, answer.body)

    async def ask(self, url: str = "Composition/c/$document", body: Any = None, **headers: str) -> Answer:
        """One request."""
        return await self.world.send("GET" if body is None else "POST", url, body, **headers)

    def names(self, answer: Answer) -> list[str]:
        """`Type/id` of the entries of a document."""
        self.assertEqual(answer.status, 200, answer.body)
        bundle = loads(answer.body)
        self.assertEqual(bundle["type"], "document")
        found = [f"{one['resource']['resourceType']}/{one['resource']['id']}" for one in bundle["entry"]]
        self.assertEqual([one["fullUrl"] for one in bundle["entry"]], [f"{BASE}/{name}" for name in found])
        return found

    async def test_what_is_in_it(self) -> None:
        await self.fill()
        answer = await self.ask()
        found = self.names(answer)
        self.assertEqual((found[0], sorted(found)), ("Composition/c", sorted(ALL)))
        bundle = loads(answer.body)
        self.assertEqual(bundle["timestamp"], "2026-01-31T08:05:09.120Z")
        self.assertEqual(bundle["identifier"]["system"], "urn:ietf:rfc:3986")
        other = loads((await self.ask()).body)
        self.assertNotEqual(bundle["identifier"], other["identifier"])
        check_structure(bundle)

    async def test_by_the_parameter(self) -> None:
        await self.fill()
        for id in ("c", "Composition/c", f"{BASE}/Composition/c"):
            self.assertEqual(sorted(self.names(await self.ask(f"Composition/$document?id={id}"))), sorted(ALL), id)

    async def test_persist(self) -> None:
        await self.fill()
        body = {"resourceType": "Parameters", "parameter": [{"name": "persist", "valueBoolean": True}]}
        answer = await self.ask(body=body)
        self.assertEqual(sorted(self.names(answer)), sorted(ALL))
        location = dict(answer.headers)["Location"].removeprefix(f"{BASE}/")
        stored = await self.world.send("GET", location)
        self.assertEqual((stored.status, loads(stored.body)), (200, loads(answer.body)))
        self.assertEqual((await self.ask("Composition/c/$document?persist=true")).status, 400)

    async def test_missing(self) -> None:
        await self.fill()
        gone = composition("m", section=[{"entry": [ref("Observation/o1"), ref("Observation/gone")]}])
        await self.world.send("PUT", "Composition/m", gone)
        refused = await self.ask("Composition/m/$document")
        self.assertEqual(refused.status, 422)
        self.assertEqual(issues(refused)[0][2], "Composition.section[0].entry[1]")
        lenient = self.names(await self.ask("Composition/m/$document", prefer="handling=lenient"))
        self.assertIn("Observation/o1", lenient)
        await self.world.send("DELETE", "Composition/m")
        for url, status in (
            ("Composition/m/$document", 410), ("Composition/none/$document", 404), ("Patient/a/$document", 404),
            ("Composition/$document", 400), ("Composition/$document?id=a/b/c", 400),
            ("Composition/c/$document?graph=http://x", 400), ("Composition/c/$document?what=1", 400),
        ):  # fmt: skip
            self.assertEqual((await self.ask(url)).status, status, url)

    async def test_limits_of_the_caller(self) -> None:
        await self.fill()
        self.world.caller = Caller(
            "ada", "app", ("system/Composition.rs", "system/Patient.rs", "system/Observation.rs")
        )
        self.assertEqual((await self.ask()).status, 422)
        seen = self.names(await self.ask(prefer="handling=lenient"))
        self.assertEqual(sorted(seen), ["Composition/c", "Observation/o1", "Observation/o2", "Patient/a"])
        self.world.caller = Caller("ada", "app", ("patient/*.rs",), patient="other")
        self.assertEqual((await self.ask()).status, 404)
        self.world.caller = Caller("ada", "app", ("system/Patient.rs",))
        self.assertEqual((await self.ask()).status, 401)
        self.world.caller = Caller("ada", "app", ("system/*.rs",))
        self.assertEqual(
            (await self.ask("Composition/c/$document?persist=true", {"resourceType": "Parameters"})).status, 401
        )

    async def test_too_many(self) -> None:
        await self.fill()
        self.patch(document, "MAX_RESOURCES", 5)
        answer = await self.ask()
        self.assertEqual((answer.status, issues(answer)[0][0]), (400, "too-costly"))
