"""$import from the request to the manifest: inputs, refused lines, crashes, scopes, and what is refused."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.fhir.model.json import dumps, loads
from ipf.ports import Caller, Json
from ipf.rest.background import job_runner
from ipf.rest.imports import bulk_import
from tests.rest.world import BASE, OnMemory, OnPostgres, Suite, World, issues, patient

NDJSON = "application/fhir+ndjson"
PATIENTS, OBSERVATIONS = "https://files.example.org/p", "https://files.example.org/o"


def lines(*resources: Any) -> bytes:
    """One resource a line."""
    return b"".join((one if isinstance(one, bytes) else dumps(one)) + b"\n" for one in resources)


def observation(id: str) -> Json:
    """An Observation of Patient/p1."""
    return {"resourceType": "Observation", "id": id, "status": "final", "code": {"text": "x"},
            "subject": {"reference": "Patient/p1"}}  # fmt: skip


class ImportSuite(Suite):
    world: World

    def serve(self, **files: bytes) -> None:
        """What the URLs have; the last part of a URL is the name."""
        self.reads: list[str] = []
        self.world.export_hours = 1_000_000.0  # the database has another clock than the world

        async def fetch(url: str) -> bytes:
            self.reads.append(url)
            name = url.rpartition("/")[2]
            if name not in files:
                raise Problem(Category.UPSTREAM, "the server of the input answered 404")
            return files[name]

        self.world.fetch = fetch

    async def begin(self, body: Any, kind: str = "application/json") -> str:
        """The path of the status of a new job."""
        answer = await self.world.send("POST", "$import", body, prefer="respond-async", content_type=kind)
        self.assertEqual((answer.status, answer.body), (202, b""), answer.body)
        return dict(answer.headers)["Content-Location"].removeprefix(BASE + "/")

    async def run_job(self, body: Any, kind: str = "application/json") -> Json:
        """The manifest at the end."""
        address = await self.begin(body, kind)
        while await job_runner(self.world.repository).step():
            pass
        answer = await self.world.send("GET", address)
        self.assertEqual((answer.status, answer.content_type), (200, "application/json"), answer.body)
        manifest: Json = loads(answer.body)
        return manifest

    async def errors(self, manifest: Json) -> list[str]:
        """The places and reasons of all refused lines."""
        found = []
        for one in manifest["error"]:
            url = one["url"].removeprefix(BASE + "/")
            answer = await self.world.send("GET", url, accept=NDJSON)
            self.assertEqual((answer.status, answer.content_type), (200, NDJSON))
            outcomes = [loads(line) for line in answer.body.splitlines()]
            self.assertEqual(len(outcomes), one["count"])
            found += [outcome["issue"][0].get("expression", [""])[0] for outcome in outcomes]
        return found

    async def test_the_three_forms(self) -> None:
        self.serve(p=lines(patient("1", id="p1"), patient("2", id="p2")), o=lines(observation("o1")))
        inputs = [{"type": "Patient", "url": PATIENTS}, {"type": "Observation", "url": OBSERVATIONS}]
        values = (
            [{"name": "type", "valueCode": one["type"]}, {"name": "url", "valueUri": one["url"]}] for one in inputs
        )
        parts = [{"name": "input", "part": one} for one in values]
        form = {"name": "inputFormat", "valueCode": NDJSON}
        for body in (
            {"inputFormat": NDJSON, "inputSource": "https://x", "input": inputs},
            {"resourceType": "Parameters", "parameter": [form, *parts]},
        ):
            manifest = await self.run_job(body)
            self.assertEqual([(one["type"], one["count"]) for one in manifest["output"]],
                             [("Patient", 2), ("Observation", 1)])  # fmt: skip
            self.assertEqual(manifest["error"], [])
        upload = await self.run_job(lines(patient("3", id="p3"), observation("o2")), NDJSON)
        self.assertEqual(upload["output"], [{"count": 2}])
        for reference in ("Patient/p1", "Patient/p3", "Observation/o1", "Observation/o2"):
            self.assertEqual(len(await self.world.versions(reference)), 1, reference)

    async def test_refused_lines_are_named_and_the_others_stored(self) -> None:
        self.serve(p=lines(
            patient("1", id="p1"), b"{", {"resourceType": "Observation", "id": "o"}, patient("2"), b"",
            patient("3", id="not an id"), {**patient("4", id="p4"), "gender": 1}, b"[]", patient("5", id="p5"),
        ))  # fmt: skip
        manifest = await self.run_job({"input": [{"type": "Patient", "url": PATIENTS}]})
        self.assertEqual(manifest["output"][0]["count"], 2)
        places = sorted(await self.errors(manifest))
        self.assertEqual([place.split(":")[0] for place in places], [f"line {n}" for n in (2, 3, 4, 6, 7, 8)])
        self.assertEqual(len(await self.world.versions("Patient/p5")), 1)

    async def test_an_input_that_cannot_be_read(self) -> None:
        self.serve(p=lines(patient("1", id="p1")))
        missing = {"type": "Patient", "url": "https://files.example.org/gone"}
        manifest = await self.run_job({"input": [missing, {"type": "Patient", "url": PATIENTS}]})
        self.assertEqual([one["count"] for one in manifest["output"]], [0, 1])
        self.assertEqual(len(await self.errors(manifest)), 1)
        self.assertEqual(self.reads.count(missing["url"]), 3)

    async def test_a_crash_stores_no_line_twice(self) -> None:
        """The worker dies after its first transactions; a line has changed since by someone else."""
        await self.continued(lambda content: content)

    async def test_a_crash_within_a_gzipped_input(self) -> None:
        await self.continued(gzip.compress)

    async def continued(self, packed: Callable[[bytes], bytes]) -> None:
        """Behind the transactions before the crash."""
        self.serve(p=packed(lines(*(patient(str(n), id=f"p{n}") for n in range(450)), b"{")))
        address = await self.begin({"input": [{"type": "Patient", "url": PATIENTS}]})
        with self.assertRaises(StoreUnreachable):
            await self.dying(2)
        await self.world.send("PUT", "Patient/p0", patient("0", "Later", id="p0"))
        self.world.pass_time(10_000)
        if self.world.database is not None:
            await self.world.database.all_tenants.many("UPDATE jobs SET holder = 0")
        while await job_runner(self.world.repository).step():
            pass
        manifest = loads((await self.world.send("GET", address)).body)
        self.assertEqual((manifest["output"][0]["count"], len(await self.errors(manifest))), (450, 1))
        self.assertEqual((await self.world.body("Patient/p0"))["name"], [{"family": "Later"}])
        self.assertEqual(len(await self.world.versions("Patient/p399")), 1)

    async def dying(self, batches: int) -> None:
        """A step whose worker dies after some transactions."""
        jobs, left = self.world.jobs, [batches]

        class Dying:
            def __getattr__(self, name: str) -> Any:
                return getattr(jobs, name)

            async def renew(self, *arguments: Any) -> bool:
                left[0] -= 1
                if not left[0]:
                    raise StoreUnreachable("the worker is gone")
                return await jobs.renew(*arguments)

        await job_runner(replace(self.world.repository, jobs=Dying())).step()

    async def test_gzipped(self) -> None:
        """Known by its first bytes, in one part or several; unpacked line by line, each with a bound."""
        people = [patient(str(n), id=f"p{n}") for n in range(5)]
        whole, long = lines(*people), lines(patient("9", "x" * 3000, id="long"))
        packed = gzip.compress(whole)
        self.patch(bulk_import, "_LONGEST_LINE", 2000)
        for name, content, stored, refused in (
            ("whole", packed, 5, []),
            ("parts", gzip.compress(whole[:100]) + gzip.compress(whole[100:]), 5, []),
            ("no end of line", gzip.compress(whole.rstrip()), 5, []),
            ("empty", gzip.compress(b""), 0, []),
            ("long", gzip.compress(lines(people[0]) + long + lines(people[1])), 1, ["line 2"]),
            ("a bomb", gzip.compress(lines(people[0]) + b"[" * 10_000_000), 1, ["line 2"]),
            ("cut", packed[:-12], None, None),
            ("wrong sum", packed[:-8] + b"xxxx" + packed[-4:], 5, ["line 6"]),
            ("no gzip", b"\x1f\x8b" + whole, 0, ["line 1"]),
        ):  # fmt: skip
            self.serve(p=content)
            manifest = await self.run_job({"input": [{"type": "Patient", "url": PATIENTS}]})
            count, places = manifest["output"][0]["count"], await self.errors(manifest)
            if stored is None:
                self.assertEqual((len(places), count < 6), (1, True), name)
            else:
                self.assertEqual((count, places), (stored, refused), name)

    async def test_bounds(self) -> None:
        """Of the lines of an input, and of the bytes of a transaction."""
        people = lines(*(patient(str(n), id=f"p{n}") for n in range(5)))
        for name, value, stored, refused in (
            ("_BATCH_BYTES", 1, 5, []), ("_BATCH", 2, 5, []), ("_BATCH", 5, 5, []), ("_MAX_LINES", 5, 5, []),
            ("_MAX_LINES", 3, 3, [""]),
        ):  # fmt: skip
            for content in (people, gzip.compress(people)):
                patched = self.patch(bulk_import, name, value)
                self.serve(p=content)
                manifest = await self.run_job({"input": [{"type": "Patient", "url": PATIENTS}]})
                patched.restore()
                found = manifest["output"][0]["count"], await self.errors(manifest)
                self.assertEqual(found, (stored, refused), (name, value))

    async def test_cancelled(self) -> None:
        self.serve(p=lines(*(patient(str(n), id=f"p{n}") for n in range(450))))
        address = await self.begin({"input": [{"type": "Patient", "url": PATIENTS}]})
        self.assertEqual((await self.world.send("DELETE", address)).status, 202)
        while await job_runner(self.world.repository).step():
            pass
        self.assertEqual(await self.world.versions("Patient/p0"), [])

    async def test_scopes(self) -> None:
        self.serve(p=lines(patient("1", id="p1")))
        body = {"input": [{"type": "Patient", "url": PATIENTS}]}
        for scopes, status in (
            ("system/Patient.cu", 202), ("system/*.cruds", 202), ("system/Patient.c", 401), ("system/Patient.u", 401),
            ("system/Observation.cu", 401), ("system/*.rs", 401),
        ):  # fmt: skip
            self.world.caller = Caller("ada", "app", (scopes,))
            answer = await self.world.send("POST", "$import", body, prefer="respond-async")
            self.assertEqual(answer.status, status, scopes)
        self.world.caller = Caller("ada", "app", ("system/Patient.cu",))
        manifest = await self.run_job(lines(patient("1", id="p1"), observation("o1")), NDJSON)
        self.assertEqual((manifest["output"], await self.errors(manifest)), ([{"count": 1}], ["line 2"]))

    async def test_refused(self) -> None:
        self.serve()
        good = {"type": "Patient", "url": PATIENTS}
        for body, kind, status, place in (
            ({"input": [good]}, "", 400, ""),  # without the header
            ({}, "application/json", 400, "input"),
            ({"input": []}, "application/json", 400, "input"),
            ({"input": [good] * 501}, "application/json", 413, "input"),
            ({"input": [{"type": "Nothing", "url": PATIENTS}]}, "application/json", 400, "input[0].type"),
            ({"input": [good, {"type": "Patient"}]}, "application/json", 400, "input[1].url"),
            ({"input": [{"type": "Patient", "url": "ftp://x/y"}]}, "application/json", 422, "input[0].url"),
            ({"input": [{"type": "Patient", "url": "http://example.org/x"}]}, "application/json", 422, "input[0].url"),
            ({"input": [{"type": "Patient", "url": "https://10.0.0.1/x"}]}, "application/json", 422, "input[0].url"),
            ({"input": [{"type": "Patient", "url": "https://localhost/x"}]}, "application/json", 422, "input[0].url"),
            ({"input": [{"type": "Patient", "url": "https://a:b@files.example.org/"}]}, "application/json", 422,
             "input[0].url"),
            ({"inputFormat": "text/csv", "input": [good]}, "application/json", 400, "inputFormat"),
            ({"what": 1, "input": [good]}, "application/json", 400, "what"),
            ({"resourceType": "Patient"}, "application/json", 400, "resourceType"),
            (b"[]", "application/json", 400, ""),
            (b"  \n", NDJSON, 400, ""),
        ):  # fmt: skip
            prefer = {"prefer": "respond-async"} if kind else {}
            answer = await self.world.send("POST", "$import", body, content_type=kind or "application/json", **prefer)
            self.assertEqual((answer.status, issues(answer)[0][2]), (status, place), body)


class MemoryImport(ImportSuite, OnMemory):
    """In memory."""


class PostgresImport(ImportSuite, OnPostgres):
    """SQL leases jobs."""
