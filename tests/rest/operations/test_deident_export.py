"""`$export?_deident=true` from the request to the files."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import datetime
from operator import itemgetter
from typing import Any

from ipf.fhir.model.json import loads
from ipf.pipeline.maintenance.export import Export
from ipf.ports import Caller, Json
from ipf.security.access import install
from ipf.security.deident.profile import built_in
from ipf.security.deident.pseudonyms import Pseudonyms
from ipf.security.deident.resource import Deidentification
from ipf.security.privacy.labels import CONFIDENTIALITY, LabelRules
from ipf.security.privacy.policy import Privacy
from tests.rest.world import BASE, OnMemory, issues, patient

WAYS = Deidentification(built_in(), Pseudonyms("the key of the installation"))


def observation(id: str, subject: str, when: str) -> Json:
    """An Observation of a patient."""
    return {
        "resourceType": "Observation", "id": id, "status": "final",
        "subject": {"reference": subject, "display": "Smith"},
        "code": {"coding": [{"system": "http://loinc.org", "code": "718-7", "display": "Smith"}], "text": "Smith"},
        "effectiveDateTime": when, "valueQuantity": {"value": 7.2, "unit": "g"},
    }  # fmt: skip


class DeidentTests(OnMemory):
    async def begin(self, url: str, **send: Any) -> str:
        """Start a job; the path of its status."""
        begun = await self.world.send("GET", url, prefer="respond-async", **send)
        self.assertEqual(begun.status, 202, begun.body)
        return dict(begun.headers)["Content-Location"].removeprefix(BASE + "/")

    async def work(self) -> None:
        """Run the stage until it is idle."""
        stage = Export(self.world.exports, self.world.store, self.world.deident, page=2, ahead=3)
        while await stage.step():
            pass

    async def resources(self, url: str = "$export?_deident=true") -> tuple[Json, list[Json]]:
        """The manifest, and the resources of all files."""
        status = await self.begin(url)
        await self.work()
        manifest: Json = loads((await self.world.send("GET", status)).body)
        found = []
        for output in manifest["output"]:
            answer = await self.world.send("GET", output["url"].removeprefix(BASE + "/"))
            lines = [loads(line) for line in answer.body.splitlines()]
            self.assertEqual(len(lines), output["count"])
            found += lines
        return manifest, found

    async def fill(self) -> None:
        """Two patients with Observations, and what is not exported."""
        self.world.deident = WAYS
        for name in ("p1", "p2"):
            await self.put(patient("Smith", id=name, name=[{"family": "Smith"}], birthDate="1980-04-05"))
        for number, (name, when) in enumerate((("p1", "2025-01-01"), ("p1", "2025-01-31"), ("p2", "2025-01-01"))):
            await self.put(observation(f"o{number}", f"Patient/{name}", when))
        await self.put({"resourceType": "Binary", "id": "b", "contentType": "text/plain", "data": "U21pdGg="})

    async def put(self, resource: Json) -> None:
        """Store a resource."""
        answer = await self.world.send("PUT", f"{resource['resourceType']}/{resource['id']}", resource)
        self.assertEqual(answer.status, 201, answer.body)

    async def test_copies_without_names_and_real_dates(self) -> None:
        await self.fill()
        manifest, found = await self.resources()
        self.assertEqual(manifest["extension"], {"deidentified": WAYS.title})
        self.assertEqual([one["resourceType"] for one in found], ["Observation"] * 3 + ["Patient"] * 2)
        text = str(found)
        for hidden in ("Smith", "p1", "o1", "2025-01-31", "1980-", "lastUpdated"):
            self.assertNotIn(hidden, text)
        ids = {one["id"] for one in found[3:]}
        times = defaultdict(list)
        for one in found[:3]:
            times[one["subject"]["reference"].removeprefix("Patient/")].append(
                datetime.fromisoformat(one["effectiveDateTime"])
            )
        self.assertEqual(set(times), ids)
        first, second = sorted(max(times.values(), key=len))
        self.assertEqual((second - first).days, 30)
        again = (await self.resources())[1]
        self.assertEqual(sorted(again, key=itemgetter("id")), sorted(found, key=itemgetter("id")))

    async def test_the_order_does_not_tell_the_time(self) -> None:
        """In order of creation, neighbours tell by how many days each was moved."""
        self.world.deident = WAYS
        created = []
        for number in range(30):
            await self.put(patient("Smith", id=f"p{number}"))
            created.append(WAYS.pseudonyms.id("default", "Patient", f"p{number}"))
        orders = [[one["id"] for one in (await self.resources())[1]] for _ in range(2)]
        for order in orders:
            self.assertEqual(sorted(order), sorted(created))
            self.assertNotEqual(order, created)
        self.assertNotEqual(*orders)
        plain = [one["id"] for one in (await self.resources("$export?_type=Patient"))[1]]
        self.assertEqual(plain, [f"p{number}" for number in range(30)])

    async def test_another_process_continues_the_order(self) -> None:
        """A stage is lost after each page; nothing is exported twice or left out."""
        self.world.deident = WAYS
        for number in range(12):
            await self.put(patient("Smith", id=f"p{number}"))
        status = await self.begin("$export?_deident=true&_type=Patient")
        while await Export(self.world.exports, self.world.store, WAYS, page=5, ahead=100).step():
            pass
        manifest: Json = loads((await self.world.send("GET", status)).body)
        self.assertEqual(sum(one["count"] for one in manifest["output"]), 12)
        self.assertGreater(len(manifest["output"]), 1)

    async def test_patients_and_groups(self) -> None:
        await self.fill()
        members = [{"entity": {"reference": "Patient/p2"}}]
        await self.put({"resourceType": "Group", "id": "g", "type": "person", "actual": True, "member": members})
        _, found = await self.resources("Group/g/$export?_deident=true")
        self.assertEqual([one["resourceType"] for one in found], ["Observation", "Patient"])
        self.assertEqual(len((await self.resources("Patient/$export?_deident=true&_type=Patient"))[1]), 2)
        self.assertIn("Smith", str((await self.resources("$export?_deident=false"))[1]))

    async def test_by_post(self) -> None:
        await self.fill()
        body = {"resourceType": "Parameters", "parameter": [{"name": "_deident", "valueBoolean": True}]}
        begun = await self.world.send("POST", "$export", body, prefer="respond-async")
        await self.work()
        status = await self.world.send("GET", dict(begun.headers)["Content-Location"].removeprefix(BASE + "/"))
        self.assertIn("deidentified", loads(status.body)["extension"])

    async def test_refused(self) -> None:
        url = "$export?_deident=true"
        answer = await self.world.send("GET", url, prefer="respond-async")
        self.assertEqual(answer.status, 400)
        self.assertIn("IPF_SECRET_KEY", str(issues(answer)))
        await self.fill()
        for wrong, place in ((f"{url}&_type=Patient,Binary", "Binary"), ("$export?_deident=yes", "_deident")):
            answer = await self.world.send("GET", wrong, prefer="respond-async, handling=lenient")
            self.assertEqual(answer.status, 400)
            self.assertIn(place, str(issues(answer)))

    async def test_another_profile_ends_the_job(self) -> None:
        """Files by two profiles or keys must not be mixed; without a key nothing is exported as it is."""
        await self.fill()
        other = replace(WAYS, profile=replace(WAYS.profile, title="other 1 0"))
        for now in (other, replace(WAYS, pseudonyms=Pseudonyms("another key")), None):
            self.world.deident = WAYS
            status = await self.begin("$export?_deident=true")
            self.world.deident = now
            await self.work()
            answer = await self.world.send("GET", status)
            self.assertEqual(answer.status, 500)
            self.assertIn("profile", str(issues(answer)))

    async def test_labels_decide_before_the_copy(self) -> None:
        """A limited client gets no copy of what is hidden from it."""
        await self.fill()
        label = {"system": CONFIDENTIALITY, "code": "R"}
        await self.put({**observation("secret", "Patient/p1", "2025-02-02"), "meta": {"security": [label]}})
        install(Privacy(LabelRules.of(["R"])))
        self.addCleanup(install, None)
        self.world.caller = Caller("s", "app", ("system/*.rs",))
        self.assertEqual(len((await self.resources("$export?_deident=true&_type=Observation"))[1]), 3)

    async def test_files_are_for_the_caller_who_asked(self) -> None:
        """Copies are not compared with labels again, so a limited client gets no file of another's export."""
        await self.fill()
        manifest, _ = await self.resources("$export?_deident=true&_type=Observation")
        install(Privacy(LabelRules.of(["R"])))
        self.addCleanup(install, None)
        url = manifest["output"][0]["url"].removeprefix(BASE + "/")
        self.world.caller = Caller("s", "app", ("system/*.rs",))
        self.assertEqual((await self.world.send("GET", url)).status, 403)
