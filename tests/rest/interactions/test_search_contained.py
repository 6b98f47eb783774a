"""Searches for contained resources: `_contained` and `_containedType`."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from ipf.ports import OPEN, Caller, Json
from tests.rest.interactions.pages import entries
from tests.rest.world import BASE, OnMemory, OnSharedPostgres, Suite, World, issues

ATC, FORMS = "http://www.whocc.no/atc", "urn:forms"


def medication(id: str, code: str, form: str = "tablet", **more: Any) -> Json:
    """A Medication with a code of ATC."""
    kinds = {"code": {"coding": [{"system": ATC, "code": code}]}, "form": {"coding": [{"system": FORMS, "code": form}]}}
    return {"resourceType": "Medication", "id": id, **kinds, **more}


def prescription(id: str, patient: str, *contained: Json) -> Json:
    """A MedicationRequest of what it contains first."""
    of = {"reference": f"#{contained[0]['id']}"} if contained else {"reference": "Medication/none"}
    head = {"resourceType": "MedicationRequest", "id": id, "status": "active", "intent": "order"}
    inside = {"contained": list(contained)} if contained else {}
    return {**head, **inside, "medicationReference": of, "subject": {"reference": f"Patient/{patient}"}}


def dispensed(id: str, patient: str, *contained: Json) -> Json:
    """A MedicationDispense of what it contains first."""
    made = prescription(id, patient, *contained)
    return {name: value for name, value in made.items() if name != "intent"} | {
        "resourceType": "MedicationDispense",
        "status": "completed",
    }


WORLD: list[Json] = [
    {"resourceType": "Patient", "id": "p1"},
    {"resourceType": "Patient", "id": "p2"},
    medication("plain", "A1"),
    medication("kit", "K1", contained=[medication("part", "A1"), medication("other", "B1", "liquid")]),
    prescription("one", "p1", medication("m", "A1"), medication("n", "B1", "liquid"),
                 {"resourceType": "Practitioner", "id": "who", "name": [{"family": "Garcia Lopez"}]}),
    prescription("two", "p2", medication("m", "A1", "liquid", batch={"expirationDate": "2027-05-01"})),
    prescription("none", "p1"),
    dispensed("three", "p1", medication("d", "A1", identifier=[{"system": "urn:n", "value": "9"}])),
]  # fmt: skip

A1 = f"{ATC}|A1"
CONTAINERS = [
    # equalities and beginnings, from the index
    (f"Medication?code={A1}", "Medication/kit MedicationDispense/three MedicationRequest/one MedicationRequest/two"),
    ("Medication?code=B1", "Medication/kit MedicationRequest/one"),
    ("Medication?code=X", ""),
    ("Medication?code=A1,B1", "Medication/kit MedicationDispense/three MedicationRequest/one MedicationRequest/two"),
    ("Practitioner?name=garcia", "MedicationRequest/one"), ("Practitioner?family=lopez", "MedicationRequest/one"),
    ("Practitioner?_id=who", "MedicationRequest/one"), ("Practitioner?name=gar&_id=what", ""),
    ("Medication?identifier=urn:n|9", "MedicationDispense/three"),
    ("Medication?identifier:missing=false", "MedicationDispense/three"),
    ("Patient?name=garcia", ""), ("Practitioner", "MedicationRequest/one"),
    # of one contained resource, not of several
    ("Medication?code=A1&form=liquid", "MedicationRequest/two"),
    ("Medication?code=B1&form=liquid", "Medication/kit MedicationRequest/one"),
    # what the resources themselves tell
    ("Medication?form:not=tablet", "Medication/kit MedicationRequest/one MedicationRequest/two"),
    (f"Medication?form={FORMS}|&code=B1", "Medication/kit MedicationRequest/one"),
    ("Medication?expiration-date=ge2027", "MedicationRequest/two"), ("Medication?expiration-date=lt2027", ""),
    ("Practitioner?name:contains=opez", "MedicationRequest/one"),
    ("Medication?identifier:missing=true&code=B1", "Medication/kit MedicationRequest/one"),
]  # fmt: skip

REFUSED = [
    ("Medication?_contained=yes", "value", "_contained"),
    ("Medication?_contained=true&_containedType=all", "value", "_containedType"),
    ("Medication?_contained=true&manufacturer.name=x", "not-supported", "manufacturer.name"),
    ("Medication?_contained=true&_has:MedicationRequest:medication:status=active", "not-supported",
     "_has:MedicationRequest:medication:status"),
    ("Medication?_contained=true&_list=1", "not-supported", "_list"),
    ("Medication?_contained=true&_lastUpdated=gt2020", "not-supported", "_lastUpdated"),
    ("Medication?_contained=true&_content=x", "not-supported", "_content"),
    ("Medication?_contained=both&_filter=manufacturer.name+co+x", "not-supported", "_filter"),
    ("Medication?_contained=true&_include=Medication:manufacturer", "not-supported", "_include"),
    ("Medication?_contained=true&_revinclude=MedicationRequest:medication", "not-supported", "_include"),
    ("Medication?_contained=true&_sort=code", "not-supported", "_sort"),
    ("Medication?_contained=true&_containedType=contained&_sort=code", "not-supported", "_sort"),
    ("?_type=Medication&_contained=true", "not-supported", "_contained"),
    ("Patient/p1/MedicationRequest?_contained=true", "not-supported", "_contained"),
    ("Observation/$lastn?patient=1&code=1&_contained=true", "not-supported", "_contained"),
]  # fmt: skip


class ContainedSuite(Suite):
    """Medications that stand alone, and in prescriptions."""

    world: World

    async def store(self, *resources: Json) -> None:
        """Write as somebody without limits."""
        for resource in resources:
            self.world.pass_time()
            answer = await self.world.send("PUT", f"{resource['resourceType']}/{resource['id']}", resource)
            self.assertLess(answer.status, 300, answer.body)

    async def found(self, url: str) -> list[str]:
        """The full URLs of a page, without the base."""
        answer = await self.world.send("GET", url)
        self.assertEqual(answer.status, 200, answer.body)
        return [one["fullUrl"].removeprefix(f"{BASE}/") for one in loads(answer.body).get("entry", ())]

    async def pages(self, url: str, relation: str = "next") -> list[list[str]]:
        """The full URLs on each page."""
        found = []
        while True:
            bundle = loads((await self.world.send("GET", url)).body)
            found.append([one["fullUrl"].removeprefix(f"{BASE}/") for one in bundle.get("entry", ())])
            links = {link["relation"]: link["url"] for link in bundle["link"]}
            if relation not in links:
                return found
            url = links[relation].removeprefix(f"{BASE}/")

    async def test_containers(self) -> None:
        await self.store(*WORLD)
        for url, expected in CONTAINERS:
            sign = "&" if "?" in url else "?"
            answer = await self.world.send("GET", f"{url}{sign}_contained=true")
            bundle = loads(answer.body)
            found = [f"{one['resource']['resourceType']}/{one['resource']['id']}" for one in bundle.get("entry", ())]
            self.assertEqual((sorted(found), bundle["total"]), (expected.split(), len(expected.split())), url)
            self.assertTrue(all(one["search"] == {"mode": "match"} for one in bundle.get("entry", ())))
            count = loads((await self.world.send("GET", f"{url}{sign}_contained=true&_summary=count")).body)
            self.assertEqual(count["total"], len(expected.split()), url)

    async def test_plain_searches_do_not_meet_them(self) -> None:
        await self.store(*WORLD)
        for extra in ("", "&_contained=false", "&_containedType=contained"):
            self.assertEqual(await self.found(f"Medication?code={A1}{extra}"), ["Medication/plain"])
        self.assertEqual(await self.found("Practitioner?name=garcia"), [])
        self.assertEqual(await self.found("MedicationRequest?code=A1"), [])

    async def test_both(self) -> None:
        """A resource that is found itself and contains one that is found is there once."""
        await self.store(*WORLD, medication("twice", "A1", contained=[medication("x", "A1")]))
        inside = ["MedicationDispense/three", "MedicationRequest/one", "MedicationRequest/two"]
        own = ["Medication/kit", "Medication/plain", "Medication/twice"]
        url = f"Medication?code={A1}&_contained=both"
        self.assertEqual(sorted(await self.found(url)), [*own, *inside])
        self.assertEqual(sorted(await self.found(f"{url}&form=liquid")), ["MedicationRequest/two"])
        self.assertEqual(
            sorted(await self.found("Practitioner?name=garcia&_contained=both")), ["MedicationRequest/one"]
        )
        shown = await self.found(f"{url}&_containedType=contained")
        parts = ["Medication/kit#part", "Medication/plain", "Medication/twice", "Medication/twice#x"]
        of_others = ["MedicationDispense/three#d", "MedicationRequest/one#m", "MedicationRequest/two#m"]
        self.assertEqual(sorted(shown), [*parts, *of_others])

    async def test_contained_resources_are_returned(self) -> None:
        await self.store(*WORLD)
        url = f"Medication?code={A1},B1&_contained=true&_containedType=contained"
        answer = await self.world.send("GET", url)
        bundle = loads(answer.body)
        self.assertNotIn("total", bundle)
        found = {one["fullUrl"].removeprefix(f"{BASE}/"): one for one in bundle["entry"]}
        self.assertEqual(
            list(found),
            ["Medication/kit#part", "Medication/kit#other", "MedicationDispense/three#d",
             "MedicationRequest/one#m", "MedicationRequest/one#n", "MedicationRequest/two#m"],
        )  # fmt: skip
        self.assertEqual(found["MedicationRequest/one#n"]["resource"], medication("n", "B1", "liquid"))
        self.assertEqual(found["MedicationRequest/one#n"]["search"], {"mode": "match"})
        for count in (1, 2, 4):
            pages = await self.pages(f"{url}&_count={count}")
            self.assertEqual([one for page in pages for one in page], list(found))
            self.assertTrue(all(len(page) == count for page in pages[:-1]), pages)

    async def test_contained_resources_are_sorted_and_counted(self) -> None:
        """In the order of their containers; the total is that of the contained resources, on each page."""
        await self.store(*WORLD)
        url = f"Medication?code={A1},B1&_contained=true&_containedType=contained"
        plain = await self.found(url)
        stored = [f"{one['resourceType']}/{one['id']}" for one in WORLD]
        newest = sorted(plain, key=lambda one: -stored.index(one.partition("#")[0]))
        for key, expected in (("-_lastUpdated", newest), ("_id", None)):
            whole = await self.found(f"{url}&_sort={key}")
            self.assertEqual(whole, expected or whole)
            self.assertEqual(sorted(whole), sorted(plain))
        for extra, total in (("&_total=accurate", 6), ("&_summary=count", 6), ("&_count=0", 6), ("&_total=none", None)):
            bundle = loads((await self.world.send("GET", f"{url}{extra}")).body)
            self.assertEqual(bundle.get("total"), total, extra)
            self.assertEqual("entry" in bundle, "_count=0" not in extra and "summary" not in extra)
        bundle = loads((await self.world.send("GET", f"{url}&_total=accurate&_count=4")).body)
        (following,) = [one["url"] for one in bundle["link"] if one["relation"] == "next"]
        bundle = loads((await self.world.send("GET", following.removeprefix(f"{BASE}/"))).body)
        self.assertEqual((bundle["total"], len(bundle["entry"])), (6, 2))

    async def test_pages_of_containers(self) -> None:
        await self.store(*WORLD, *[prescription(f"more{n}", "p1", medication("m", "A1")) for n in range(5)])
        whole = await self.found("Medication?code=A1&_contained=true")
        self.assertEqual(len(whole), 9)
        for extra in ("", "&form=tablet,liquid"):
            url = f"Medication?code=A1{extra}&_contained=true&_count=2"
            pages = await self.pages(url)
            self.assertEqual([one for page in pages for one in page], whole)
        newest = await self.found("Medication?code=A1&_contained=true&_sort=-_lastUpdated&_count=2")
        self.assertEqual(newest, ["MedicationRequest/more4", "MedicationRequest/more3"])

    async def test_changes_and_deletions(self) -> None:
        await self.store(*WORLD)
        await self.store(prescription("two", "p2", medication("m", "C1")))
        await self.world.send("DELETE", "MedicationDispense/three")
        inside = ["Medication/kit", "MedicationRequest/one"]
        self.assertEqual(sorted(await self.found("Medication?code=A1&_contained=true")), inside)
        self.assertEqual(await self.found("Medication?code=C1&_contained=true"), ["MedicationRequest/two"])

    async def test_unknown_parameters(self) -> None:
        await self.store(*WORLD)
        answer = await self.world.send("GET", "Medication?code=C1&unheard=1&_contained=true")
        (entry,) = loads(answer.body)["entry"]
        self.assertEqual(entry["search"]["mode"], "outcome")
        self.assertIn("_contained=true", loads(answer.body)["link"][0]["url"])
        self.assertNotIn("unheard", loads(answer.body)["link"][0]["url"])
        strict = await self.world.send("GET", "Medication?unheard=1&_contained=true", prefer="handling=strict")
        self.assertEqual(strict.status, 400)

    async def test_refused(self) -> None:
        await self.store(*WORLD)
        for url, code, place in REFUSED:
            answer = await self.world.send("GET", url, prefer="handling=lenient")
            self.assertEqual(answer.status, 400, url)
            ((found, _, where),) = issues(answer)
            self.assertEqual((found, where), (code, place), url)
        url = "Medication?code=A1&_contained=true&_containedType=contained&_cursor=x"
        self.assertEqual((await self.world.send("GET", url)).status, 400)

    async def test_a_container_is_shown_to_who_may_search_it(self) -> None:
        """The right to search Medications reveals no prescription."""
        await self.store(*WORLD)
        for scopes, patient, expected in (
            ("system/Medication.rs", None, ["Medication/kit"]),
            ("system/Medication.rs system/MedicationDispense.rs", None, ["Medication/kit", "MedicationDispense/three"]),
            ("system/Medication.rs patient/MedicationRequest.rs", "p1", ["Medication/kit", "MedicationRequest/one"]),
            ("system/Medication.rs patient/MedicationRequest.rs", "p2", ["Medication/kit", "MedicationRequest/two"]),
        ):
            self.world.caller = Caller("ada", "app", tuple(scopes.split()), patient=patient)
            for extra in ("", "&form=tablet,liquid", "&_containedType=contained", "&_total=none"):
                url = f"Medication?code=A1&_contained=true{extra}"
                found = [one.partition("#")[0] for one in await self.found(url)]
                self.assertEqual(sorted(found), expected, (scopes, url))
        self.world.caller = Caller("ada", "app", ("system/MedicationRequest.rs",))
        self.assertEqual((await self.world.send("GET", "Medication?_contained=true")).status, 401)
        self.world.caller = OPEN

    async def test_tenants(self) -> None:
        await self.store(*WORLD)
        here = prescription("there", "p1", medication("m", "A1"))
        await self.world.send("PUT", "MedicationRequest/there", here, tenant="elsewhere")
        answer = await self.world.send("GET", "Medication?code=A1&_contained=true", tenant="elsewhere")
        self.assertEqual(entries(answer), ["MedicationRequest/there"])
        self.assertNotIn("MedicationRequest/there", await self.found("Medication?code=A1&_contained=true"))


class ContainedMemoryTest(ContainedSuite, OnMemory):
    """In memory."""


class ContainedPostgresTest(ContainedSuite, OnSharedPostgres):
    """SQL finds what is contained."""

    async def test_sorted_pages(self) -> None:
        """A page may end within a container."""
        await self.store(*WORLD)
        url = f"Medication?code={A1},B1&_contained=true&_containedType=contained"
        for key in ("-_lastUpdated", "_id"):
            whole = await self.found(f"{url}&_sort={key}")
            for count in (1, 2, 4):
                pages = await self.pages(f"{url}&_sort={key}&_count={count}")
                self.assertEqual([one for page in pages for one in page], whole)
