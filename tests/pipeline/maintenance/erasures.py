"""What tests of erasures share: two patients, an inbox, and what the two databases hold."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from twisted.internet import defer

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.pipeline.maintenance.erasure import Erasure
from ipf.pipeline.maintenance.erasure_search import ErasureRequest
from ipf.ports import Json, Received
from ipf.security.audit.chain import SigningKey, new_private_key
from ipf.store.erasure.messages import PostgresMessageErasure
from ipf.store.erasure.resources import PostgresErasureStore
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.resources.resources import PostgresFhirStore
from tests import postgres
from tests.rest.world import BASE, OnPostgres, World

KEY = SigningKey(new_private_key())
X, Y = ("x", "4711"), ("y", "4712")
TABLES = """SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind = 'r' ORDER BY 1"""


def hl7(number: str, patient: str, more: str = "") -> Received:
    """A message with this CX in PID-3."""
    raw = f"MSH|^~\\&|LAB|||||ADT^A01|{number}|P|2.5\rPID|1||{patient}||Hansen\r{more}".encode()
    return Received(str(uuid4()), datetime.now(UTC), "LAB", number, "ADT_A01", raw)


def patient_of(id_: str, number: str, **more: Any) -> Json:
    """A Patient with this number."""
    return {"resourceType": "Patient", "id": id_, "identifier": [{"system": "urn:mrn", "value": number}], **more}


def observation(id_: str, patient: str, **more: Any) -> Json:
    """An Observation of this patient."""
    return {"resourceType": "Observation", "id": id_, "status": "final", "code": {"text": "c"},
            "subject": {"reference": f"Patient/{patient}"}, **more}  # fmt: skip


class ErasureSuite(OnPostgres):
    """The patients x and y in one tenant, each with an Observation."""

    tenants = False

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir", tenants=self.tenants)
        self.world = World(PostgresFhirStore(self.database), database=self.database)
        self.inbox_database = await postgres.database(self, "ipf")
        self.inbox = PostgresInbox(self.inbox_database)
        self.world.now = datetime.now(UTC)
        self.erasure = self.make()
        for id_, number in (X, Y):
            await self.put(patient_of(id_, number))
            await self.put(patient_of(id_, number, active=True))
            await self.put(observation(f"o{id_}", id_))

    def make(self, *holds: str) -> Erasure:
        """The erasure, with these holds."""
        fhir = PostgresErasureStore(self.database, BASE)
        inbox = PostgresMessageErasure(self.inbox_database, BASE)
        return Erasure(fhir, inbox, KEY, lambda: datetime.now(UTC), holds)

    async def put(self, resource: Json, tenant: str = "default") -> None:
        """Store it."""
        path = f"{resource['resourceType']}/{resource['id']}"
        answer = await self.world.send("PUT", path, resource, tenant)
        self.assertIn(answer.status, (200, 201), answer.body)

    async def found(self, query: str) -> list[str]:
        """The ids that a search finds."""
        bundle = loads((await self.world.send("GET", query)).body)
        return [one["resource"]["id"] for one in bundle.get("entry", ())]

    async def names(self) -> list[str]:
        """All resources, once for each version."""
        rows = await self.database.all_tenants.many(
            "SELECT resource_type || '/' || id FROM resources JOIN resource_versions USING (rid) ORDER BY 1"
        )
        return [row[0] for row in rows]

    async def bodies(self, id_: str) -> list[str]:
        """The bodies of a resource, oldest first."""
        rows = await self.database.all_tenants.many(
            f"SELECT body FROM resources JOIN resource_versions v USING (rid) WHERE id = '{id_}' ORDER BY v.version_id"
        )
        return [row[0] for row in rows]

    async def message_ids(self) -> list[str]:
        """MSH-10 of all messages."""
        return [row[0] for row in await self.inbox_database.many("SELECT source_id FROM message_bodies ORDER BY 1")]

    async def wrote(self, message: Received, *ids: str) -> None:
        """Let a message have written all versions of these resources."""
        names = ", ".join(f"'{id_}'" for id_ in ids)
        await self.database.all_tenants.many(
            f"UPDATE resource_versions v SET correlation_id = '{message.correlation_id}' FROM resources r"
            f" WHERE r.rid = v.rid AND r.id IN ({names})"
        )

    async def rows(self) -> dict[str, list[str]]:
        """All rows of both databases by table, as texts; without receipts of erasures and keys."""
        found = {}
        for database in (self.database.all_tenants, self.inbox_database):
            for (table,) in await database.many(TABLES):
                if table not in ("erasures", "audit_keys"):
                    rows = await database.many(f"SELECT t::text FROM {table} t ORDER BY 1")
                    found[table] = [row[0] for row in rows]
        return found

    def wanted(self, id_: str = "x", **chosen: Any) -> ErasureRequest:
        """A request with these decisions."""
        return ErasureRequest("default", id_, "operator", "asked for", **chosen)

    async def forget(self, erasure: Erasure | None = None, id_: str = "x", **chosen: Any) -> Any:
        """A dry run, and the erasure that it showed."""
        erasure = erasure or self.erasure
        wanted = self.wanted(id_, **chosen)
        plan = await erasure.plan(wanted)
        return await erasure.forget(replace(wanted, confirm=plan.confirm))

    async def refused(self, word: str, **chosen: Any) -> None:
        """Nothing is changed, and the refusal has this word."""
        before = await self.rows()
        problem = await self.assertFailure(defer.Deferred.fromCoroutine(self.forget(**chosen)), Problem)
        self.assertIs(problem.category, Category.CONFLICT)
        self.assertIn(word, problem.text)
        self.assertEqual(await self.rows(), before)
