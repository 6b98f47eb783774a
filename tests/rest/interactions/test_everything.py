"""$everything: the record with supporting resources, limited by types and times, in pages."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import loads
from ipf.fhir.search.parameters.compartments import compartments
from ipf.rest.interactions.searches.care_period import CARE_DATES
from tests.rest.interactions.pages import PagesSuite, entries, flat
from tests.rest.world import OnMemory, OnSharedPostgres


class EverythingSuite(PagesSuite):
    """Of a Patient and of an Encounter."""

    async def test_everything(self) -> None:
        """The record with supporting resources, limited by parameters, in pages."""
        await self.fill()
        answer = await self.world.send("GET", "Patient/ann/$everything")
        self.assertEqual(sorted(entries(answer)), ["Encounter/e1", "Observation/bp", "Observation/mass", "Patient/ann",
                                                   "RiskAssessment/r1"])  # fmt: skip
        self.assertEqual(entries(answer, "include"), ["Organization/east"])
        self.assertEqual(len(flat(await self.pages("Patient/ann/$everything?_count=2"))), 5)
        narrowed = await self.world.send("GET", "Patient/ann/$everything?_type=Observation&_since=2020-01-01T00:00:00Z")
        self.assertEqual(entries(narrowed), ["Observation/bp", "Observation/mass"])
        self.assertEqual(entries(narrowed, "include"), [])
        late = await self.world.send("GET", "Patient/ann/$everything?_since=2100-01-01")
        self.assertEqual((entries(late), loads(late.body)["total"]), ([], 0))
        seen = await self.world.send("GET", "Encounter/e1/$everything")
        self.assertEqual((sorted(entries(seen)), entries(seen, "include")),
                         (["Encounter/e1", "Observation/bp"], ["Patient/ann"]))  # fmt: skip
        for url, status in (("Patient/no/$everything", 404), ("Group/g/$everything", 404),
                            ("Patient/ann/$everything?from=2020", 400), ("Patient/ann/$everything?start=soon", 400),
                            ("Patient/ann/$everything?start=2021&end=2020", 400),
                            ("Patient/ann/$everything?start=2021&start=2020", 400),
                            ("Encounter/e1/$everything?start=2020", 400),
                            ("Patient/ann/$everything?_since=soon", 400)):  # fmt: skip
            self.assertEqual((await self.world.send("GET", url)).status, status, url)
        await self.world.send("DELETE", "Patient/ann")
        self.assertEqual((await self.world.send("GET", "Patient/ann/$everything")).status, 410)

    async def test_everything_of_a_time_of_care(self) -> None:
        """What overlaps with it, what has no date, and what lasts; the links keep the ends."""
        subject = {"subject": {"reference": "Patient/p"}}
        stay = {"start": "2020-03-30", "end": "2020-04-02"}
        for resource in (
            {"resourceType": "Patient", "id": "p", "birthDate": "1950"},
            {"resourceType": "Encounter", "id": "stay", "status": "finished", "period": stay, **subject},
            {"resourceType": "Encounter", "id": "open", "period": {"start": "2019"}, **subject},
            {"resourceType": "Observation", "id": "early", "effectiveDateTime": "2019-12-31T23:00:00Z", **subject},
            {"resourceType": "Observation", "id": "april", "effectiveDateTime": "2020-04-30T20:00:00Z", **subject},
            {"resourceType": "Observation", "id": "undated", **subject},
            {"resourceType": "Condition", "id": "old", "onsetDateTime": "1990", **subject},
        ):
            path = f"{resource['resourceType']}/{resource['id']}"
            self.assertEqual((await self.world.send("PUT", path, resource)).status, 201, path)
        always = {"Patient/p", "Encounter/open", "Observation/undated", "Condition/old"}
        for asked, expected in (
            ("start=2020-04&end=2020-04", {"Encounter/stay", "Observation/april"}),
            ("start=2020-04-03", {"Observation/april"}),
            ("start=2020-04-30T20:00:00%2B00:00&end=2020-04-30T21:00:00Z", {"Observation/april"}),
            ("end=2020-03-30", {"Encounter/stay", "Observation/early"}),
            ("start=2021", set()),
        ):
            found = flat(await self.pages(f"Patient/p/$everything?{asked}&_count=2"))
            self.assertEqual((len(found), set(found)), (len(set(found)), always | expected), asked)


class CareDatesTests(SynchronousTestCase):
    def test_each_is_a_search_parameter_of_its_type(self) -> None:
        members = compartments()["Patient"]
        for resource_type, code in CARE_DATES.items():
            self.assertIn(resource_type, members)
            self.assertEqual(definitions().search_parameters(resource_type)[code].type, "date", resource_type)


class EverythingTests(EverythingSuite, OnMemory):
    """In memory."""


class EverythingOnPostgresTests(EverythingSuite, OnSharedPostgres):
    """SQL finds and pages."""
