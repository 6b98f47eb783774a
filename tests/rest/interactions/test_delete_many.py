"""Conditional deletes of many: in one transaction, by a job, and what is refused."""

from __future__ import annotations

from ipf.fhir.model.json import dumps, loads
from ipf.ports import Caller, Json
from ipf.rest.background import job_runner
from ipf.rest.interactions import delete_many
from tests.rest.world import BASE, OnMemory, OnPostgres, Suite, World, issues, patient


class DeleteManySuite(Suite):
    world: World

    async def store(self, count: int, family: str = "Many") -> None:
        """Patients of this name."""
        entries = [
            {"resource": patient(f"{family}{number}", family), "request": {"method": "POST", "url": "Patient"}}
            for number in range(count)
        ]
        bundle: Json = {"resourceType": "Bundle", "type": "transaction", "entry": entries}
        self.assertEqual((await self.world.send("POST", "", dumps(bundle))).status, 200)

    async def count(self, family: str = "Many") -> int:
        """How many there are."""
        found: int = loads((await self.world.send("GET", f"Patient?family={family}&_summary=count")).body)["total"]
        return found

    async def test_by_setting(self) -> None:
        await self.store(3)
        await self.store(1, "Other")
        self.assertEqual((await self.world.send("DELETE", "Patient?family=Many")).status, 412)
        self.world.deletes_many = True
        statement = loads((await self.world.send("GET", "metadata")).body)["rest"][0]["resource"]
        stated = {one["type"]: one["conditionalDelete"] for one in statement}
        self.assertEqual((stated["Patient"], stated["AuditEvent"]), ("multiple", "not-supported"))
        answer = await self.world.send("DELETE", "Patient?family=Many", prefer="return=OperationOutcome")
        self.assertEqual((answer.status, issues(answer)[0][1]), (200, "3 resources deleted"))
        self.assertEqual((await self.count(), await self.count("Other")), (0, 1))
        self.assertEqual((await self.world.send("DELETE", "Patient?family=Many")).status, 204)
        for url, status in (
            ("Patient", 400),
            ("Patient?nonsense=1", 400),
            ("Patient?general-practitioner.name=x", 400),
        ):
            for prefer in ("", "respond-async"):
                self.assertEqual((await self.world.send("DELETE", url, prefer=prefer)).status, status, url)
        self.assertEqual(await self.count("Other"), 1)

    async def run_job(self, url: str, **headers: str) -> Json:
        """The answer of a delete that is a job."""
        self.world.export_hours = 1_000_000.0  # the database has another clock than the world
        answer = await self.world.send("DELETE", url, **headers)
        self.assertEqual(answer.status, 202, answer.body)
        address = dict(answer.headers)["Content-Location"].removeprefix(f"{BASE}/")
        self.world.pass_time()
        await self.store(1, "Manylater")
        while await job_runner(self.world.repository).step():
            pass
        found: Json = loads((await self.world.send("GET", address)).body)["entry"][0]
        return found

    async def test_by_a_job(self) -> None:
        """More than a batch, and where the client prefers it; what was written since stays."""
        self.world.deletes_many = True
        self.patch(delete_many, "BATCH", 4)
        await self.store(10)
        done = await self.run_job("Patient?family=Many")
        self.assertEqual(done["response"]["status"], "200 OK")
        self.assertEqual(done["resource"]["issue"][0]["diagnostics"], "10 resources deleted")
        self.assertEqual(await self.count(), 1)
        await self.store(2, "Few")
        done = await self.run_job("Patient?family=Few", prefer="respond-async")
        self.assertEqual(done["resource"]["issue"][0]["diagnostics"], "2 resources deleted")

    async def test_a_limited_caller(self) -> None:
        """He deletes what he finds, and nothing when he may not delete it."""
        self.world.deletes_many = True
        await self.world.send("PUT", "Patient/a", patient("1", "Many", id="a"))
        await self.world.send("PUT", "Patient/b", patient("2", "Many", id="b"))
        for scopes, status, left in (
            ("system/Patient.rs", 401, 2),
            ("system/Patient.d", 401, 2),
            ("system/Patient.rs system/Patient.d?_id=a", 401, 2),
            ("system/Patient.ds?_id=a", 204, 1),
            ("system/Patient.ds?_id=a", 204, 1),
            ("system/Patient.ds", 204, 0),
        ):
            caller, self.world.caller = self.world.caller, Caller("ada", "app", tuple(scopes.split()))
            answer = await self.world.send("DELETE", "Patient?family=Many")
            self.world.caller = caller
            self.assertEqual((answer.status, await self.count()), (status, left), scopes)


class DeleteManyTests(DeleteManySuite, OnMemory):
    pass


class DeleteManyOnPostgresTests(DeleteManySuite, OnPostgres):
    pass
