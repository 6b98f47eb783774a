"""$expunge, on memory and on PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ipf.fhir.model.json import loads
from ipf.ports import OPEN, Answer, Caller, Json
from ipf.ports.audit.records import Audit
from ipf.ports.fhir.expunge import ExpungeCursor, ExpungeRequest
from ipf.rest.audit.recorder import observer
from ipf.rest.background import KINDS, job_runner
from ipf.rest.jobs.jobs import request_of
from ipf.rest.operations import expunge as operation
from ipf.rest.operations.subscription_status import set_status
from ipf.rest.router import handler
from ipf.security.access import install
from ipf.security.audit.rules import AuditRules
from ipf.security.privacy.labels import LabelRules
from ipf.security.privacy.policy import Privacy
from ipf.security.privacy.register import ConsentRegister
from ipf.store.audit.audit import PostgresAuditStore
from ipf.store.erasure import expunge as sql
from ipf.store.resources.resources import PostgresFhirStore
from ipf.store.resources.writing.consents import PostgresConsents
from tests import postgres
from tests.fakes.audit import MemoryAuditStore
from tests.fakes.consents import MemoryConsents
from tests.rest.audit.test_audit import Trail
from tests.rest.world import OnMemory, OnPostgres, Suite, World, issues, patient
from tests.rest.write.test_subscription import subscription

PREVIOUS, DELETED = "expungePreviousVersions", "expungeDeletedResources"


def parameters(*names: str, **values: int) -> Json:
    """The body: flags, and numbers."""
    flags: list[Json] = [{"name": name, "valueBoolean": True} for name in names]
    numbers = [{"name": name, "valueInteger": value} for name, value in values.items()]
    return {"resourceType": "Parameters", "parameter": [*flags, *numbers]}


def observation(subject: str, **more: Any) -> Json:
    """An Observation of a Patient."""
    return {"resourceType": "Observation", "id": f"o-{subject}", "status": "final", "code": {"text": "a"},
            "subject": {"reference": f"Patient/{subject}"}, **more}  # fmt: skip


class ExpungeSuite(Suite):
    world: World
    cursor: str

    async def put(self, id_: str, versions: int, *, deleted: bool = False, tenant: str = "default") -> None:
        """A Patient with versions that name their number, and its deletion."""
        for number in range(versions):
            sent = patient(id_, f"F{number}", id=id_)
            answer = await self.world.send("PUT", f"Patient/{id_}", sent, tenant)
            self.assertIn(answer.status, (200, 201))
            self.world.pass_time()
        if deleted:
            await self.world.send("DELETE", f"Patient/{id_}", None, tenant)
            self.world.pass_time()

    async def expunge(self, url: str, *names: str, **values: int) -> tuple[int, bool, dict[str, int]]:
        """`count`, `more` and what was kept."""
        answer = await self.world.send("POST", f"{url}$expunge", parameters(*names, **values))
        self.assertEqual(answer.status, 200, answer.body)
        count, more, *rest = loads(answer.body)["parameter"]
        self.assertEqual(more["valueBoolean"], [one["name"] for one in rest][:1] == ["_cursor"])
        self.cursor = rest[0]["valueString"] if more["valueBoolean"] else ""
        return count["valueInteger"], more["valueBoolean"], {
            one["part"][0]["valueCode"]: one["part"][1]["valueInteger"] for one in rest if one["name"] == "kept"
        }  # fmt: skip

    async def numbers(self, id_: str) -> list[int]:
        """The versions that are left."""
        return [version.version_id for version in await self.world.versions(f"Patient/{id_}")]

    async def refused(self, url: str, *names: str, **values: int) -> Answer:
        """The refusal."""
        return await self.world.send("POST", f"{url}$expunge", parameters(*names, **values))

    async def test_previous_versions(self) -> None:
        """Of one resource; the history counts what is left, and the resource stays."""
        self.world.expunges = True
        await self.put("a", 4)
        await self.put("b", 2)
        self.assertEqual(await self.expunge("Patient/a/", PREVIOUS), (3, False, {}))
        self.assertEqual((await self.numbers("a"), await self.numbers("b")), ([4], [1, 2]))
        history = loads((await self.world.send("GET", "Patient/a/_history")).body)
        self.assertEqual((history["total"], len(history["entry"])), (1, 1))
        self.assertEqual((await self.world.send("GET", "Patient/a/_history/2")).status, 404)
        self.assertEqual((await self.world.send("GET", "Patient/a")).status, 200)
        self.assertEqual(await self.expunge("", PREVIOUS), (1, False, {}))

    async def test_deleted_resources(self) -> None:
        """They are gone with all versions; the id is free again."""
        self.world.expunges = True
        await self.put("a", 2, deleted=True)
        await self.put("b", 2)
        self.assertEqual((await self.world.send("GET", "Patient/a")).status, 410)
        self.assertEqual(await self.expunge("Patient/", DELETED), (3, False, {}))
        self.assertEqual(await self.numbers("b"), [1, 2])
        for url in ("Patient/a", "Patient/a/_history", "Patient/a/_history/3"):
            self.assertEqual((await self.world.send("GET", url)).status, 404, url)
        await self.put("a", 1)
        found = loads((await self.world.send("GET", "Patient?family=F0")).body)
        self.assertEqual([entry["resource"]["id"] for entry in found["entry"]], ["a"])

    async def test_limit(self) -> None:
        """Each call goes on where the limit ended the one before; chunks are smaller than the limit."""
        self.world.expunges = True
        self.patch(operation, "_CHUNK", 2)
        self.patch(sql, "RANGE", 1)
        await self.put("a", 4)
        await self.put("b", 3, deleted=True)
        self.assertEqual((await self.expunge("", PREVIOUS, DELETED, limit=5))[:2], (5, True))
        self.assertEqual(await self.numbers("a"), [4])
        self.assertEqual((await self.expunge("", PREVIOUS, DELETED, limit=5))[0], 2)
        self.assertEqual((await self.world.send("GET", "Patient/b")).status, 404)

    async def test_it_continues(self) -> None:
        """Behind the last version of the call before; only the same call does."""
        self.world.expunges = True
        self.patch(operation, "_CHUNK", 1)
        for id_ in "abc":
            await self.put(id_, 3)
        self.assertEqual(await self.expunge("Patient/", PREVIOUS, limit=3), (3, True, {}))
        cursor = self.cursor
        await self.put("a", 2)  # behind the place that was reached
        answer = await self.world.send("POST", f"Patient/$expunge?_cursor={cursor}", parameters(PREVIOUS))
        self.assertEqual(loads(answer.body)["parameter"][0]["valueInteger"], 3, answer.body)
        self.assertEqual([len(await self.numbers(id_)) for id_ in "abc"], [3, 1, 1])
        for url, sent in (("", cursor), ("Patient/a/", cursor), ("Patient/", cursor + "x"), ("Patient/", "MQ")):
            answer = await self.world.send("POST", f"{url}$expunge?_cursor={sent}", parameters(PREVIOUS))
            self.assertEqual((answer.status, issues(answer)[0][2]), (400, "_cursor"), (url, sent))
        answer = await self.world.send("POST", f"Patient/$expunge?_cursor={cursor}", parameters(DELETED))
        self.assertEqual(answer.status, 400)

    async def test_one_version(self) -> None:
        """Never the current one; a deletion only when nothing else is left."""
        self.world.expunges = True
        await self.put("a", 3)
        self.assertEqual(await self.expunge("Patient/a/_history/2/"), (1, False, {}))
        self.assertEqual(await self.numbers("a"), [1, 3])
        for number, status in (("3", 409), ("2", 404), ("9", 404), ("x", 404)):
            self.assertEqual((await self.refused(f"Patient/a/_history/{number}/")).status, status, number)
        await self.world.send("DELETE", "Patient/a")
        self.assertEqual(await self.expunge("Patient/a/_history/4/"), (0, False, {"versions": 1}))
        self.assertEqual(await self.expunge("Patient/a/", PREVIOUS), (2, False, {}))
        self.assertEqual(await self.expunge("Patient/a/_history/4/"), (1, False, {}))
        self.assertEqual((await self.world.send("GET", "Patient/a")).status, 404)

    async def test_legal_hold(self) -> None:
        """Neither the Patient nor what refers to him, deleted resources included."""
        self.world.expunges, self.world.holds = True, ("Patient/a", "north:Patient/b")
        await self.put("a", 2)
        await self.put("b", 2)
        for _ in range(2):
            await self.world.send("PUT", "Observation/o-a", observation("a", issued=self.world.now.isoformat()))
            self.world.pass_time()
        await self.world.send("DELETE", "Observation/o-a")
        self.assertEqual(await self.expunge("", PREVIOUS, DELETED), (1, False, {"legal-hold": 4}))
        answer = await self.refused("Patient/a/", PREVIOUS)
        self.assertEqual((answer.status, issues(answer)[0][0]), (409, "conflict"))
        self.assertIn("IPF_LEGAL_HOLDS", issues(answer)[0][1])
        self.assertEqual(await self.numbers("a"), [1, 2])

    async def test_provenance(self) -> None:
        """A version that a Provenance names stays."""
        self.world.expunges = True
        await self.put("a", 4)
        await self.world.send("POST", "Provenance", {
            "resourceType": "Provenance", "recorded": "2026-01-01T00:00:00Z", "agent": [{"who": {"display": "x"}}],
            "target": [{"reference": "Patient/a/_history/2"}],
        })  # fmt: skip
        self.assertEqual(await self.expunge("Patient/", PREVIOUS), (2, False, {"provenance": 1}))
        self.assertEqual(await self.numbers("a"), [2, 4])

    async def test_definitions(self) -> None:
        """The deletion of what every process knows stays."""
        self.world.expunges = True
        for number in range(2):
            await self.world.send("PUT", "Basic/x", {"resourceType": "Basic", "id": "x", "code": {"text": f"{number}"}})
        await self.world.send("DELETE", "Basic/x")
        count, _, kept = await self.expunge("", DELETED)
        self.assertEqual((count, kept), (2, {"definition": 1}))
        self.assertEqual((await self.world.send("GET", "Basic/x")).status, 410)

    async def test_tenants(self) -> None:
        """Another tenant's versions stay."""
        self.world.expunges = True
        await self.put("a", 3, tenant="north")
        await self.put("a", 2)
        self.assertEqual(await self.expunge("", PREVIOUS), (1, False, {}))
        history = await self.world.send("GET", "Patient/a/_history", None, "north")
        self.assertEqual(loads(history.body)["total"], 3)

    async def test_refused(self) -> None:
        await self.put("a", 2)
        answer = await self.refused("", PREVIOUS)
        self.assertEqual(answer.status, 400)
        self.assertIn("IPF_FHIR_EXPUNGE", issues(answer)[0][1])
        self.assertNotIn(b"expunge", (await self.world.send("GET", "metadata")).body)
        self.world.expunges = True
        self.assertIn(b"OperationDefinition/expunge", (await self.world.send("GET", "metadata")).body)
        for url, names, values, status in (
            ("", (), {}, 400), ("", ("expungeEverything",), {}, 400), ("", (PREVIOUS,), {"limit": 0}, 400),
            ("", (PREVIOUS,), {"limit": 10_001}, 400), ("Patient/none/", (PREVIOUS,), {}, 404),
            ("Nothing/", (PREVIOUS,), {}, 404), ("AuditEvent/", (PREVIOUS,), {}, 405),
        ):  # fmt: skip
            answer = await self.refused(url, *names, **values)
            self.assertEqual(answer.status, status, (url, names, values, answer.body))
        for scopes in ("system/*.cud", "system/*.write", "system/Patient.cruds", "patient/*.cruds", "system/*.rs"):
            self.world.caller = Caller("ada", "app", tuple(scopes.split()), patient="a")
            for url in ("", "Patient/", "Patient/a/", "Patient/none/", "Patient/a/_history/1/"):
                self.assertEqual((await self.refused(url, PREVIOUS)).status, 401, (scopes, url))
        self.assertEqual(await self.numbers("a"), [1, 2])
        self.world.caller = Caller("ada", "app", ("system/*.cruds",))
        self.assertEqual((await self.expunge("Patient/a/", PREVIOUS))[0], 1)

    async def test_running_export(self) -> None:
        """The version that was current when the export began stays until the export is done."""
        self.world.expunges = True
        self.world.export_hours = 1_000_000.0
        await self.put("a", 2)
        export = await self.world.send("GET", "Patient/$export", prefer="respond-async")
        self.assertEqual(export.status, 202, export.body)
        self.world.pass_time()
        await self.put("a", 1)
        await self.put("b", 2, deleted=True)
        self.assertEqual(await self.expunge("Patient/", PREVIOUS, DELETED), (4, False, {"export": 1}))
        self.assertEqual(await self.numbers("a"), [2, 3])
        path = dict(export.headers)["Content-Location"].partition("/fhir/")[2]
        self.assertEqual((await self.world.send("DELETE", path)).status, 202)
        self.assertEqual(await self.expunge("", PREVIOUS), (1, False, {}))

    async def test_undelivered_events(self) -> None:
        """The version of an event, and the one before, which decides who learns of a deletion."""
        self.world.expunges = True
        answer = await self.world.send("PUT", "Subscription/s", {**subscription("Patient?"), "id": "s"})
        self.assertEqual(answer.status, 201, answer.body)
        await set_status("default", "s", "active", None, self.world.store, self.world.matcher, lambda: self.world.now)
        await self.put("a", 3, deleted=True)
        kept = {"event": 3, "versions": 1}  # criteria are not told of deletions
        self.assertEqual(await self.expunge("Patient/", PREVIOUS, DELETED), (0, False, kept))
        await self.world.send("DELETE", "Subscription/s")
        self.assertEqual(await self.expunge("Patient/", PREVIOUS, DELETED), (4, False, {}))

    async def test_jobs(self) -> None:
        """What the answer of a job has, or refers to; neither another id, of which it is a part, nor another type."""
        self.world.expunges = True
        self.world.export_hours = 1_000_000.0  # the database has another clock than the world
        for id_ in ("a", "aa", "a.1", "a-1", "b", "axb", "code"):
            await self.put(id_, 1)
        await self.world.send("PUT", "Observation/b", {**observation("a.b"), "id": "b"})
        asked = await self.world.send("GET", "?_type=Patient,Observation&_id=a-1,b", prefer="respond-async")
        self.assertEqual(asked.status, 202)
        while await job_runner(self.world.repository).step():
            pass
        await self.put("a.b", 1)
        for id_ in ("a", "aa", "a.1", "a-1", "b", "axb", "a.b", "code"):
            await self.world.send("DELETE", f"Patient/{id_}")
        self.assertEqual((await self.expunge("", DELETED))[2], {"job": 6})
        self.assertEqual([id_ for id_ in ("a", "aa", "a.1", "a-1", "b", "axb", "a.b", "code")
                          if await self.numbers(id_)], ["a-1", "b", "a.b"])  # fmt: skip
        await self.world.send("DELETE", dict(asked.headers)["Content-Location"].partition("/fhir/")[2])
        self.assertEqual(await self.expunge("", DELETED), (6, False, {}))

    async def test_results_of_a_running_job(self) -> None:
        """They name what was written, until the job is done."""
        self.world.expunges = True
        self.world.export_hours = 1_000_000.0
        entries = [{"request": {"method": "PUT", "url": f"Patient/{id_}"}, "resource": patient(id_, id=id_)}
                   for id_ in ("a", "b")]  # fmt: skip
        bundle = {"resourceType": "Bundle", "type": "batch", "entry": entries}
        await self.world.send("POST", "", bundle, prefer="respond-async")
        job = await self.world.jobs.lease(60)
        assert job is not None
        await KINDS[job.kind](job, request_of(job), self.world.repository)  # killed before it writes its answer
        await self.put("aa", 1)
        for id_ in ("a", "b", "aa"):
            await self.world.send("DELETE", f"Patient/{id_}")
        self.assertEqual(await self.expunge("", DELETED), (2, False, {"job": 4}))
        await self.world.jobs.write(replace(job, status="done", answer=b"{}"))
        self.assertEqual(await self.expunge("", DELETED), (4, False, {}))

    async def test_in_bundles(self) -> None:
        """Alone in a batch; a transaction, which cannot undo it, is refused before it writes."""
        self.world.expunges = True
        await self.put("a", 3)
        entry = {"request": {"method": "POST", "url": "Patient/a/$expunge"}, "resource": parameters(PREVIOUS)}
        write = {"request": {"method": "POST", "url": "Patient"}, "resource": patient("new")}
        bundle: Json = {"resourceType": "Bundle", "type": "transaction", "entry": [write, entry]}
        answer = await self.world.send("POST", "", bundle)
        self.assertEqual((answer.status, issues(answer)[0][2]), (400, "Bundle.entry[1].request.url"))
        self.assertEqual(await self.numbers("a"), [1, 2, 3])
        self.world.caller = Caller("ada", "app", ("system/*.cruds", "system/*.write"))
        bundle |= {"type": "batch"}
        found = loads((await self.world.send("POST", "", bundle)).body)["entry"][1]
        self.assertEqual((found["response"]["status"], await self.numbers("a")), ("200 OK", [3]))
        self.world.caller = Caller("ada", "app", ("system/*.crus",))
        found = loads((await self.world.send("POST", "", bundle)).body)["entry"][1]
        self.assertEqual(found["response"]["status"], "401 Unauthorized")

    async def test_whom_labels_or_consents_limit(self) -> None:
        """They remove nothing, since they may not see everything; not even alone in a batch."""
        self.world.expunges = True
        await self.put("a", 2)
        database = self.world.database
        source = MemoryConsents(self.world.store) if database is None else PostgresConsents(database)
        consents = ConsentRegister(source, lambda: self.world.now)
        entry = {"request": {"method": "POST", "url": "Patient/$expunge"}, "resource": parameters(PREVIOUS)}
        batch = {"resourceType": "Bundle", "type": "batch", "entry": [entry]}
        rights = ("system/*.cruds",)
        self.addCleanup(install, None)
        for privacy in (Privacy(LabelRules.of(["R"])), Privacy(None, consents, trusted_clients=frozenset({"feed"}))):
            install(privacy)
            self.world.caller = Caller("ada", "app", rights)
            for url in ("", "Patient/", "Patient/a/", "Patient/none/", "Patient/a/_history/1/"):
                answer = await self.refused(url, PREVIOUS)
                self.assertEqual((answer.status, issues(answer)[0][0]), (401, "login"), url)
            found = loads((await self.world.send("POST", "", batch)).body)["entry"][0]
            self.assertEqual(found["response"]["status"], "401 Unauthorized")
            self.world.caller = OPEN
            self.assertEqual(await self.numbers("a"), [1, 2])
        for caller in (Caller("ada", "app", (*rights, "btg")), Caller("ada", "feed", rights)):
            self.world.caller = caller
            status = 200 if caller.client == "feed" else 401
            self.assertEqual((await self.refused("Patient/a/", PREVIOUS)).status, status)

    async def test_audit(self) -> None:
        """The records of each call: what it asked for, and what it removed of whom, committed with the removal."""
        self.world.expunges = True
        self.patch(operation, "_CHUNK", 2)
        await self.put("a", 4)
        for text in ("x", "y"):
            await self.world.send("PUT", "Observation/o-a", observation("a", code={"text": text}))
        database = self.world.database
        trail = Trail(self.world, MemoryAuditStore() if database is None else PostgresAuditStore(database))
        nobody = Caller("bob", "app", ("system/*.rs",))
        for url, caller, status in (
            ("Patient/a/", OPEN, 200), ("Observation/o-a/", OPEN, 200), ("Observation/o-a/", OPEN, 200),
            ("Patient/a/_history/4/", OPEN, 409), ("", OPEN, 200), ("Patient/", nobody, 401),
        ):  # fmt: skip
            answer = await trail.send("POST", f"{url}$expunge", parameters(PREVIOUS), caller)
            self.assertEqual(answer.status, status, answer.body)
        asked = f"$expunge?{PREVIOUS}=true"
        self.assertEqual([_shown(one) for one in trail.noted], [
            (200, f"Patient/a/{asked}", ("Patient/a/_history/1", "Patient/a/_history/2"), ()),
            (200, f"Patient/a/{asked}", ("Patient/a/_history/3",), ()),
            (200, f"Observation/o-a/{asked}", ("Observation/o-a/_history/1",), ("Patient/a",)),
            (200, f"Observation/o-a/{asked}", ("Observation/o-a",), ()),
            (409, f"Patient/a/_history/4/{asked}", ("Patient/a",), ()),
            (200, asked, (), ()),
            (401, f"Patient/{asked}", (), ()),
        ])  # fmt: skip
        self.assertEqual(len(trail.committed), 3)


