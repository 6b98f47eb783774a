"""`Prefer: respond-async`: searches and Bundles as jobs, from the request to the answer, through crashes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet.task import Clock

from ipf.fhir.model.json import loads
from ipf.ports import OPEN, Answer, Caller, Json
from ipf.rest.background import job_runner
from ipf.rest.http.job_limit import LIMIT, JobLimit
from ipf.rest.jobs.runner import JobRunner
from ipf.rest.router import handler
from tests.rest.world import BASE, OnMemory, OnPostgres, Suite, World, patient

ADA = Caller("ada", "app", ("system/*.cruds",), issuer="https://idp")
FORM = "application/x-www-form-urlencoded"


def bundle(kind: str, *entries: tuple[str, str, Any]) -> Json:
    """A Bundle of (method, url, resource)."""
    made = []
    for method, url, resource in entries:
        entry: Json = {"request": {"method": method, "url": url}}
        made.append(entry | ({"resource": resource} if resource is not None else {}))
    return {"resourceType": "Bundle", "type": kind, "entry": made}


class AsyncSuite(Suite):
    world: World

    def runner(self) -> JobRunner:
        """What runs the jobs."""
        return job_runner(self.world.repository)

    async def begin(self, method: str, url: str, body: Any = None, **headers: str) -> str:
        """The path of the status of a new job."""
        self.world.export_hours = 1_000_000.0  # the database has another clock than the world
        answer = await self.world.send(method, url, body, prefer="respond-async", **headers)
        self.assertEqual((answer.status, answer.body), (202, b""), answer.body)
        self.assertEqual(dict(answer.headers)["Preference-Applied"], "respond-async")
        return dict(answer.headers)["Content-Location"].removeprefix(BASE + "/")

    async def test_an_address_without_authentication_starts_so_many_jobs_a_minute(self) -> None:
        """All kinds of jobs together; who has a token, and other addresses, go on."""
        clock, limited = Clock(), list[str]()
        self.world.job_limit = JobLimit(clock.seconds, lambda: limited.append("job"))

        async def started(url: str, address: str, caller: Caller = OPEN) -> int:
            asked = self.world.request("GET", url, prefer="respond-async")
            serve = handler(self.world.repository)
            return (await serve(replace(asked, address=address, caller=caller))).status

        seen = [await started(("Patient", "$export")[number % 2], "192.0.2.1") for number in range(LIMIT + 3)]
        self.assertEqual(seen, [202] * LIMIT + [503] * 3)
        self.assertEqual(limited, ["job"] * 3)
        self.assertEqual(await started("$export", "192.0.2.1", ADA), 202)
        self.assertEqual(await started("Patient", "192.0.2.2"), 202)
        clock.advance(60)
        self.assertEqual(await started("Patient", "192.0.2.1"), 202)

    async def work(self) -> None:
        """Run every job to its end."""
        while await self.runner().step():
            pass

    async def done(self, address: str) -> Json:
        """The only entry of the answer of a job that ran to its end."""
        running = await self.world.send("GET", address)
        self.assertEqual((running.status, "X-Progress" in dict(running.headers)), (202, True))
        await self.work()
        return await self.entry(address)

    async def entry(self, address: str) -> Json:
        """The only entry of an answer."""
        answer = await self.world.send("GET", address)
        self.assertEqual(answer.status, 200, answer.body)
        self.assertIn("Expires", dict(answer.headers))
        found = loads(answer.body)
        self.assertEqual((found["type"], len(found["entry"])), ("batch-response", 1))
        entry: Json = found["entry"][0]
        return entry

    async def test_searches(self) -> None:
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        await self.world.send("PUT", "Patient/b", patient("2", id="b", gender="male"))
        seen = {"resourceType": "Observation", "id": "o", "status": "final", "code": {"text": "x"},
                "subject": {"reference": "Patient/a"}}  # fmt: skip
        await self.world.send("PUT", "Observation/o", seen)
        for method, url, body, headers, expected in (
            ("GET", "Patient?gender=male", None, {}, ["b"]),
            ("POST", "Patient/_search?gender=male", b"_count=1", {"content_type": FORM}, ["b"]),
            ("GET", "?_type=Patient,Observation", None, {}, ["a", "b", "o"]),
            ("POST", "_search", b"_type=Observation", {"content_type": FORM}, ["o"]),
            ("GET", "Patient/a/Observation", None, {}, ["o"]),
        ):
            entry = await self.done(await self.begin(method, url, body, **headers))
            self.assertEqual(entry["response"]["status"], "200 OK", url)
            found = [one["resource"]["id"] for one in entry["resource"]["entry"]]
            self.assertEqual(sorted(found), expected, url)

    async def test_the_presentation_is_that_of_the_request(self) -> None:
        await self.world.send("PUT", "Patient/a", patient("1", id="a", gender="male"))
        entry = await self.done(await self.begin("GET", "Patient?_elements=gender"))
        self.assertEqual({*entry["resource"]["entry"][0]["resource"]}, {"resourceType", "id", "meta", "gender"})

    async def test_what_fails_is_in_the_answer(self) -> None:
        for method, url, body in (
            ("GET", "Patient?birthdate=yesterday", None),
            ("POST", "", b"{"),
            ("POST", "", bundle("transaction", ("POST", "Patient", {"resourceType": "Patient", "gender": 1}))),
        ):
            entry = await self.done(await self.begin(method, url, body))
            self.assertEqual(entry["response"]["status"][:2], "40", url)
            self.assertEqual(entry["response"]["outcome"]["resourceType"], "OperationOutcome")
            self.assertNotIn("resource", entry)

    async def test_others_are_performed_at_once(self) -> None:
        for method, url, body, status in (
            ("PUT", "Patient/a", patient("1", id="a"), 201),
            ("GET", "Patient/a", None, 200),
            ("GET", "metadata", None, 200),
            ("GET", "Nothing", None, 404),
        ):
            self.assertEqual((await self.world.send(method, url, body, prefer="respond-async")).status, status, url)

    async def test_a_transaction_and_a_batch(self) -> None:
        for kind in ("transaction", "batch"):
            sent = bundle(kind, ("POST", "Patient", patient(kind)), ("PUT", f"Patient/{kind}", patient("2", id=kind)),
                          ("GET", f"Patient/{kind}", None))  # fmt: skip
            entry = await self.done(await self.begin("POST", "", sent))
            inner = entry["resource"]
            self.assertEqual(inner["type"], f"{kind}-response")
            self.assertEqual([one["response"]["status"][:3] for one in inner["entry"]], ["201", "201", "200"])
            self.assertEqual(inner["entry"][2]["resource"]["id"], kind)

    async def test_a_crash_after_the_commit_writes_nothing_twice(self) -> None:
        """The worker dies between the commit of the resources and the answer."""
        for kind in ("transaction", "batch"):
            sent = bundle(kind, ("POST", "Patient", patient(kind)), ("DELETE", "Patient/nobody", None),
                          ("GET", f"Patient?identifier=urn:mrn%7C{kind}", None))  # fmt: skip
            address = await self.begin("POST", "", sent)
            jobs = self.world.jobs
            job = await jobs.lease(30)
            assert job is not None
            dying = Dying(jobs)
            repository = replace(self.world.repository, jobs=dying)
            await jobs.write(job)  # ends the lease
            await job_runner(repository).step()
            self.assertTrue(dying.died)
            self.world.pass_time(10_000)
            if self.world.database is not None:
                await self.world.database.all_tenants.many("UPDATE jobs SET holder = 0")
            await self.work()
            inner = (await self.entry(address))["resource"]
            self.assertEqual([one["response"]["status"][:3] for one in inner["entry"]], ["201", "204", "200"], kind)
            self.assertEqual(len(inner["entry"][2]["resource"]["entry"]), 1, kind)
            found = loads((await self.world.send("GET", f"Patient?identifier=urn:mrn%7C{kind}")).body)
            self.assertEqual(found["total"], 1, kind)
            location = inner["entry"][0]["response"]["location"]
            self.assertIn(f"Patient/{found['entry'][0]['resource']['id']}/_history/1", location)

    async def test_cancelled(self) -> None:
        address = await self.begin("POST", "", bundle("transaction", ("PUT", "Patient/a", patient("1", id="a"))))
        self.assertEqual((await self.world.send("DELETE", address)).status, 202)
        await self.work()
        self.assertEqual((await self.world.send("GET", address)).status, 404)
        self.assertEqual((await self.world.send("GET", "Patient/a")).status, 404)

    async def test_an_answer_is_for_its_own_client(self) -> None:
        self.world.caller = ADA
        address = await self.begin("GET", "Patient")
        await self.work()
        for caller, status in (
            (ADA, 200),
            (replace(ADA, subject="bob"), 404),
            (replace(ADA, client="other"), 404),
            (replace(ADA, issuer="https://other"), 404),
            (replace(ADA, scopes=("system/Patient.rs",)), 403),
            (replace(ADA, patient="x"), 403),
            (OPEN, 404),
        ):
            self.world.caller = caller
            self.assertEqual((await self.world.send("GET", address)).status, status, caller)
            self.assertEqual((await self.world.send("GET", address, tenant="other")).status, 404, caller)
        self.world.caller = replace(ADA, subject="bob")
        self.assertEqual((await self.world.send("DELETE", address)).status, 404)

    async def test_limits_hold_in_the_job(self) -> None:
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        await self.world.send("PUT", "Patient/b", patient("2", id="b"))
        self.world.caller = replace(ADA, scopes=("patient/*.rs",), patient="a")
        entry = await self.done(await self.begin("GET", "Patient"))
        self.assertEqual([one["resource"]["id"] for one in entry["resource"]["entry"]], ["a"])
        refused = await self.world.send("POST", "", bundle("batch"), prefer="respond-async")
        self.assertEqual(refused.status, 202)  # as without the preference: entries are checked one by one
        sent = bundle("batch", ("PUT", "Patient/b", patient("3", id="b")))
        written = await self.done(await self.begin("POST", "", sent))
        self.assertEqual(written["resource"]["entry"][0]["response"]["status"][:3], "401")
        self.world.caller = replace(ADA, scopes=("system/Observation.rs",))
        answer: Answer = await self.world.send("GET", "Patient", prefer="respond-async")
        self.assertEqual(answer.status, 401)


class Dying:
    """Jobs whose worker dies before it writes an answer."""

    def __init__(self, jobs: Any) -> None:
        self._jobs = jobs
        self.died = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jobs, name)

    async def write(self, job: Any, file: Any = None) -> bool:
        """Nothing is written."""
        self.died = True
        return False


class MemoryAsync(AsyncSuite, OnMemory):
    """In memory."""


class PostgresAsync(AsyncSuite, OnPostgres):
    """SQL leases jobs and holds answers."""
