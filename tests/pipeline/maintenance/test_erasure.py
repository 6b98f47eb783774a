"""What an erasure must not touch, and what it refuses, on PostgreSQL; with one tenant, and under row-level security."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from twisted.internet import defer

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.pipeline.maintenance.erasure import Erasure, ErasureRequest
from ipf.ports import Received
from ipf.security.audit_chain import SigningKey, new_private_key
from ipf.security.erasure_receipt import is_genuine, new_receipt, reference_digest
from ipf.store.erasure.messages import PostgresMessageErasure
from ipf.store.erasure.resources import PostgresErasureStore
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.resources.resources import PostgresFhirStore
from tests import postgres
from tests.rest.world import OnPostgres, World

KEY = SigningKey(new_private_key())
X, Y = ("x", "4711"), ("y", "4712")


def hl7(number: str, patient: str, more: str = "") -> Received:
    """A message with this CX in PID-3."""
    raw = f"MSH|^~\\&|LAB|||||ADT^A01|{number}|P|2.5\rPID|1||{patient}||Hansen\r{more}".encode()
    return Received(str(uuid4()), datetime.now(UTC), "LAB", number, "ADT_A01", raw)


class ErasureTests(OnPostgres):
    tenants = False

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir", tenants=self.tenants)
        self.world = World(PostgresFhirStore(self.database), database=self.database)
        self.inbox_database = await postgres.database(self, "ipf")
        self.inbox = PostgresInbox(self.inbox_database)
        self.world.now = datetime.now(UTC)
        self.erasure = self.make()
        for id_, number in (X, Y):
            patient = {"resourceType": "Patient", "id": id_, "identifier": [{"system": "urn:mrn", "value": number}]}
            await self.put(patient)
            await self.put(patient | {"active": True})
            await self.put(self.observation(f"o{id_}", id_))

    def make(self, *holds: str) -> Erasure:
        """The erasure, with these holds."""
        fhir, inbox = PostgresErasureStore(self.database), PostgresMessageErasure(self.inbox_database)
        return Erasure(fhir, inbox, KEY, lambda: datetime.now(UTC), holds)

    def observation(self, id_: str, patient: str) -> dict[str, Any]:
        """One of this patient."""
        return {"resourceType": "Observation", "id": id_, "status": "final", "code": {"text": "c"},
                "subject": {"reference": f"Patient/{patient}"}}  # fmt: skip

    async def put(self, resource: dict[str, Any]) -> None:
        """Store it."""
        answer = await self.world.send("PUT", f"{resource['resourceType']}/{resource['id']}", resource)
        self.assertIn(answer.status, (200, 201), answer.body)

    async def names(self) -> list[str]:
        """All resources, once for each version."""
        rows = await self.database.all_tenants.many(
            "SELECT resource_type || '/' || id FROM resources JOIN resource_versions USING (rid) ORDER BY 1"
        )
        return [row[0] for row in rows]

    async def message_ids(self) -> list[str]:
        """MSH-10 of all messages."""
        return [row[0] for row in await self.inbox_database.many("SELECT source_id FROM message_bodies ORDER BY 1")]

    async def forget(self, **chosen: Any) -> Any:
        """A dry run, and the erasure that it showed."""
        wanted = ErasureRequest("default", "x", "operator", "asked for", **chosen)
        plan = await self.erasure.plan(wanted)
        return await self.erasure.forget(replace(wanted, confirm=plan.confirm))

    async def refused(self, word: str, **chosen: Any) -> None:
        """Nothing is changed, and the refusal has this word."""
        before = await self.names(), await self.message_ids()
        problem = await self.assertFailure(defer.Deferred.fromCoroutine(self.forget(**chosen)), Problem)
        self.assertIs(problem.category, Category.CONFLICT)
        self.assertIn(word, problem.text)
        self.assertEqual((await self.names(), await self.message_ids()), before)

    async def test_the_other_patient_stays(self) -> None:
        """A similar id, a resource of his that was deleted, and one that refers to him in a former version alone."""
        await self.put({"resourceType": "Patient", "id": "x.1"})
        await self.put(self.observation("gone", "x"))
        await self.world.send("DELETE", "Observation/gone")
        await self.put(
            {"resourceType": "Basic", "id": "b", "code": {"text": "c"}, "subject": {"reference": "Patient/x"}}
        )
        await self.put({"resourceType": "Basic", "id": "b", "code": {"text": "c"}})
        receipt = await self.forget()
        self.assertEqual(await self.names(), ["Observation/oy", "Patient/x.1", "Patient/y", "Patient/y"])
        self.assertTrue(is_genuine(receipt, KEY.public_key))
        self.assertFalse(is_genuine(receipt._replace(reason="other"), KEY.public_key))
        self.assertEqual(receipt.digest, reference_digest(receipt.salt, "default", "Patient/x"))
        self.assertNotIn("Patient/x", dumps(receipt._asdict()).decode())
        total, (stored,) = await self.erasure.receipts("default", 10, 0)
        self.assertEqual((total, stored), (1, receipt))
        self.assertTrue(is_genuine(stored, KEY.public_key))

    async def test_resources_about_two_patients_refuse(self) -> None:
        """Directly, in a former version, and through a resource of the other one."""
        provenance = {"resourceType": "Provenance", "recorded": "2026-01-01T00:00:00Z",
                      "agent": [{"who": {"display": "d"}}]}  # fmt: skip
        both = [{"reference": "Observation/ox"}, {"reference": "Observation/oy"}]
        await self.put(provenance | {"id": "p", "target": both})
        await self.refused("Provenance/p")

    async def test_a_moved_resource_refuses(self) -> None:
        """It is the other patient's now, and its former version says that it was his."""
        await self.put(self.observation("ox", "y"))
        await self.refused("Observation/ox")

    async def test_a_resource_of_no_compartment_refuses_until_it_is_deleted(self) -> None:
        await self.put({"resourceType": "Device", "id": "d", "patient": {"reference": "Patient/x"}})
        await self.refused("Device/d")
        await self.world.send("DELETE", "Device/d")
        await self.forget()
        self.assertEqual(await self.names(), ["Observation/oy", "Patient/y", "Patient/y"])

    async def test_messages(self) -> None:
        """His by what they wrote or by number and authority; the same number of another authority is not decided."""
        known = hl7("K", "4711^^^A^MR")
        await self.inbox.store([
            known, hl7("OPEN", "4711^^^A^MR"), hl7("OTHER", "4711^^^B^MR"), hl7("Y", "4712^^^A^MR"),
            hl7("TWO", "4711^^^A^MR", "MRG|4712^^^A^MR\r"), hl7("TEXT", "99^^^A^MR", "NTE|||4711\r"),
        ])  # fmt: skip
        await self.database.all_tenants.many(
            f"UPDATE resource_versions v SET correlation_id = '{known.correlation_id}' FROM resources r"
            " WHERE r.rid = v.rid AND r.id IN ('x', 'ox')"
        )
        await self.refused("another patient")
        await self.refused("only his number", shared_messages=True)
        await self.forget(shared_messages=True, uncertain_messages="keep")
        self.assertEqual(await self.message_ids(), ["OTHER", "TEXT", "Y"])
        left = await self.inbox_database.many("SELECT count(*) FROM message_states")
        self.assertEqual(left, [(3,)])

    async def test_a_message_in_conversion_refuses(self) -> None:
        await self.inbox.store([hl7("OTHER", "4711^^^B^MR")])
        await self.inbox_database.many("UPDATE message_states SET status = 'TRANSFORMING', leased_at = now()")
        await self.refused("being converted", uncertain_messages="remove")

    async def test_pending_events(self) -> None:
        """A backlog about others, too, refuses; one about him alone is done, so that nothing is due for ever."""
        rids = dict(await self.database.all_tenants.many("SELECT id, rid FROM resources"))
        await self.database.all_tenants.many(
            "INSERT INTO subscription_states (rid, partition_id, id, status, last_event_number, delivered_number)"
            " VALUES (900, 1, 's', 'active', 3, 1)"
        )
        await self.database.all_tenants.many(
            "INSERT INTO subscription_events (subscription_rid, event_number, resource_rid, version_id, occurred_at,"
            f" correlation_id) SELECT 900, n, CASE n WHEN 2 THEN {rids['y']} ELSE {rids['x']} END, 1, now(),"
            " gen_random_uuid() FROM generate_series(1, 3) n"
        )
        await self.refused("Subscription/s")
        await self.database.all_tenants.many("UPDATE subscription_states SET delivered_number = 2")
        await self.forget()
        state = "SELECT delivered_number, last_event_number FROM subscription_states"
        self.assertEqual(await self.database.all_tenants.many(state), [(3, 3)])
        events = "SELECT event_number FROM subscription_events"
        self.assertEqual(await self.database.all_tenants.many(events), [(2,)])

    async def test_another_plan_refuses(self) -> None:
        """What was written after the dry run."""
        wanted = ErasureRequest("default", "x", "operator", "asked for")
        plan = await self.erasure.plan(wanted)
        await self.put(self.observation("late", "x"))
        asked = self.erasure.forget(replace(wanted, confirm=plan.confirm))
        problem = await self.assertFailure(defer.Deferred.fromCoroutine(asked), Problem)
        self.assertIn("dry run", problem.text)

    async def test_a_write_after_the_search_refuses(self) -> None:
        """The transaction looks again: at versions of his resources, and at new ones that mention him."""
        store = PostgresErasureStore(self.database)
        for late in (self.observation("ox", "x"), self.observation("late", "x")):
            plan = await self.erasure.plan(ErasureRequest("default", "x"))
            await self.put(late | {"code": {"text": "late"}})
            before = await self.names()
            receipt = (await self.forgotten_elsewhere())._replace(tenant="default")
            asked = defer.Deferred.fromCoroutine(store.remove(plan.erased, receipt))
            problem = await self.assertFailure(asked, Problem)
            self.assertIn("meanwhile", problem.text)
            self.assertEqual(await self.names(), before)

    async def forgotten_elsewhere(self) -> Any:
        """A receipt."""
        return new_receipt(KEY, "default", "Patient/z", "2026-01-01T00:00:00+00:00", "a", "r", {})

    async def test_holds(self) -> None:
        """For all tenants, or for one."""
        for hold in ("Patient/x", "default:Patient/x"):
            self.erasure = self.make(hold)
            await self.refused(hold)
        self.erasure = self.make("Patient/y", "north:Patient/x")
        await self.forget()

    async def test_another_tenant_stays(self) -> None:
        """Who has a Patient with the same id."""
        for resource in ({"resourceType": "Patient", "id": "x"}, self.observation("ox", "x")):
            path = f"{resource['resourceType']}/{resource['id']}"
            self.assertEqual((await self.world.send("PUT", path, resource, "north")).status, 201)
        await self.forget()
        self.assertEqual(
            await self.names(), ["Observation/ox", "Observation/oy", "Patient/x", "Patient/y", "Patient/y"]
        )


class RowSecurityTests(ErasureTests):
    tenants = True