def _shown(one: Audit) -> tuple[int, str, tuple[str, ...], tuple[str, ...]]:
    """Status, target, entities and further patients of a record of an operation."""
    assert one.context.interaction == "operation"
    return one.context.status, one.request_target, tuple(one.entities), tuple(one.patients)


class MemoryExpungeTests(ExpungeSuite, OnMemory):
    pass


class PostgresExpungeTests(ExpungeSuite, OnPostgres):
    """SQL deletes."""

    async def test_behind_row_level_security(self) -> None:
        self.database = await postgres.database(self, "fhir", tenants=True)
        self.world = World(PostgresFhirStore(self.database), database=self.database)
        await self.test_tenants()

    async def test_kept_behind_row_level_security(self) -> None:
        self.database = await postgres.database(self, "fhir", tenants=True)
        self.world = World(PostgresFhirStore(self.database), database=self.database)
        await self.test_provenance()

    async def test_audit_behind_row_level_security(self) -> None:
        self.database = await postgres.database(self, "fhir", tenants=True)
        self.world = World(PostgresFhirStore(self.database), database=self.database)
        await self.test_audit()

    async def test_audit_that_cannot_be_committed(self) -> None:
        """It is noted with the answer, and the versions are gone."""
        self.world.expunges = True
        await self.put("a", 2)
        await self.database.many("ALTER FUNCTION insert_audit RENAME TO insert_audit_gone")
        trail, noted = Trail(self.world, PostgresAuditStore(self.database)), []
        observe = observer(AuditRules(), noted.append, lambda: 0, trail.new_id_suffix)
        serve = handler(self.world.repository, None, observe, trail.drafts)
        answer = await serve(self.world.request("POST", "Patient/a/$expunge", parameters(PREVIOUS)))
        self.assertEqual((answer.status, await self.numbers("a")), (200, [2]))
        self.assertEqual([one.entities for one in noted], [("Patient/a/_history/1",)])
        self.assertEqual(trail.counted, [("deferred", 1)])

    async def test_delivered_events(self) -> None:
        """Once all subscribers have them, nothing is kept for them."""
        self.world.expunges = True
        await self.put("a", 3, deleted=True)
        await self.database.many(
            "INSERT INTO subscription_states (rid, partition_id, id, status, last_event_number)"
            " VALUES (-1, 1, 's', 'active', 1)"
        )
        await self.database.many(
            "INSERT INTO subscription_events SELECT -1, 1, rid, 4, now(), gen_random_uuid() FROM resources"
        )
        self.assertEqual(await self.expunge("", PREVIOUS, DELETED), (2, False, {"event": 2}))
        self.assertEqual(await self.numbers("a"), [3, 4])
        await self.database.many("UPDATE subscription_states SET delivered_number = 1")
        self.assertEqual(await self.expunge("", DELETED), (2, False, {}))

    async def test_interrupted(self) -> None:
        """What a killed call leaves, the next one removes; a resource that was created again meanwhile stays."""
        await self.put("a", 3, deleted=True)
        wanted = ExpungeRequest("default", deleted=True)
        step = await self.world.expunge.expunge(wanted, 2, ExpungeCursor())
        self.assertEqual(len(step.removed), 2)
        self.assertEqual((await self.world.send("GET", "Patient/a")).status, 410)
        await self.put("a", 1)
        self.assertEqual((await self.world.expunge.expunge(wanted, 2, ExpungeCursor())).removed, [])
        self.assertEqual(await self.numbers("a"), [3, 4, 5])
        await self.world.send("DELETE", "Patient/a")
        step = await self.world.expunge.expunge(wanted, 9, ExpungeCursor())
        self.assertEqual(len(step.removed), 4)
        for table in ("resources", "resource_versions", "index_text", "index_date", "index_words"):
            self.assertEqual(await self.database.one(f"SELECT count(*) FROM {table}"), (0,))
