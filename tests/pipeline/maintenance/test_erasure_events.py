"""Subscriptions whose events an erasure removes: the rest is delivered, in order, and the cursor reaches the end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from ipf.ports import Attempt, DeliveryEnd
from ipf.store.deliveries.deliveries import PostgresDeliveryQueue
from ipf.subscriptions.policy import PERMISSIVE, ChannelPolicy
from tests.pipeline.maintenance.erasures import ErasureSuite, observation

STATE = "SELECT delivered_number, last_event_number, resend_until, resume_number FROM subscription_states"


def end(number: int) -> DeliveryEnd:
    """All events up to this one are acknowledged."""
    attempt = Attempt(number, datetime.now(UTC), True, 200, 1, None, str(uuid4()))
    return DeliveryEnd(number, (attempt,))


class EventTests(ErasureSuite):
    fired = 0

    async def setUp(self) -> None:
        await super().setUp()
        self.queue = PostgresDeliveryQueue(self.database)
        self.world.policy = ChannelPolicy(PERMISSIVE)
        channel = {"type": "rest-hook", "endpoint": "http://127.0.0.1:9/", "payload": "application/fhir+json"}
        await self.put({"resourceType": "Subscription", "id": "s", "status": "requested", "reason": "r",
                        "criteria": "Observation?status=final", "channel": channel})  # fmt: skip
        await self.sql("UPDATE subscription_states SET status = 'active', ready_at = now()")

    async def sql(self, text: str) -> list[Any]:
        """Rows of a statement."""
        return await self.database.all_tenants.many(text)

    async def fire(self, patients: str) -> None:
        """One event for each letter."""
        for number, patient in enumerate(patients):
            self.fired += 1  # an update without a change fires nothing
            await self.put(observation(f"e{number}{patient}", patient, code={"text": str(self.fired)}))

    async def deliver(self) -> list[tuple[int, str]]:
        """Lease and acknowledge until nothing is due: number and id of each event."""
        sent: list[tuple[int, str]] = []
        for _ in range(20):
            leases = await self.queue.lease("w", 10, datetime.now(UTC) + timedelta(seconds=30))
            if not leases:
                return sent
            (lease,) = leases
            events = lease.events
            sent += [(event.number, event.id) for event in events]
            await self.queue.settle(lease, end(events[-1].number if events else 0))
        raise AssertionError("it is due for ever")

    async def test_backlogs(self) -> None:
        """The newest of what remains has the newest number: a number never comes again with another event."""
        cases: dict[str, list[tuple[int, str]]] = {
            "xx": [], "yx": [(2, "e0y")], "xy": [(2, "e1y")], "yxy": [(1, "e0y"), (3, "e2y")],
            "yyxx": [(1, "e0y"), (4, "e1y")], "xyxyx": [(2, "e1y"), (5, "e3y")],
        }  # fmt: skip
        for patients, expected in cases.items():
            await self.fire(patients)
            await self.forget()
            self.assertEqual(await self.deliver(), expected, patients)
            ((delivered, last, *_),) = await self.sql(STATE)
            self.assertEqual((delivered, last), (len(patients), len(patients)), patients)
            await self.fire("y" if patients != "yx" else "yy")
            self.assertEqual(len(await self.deliver()), 1 if patients != "yx" else 2, patients)
            await self.again()

    async def again(self) -> None:
        """The patient x as at the beginning, and a subscription without events."""
        await self.sql(
            "DELETE FROM subscription_events; DELETE FROM delivery_attempts; UPDATE subscription_states SET"
            " delivered_number = 0, last_event_number = 0, resend_until = NULL, resume_number = NULL, ready_at = now()"
        )
        await self.put({"resourceType": "Patient", "id": "x"})

    async def test_events_that_are_sent_again(self) -> None:
        """The range ends with what remains of it, or at once; then the cursor returns."""
        cases: dict[str, list[tuple[int, str]]] = {
            "yxxyy": [(1, "e0y"), (5, "e4y")], "xxxyy": [(5, "e4y")], "yyxyx": [(1, "e0y"), (2, "e1y")], "xxxyx": [],
        }  # fmt: skip
        for patients, expected in cases.items():
            await self.fire(patients)
            await self.sql("UPDATE subscription_states SET delivered_number = 4")
            await self.queue.resend("default", "s", 1, 3)
            await self.forget()
            self.assertEqual(await self.deliver(), expected, patients)
            ((delivered, last, until, _),) = await self.sql(STATE)
            self.assertEqual((delivered, last, until), (5, 5, None), patients)
            await self.again()

    async def test_a_lease_ends(self) -> None:
        """Its holder has the events in memory: what it settles later counts no more."""
        await self.fire("yx")
        (lease,) = await self.queue.lease("w", 10, datetime.now(UTC) + timedelta(seconds=30))
        self.assertEqual([event.id for event in lease.events], ["e0y", "e1x"])
        await self.forget()
        self.assertIsNone(await self.queue.settle(lease, end(2)))
        self.assertEqual(await self.deliver(), [(2, "e0y")])

    async def test_attempts(self) -> None:
        """Of his events, alone or among others; those of others stay."""
        await self.fire("yxy")
        await self.sql(
            "INSERT INTO delivery_attempts (subscription_rid, event_number, to_event_number, attempted_at, succeeded,"
            " duration_ms, correlation_id) SELECT s.rid, a, b, now(), false, 1, gen_random_uuid()"
            " FROM subscription_states s, (VALUES (1, NULL), (2, NULL), (1, 3), (3, NULL)) v(a, b)"
        )
        await self.forget()
        found = await self.sql("SELECT event_number, to_event_number FROM delivery_attempts ORDER BY 1")
        self.assertEqual(found, [(1, None), (3, None)])

    async def test_a_subscription_with_his_token_refuses(self) -> None:
        """Without the grants it would see more; when it is deleted, they go, and other processes learn of it."""
        await self.sql(
            "INSERT INTO subscription_grants (rid, partition_id, subject, client, scopes, patient, issuer)"
            " SELECT rid, 1, 'u', 'c', 'patient/*.rs', 'x', 'i' FROM subscription_states"
        )
        await self.refused("Subscription/s")
        await self.world.send("DELETE", "Subscription/s")
        await self.forget()
        self.assertEqual(await self.sql("SELECT rid FROM subscription_grants"), [])
        self.assertEqual(await self.sql("SELECT status FROM subscription_states"), [("deleted",)])

    async def test_a_deleted_subscription_about_him(self) -> None:
        """It goes with its history; its state tells other processes that it is deleted."""
        channel = {"type": "rest-hook", "endpoint": "http://127.0.0.1:9/"}
        await self.put({"resourceType": "Subscription", "id": "his", "status": "requested", "reason": "r",
                        "criteria": "Observation?subject=Patient/x", "channel": channel})  # fmt: skip
        await self.refused("Subscription/his")
        await self.world.send("DELETE", "Subscription/his")
        await self.forget()
        self.assertEqual(await self.bodies("his"), [])
        self.assertEqual(
            await self.sql("SELECT id, status FROM subscription_states ORDER BY 1"),
            [("his", "deleted"), ("s", "active")],
        )
        self.assertEqual((await self.world.send("GET", "Subscription/his")).status, 404)


class RowSecurityTests(EventTests):
    tenants = True
