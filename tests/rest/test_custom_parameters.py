"""SearchParameters posted by clients: served in every process, also for older resources."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from ipf.fhir.search.parameters.custom import install
from ipf.pipeline.maintenance.reindex import Reindex
from ipf.ports import Json
from ipf.rest.write.commit import refresh
from ipf.store.resources.reindex import PostgresReindexQueue
from ipf.store.resources.resources import PostgresFhirStore
from ipf.subscriptions.matching import MatchingIndex
from tests.rest.interactions.pages import entries
from tests.rest.world import OnMemory, OnPostgres, Suite, World, issues

URL = "http://example.org/StructureDefinition/shoe"
STRICT = "handling=strict"


def parameter(code: str, kind: str, expression: str, *bases: str, **more: Any) -> Json:
    """An active SearchParameter."""
    return {
        "resourceType": "SearchParameter", "id": code, "url": f"http://example.org/SearchParameter/{code}",
        "name": code, "status": "active", "description": "A test", "code": code, "base": list(bases) or ["Patient"],
        "type": kind, "expression": expression,
    } | more  # fmt: skip


def person(id: str, shoe: int | None = None, **more: Any) -> Json:
    """A Patient with an extension."""
    extension = [] if shoe is None else [{"url": URL, "valueQuantity": {"value": shoe, "unit": "EU"}}]
    return {"resourceType": "Patient", "id": id} | ({"extension": extension} if extension else {}) | more


SHOE = parameter("shoe-size", "quantity", f"Patient.extension.where(url = '{URL}').value")
TABLE = [
    (parameter("first-given", "string", "Patient.name.given.first()"), "first-given=ann", ["a"]),
    (parameter("nickname", "string", "Patient.name.where(use = 'nickname').given"), "nickname=bobby", ["b"]),
    (parameter("contact-name", "string", "Patient.contact.name"), "contact-name=smith", ["a"]),
    (parameter("language-code", "token", "Patient.communication.language"), "language-code=de", ["b"]),
    (parameter("is-married", "token", "Patient.maritalStatus.coding.where(code = 'M').exists()"),
     "is-married=true", ["a"]),
    (parameter("moved", "date", "Patient.address.period"), "moved=2020", ["b"]),
    (parameter("link-to", "reference", "Patient.link.other", target=["Patient"]), "link-to=Patient/a", ["b"]),
    (parameter("link-to", "reference", "Patient.link.other", target=["Patient"]), "link-to:Patient._id=a", ["b"]),
    (parameter("home", "uri", "Patient.identifier.system", "Patient"), "home=urn:x", ["a"]),
]  # fmt: skip
PEOPLE = [
    person("a", name=[{"given": ["Ann", "Bea"]}], contact=[{"name": {"family": "Smith"}}],
           maritalStatus={"coding": [{"code": "M"}]}, identifier=[{"system": "urn:x"}]),
    person("b", name=[{"use": "nickname", "given": ["Bobby"]}],
           communication=[{"language": {"coding": [{"code": "de"}]}}],
           link=[{"other": {"reference": "Patient/a"}, "type": "seealso"}],
           address=[{"period": {"start": "2020-01", "end": "2020-03"}}]),
]  # fmt: skip


class CustomParameterSuite(Suite):
    """Custom search parameters."""

    world: World

    def tearDown(self) -> None:
        install([])

    async def put(self, resource: Json) -> int:
        """Store by id; the status."""
        return (await self.world.send("PUT", f"{resource['resourceType']}/{resource['id']}", resource)).status

    async def found(self, search: str, **headers: str) -> list[str]:
        """Ids of the Patients that a search finds."""
        answer = await self.world.send("GET", f"Patient?{search}", **headers)
        self.assertEqual(answer.status, 200, answer.body)
        return [one.removeprefix("Patient/") for one in entries(answer)]

    async def test_served_after_creation(self) -> None:
        """Unknown before creation; then usable in search, sort and subscriptions; unknown after deletion."""
        await self.put(person("old", 40))
        self.assertEqual((await self.world.send("GET", "Patient?shoe-size=gt41", prefer=STRICT)).status, 400)
        self.assertEqual(await self.put(SHOE), 201)
        for id_, shoe in (("p", 42), ("q", 44), ("r", None)):
            await self.put(person(id_, shoe))
        self.assertEqual(await self.found("shoe-size=gt41&_sort=-shoe-size"), ["q", "p"])
        self.assertEqual(await self.found("shoe-size:missing=true&_id=r"), ["r"])
        await self.put(person("p", 39))
        self.assertEqual(await self.found("shoe-size=gt41"), ["q"])
        self.assertEqual((await self.world.send("DELETE", "SearchParameter/shoe-size")).status, 204)
        self.assertEqual((await self.world.send("GET", "Patient?shoe-size=gt41", prefer=STRICT)).status, 400)

    async def test_every_type(self) -> None:
        """Simple expressions and those for the general engine."""
        for definition, _, _ in TABLE:
            await self.put(definition)
        for resource in PEOPLE:
            self.assertEqual(await self.put(resource), 201)
        for _, search, expected in TABLE:
            self.assertEqual(await self.found(search), expected, search)

    async def test_refusals(self) -> None:
        """Refusals have a location; drafts are not checked; parameters of R4 cannot be redefined."""
        for wrong, place in (
            (parameter("x", "string", "Patient.name.("), "expression"),
            (parameter("x", "special", "Patient.name"), "type"),
            (parameter("x y", "string", "Patient.name") | {"url": "urn:x"}, "code"),
        ):
            wrong["id"] = "x"
            answer = await self.world.send("PUT", "SearchParameter/x", wrong)
            self.assertEqual((answer.status, issues(answer)[0][2]), (422, f"SearchParameter.{place}"))
            self.assertEqual(await self.put(wrong | {"status": "draft", "id": f"draft-{place}"}), 201)
        unknown = await self.world.send("PUT", "SearchParameter/x", parameter("x", "string", "x", "Foo") | {"id": "x"})
        self.assertEqual((unknown.status, issues(unknown)[0][2]), (422, "SearchParameter.base[0]"))
        await self.put(parameter("gender", "string", "Patient.name.family"))
        await self.put(person("p", gender="male"))
        self.assertEqual(await self.found("gender=male"), ["p"])

    async def test_other_tenants(self) -> None:
        """Active parameters of other tenants are refused; inactive ones are stored."""
        body = parameter("eye-color", "token", "Patient.extension.value")
        for status, expected in (("active", 422), ("draft", 201)):
            url = f"SearchParameter/{body['id']}"
            answer = await self.world.send("PUT", url, body | {"status": status}, "other")
            self.assertEqual(answer.status, expected, answer.body)
            if status == "active":
                self.assertEqual(issues(answer)[0][2], "SearchParameter.status")
                self.assertIn(b"default tenant", answer.body)


class CustomParameterTests(CustomParameterSuite, OnMemory):
    """In memory."""


class CustomParameterOnPostgresTests(CustomParameterSuite, OnPostgres):
    """SQL indexes again, with the job."""

    def reindexing(self) -> Reindex:
        """The stage, without waiting."""

        async def learn() -> None:
            await refresh(self.world.store, self.world.matcher)

        async def pause(seconds: float) -> None:
            self.assertGreaterEqual(seconds, 0)

        return Reindex(self.world.reindex, learn, pause, lambda: 0.0)

    async def setUp(self) -> None:
        await super().setUp()
        self.world.reindex = PostgresReindexQueue(self.database)

    async def test_older_resources_are_indexed(self) -> None:
        """The job indexes in batches and reports progress; a changed expression replaces the old entries."""
        for number in range(5):
            await self.put(person(f"p{number}", 40 + number))
        await self.put(SHOE)
        self.assertEqual(await self.found("shoe-size=gt41"), [])
        self.assertTrue(await self.world.reindex.run_batch(2))
        (job,) = await self.world.reindex.jobs("default", 9)
        self.assertEqual((job.status, job.done_count, job.of_count, job.reason),
                         ("running", 2, 5, "SearchParameter/shoe-size"))  # fmt: skip
        self.assertEqual(await self.found("shoe-size=gt39"), ["p0", "p1"])
        await self.put(person("p3", 50))  # what is written meanwhile, before the job comes to it
        stage = self.reindexing()
        while await stage.step():
            pass
        self.assertEqual(await self.found("shoe-size=gt39&_sort=shoe-size"), ["p0", "p1", "p2", "p4", "p3"])
        self.assertEqual(await self.found("shoe-size=43"), [])
        answer = loads((await self.world.send("GET", "$reindex")).body)
        parts = {part["name"]: part for part in answer["parameter"][0]["part"]}
        self.assertEqual((parts["status"]["valueCode"], parts["done"]["valueInteger"]), ("done", 5))
        await self.put(SHOE | {"expression": "Patient.extension.where(url = 'none').value"})
        while await stage.step():
            pass
        self.assertEqual(await self.found("shoe-size=gt39"), [])

    async def test_other_processes_load_the_parameter(self) -> None:
        """A process that only searches, and one that only writes."""
        await self.put(SHOE)
        install([])  # as in a process that has not heard of it
        other = World(PostgresFhirStore(self.database), matcher=MatchingIndex(), database=self.database)
        self.assertEqual((await other.send("PUT", "Patient/w", person("w", 45))).status, 201)
        self.assertEqual(await self.found("shoe-size=45"), ["w"])
        install([])
        third = World(PostgresFhirStore(self.database), matcher=MatchingIndex(), database=self.database)
        self.assertEqual(entries(await third.send("GET", "Patient?shoe-size=45")), ["Patient/w"])
        install([])
        fourth = World(PostgresFhirStore(self.database), matcher=MatchingIndex(), database=self.database)
        answer = await fourth.send("GET", "Patient?shoe-size=1")
        self.assertEqual(entries(answer), [])
        install([])
        fifth = World(PostgresFhirStore(self.database), matcher=MatchingIndex(), database=self.database)
        answer = await fifth.send("GET", "Patient?shoe-size=45", prefer=STRICT)
        self.assertEqual(entries(answer), ["Patient/w"])

    async def test_requested_reindex(self) -> None:
        """POST $reindex restores lost entries."""
        await self.put(person("p", gender="male"))
        await self.database.many("DELETE FROM index_text")
        self.assertEqual(await self.found("gender=male"), [])
        self.assertEqual((await self.world.send("POST", "$reindex?type=Patient")).status, 202)
        self.assertEqual((await self.world.send("POST", "$reindex?type=Nonsense")).status, 400)
        while await self.reindexing().step():
            pass
        self.assertEqual(await self.found("gender=male"), ["p"])
