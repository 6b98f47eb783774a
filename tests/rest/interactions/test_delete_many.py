"""Conditional deletes of many: in one transaction, by a job, and what is refused."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import dumps, loads
from ipf.ports import Caller, Json
from ipf.ports.fhir.resources import SearchPage
from ipf.ports.queries.search import Query
from ipf.rest.background import KINDS, job_runner
from ipf.rest.interactions import delete_many
from ipf.rest.jobs.jobs import request_of
from tests.rest.world import BASE, OnMemory, OnSharedPostgres, Suite, World, issues, patient


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

    def bundle(self, kind: str, *entries: tuple[str, str, Json | None]) -> Json:
        """A Bundle of (method, url, resource)."""
        made: list[Json] = [{"request": {"method": method, "url": url}} for method, url, _ in entries]
        for one, (_, _, resource) in zip(made, entries, strict=True):
            one |= {} if resource is None else {"resource": resource}
        return {"resourceType": "Bundle", "type": kind, "entry": made}

    async def statuses(self, kind: str, *entries: tuple[str, str, Json | None], **headers: str) -> list[str]:
        """The status of each entry."""
        answer = await self.world.send("POST", "", self.bundle(kind, *entries), **headers)
        self.assertEqual(answer.status, 200, answer.body)
        return [one["response"]["status"][:3] for one in loads(answer.body)["entry"]]

    async def test_in_a_transaction(self) -> None:
        """All matches in the transaction, before its other writes; none when one fails, or when there are too many."""
        await self.store(3)
        many = ("DELETE", "Patient?family=Many", None)
        refused = await self.world.send("POST", "", self.bundle("transaction", many))
        self.assertEqual((refused.status, issues(refused)[0][2]), (412, "Bundle.entry[0]"))
        self.world.deletes_many = True
        new = ("POST", "Patient", patient("new", "Many"))
        bad = ("PUT", "Patient?identifier=urn:mrn|x", patient("x", id="1 2"))
        for broken in (bad, ("GET", "Patient/nobody", None), ("DELETE", "Patient?identifier=urn:mrn|Many1", None)):
            answer = await self.world.send("POST", "", self.bundle("transaction", many, new, broken))
            self.assertGreaterEqual(answer.status, 400, broken)
            self.assertEqual(await self.count(), 3, broken)
        found = ("GET", "Patient?family=Many", None)
        self.assertEqual(await self.statuses("transaction", new, many, found), ["201", "204", "200"])
        self.assertEqual(await self.count(), 1)
        await self.store(2, "Few")
        few = self.bundle(
            "transaction", ("DELETE", "Patient?family=Few", None), ("DELETE", "Patient?family=No", None), many
        )
        answer = await self.world.send("POST", "", few, prefer="return=OperationOutcome")
        entries = [one["response"] for one in loads(answer.body)["entry"]]
        self.assertEqual([one.get("outcome", {}).get("issue", [{}])[0].get("diagnostics") for one in entries],
                         ["2 resources deleted", "0 resources deleted", None])  # fmt: skip
        self.assertEqual(["etag" in one for one in entries], [False, False, True])
        self.assertEqual(len(answer.about), 3)
        self.patch(delete_many, "BATCH", 4)
        await self.store(3)
        await self.store(2, "Few")
        for kind in ("transaction", "batch"):
            sent = self.bundle(kind, many, ("DELETE", "Patient?family=Few", None))
            answer = await self.world.send("POST", "", sent)
            if kind == "transaction":
                self.assertEqual((answer.status, issues(answer)[0][::2]),
                                 (400, ("too-costly", "Bundle.entry[1].request.url")))  # fmt: skip
                self.assertEqual((await self.count(), await self.count("Few")), (3, 2))
        self.assertEqual((await self.count(), await self.count("Few")), (0, 0))

    async def test_in_a_batch(self) -> None:
        """Each in a transaction of its own; with If-Match it deletes one."""
        self.world.deletes_many = True
        self.patch(delete_many, "BATCH", 3)
        await self.store(4)
        await self.store(2, "Few")
        few, new = ("DELETE", "Patient?family=Few", None), ("POST", "Patient", patient("new", "Few"))
        many = ("DELETE", "Patient?family=Many", None)
        chain = ("DELETE", "Patient?general-practitioner.name=x", None)
        self.assertEqual(await self.statuses("batch", new, few, many, chain), ["201", "204", "400", "400"])
        self.assertEqual((await self.count(), await self.count("Few")), (4, 1))
        single = self.bundle("batch", many)
        single["entry"][0]["request"]["ifMatch"] = 'W/"1"'
        answer = loads((await self.world.send("POST", "", single)).body)
        self.assertEqual(answer["entry"][0]["response"]["status"][:3], "412")

    async def test_a_bundle_as_a_job(self) -> None:
        """A job that was killed before it wrote its answer deletes nothing twice, and answers the same."""
        self.world.deletes_many, self.world.export_hours = True, 1_000_000.0
        for kind in ("transaction", "batch"):
            await self.store(2)
            await self.store(1, "Few")
            sent = self.bundle(kind, ("DELETE", "Patient?family=Few", None), ("POST", "Patient", patient("new", "New")),
                               ("DELETE", "Patient?family=Many", None))  # fmt: skip
            asked = await self.world.send("POST", "", sent, prefer="respond-async")
            job = await self.world.jobs.lease(60)
            assert job is not None
            await KINDS[job.kind](job, request_of(job), self.world.repository)
            await self.store(1)  # is not deleted by what continues
            step = await KINDS[job.kind](job, request_of(job), self.world.repository)
            await self.world.jobs.write(step.job)
            address = dict(asked.headers)["Content-Location"].removeprefix(f"{BASE}/")
            found = loads((await self.world.send("GET", address)).body)["entry"][0]["resource"]["entry"]
            self.assertEqual([one["response"]["status"][:3] for one in found], ["204", "201", "204"], kind)
            self.assertEqual((await self.count(), await self.count("Few")), (1, 0), kind)
            await self.world.send("DELETE", "Patient?family=Many")
        self.assertEqual(await self.count("New"), 2)

    async def test_others_change_what_matches(self) -> None:
        """The matches are searched again; nothing is deleted in a version that was not looked at."""
        self.world.deletes_many = True
        await self.world.send("PUT", "Patient/a", patient("1", "Many", id="a"))
        await self.world.send("PUT", "Patient/b", patient("2", "Many", id="b"))
        store = self.world.store
        search, changes = store.search, iter(("Other", "Many"))

        async def interfering(tenant: str, query: Query, *rest: Any) -> SearchPage:
            page: SearchPage = await search(tenant, query, *rest)
            family = next(changes, "")
            if family:
                await self.world.send("PUT", "Patient/a", patient("1", family, id="a", active=True))
            return page

        self.patch(store, "search", interfering)
        for kind in ("transaction", "batch"):
            self.assertEqual(await self.statuses(kind, ("DELETE", "Patient?family=Many", None)), ["204"])
        self.assertEqual((await self.count(), await self.count("Other")), (0, 0))

    async def test_a_limited_caller_in_bundles(self) -> None:
        """He deletes what he finds, and nothing when he may not delete it."""
        self.world.deletes_many = True
        await self.world.send("PUT", "Patient/a", patient("1", "Many", id="a"))
        await self.world.send("PUT", "Patient/b", patient("2", "Many", id="b"))
        many = ("DELETE", "Patient?family=Many", None)
        for scopes, status, left in (
            ("system/Patient.rs", 401, 2),
            ("system/Patient.d", 401, 2),
            ("system/Patient.rs system/Patient.d?_id=a", 401, 2),
            ("system/Patient.ds?_id=a", 200, 1),
            ("system/Patient.ds?_id=a", 200, 1),
        ):
            caller, self.world.caller = self.world.caller, Caller("ada", "app", tuple(scopes.split()))
            whole = await self.world.send("POST", "", self.bundle("transaction", many))
            alone = await self.statuses("batch", many)
            self.world.caller = caller
            self.assertEqual((whole.status, alone), (status, ["204" if status == 200 else "401"]), scopes)
            self.assertEqual(await self.count(), left, scopes)


class DeleteManyTests(DeleteManySuite, OnMemory):
    pass


class DeleteManyOnPostgresTests(DeleteManySuite, OnSharedPostgres):
    """SQL finds and deletes."""
