"""A Subscription by search fires for what the search finds, on both stores; other criteria are refused."""

from __future__ import annotations

from typing import Any

from ipf.fhir.index.words import index_words
from ipf.fhir.model.json import loads
from ipf.ports import Json
from ipf.rest.operations.subscription_status import set_status
from ipf.store.resources.searches.words import prepare_words
from tests.rest.world import OnMemory, OnPostgres, Suite, World, issues, patient
from tests.rest.write.test_subscription import subscription


def narrative(text: str) -> Json:
    """The narrative of a resource."""
    return {"status": "generated", "div": f"<div xmlns='http://www.w3.org/1999/xhtml'>{text}</div>"}


def person(id_: str, family: str, **members: Any) -> Json:
    """A Patient with this family name."""
    return patient(id_, family, id=id_, **members)


def location(id_: str, latitude: float, longitude: float) -> Json:
    """A Location with a position."""
    return {"resourceType": "Location", "id": id_, "position": {"latitude": latitude, "longitude": longitude}}


RESOURCES: list[Json] = [
    person("a", "Carreño Quiñones", gender="female", birthDate="1980-05-01", text=narrative("Metast&#225;ses in bone")),
    person("b", "Quinones", gender="male", birthDate="1990", text=narrative("Liver: <b>metastases</b>")),
    person("c", "Smith-Roe van der Berg", gender="male", address=[{"city": "Bad Homburg", "text": "Heavy smoker"}]),
    person("d", "Berger", active=True, managingOrganization={"reference": "Organization/o", "display": "Bone clinic"}),
    {"resourceType": "Location", "id": "empty"},
    location("near", 48.137, 11.575),
    location("far", 52.52, 13.405),
    location("east", 0.0, 179.99),
    location("west", 0.0, -179.99),
]
CRITERIA = (
    "Patient?_text=metastases", "Patient?_text=MÉTASTASES bone", "Patient?_text=bone OR liver", "Patient?_text=-bone",
    'Patient?_text="metastases in bone"', 'Patient?_text="bone in"', "Patient?_text=met", "Patient?_text=bone,liver",
    "Patient?_text=metastases NOT liver", "Patient?_text=(bone OR liver) metastases", "Patient?_text=smoker",
    "Patient?_content=smoker", "Patient?_content=bone", "Patient?_content=-bone", "Patient?_content=organization",
    "Patient?_content=homburg&gender=male", "Patient?_content=female", "Patient?_text=bone&_content=quinones",
    "Patient?family=quinones", "Patient?family=Quiñones", "Patient?name=berg", "Patient?family=roe",
    "Patient?family=van", "Patient?family=der berg", "Patient?family:exact=Quinones", "Patient?family:contains=nones",
    "Patient?name=uinones",
    "Patient?address=homburg", "Patient?address-city=homburg", "Patient?family=quinones,berg&gender=male",
    'Patient?_filter=family co "nones"', 'Patient?_filter=family sw "carr" or family ew "berg"',
    "Patient?_filter=gender eq male and not (birthdate pr true)", "Patient?_filter=birthdate ge 1985",
    "Patient?_filter=birthdate po 1980", "Patient?_filter=gender ne male", "Patient?_filter=family eq quinones",
    "Patient?_filter=organization re Organization/o", "Patient?_filter=_id eq a or active eq true",
    'Patient?_filter=identifier eq "urn:mrn|b"&gender=male', "Patient?_filter=_lastUpdated gt 2020",
    "Patient?_filter=_lastUpdated gt 2999", "Patient?_filter=given pr true",
    "Location?near=48.1|11.5|20|km", "Location?near=48.1|11.5", "Location?near=48.1|11.5|1|km",
    "Location?near=0|180|5|km", "Location?near=48.1|11.5|400|[mi_i]", "Location?near=48.1|11.5,52.5|13.4",
    "Location?near:missing=true",
    "Location?near=48.137|11.575|0|m", "Location?near=90|0|10000|km",
)  # fmt: skip
REFUSED = {
    "Patient?_filter=organization.name eq x": "_filter",
    "Patient?_filter=organization[name eq x].partof eq y": "_filter",
    "Observation?_filter=code in http://x.test/v": "_filter",
    "Observation?_filter=code ss http://x.test|a": "_filter",
    "Location?_filter=partof sb Location/1": "_filter",
    "Patient?_filter=_list eq 1": "_filter",
    "Patient?_filter=_text eq x": "_text",
    "Location?_filter=near eq 1|2": "near",
    "Patient?_filter=nothing eq 1": "nothing",
    "Patient?_filter=family eq": "_filter",
    "Patient?_text=(": "_text",
    "Patient?_text:contains=x": "_text:contains",
    "Patient?_content=": "_content",
    "Location?near=91|0": "near",
    "Location?near=here": "near",
    "Patient?near=1|2": "near",
    "Patient?organization._text=x": "organization._text",
    "Observation?code:in=http://x.test/v": "code:in",
    "Encounter?location:below=Location/1": "location:below",
    "Patient?_has:Observation:patient:code=x": "_has:Observation:patient:code",
    "Patient?_list=1": "_list",
}


