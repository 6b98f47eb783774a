"""References to this server by URL: stored as relative ones, and the same in criteria and conditions."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from ipf.fhir.model.reference import install_base_url
from ipf.ports import OPEN, Answer, Caller, Json
from ipf.rest.write.unit import Unit
from ipf.store.resources.reindex import PostgresReindexQueue
from tests.rest.world import BASE, CORRELATION_ID, OnMemory, OnSharedPostgres, Suite, World, issues, patient, put, unit
from tests.rest.write.test_subscription import subscription

HOSPITAL = "https://fhir.hospital.example/fhir"
OF_PATIENTS = "patient/Patient.rs patient/Observation.cruds patient/Encounter.rs"


def observation(subject: str, id: str = "o", **members: Any) -> Json:
    """An Observation of somebody."""
    code = {"coding": [{"system": "http://loinc.org", "code": "8867-4"}]}
    made = {"resourceType": "Observation", "id": id, "status": "final", "code": code, "subject": {"reference": subject}}
    return {**made, **members}


def entry(method: str, url: str, resource: Json | None = None, **request: str) -> Json:
    """A Bundle entry."""
    made: Json = {"request": {"method": method, "url": url, **request}}
    return made if resource is None else {**made, "resource": resource}


def entries(answer: Answer) -> list[str]:
    """`Type/id` of all entries of a Bundle, includes too."""
    return [f"{one['resource']['resourceType']}/{one['resource']['id']}" for one in loads(answer.body).get("entry", ())]


class OwnUrlSuite(Suite):
    world: World

    async def fill(self) -> None:
        """Two Patients, with the base URL of the process installed."""
        install_base_url(HOSPITAL)
        self.addCleanup(install_base_url, None)
        for id in ("1", "2"):
            await self.send("PUT", f"Patient/{id}", patient(id, id=id))

    async def send(self, method: str, url: str, body: Any = None, **headers: str) -> Json:
        """A request that succeeds."""
        answer = await self.world.send(method, url, body, **headers)
        self.assertIn(answer.status, (200, 201, 204), (url, answer.body))
        found: Json = loads(answer.body) if answer.body else {}
        return found

    async def subject(self, reference: str = "Observation/o") -> str:
        """The stored reference."""
        return str((await self.world.body(reference))["subject"]["reference"])

    async def test_stored_form(self) -> None:
        await self.fill()
        for sent, stored in (
            (f"{BASE}/Patient/1", "Patient/1"),
            (f"{HOSPITAL}/Patient/1", "Patient/1"),
            (f"{HOSPITAL}/Patient/1/_history/2", "Patient/1/_history/2"),
            ("https://FHIR.Hospital.example/fhir/Patient/1", "Patient/1"),
            ("https://fhir.hospital.example:443/fhir/Patient/1", "Patient/1"),
            ("http://fhir.hospital.example:80/fhir/Patient/1", "Patient/1"),
            ("http://fhir.hospital.example/fhir/Patient/1", "Patient/1"),
            ("Patient/1", "Patient/1"),
            *((foreign, foreign) for foreign in (
                "https://fhir.hospital.example/fhirx/Patient/1",
                "https://fhir.hospital.example/FHIR/Patient/1",
                "https://fhir.hospital.example/Patient/1",
                "https://fhir.hospital.example/north/fhir/Patient/1",
                "https://fhir.hospital.example/fhir/north/Patient/1",
                "https://fhir.hospital.example.evil.example/fhir/Patient/1",
                "https://fhir.hospital.example@evil.example/fhir/Patient/1",
                "https://fhir.hospital.example:8443/fhir/Patient/1",
                "https://fhir.hospital.example:80/fhir/Patient/1",
                "https://fhir.hospital.example/fhir/Patient/1?x=Patient/2",
                "https://fhir.hospital.example/fhir/Patient/1#p",
                "https://fhir.hospital.example/fhir/Patient/1/",
                "https://other.example/fhir/Patient/1",
                "urn:uuid:c757873d-ec9a-4326-a141-556f43239520",
            )),
        ):  # fmt: skip
            await self.send("PUT", "Observation/o", observation(sent))
            self.assertEqual(await self.subject(), stored, sent)

    async def test_everywhere_in_a_resource(self) -> None:
        await self.fill()
        url = f"{HOSPITAL}/Patient/1"
        inner = {"resourceType": "Practitioner", "id": "p", "qualification": [
            {"code": {"text": "x"}, "issuer": {"reference": f"{HOSPITAL}/Organization/9"}}]}  # fmt: skip
        extension = [{"url": "http://e.example/x", "valueReference": {"reference": url}},
                     {"url": "http://e.example/y", "valueUri": url}]  # fmt: skip
        sent = observation(url, contained=[inner], extension=extension, performer=[{"reference": "#p"}],
                           note=[{"text": f"see {url}"}])  # fmt: skip
        await self.send("PUT", "Observation/o", sent)
        stored = await self.world.body("Observation/o")
        self.assertEqual(stored["contained"][0]["qualification"][0]["issuer"]["reference"], "Organization/9")
        self.assertEqual([list(one.values())[1] for one in stored["extension"]], [{"reference": "Patient/1"}, url])
        self.assertEqual(stored["note"], [{"text": f"see {url}"}])

    async def test_bundles_stay(self) -> None:
        """A reference in a stored Bundle is relative to the fullUrl of its entry."""
        await self.fill()
        inner = {
            "fullUrl": "https://other.example/fhir/Observation/o",
            "resource": observation(f"{HOSPITAL}/Patient/1"),
        }
        await self.send(
            "PUT", "Bundle/b", {"resourceType": "Bundle", "id": "b", "type": "collection", "entry": [inner]}
        )
        self.assertEqual((await self.world.body("Bundle/b"))["entry"], [inner])

    async def test_found(self) -> None:
        await self.fill()
        await self.send("PUT", "Encounter/e", {
            "resourceType": "Encounter", "id": "e", "status": "planned", "class": {"code": "AMB"},
            "subject": {"reference": f"{BASE}/Patient/1"}})  # fmt: skip
        await self.send("PUT", "Observation/o", observation(
            f"{HOSPITAL}/Patient/1", encounter={"reference": f"{HOSPITAL}/Encounter/e"}))  # fmt: skip
        for url, expected in (
            ("Observation?subject=Patient/1", ["Observation/o"]),
            ("Observation?subject=1", ["Observation/o"]),
            (f"Observation?subject={HOSPITAL}/Patient/1", ["Observation/o"]),
            (f"Observation?subject={BASE}/Patient/1", ["Observation/o"]),
            ("Observation?subject=https://other.example/fhir/Patient/1", []),
            ("Patient/1/Observation", ["Observation/o"]),
            ("Patient/2/Observation", []),
            ("Observation?_include=Observation:subject", ["Observation/o", "Patient/1"]),
            ("Patient?_id=1&_revinclude=Observation:subject", ["Patient/1", "Observation/o"]),
            ("Observation?encounter.subject:Patient.identifier=urn:mrn|1", ["Observation/o"]),
            ("Patient?_has:Observation:patient:code=8867-4", ["Patient/1"]),
            ("Patient/1/$everything", ["Encounter/e", "Observation/o", "Patient/1"]),
        ):
            self.assertEqual(sorted(entries(await self.world.send("GET", url))), sorted(expected), url)
        graph = await self.send("GET", "Observation/o/$graphql?query={subject{resource{...on Patient{id}}}}")
        self.assertEqual(graph["data"]["subject"]["resource"], {"id": "1"})

    async def test_no_new_versions(self) -> None:
        """The same resource again changes nothing."""
        await self.fill()
        for _ in range(2):
            answer = await self.world.send("PUT", "Observation/o", observation(f"{HOSPITAL}/Patient/1"))
        self.assertEqual((answer.status, loads(answer.body)["meta"]["versionId"]), (200, "1"))
        message = Unit("default", (put(observation(f"{HOSPITAL}/Patient/1")),), CORRELATION_ID, "r/1", references=())
        (result,) = await self.world.commit(message)
        self.assertEqual(result.entries[0].outcome, "unchanged")

    async def test_ways_in(self) -> None:
        """Creates, patches, Bundles and converted messages."""
        await self.fill()
        made = await self.send("POST", "Observation", observation(f"{BASE}/Patient/1"))
        self.assertEqual(made["subject"]["reference"], "Patient/1")
        patch = [{"op": "replace", "path": "/subject/reference", "value": f"{BASE}/Patient/2"}]
        patched = await self.send(
            "PATCH", f"Observation/{made['id']}", patch, content_type="application/json-patch+json"
        )
        self.assertEqual(patched["subject"]["reference"], "Patient/2")
        for kind, id in (("transaction", "t"), ("batch", "b")):
            one = entry("PUT", f"Observation/{id}", observation(f"{BASE}/Patient/1", id))
            await self.send("POST", "", {"resourceType": "Bundle", "type": kind, "entry": [one]})
            self.assertEqual(await self.subject(f"Observation/{id}"), "Patient/1")
        await self.world.commit(unit(put(observation(f"{HOSPITAL}/Patient/1", "u"))))
        self.assertEqual(await self.subject("Observation/u"), "Patient/1")
        resource = observation(f"{HOSPITAL}/Patient/1", "m")
        await self.world.commit(Unit("default", (put(resource),), CORRELATION_ID, "r/2", references=()))
        self.assertEqual(await self.subject("Observation/m"), "Patient/1")

    async def test_urls_of_entries(self) -> None:
        """`request.url` may be below the base URL; that of another server is refused."""
        await self.fill()
        for base in (BASE, HOSPITAL, "http://FHIR.hospital.example:80/fhir", ""):
            slash = "/" if base else ""
            bundle = {"resourceType": "Bundle", "type": "batch", "entry": [
                entry("PUT", f"{base}{slash}Observation/o", observation("Patient/1")),
                entry("GET", f"{base}{slash}Observation/o"),
                entry("GET", f"{base}{slash}Patient?_id=1"),
                entry("GET", f"{base}?_type=Patient"),
            ]}  # fmt: skip
            found = [one["response"]["status"][:2] for one in (await self.send("POST", "", bundle))["entry"]]
            self.assertEqual(found, ["20"] * 4, base)
        for base in (f"{BASE}x", f"{HOSPITAL}/north", "https://other.example/fhir"):
            bundle = {"resourceType": "Bundle", "type": "batch", "entry": [
                entry("PUT", f"{base}/Observation/o", observation("Patient/1")), entry("GET", f"{base}/Observation/o"),
            ]}  # fmt: skip
            found = [one["response"]["status"][:1] for one in (await self.send("POST", "", bundle))["entry"]]
            self.assertEqual(found, ["4", "4"], base)

    async def test_full_urls_of_this_server(self) -> None:
        """A created resource gets an id of its own; references by its fullUrl follow it, and so do relative ones."""
        await self.fill()
        for reference in (f"{BASE}/Patient/temporary", "Patient/temporary"):
            bundle = {"resourceType": "Bundle", "type": "transaction", "entry": [
                {"fullUrl": f"{BASE}/Patient/temporary", **entry("POST", "Patient", patient("7"))},
                entry("PUT", "Observation/o", observation(reference)),
            ]}  # fmt: skip
            made = await self.send("POST", "", bundle)
            id = made["entry"][0]["response"]["location"].split("/")[-3]
            self.assertEqual(await self.subject(), f"Patient/{id}", reference)

    async def test_full_urls_of_another_server(self) -> None:
        """A URL of this server means its Patient, also when the Bundle brings another server's with the same id."""
        await self.fill()
        elsewhere = "https://other.example/fhir"
        for reference, is_own in (
            (f"{HOSPITAL}/Patient/2", True),
            ("Patient/2", False),
            (f"{elsewhere}/Patient/2", False),
        ):
            bundle = {"resourceType": "Bundle", "type": "transaction", "entry": [
                {"fullUrl": f"{elsewhere}/Patient/2", **entry("POST", "Patient", patient("7"))},
                {"fullUrl": f"{elsewhere}/Observation/o", **entry("PUT", "Observation/o", observation(reference))},
            ]}  # fmt: skip
            made = await self.send("POST", "", bundle)
            id = made["entry"][0]["response"]["location"].split("/")[-3]
            self.assertEqual(await self.subject(), reference if is_own else f"Patient/{id}", reference)
            url = f"Observation?subject=Patient/{'2' if is_own else id}"
            found = entries(await self.world.send("GET", url))
            self.assertEqual(found, ["Observation/o"], reference)

    async def test_integrity(self) -> None:
        await self.fill()
        self.world.integrity = True
        refused = await self.world.send("PUT", "Observation/o", observation(f"{HOSPITAL}/Patient/none"))
        self.assertEqual(refused.status, 422)
        self.assertEqual(issues(refused)[0][1], "the referenced resource Patient/none does not exist")
        await self.send("PUT", "Observation/o", observation(f"{BASE}/Patient/1"))
        self.assertEqual((await self.world.send("DELETE", "Patient/1")).status, 409)
        elsewhere = observation("https://other.example/fhir/Patient/none", "p")
        await self.send("PUT", "Observation/p", elsewhere)

    async def test_limited_clients(self) -> None:
        """The patient's own client sees what refers to the patient by URL; nobody reaches others by URL."""
        await self.fill()
        await self.send("PUT", "Observation/o", observation(f"{HOSPITAL}/Patient/1"))
        for number, found in (("1", ["Observation/o"]), ("2", [])):
            self.world.caller = Caller("ada", "app", tuple(OF_PATIENTS.split()), patient=number)
            self.assertEqual(entries(await self.world.send("GET", "Observation")), found)
            url = f"Observation?subject={HOSPITAL}/Patient/1"
            self.assertEqual(entries(await self.world.send("GET", url)), found)
            self.assertEqual((await self.world.send("GET", "Observation/o")).status, 200 if found else 404)
            included = await self.world.send("GET", "Observation?_include=Observation:subject")
            self.assertEqual(entries(included), [*found, *["Patient/1"] * len(found)])
        for method, url, body in (
            ("POST", "Observation", observation(f"{HOSPITAL}/Patient/1")),
            ("PUT", "Observation/o", observation(f"{HOSPITAL}/Patient/1", note=[{"text": "x"}])),
            ("PUT", "Observation/n", observation(f"{BASE}/Patient/1", "n")),
        ):
            answer = await self.world.send(method, url, body)
            self.assertGreaterEqual(answer.status, 400, answer.body)
        mine = (await self.send("POST", "Observation", observation(f"{HOSPITAL}/Patient/2")))["id"]
        patch = [{"op": "replace", "path": "/subject/reference", "value": f"{BASE}/Patient/1"}]
        answer = await self.world.send(
            "PATCH", f"Observation/{mine}", patch, content_type="application/json-patch+json"
        )
        self.assertGreaterEqual(answer.status, 400, answer.body)

    async def test_conditions(self) -> None:
        """Conditional creates, updates, patches, deletes and references."""
        await self.fill()
        await self.send("PUT", "Observation/o", observation("Patient/1"))
        for base in (BASE, HOSPITAL):
            search = f"subject={base}/Patient/1"
            for answer in (
                await self.world.send("POST", "Observation", observation("Patient/1"), if_none_exist=search),
                await self.world.send("PUT", f"Observation?{search}", observation(f"{base}/Patient/1")),
                await self.world.send("PATCH", f"Observation?{search}", [],
                                      content_type="application/json-patch+json"),
            ):  # fmt: skip
                self.assertEqual((answer.status, loads(answer.body)["id"]), (200, "o"), answer.body)
            conditional = observation("Patient/1", "q", hasMember=[{"reference": f"Observation?{search}&_id=o"}])
            bundle = {"resourceType": "Bundle", "type": "transaction", "entry": [
                entry("POST", "Observation", observation("Patient/1"), ifNoneExist=f"{search}&_id=o"),
                entry("PUT", "Observation/q", conditional),
            ]}  # fmt: skip
            answers = (await self.send("POST", "", bundle))["entry"]
            self.assertEqual(answers[0]["response"]["status"][:3], "200")
            self.assertEqual((await self.world.body("Observation/q"))["hasMember"], [{"reference": "Observation/o"}])
            await self.send("DELETE", "Observation/q")
        for url in ("https://fhir.hospital.example/fhirx", "https://other.example/fhir"):
            answer = await self.world.send("PATCH", f"Observation?subject={url}/Patient/1", [],
                                           content_type="application/json-patch+json")  # fmt: skip
            self.assertEqual(answer.status, 404)
        await self.send("DELETE", f"Observation?subject={HOSPITAL}/Patient/1")
        self.assertEqual(entries(await self.world.send("GET", "Observation")), [])

    async def test_meaning_of_old_references(self) -> None:
        """What an earlier version stored is read as the relative reference, once it is indexed anew."""
        await self.fill()
        install_base_url(None)
        await self.send("PUT", "Observation/o", observation(f"{HOSPITAL}/Patient/1"))
        self.assertEqual(await self.subject(), f"{HOSPITAL}/Patient/1")
        self.assertEqual(entries(await self.world.send("GET", "Observation?subject=Patient/1")), [])
        install_base_url(HOSPITAL)
        self.assertEqual(
            entries(await self.world.send("GET", f"Observation?subject={HOSPITAL}/Patient/1")), ["Observation/o"]
        )
        found = entries(await self.world.send("GET", "Observation?_include=Observation:subject"))
        self.assertEqual(found, ["Observation/o", "Patient/1"])
        await self.send("PUT", "Observation/o", observation(f"{HOSPITAL}/Patient/1"))
        self.assertEqual(await self.subject(), "Patient/1")


