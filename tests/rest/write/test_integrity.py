"""Optional referential integrity."""

from __future__ import annotations

from ipf.fhir.model.json import loads
from ipf.ports import OPEN, Answer, Caller, Json
from tests.rest.world import OnMemory, OnSharedPostgres, Suite, World, issues, patient


def visit(subject: str, id: str = "e") -> Json:
    """An Encounter of somebody."""
    return {"resourceType": "Encounter", "id": id, "subject": {"reference": subject}}


def entry(method: str, url: str, resource: Json | None = None, full_url: str | None = None) -> Json:
    """A Bundle entry."""
    made: Json = {"request": {"method": method, "url": url}}
    made.update({"resource": resource} if resource else {}, **({"fullUrl": full_url} if full_url else {}))
    return made


class IntegritySuite(Suite):
    world: World

    async def bundle(self, *entries: Json, kind: str = "transaction") -> Answer:
        """A transaction."""
        return await self.world.send("POST", "", {"resourceType": "Bundle", "type": kind, "entry": list(entries)})

    async def test_off(self) -> None:
        self.world.integrity = False
        self.assertEqual((await self.world.send("PUT", "Encounter/e", visit("Patient/none"))).status, 201)

    async def test_references_to_missing_resources(self) -> None:
        answer = await self.world.send("PUT", "Encounter/e", visit("Patient/a"))
        self.assertEqual(
            (answer.status, issues(answer)[0][1]), (422, "the referenced resource Patient/a does not exist")
        )
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        for reference in ("Patient/a", "Patient/a/_history/1", "#inner", "urn:uuid:1", "http://other/fhir/Patient/z"):
            self.assertEqual((await self.world.send("POST", "Encounter", visit(reference))).status, 201, reference)

    async def test_deletions_of_referenced_resources(self) -> None:
        await self.world.send("PUT", "Patient/a", patient("1", id="a", link=[{"other": {"reference": "Patient/a"}}]))
        await self.world.send("PUT", "Encounter/e", visit("Patient/a"))
        for url in ("Patient/a", "Patient?identifier=urn:mrn|1"):
            answer = await self.world.send("DELETE", url)
            self.assertEqual((answer.status, issues(answer)[0][1]), (409, "Patient/a is referenced by Encounter/e"))
        await self.world.send("DELETE", "Encounter/e")
        self.assertEqual((await self.world.send("DELETE", "Patient/a")).status, 204)
        self.assertEqual((await self.world.send("PUT", "Encounter/e", visit("Patient/a"))).status, 422)

    async def test_transactions_see_their_own_writes(self) -> None:
        bring = [entry("PUT", "Encounter/e", visit("Patient/a")), entry("PUT", "Patient/a", patient("1", id="a"))]
        self.assertEqual((await self.bundle(*bring)).status, 200)
        new = entry("POST", "Patient", patient("2"), "urn:uuid:2")
        self.assertEqual((await self.bundle(entry("POST", "Encounter", visit("urn:uuid:2")), new)).status, 200)
        self.assertEqual((await self.bundle(entry("DELETE", "Patient/a"))).status, 409)
        dangling = [entry("DELETE", "Patient/a"), entry("PUT", "Encounter/e", visit("Patient/a"))]
        self.assertEqual((await self.bundle(*dangling)).status, 422)
        self.assertEqual((await self.bundle(entry("DELETE", "Encounter/e"), entry("DELETE", "Patient/a"))).status, 200)

    async def test_batches_and_patches(self) -> None:
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        answer = await self.bundle(
            entry("PUT", "Encounter/e", visit("Patient/a")),
            entry("PUT", "Encounter/f", visit("Patient/none", "f")),
            kind="batch",
        )
        statuses = [item["response"]["status"][:3] for item in loads(answer.body)["entry"]]
        self.assertEqual(statuses, ["201", "422"])
        operations = [{"op": "replace", "path": "/subject/reference", "value": "Patient/none"}]
        patched = await self.world.send("PATCH", "Encounter/e", operations, content_type="application/json-patch+json")
        self.assertEqual(patched.status, 422)

    async def test_what_a_client_does_not_see_is_missing(self) -> None:
        """It can refer to nothing hidden, and is not kept from deleting by what it does not see."""
        await self.world.send("PUT", "Practitioner/d", {"resourceType": "Practitioner", "id": "d"})
        doctor = {"generalPractitioner": [{"reference": "Practitioner/d"}]}
        await self.world.send("PUT", "Patient/a", patient("1", id="a", **doctor))
        await self.world.send("PUT", "Patient/b", patient("2", id="b", gender="male"))
        await self.world.send("PUT", "Encounter/e", visit("Patient/a"))
        self.world.caller = Caller("ada", "app", ("system/Patient.cruds?gender:missing=true", "system/Encounter.c"))
        for subject, status in (("Patient/a", 201), ("Patient/b", 422), ("Patient/none", 422), ("Encounter/e", 422)):
            made = {name: value for name, value in visit(subject).items() if name != "id"}
            answer = await self.world.send("POST", "Encounter", made)
            self.assertEqual(answer.status, status, (subject, answer.body))
        kept = await self.world.send("PUT", "Patient/a", patient("1", "Other", id="a", **doctor))
        self.assertEqual(kept.status, 200, kept.body)
        self.assertEqual((await self.world.send("POST", "Patient", patient("3", **doctor))).status, 422)
        operations = [{"op": "test", "path": "/gender", "value": "female"}]
        for url in ("Patient/b", "Patient/none"):
            answer = await self.world.send("PATCH", url, operations, content_type="application/json-patch+json")
            self.assertEqual(answer.status, 404, answer.body)
            self.assertEqual((await self.world.send("DELETE", url)).status, 204)
        self.assertEqual((await self.world.send("DELETE", "Patient/a")).status, 204)
        self.world.caller = OPEN
        self.assertEqual((await self.world.send("GET", "Patient/b")).status, 200)


class IntegrityTests(IntegritySuite, OnMemory):
    async def setUp(self) -> None:
        await super().setUp()
        self.world.integrity = True


class IntegrityOnPostgresTests(IntegritySuite, OnSharedPostgres):
    """SQL finds and locks what is referred to."""

    async def setUp(self) -> None:
        await super().setUp()
        self.world.integrity = True