class SameAsSearchSuite(Suite):
    world: World

    async def fired(self) -> dict[str, set[str]]:
        """The ids of the resources that fired each Subscription."""
        raise NotImplementedError

    async def compare(self) -> None:
        """Every criterion fires for the resources that its search finds; most of them for some and not for all."""
        for number, criteria in enumerate(CRITERIA):
            sent = {**subscription(criteria), "id": f"s{number}"}
            answer = await self.world.send("PUT", f"Subscription/s{number}", sent)
            self.assertEqual(answer.status, 201, (criteria, answer.body))
            parts = self.world.store, self.world.matcher, lambda: self.world.now
            await set_status("default", f"s{number}", "active", None, *parts)
        for resource in RESOURCES:
            answer = await self.world.send("PUT", f"{resource['resourceType']}/{resource['id']}", resource)
            self.assertEqual(answer.status, 201, answer.body)
        fired, selective = await self.fired(), 0
        for number, criteria in enumerate(CRITERIA):
            found = loads((await self.world.send("GET", criteria)).body).get("entry", ())
            ids = {one["resource"]["id"] for one in found if one["search"]["mode"] == "match"}
            self.assertEqual(fired.get(f"s{number}", set()), ids, criteria)
            selective += 0 < len(ids) < 4
        self.assertGreater(selective, len(CRITERIA) // 2)

    async def test_same(self) -> None:
        await self.compare()


class SameInMemoryTests(SameAsSearchSuite, OnMemory):
    async def test_refused(self) -> None:
        """At registration, with the parameter that cannot be matched."""
        for criteria, named in REFUSED.items():
            answer = await self.world.send("POST", "Subscription", subscription(criteria))
            self.assertEqual(answer.status, 422, criteria)
            ((code, text, place),) = issues(answer)
            self.assertEqual((code, place), ("business-rule", "Subscription.criteria"), criteria)
            self.assertIn(named, text, criteria)

    async def fired(self) -> dict[str, set[str]]:
        streams = self.world.store.streams.values()
        return {stream.state.id: {event.id for event in stream.events} for stream in streams}


class SameOnPostgresTests(SameAsSearchSuite, OnPostgres):
    async def fired(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name, id_ in await self.database.many(
            "SELECT s.id, r.id FROM subscription_events e JOIN subscription_states s ON s.rid = e.subscription_rid"
            " JOIN resources r ON r.rid = e.resource_rid"
        ):
            found.setdefault(name, set()).add(id_)
        return found

    async def test_with_the_index_of_words(self) -> None:
        """The search asks PostgreSQL's full-text index."""
        index_words(True)
        self.addCleanup(index_words, False)
        await prepare_words(self.database, True)
        await self.compare()