class OwnUrlMemoryTests(OwnUrlSuite, OnMemory):
    async def test_subscriptions(self) -> None:
        """Criteria may name the patient by URL."""
        await self.fill()
        for id, url in (("own", HOSPITAL), ("other", "https://other.example/fhir"), ("near", f"{HOSPITAL}x")):
            made = subscription(f"Observation?subject={url}/Patient/1", id=id)
            await self.send("PUT", f"Subscription/{id}", made)
            self.assertEqual((await self.world.body(f"Subscription/{id}"))["criteria"], made["criteria"])
        await self.send("PUT", "Observation/o", observation("Patient/1"))
        await self.send("PUT", "Observation/p", observation(f"{HOSPITAL}/Patient/1", "p"))
        await self.send("PUT", "Observation/q", observation("Patient/2", "q"))
        fired = [(one.state.id, event.id) for one in self.world.store.streams.values() for event in one.events]
        self.assertEqual(fired, [("own", "o"), ("own", "p")])

    async def test_merge(self) -> None:
        """A merge moves references by URL."""
        await self.fill()
        await self.send("PUT", "Observation/o", observation(f"{HOSPITAL}/Patient/1"))
        await self.send("POST", "Patient/$merge", {"resourceType": "Parameters", "parameter": [
            {"name": "source-patient", "valueReference": {"reference": f"{HOSPITAL}/Patient/1"}},
            {"name": "target-patient", "valueReference": {"reference": f"{BASE}/Patient/2"}}]})  # fmt: skip
        self.assertEqual(await self.subject(), "Patient/2")


class OwnUrlPostgresTests(OwnUrlSuite, OnSharedPostgres):
    """SQL holds the references."""

    async def test_reindexing(self) -> None:
        """What an earlier version stored is found, and is within the limits of the patient's client."""
        await self.fill()
        install_base_url(None)
        await self.send("PUT", "Observation/o", observation(f"{HOSPITAL}/Patient/1"))
        install_base_url(HOSPITAL)
        queue = PostgresReindexQueue(self.database)
        await queue.request("default", ("Observation",), "test")
        while await queue.is_open():
            await queue.run_batch(10)
        self.assertEqual(await self.subject(), f"{HOSPITAL}/Patient/1")
        for number, found in ((None, ["Observation/o"]), ("1", ["Observation/o"]), ("2", [])):
            limits = Caller("ada", "app", tuple(OF_PATIENTS.split()), patient=number)
            self.world.caller = OPEN if number is None else limits
            for url in ("Observation?subject=Patient/1", "Observation", "Patient/1/Observation"):
                if number != "2" or url != "Patient/1/Observation":
                    self.assertEqual(entries(await self.world.send("GET", url)), found, (number, url))
            self.assertEqual((await self.world.send("GET", "Observation/o")).status, 200 if found else 404)
