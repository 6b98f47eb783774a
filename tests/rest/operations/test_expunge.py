"""$expunge, on memory and on PostgreSQL."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from ipf.ports import Answer, Caller, Json
from ipf.ports.expunge import ExpungeCursor, ExpungeRequest
from ipf.rest.operations import expunge as operation
from ipf.store.erasure import expunge as sql
from ipf.store.resources.resources import PostgresFhirStore
from tests import postgres
from tests.rest.world import OnMemory, OnPostgres, Suite, World, issues, patient

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
        count, more, *kept = loads(answer.body)["parameter"]
        return count["valueInteger"], more["valueBoolean"], {
            one["part"][0]["valueCode"]: one["part"][1]["valueInteger"] for one in kept
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


class MemoryExpungeTests(ExpungeSuite, OnMemory):
    pass


class PostgresExpungeTests(ExpungeSuite, OnPostgres):
    async def test_behind_row_level_security(self) -> None:
        self.database = await postgres.database(self, "fhir", tenants=True)
        self.world = World(PostgresFhirStore(self.database), database=self.database)
        await self.test_tenants()

    async def test_kept_behind_row_level_security(self) -> None:
        self.database = await postgres.database(self, "fhir", tenants=True)
        self.world = World(PostgresFhirStore(self.database), database=self.database)
        await self.test_provenance()

    async def kept(self, *statements: str) -> dict[str, int]:
        """What is kept of a Patient of three versions and its deletion, when these rows are there."""
        self.world.expunges = True
        await self.put("a", 3, deleted=True)
        for statement in statements:
            await self.database.many(statement)
        return (await self.expunge("", PREVIOUS, DELETED))[2]

    async def test_undelivered_events(self) -> None:
        """The version of the event, and the one before, which decides who learns of a deletion."""
        kept = await self.kept(
            "INSERT INTO subscription_states (rid, partition_id, id, status, last_event_number)"
            " VALUES (-1, 1, 's', 'active', 1)",
            "INSERT INTO subscription_events SELECT -1, 1, rid, 4, now(), gen_random_uuid() FROM resources",
        )
        self.assertEqual(kept, {"event": 2})
        self.assertEqual(await self.numbers("a"), [3, 4])
        await self.database.many("UPDATE subscription_states SET delivered_number = 1")
        self.assertEqual(await self.expunge("", DELETED), (2, False, {}))

    async def test_running_export(self) -> None:
        """The version that was current when the export began."""
        kept = await self.kept(
            "INSERT INTO export_jobs (partition_id, id, request_url, level, types, transaction_time, expires_at)"
            " SELECT 1, 'e', '', 'system', 'Patient', last_updated, now() + interval '1 day'"
            " FROM resource_versions WHERE version_id = 2"
        )
        self.assertEqual(kept, {"export": 1, "versions": 1})
        self.assertEqual(await self.numbers("a"), [2, 4])

    async def test_jobs(self) -> None:
        """A resource in the answer of a job."""
        kept = await self.kept(
            "INSERT INTO jobs (partition_id, id, kind, asked, answer, expires_at)"
            """ VALUES (1, 'j', 'request', '{}', '{"id":"a"}', now() + interval '1 day')"""
        )
        self.assertEqual(kept, {"job": 4})

    async def test_interrupted(self) -> None:
        """What a killed call leaves, the next one removes; a resource that was created again meanwhile stays."""
        await self.put("a", 3, deleted=True)
        wanted = ExpungeRequest("default", deleted=True)
        step = await self.world.expunge.expunge(wanted, 2, ExpungeCursor())
        self.assertEqual(step.removed, 2)
        self.assertEqual((await self.world.send("GET", "Patient/a")).status, 410)
        await self.put("a", 1)
        self.assertEqual((await self.world.expunge.expunge(wanted, 2, ExpungeCursor())).removed, 0)
        self.assertEqual(await self.numbers("a"), [3, 4, 5])
        await self.world.send("DELETE", "Patient/a")
        step = await self.world.expunge.expunge(wanted, 9, ExpungeCursor())
        self.assertEqual(step.removed, 4)
        for table in ("resources", "resource_versions", "index_text", "index_date", "index_words"):
            self.assertEqual(await self.database.one(f"SELECT count(*) FROM {table}"), (0,))
