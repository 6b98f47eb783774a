"""$export from the request to the files: jobs, parts, compartments, crashes, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ipf.fhir.model.json import loads
from ipf.pipeline.maintenance.export import LEASE_SECONDS, Export
from ipf.ports import Answer, Json
from tests.rest.world import BASE, OnMemory, OnPostgres, Suite, World, issues, patient


def observation(id: str, subject: str) -> Json:
    """An Observation of a patient."""
    reference = {"reference": subject}
    return {"resourceType": "Observation", "id": id, "status": "final", "code": {"text": "x"}, "subject": reference}


class ExportSuite(Suite):
    world: World

    async def begin(self, url: str = "$export", **headers: str) -> Answer:
        """The kick-off request."""
        return await self.world.send("GET", url, prefer="respond-async", **headers)

    async def run_job(self, url: str = "$export", page: int = 2) -> Json:
        """Start a job, run the stage, return the manifest."""
        begun = await self.begin(url)
        self.assertEqual((begun.status, begun.body), (202, b""), begun.body)
        address = dict(begun.headers)["Content-Location"].removeprefix(BASE + "/")
        running = await self.world.send("GET", address)
        self.assertEqual((running.status, "X-Progress" in dict(running.headers)), (202, True))
        await self.work(page)
        done = await self.world.send("GET", address)
        self.assertEqual((done.status, done.content_type), (200, "application/json"), done.body)
        self.address = address
        manifest: Json = loads(done.body)
        return manifest

    async def work(self, page: int = 2) -> int:
        """Run the stage until it is idle; the number of steps."""
        stage, steps = Export(self.world.exports, self.world.store, page=page), 0
        while await stage.step():
            steps += 1
        return steps

    async def lines(self, manifest: Json) -> list[str]:
        """`Type/id` of every line of every file."""
        found = []
        for output in manifest["output"]:
            url = output["url"].removeprefix(BASE + "/")
            answer = await self.world.send("GET", url, accept="application/fhir+ndjson")
            self.assertEqual((answer.status, answer.content_type), (200, "application/fhir+ndjson"))
            items = [loads(line) for line in answer.body.splitlines()]
            self.assertEqual({item["resourceType"] for item in items}, {output["type"]})
            self.assertEqual(len(items), output["count"])
            found += [f"{item['resourceType']}/{item['id']}" for item in items]
        return found

    async def fill(self) -> None:
        """Five patients, an observation for each of two, one about a group, and what is deleted or comes later."""
        for number in range(5):
            await self.world.send("PUT", f"Patient/p{number}", patient(str(number), id=f"p{number}"))
        for number, subject in enumerate(("Patient/p0", "Patient/p1", "Group/g")):
            await self.world.send("PUT", f"Observation/o{number}", observation(f"o{number}", subject))
        members = [{"entity": {"reference": "Patient/p1"}}, {"entity": {"reference": "Patient/p2"}, "inactive": True}]
        group = {"resourceType": "Group", "id": "g", "type": "person", "actual": True, "member": members}
        await self.world.send("PUT", "Group/g", group)
        await self.world.send("DELETE", "Patient/p4")

    async def test_the_system(self) -> None:
        await self.fill()
        manifest = await self.run_job()
        found = await self.lines(manifest)
        patients = [f"Patient/p{number}" for number in range(4)]
        self.assertEqual(found, ["Group/g", "Observation/o0", "Observation/o1", "Observation/o2", *patients])
        kinds = [one["type"] for one in manifest["output"]]
        self.assertEqual(kinds, ["Group", "Observation", "Observation", "Patient", "Patient"])
        self.assertEqual((manifest["request"], manifest["requiresAccessToken"]), (f"{BASE}/$export", False))
        self.assertEqual(manifest["transactionTime"], "2026-01-31T08:05:09.120Z")

    async def test_patients_and_groups(self) -> None:
        await self.fill()
        patients = await self.lines(await self.run_job("Patient/$export"))
        self.assertEqual(
            patients, ["Group/g", "Observation/o0", "Observation/o1", *(f"Patient/p{n}" for n in range(4))]
        )
        of_group = await self.lines(await self.run_job("Group/g/$export?_type=Patient,Observation"))
        self.assertEqual(of_group, ["Observation/o1", "Patient/p1"])

    async def test_export_has_the_state_of_one_instant(self) -> None:
        await self.fill()
        begun = await self.begin("$export?_type=Patient")
        self.world.pass_time()
        await self.world.send("PUT", "Patient/p0", patient("0", id="p0", active=True))
        await self.world.send("PUT", "Patient/new", patient("new", id="new"))
        await self.work()
        status = await self.world.send("GET", dict(begun.headers)["Content-Location"].removeprefix(BASE + "/"))
        manifest = loads(status.body)
        self.assertEqual(await self.lines(manifest), [f"Patient/p{number}" for number in range(4)])
        first = await self.world.send("GET", manifest["output"][0]["url"].removeprefix(BASE + "/"))
        self.assertNotIn(b"active", first.body)
        later = await self.lines(await self.run_job("$export?_since=2026-01-31T08:05:10Z"))
        self.assertEqual(later, ["Patient/p0", "Patient/new"])

    async def test_lost_parts_are_exported_again_after_a_crash(self) -> None:
        await self.fill()
        await self.begin("$export?_type=Patient")
        await Export(self.world.exports, self.world.store, page=2).step()
        lost = await self.world.exports.lease(0.0)
        assert lost is not None
        self.world.pass_time(LEASE_SECONDS + 1)
        again = await self.world.exports.lease(30)
        assert again is not None
        self.assertEqual((again.id, again.exported, again.after_rid > 0), (lost.id, 2, True))
        self.assertFalse(await self.world.exports.write(lost, None))
        self.assertTrue(await self.world.exports.write(again, None))
        await self.work()
        parts = await self.world.exports.parts("default", again.id)
        self.assertEqual(parts, [(1, "Patient", 2), (2, "Patient", 2)])

    async def test_cancel(self) -> None:
        await self.fill()
        await self.run_job()
        self.assertEqual((await self.world.send("DELETE", self.address)).status, 202)
        self.assertEqual((await self.world.send("GET", self.address)).status, 404)
        self.assertEqual((await self.world.send("DELETE", self.address)).status, 404)
        file = self.address.replace("status", "file") + "/1"
        self.assertEqual((await self.world.send("GET", file)).status, 404)

    async def test_other_tenants_see_nothing(self) -> None:
        await self.fill()
        await self.run_job()
        for address in (self.address, self.address.replace("status", "file") + "/1"):
            self.assertEqual((await self.world.send("GET", address, tenant="north")).status, 404)

    async def test_refused(self) -> None:
        no_text: Json = {"resourceType": "Parameters"}
        table: list[tuple[str, str, Any, dict[str, str], int]] = [
            ("GET", "$export", None, {"prefer": ""}, 400),
            ("GET", "$export?_type=Nonsense", None, {}, 400),
            ("GET", "$export?_since=soon", None, {}, 400),
            ("GET", "$export?_outputFormat=text/csv", None, {}, 400),
            ("GET", "$export?_elements=id", None, {}, 400),
            ("POST", "$export", {**no_text, "parameter": [{"name": "patient", "valueReference": {}}]}, {}, 400),
            ("GET", "Observation/$export", None, {}, 404),
            ("GET", "Patient/p0/$export", None, {}, 404),
            ("GET", "Group/none/$export", None, {}, 404),
            ("GET", "$export-status/nonsense", None, {}, 404),
            ("GET", "$export-file/nonsense/1", None, {}, 404),
            ("GET", "$export-file/nonsense/x", None, {}, 404),
            ("PUT", "$export", None, {}, 405),
            ("POST", "$export", {**no_text, "parameter": [{"name": "_type", "valueInteger": 1}]}, {}, 400),
        ]
        for method, url, body, headers, status in table:
            answer = await self.world.send(method, url, body, **{"prefer": "respond-async", **headers})
            self.assertEqual((answer.status, bool(issues(answer))), (status, True), url)

    async def test_filters(self) -> None:
        """Several of a type add up; commas in values stay; types without one are exported whole."""
        await self.fill()
        for id_, gender in (("m", "male"), ("f", "female"), ("o", "other")):
            await self.world.send("PUT", f"Patient/{id_}", patient(id_, id=id_, gender=gender, active=id_ != "m"))
        males = "Patient%3Fgender%3Dmale"
        for level in ("", "Patient/"):
            for query, expected in (
                (f"_type=Patient&_typeFilter={males}", {"Patient/m"}),
                (f"_type=Patient&_typeFilter={males},Patient%3Fgender%3Dother", {"Patient/m", "Patient/o"}),
                (f"_type=Patient&_typeFilter={males}&_typeFilter=Patient%3Fgender%3Dother", {"Patient/m", "Patient/o"}),
                ("_type=Patient&_typeFilter=Patient%3Fgender%3Dmale,female", {"Patient/m", "Patient/f"}),
                ("_type=Patient&_typeFilter=Patient%3Fgender%3Dfemale%26active%3Dtrue", {"Patient/f"}),
                (f"_type=Patient,Group&_typeFilter={males}", {"Patient/m", "Group/g"}),
                ("_type=Observation&_typeFilter=Observation%3Fsubject%3DPatient/p1", {"Observation/o1"}),
                (f"_type=Observation&_typeFilter=Observation%3Fsubject%3D{BASE}/Patient/p1", {"Observation/o1"}),
                ("_type=Observation&_typeFilter=Observation%3Fsubject%3DPatient/none", set()),
                ("_type=Patient&_typeFilter=Patient%3F_id%3Dm", {"Patient/m"}),
            ):
                found = await self.lines(await self.run_job(f"{level}$export?{query}", page=3))
                self.assertEqual(set(found), expected, (level, query))
        of_group = await self.run_job("Group/g/$export?_type=Observation&_typeFilter=Observation?subject=Patient/p0")
        self.assertEqual(await self.lines(of_group), [])

    async def test_filters_by_post(self) -> None:
        await self.fill()
        sent = [
            {"name": "_type", "valueString": "Patient"},
            {"name": "_typeFilter", "valueString": "Patient?_id=p0,p1"},
        ]
        body = {
            "resourceType": "Parameters",
            "parameter": [*sent, {"name": "_typeFilter", "valueString": "Patient?_id=p3"}],
        }
        begun = await self.world.send("POST", "$export", body, prefer="respond-async")
        self.assertEqual(begun.status, 202, begun.body)
        await self.work()
        status = await self.world.send("GET", dict(begun.headers)["Content-Location"].removeprefix(BASE + "/"))
        manifest = loads(status.body)
        self.assertEqual(await self.lines(manifest), ["Patient/p0", "Patient/p1", "Patient/p3"])
        self.assertEqual(manifest["request"], f"{BASE}/$export")

    async def test_filters_that_cannot_be_read(self) -> None:
        """Refused with their place; `handling=lenient` leaves out what is unknown, never a value that is wrong."""
        await self.fill()
        everyone = [f"Patient/p{number}" for number in range(4)]
        for filter_, lenient in (
            ("x", everyone),
            ("Observation?status=final", everyone),
            ("Nonsense?status=final", everyone),
            ("Patient?nonsense=1", everyone),
            ("Patient?nonsense=1%26_id=p1", ["Patient/p1"]),
            ("Patient?_sort=family%26_id=p1", ["Patient/p1"]),
            ("Patient?_include=Patient:link%26_id=p1", ["Patient/p1"]),
            ("Patient?organization.name=x%26_id=p1", ["Patient/p1"]),
            ("Patient?_has:Observation:patient:code=x", everyone),
            ("Patient?birthdate=soon", None),
            ("Patient?birthdate=ap2020", None),
            (",".join(["Patient?_id=p1"] * 101), None),
        ):
            url = f"$export?_type=Patient&_typeFilter={filter_}"
            for headers in ({}, {"prefer": "respond-async, handling=strict"}):
                answer = await self.world.send("GET", url, **{"prefer": "respond-async", **headers})
                self.assertEqual((answer.status, issues(answer)[0][2]), (400, "_typeFilter"), (filter_, answer.body))
            begun = await self.world.send("GET", url, prefer="respond-async, handling=lenient")
            self.assertEqual(begun.status, 400 if lenient is None else 202, (filter_, begun.body))
            if lenient is not None:
                await self.work()
                status = await self.world.send("GET", dict(begun.headers)["Content-Location"].removeprefix(BASE + "/"))
                self.assertEqual(await self.lines(loads(status.body)), lenient, filter_)

    async def test_by_post(self) -> None:
        await self.fill()
        body = {"resourceType": "Parameters", "parameter": [{"name": "_type", "valueString": "Group"}]}
        begun = await self.world.send("POST", "$export", body, prefer="respond-async")
        self.assertEqual(begun.status, 202)
        await self.work()
        status = await self.world.send("GET", dict(begun.headers)["Content-Location"].removeprefix(BASE + "/"))
        self.assertEqual([one["type"] for one in loads(status.body)["output"]], ["Group"])


class ExportTests(ExportSuite, OnMemory):
    async def test_jobs_expire(self) -> None:
        await self.run_job()
        self.world.now += timedelta(hours=25)
        self.assertEqual((await self.world.send("GET", self.address)).status, 404)
        self.assertEqual(await self.world.exports.expire(), 1)


class ExportOnPostgresTests(ExportSuite, OnPostgres):
    """SQL leases jobs and reads what is exported."""

    async def setUp(self) -> None:
        await super().setUp()
        self.world.export_hours = 24 * 36500  # PostgreSQL's clock is not that of the world
