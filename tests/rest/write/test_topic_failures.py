"""A topic that fails on a change, as its Subscription tells it, in memory and on PostgreSQL."""

from __future__ import annotations

from typing import Any

from ipf.errors import Problem
from ipf.fhir.model.json import loads
from ipf.ports import DeliveryQueue, Json
from ipf.rest.operations.subscription_status import set_status, set_topic_failure
from ipf.rest.write.commit import refresh
from ipf.store.deliveries.deliveries import PostgresDeliveryQueue
from ipf.subscriptions.topic_failures import failing_topic
from tests.fakes import MemoryDeliveryQueue
from tests.rest.world import OnMemory, OnPostgres, Suite, World
from tests.rest.write.test_topics import encounter, subscription, topic

FAILS = [{"resource": "Encounter", "fhirPathCriteria": "%current.location.single().exists()"}]
TWO = [{"location": {"reference": f"Location/{number}"}} for number in range(2)]


class TopicFailureSuite(Suite):
    world: World
    queue: DeliveryQueue

    async def put(self, resource: Json, status: tuple[int, ...] = (200, 201)) -> Any:
        """PUT it."""
        answer = await self.world.send("PUT", f"{resource['resourceType']}/{resource['id']}", resource)
        self.assertIn(answer.status, status, answer.body)
        return loads(answer.body)

    async def get(self, path: str) -> Any:
        return loads((await self.world.send("GET", path)).body)

    async def report(self, error: str | None) -> bool:
        world = self.world
        return await set_topic_failure("default", "s", error, world.store, world.matcher, lambda: world.now)

    async def test_the_subscription_and_its_status_name_the_topic(self) -> None:
        world = self.world
        world.deliveries = self.queue
        await self.put(topic(resourceTrigger=FAILS))
        await self.put(subscription())
        await self.put(encounter("e1", "planned", location=TWO))
        ((tenant, id, text),) = world.matcher.failures.pending(9)
        self.assertEqual((tenant, id), ("default", "s"))
        self.assertFalse(await self.report(text), "it is not active yet")
        await set_status("default", "s", "active", None, world.store, world.matcher, lambda: world.now)
        self.assertTrue(await self.report(text))
        stored = await self.get("Subscription/s")
        self.assertEqual((stored["status"], stored["error"]), ("active", text))
        found = await self.get("Subscription/s/$status")
        parameters = {one["name"]: one for one in found["entry"][0]["resource"]["parameter"]}
        self.assertEqual(parameters["error"]["valueCodeableConcept"], {"text": text})
        self.assertEqual(parameters["status"]["valueCode"], "active")
        health = await self.queue.health("default", "s")
        assert health is not None
        self.assertEqual((health.status, health.error), ("active", text))

        await self.report(text.replace("found 2", "found 3"))
        self.assertEqual((await self.get("Subscription/s"))["meta"], stored["meta"], "it is written once")
        await self.put(encounter("e2", "planned", location=TWO[:1]))
        events = await self.queue.event_range("default", "s", 1, 9, 9)
        self.assertEqual([event.id for event in events], ["e2"], "what does not fail fires as before")

        await self.put(topic(resourceTrigger=[{"resource": "Encounter"}]))
        await self.put(encounter("e3", "planned", location=TWO))
        ((criteria, _, is_current),) = world.matcher.failing()
        self.assertEqual((criteria.id, is_current), ("s", False))
        await self.report(None)
        self.assertNotIn("error", await self.get("Subscription/s"))
        await refresh(world.store, world.matcher)
        self.assertEqual(world.matcher.failing(), [])

    async def test_writing_the_subscription_withdraws_the_report(self) -> None:
        world = self.world
        await self.put(topic(resourceTrigger=FAILS))
        await self.put(subscription())
        await set_status("default", "s", "active", None, world.store, world.matcher, lambda: world.now)
        await self.put(encounter("e1", "planned", location=TWO))
        await self.report(world.matcher.failures.pending(9)[0][2])
        stored = await self.get("Subscription/s")
        self.assertIsNotNone(failing_topic(stored["error"]))
        self.assertNotIn(
            "error", await self.put({**stored, "channel": subscription()["channel"], "status": "requested"})
        )

    async def test_other_errors_and_statuses_stay(self) -> None:
        world = self.world
        await self.put(topic(resourceTrigger=FAILS))
        await self.put(subscription())
        text = "the topic urn:t (version 1) cannot be evaluated: a: b"
        for status, error in (("off", None), ("error", "HTTP status 500"), ("active", "an operator's remark")):
            await set_status("default", "s", status, error, world.store, world.matcher, lambda: world.now)
            before = await self.get("Subscription/s")
            self.assertTrue(await self.report(text if status != "active" else None))
            self.assertEqual(await self.get("Subscription/s"), before, status)
        await self.world.send("DELETE", "Subscription/s")
        with self.assertRaises(Problem):
            await self.report(text)


class TopicFailureTests(TopicFailureSuite, OnMemory):
    async def setUp(self) -> None:
        await super().setUp()
        self.queue = MemoryDeliveryQueue(self.world.store)


class TopicFailureOnPostgresTests(TopicFailureSuite, OnPostgres):
    """SQL holds what is reported."""

    async def setUp(self) -> None:
        await super().setUp()
        self.queue = PostgresDeliveryQueue(self.database)
