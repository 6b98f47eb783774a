"""$status, $events, $resend, $get-ws-binding-token, $dry-run and discovery, in memory and on PostgreSQL.

Names carry the numbers of the guide's requirements (its requirements-server.csv) where they apply.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ipf.fhir.model.bundle import instant
from ipf.ports import Caller, Json
from ipf.rest.operations.subscription_status import set_status
from ipf.store.deliveries.bindings import PostgresBindingTokens
from ipf.store.deliveries.deliveries import PostgresDeliveryQueue
from ipf.subscriptions.guide import SERVER, TOPICS
from tests.fakes import MemoryDeliveryQueue
from tests.fakes.bindings import MemoryBindingTokens
from tests.rest.world import OnMemory, OnSharedPostgres, Suite
from tests.rest.write.test_topics import URL, TopicSuite, encounter, subscription, topic


def said(parameters: Json, name: str) -> list[Any]:
    """The values of the parameters with this name."""
    return [
        next(value for member, value in one.items() if member != "name")
        for one in parameters.get("parameter", ())
        if one["name"] == name
    ]


class OperationSuite(Suite):
    """Through the FHIR surface."""

    ok, store, refused = TopicSuite.ok, TopicSuite.store, TopicSuite.refused
    world: Any
    queue: Any

    async def some(self) -> None:
        """A topic, a subscription with three events, and one that is off."""
        await self.store(topic())
        await self.store(subscription())
        await self.store(subscription(id="quiet", status="off"))
        for number in (1, 2, 3):
            await self.store(encounter(f"e{number}", "in-progress"))

    async def test_req_47_106_to_112_status(self) -> None:
        await self.some()
        found = await self.ok("GET", "Subscription/s/$status?id=quiet&status=error")
        self.assertEqual((found["type"], found["total"]), ("searchset", 1))
        (one,) = [entry["resource"] for entry in found["entry"]]
        self.assertEqual((said(one, "status"), said(one, "type")), (["requested"], ["query-status"]))
        self.assertEqual(said(one, "events-since-subscription-start"), ["3"])
        self.assertEqual(said(one, "subscription"), [{"reference": "http://localhost:8090/fhir/Subscription/s"}])
        for query, count in (("", 2), ("?status=off", 1), ("?status=off&status=requested", 2), ("?status=error", 0),
                             ("?id=s&id=quiet", 2), ("?id=s&status=off", 0), ("?id=nobody", 0)):  # fmt: skip
            self.assertEqual((await self.ok("GET", f"Subscription/$status{query}"))["total"], count, query)
        body = {"resourceType": "Parameters", "parameter": [{"name": "id", "valueId": "s"}]}
        self.assertEqual((await self.ok("POST", "Subscription/$status", body))["total"], 1)
        for url, code in (("Subscription/nobody/$status", 404), ("Patient/$status", 404),
                          ("Subscription/$status?status=fine", 400), ("Subscription/$status?x=1", 400)):  # fmt: skip
            self.assertEqual((await self.world.send("GET", url)).status, code)

    async def test_req_115_117_118_119_events(self) -> None:
        await self.some()
        for query, numbers in (("", [1, 2, 3]), ("?eventsSinceNumber=2", [2, 3]), ("?eventsUntilNumber=2", [1, 2]),
                               ("?eventsSinceNumber=2&eventsUntilNumber=2", [2]),
                               ("?eventsSinceNumber=9", [])):  # fmt: skip
            found = await self.ok("GET", f"Subscription/s/$events{query}")
            status = found["entry"][0]["resource"]
            self.assertEqual((found["type"], said(status, "type")), ("history", ["query-event"]))
            read = [next(part["valueString"] for part in event if part["name"] == "event-number")
                    for event in said(status, "notification-event")]  # fmt: skip
            self.assertEqual(read, [str(number) for number in numbers], query)
        levels = (("empty", 0, 0), ("id-only", 3, 0), ("full-resource", 3, 3))
        for content, entries, resources in levels:
            found = (await self.ok("GET", f"Subscription/s/$events?content={content}"))["entry"][1:]
            self.assertEqual((len(found), sum("resource" in one for one in found)), (entries, resources))
        self.assertEqual((await self.world.send("GET", "Subscription/s/$events?content=all")).status, 400)

    async def test_events_continue_in_status_error(self) -> None:
        """Events continue to be numbered; only an update of the subscriber sets requested again."""
        await self.some()
        parts = self.world.repository
        for status in ("active", "error"):
            await set_status(self.world.tenant, "s", status, "HTTP status 500", parts.store, parts.matcher, parts.clock)
        await self.store(encounter("e4", "in-progress"))
        found = await self.ok("GET", "Subscription/s/$events?eventsSinceNumber=4")
        status_of = found["entry"][0]["resource"]
        self.assertEqual(said(status_of, "status") + said(status_of, "error"), ["error", {"text": "HTTP status 500"}])
        self.assertEqual(len(said(status_of, "notification-event")), 1)
        again = await self.store(subscription())
        self.assertEqual((again["status"], again.get("error")), ("requested", None))

    async def test_resend(self) -> None:
        await self.some()
        conflict = await self.world.send("POST", "Subscription/s/$resend?eventsSinceNumber=2")
        self.assertEqual(conflict.status, 409)
        parts = self.world.repository
        await set_status(self.world.tenant, "s", "active", None, parts.store, parts.matcher, parts.clock)
        answer = await self.ok("POST", "Subscription/s/$resend?eventsSinceNumber=2")
        self.assertIn("3 events", answer["issue"][0]["diagnostics"])  # none of them was sent yet
        answer = await self.ok("POST", "Subscription/s/$resend?eventsSinceNumber=1&eventsUntilNumber=1")
        self.assertIn("3 events", answer["issue"][0]["diagnostics"])
        for query in ("", "?eventsSinceNumber=0", "?eventsSinceNumber=4", "?eventsUntilNumber=1",
                      "?eventsSinceNumber=2&eventsUntilNumber=1", "?eventsSinceInstant=2026-01-01"):  # fmt: skip
            self.assertEqual((await self.world.send("POST", f"Subscription/s/$resend{query}")).status, 400, query)

    async def test_binding_token(self) -> None:
        await self.some()
        await self.store(subscription(id="w", channel={"type": "websocket", "endpoint": None, "header": None}))
        for url in ("Subscription/w/$get-ws-binding-token", "Subscription/$get-ws-binding-token?id=w",
                    "Subscription/$get-ws-binding-token"):  # fmt: skip
            found = await self.ok("GET", url)
            self.assertEqual(said(found, "subscription"), ["w"])
            self.assertEqual(said(found, "websocket-url"), ["ws://localhost:8090/websocket"])
            self.assertEqual(len(said(found, "token")[0]), 43)
            self.assertEqual(len(said(found, "expiration")), 1)
        self.assertEqual((await self.world.send("GET", "Subscription/s/$get-ws-binding-token")).status, 422)
        self.assertEqual((await self.world.send("GET", "Subscription/x/$get-ws-binding-token")).status, 404)

    async def test_binding_token_expires_with_the_bearer_token(self) -> None:
        await self.some()
        await self.store(subscription(id="w", channel={"type": "websocket", "endpoint": None, "header": None}))
        now = self.world.repository.clock()
        for seconds, lives in ((90, 90), (7200, 3600)):
            ends = now.timestamp() + seconds
            self.world.caller = Caller("ada", scopes=("system/Subscription.r",), expires_at=ends)
            found = await self.ok("GET", "Subscription/w/$get-ws-binding-token")
            self.assertEqual(said(found, "expiration"), [instant(now + timedelta(seconds=lives))])

    async def test_within_the_limits_of_a_scope(self) -> None:
        """Unreadable subscriptions are not found by any operation, and left out of lists."""
        await self.some()
        await self.store(subscription(id="w", channel={"type": "websocket", "endpoint": None, "header": None}))
        self.world.caller = Caller("ada", scopes=("system/Subscription.cruds?status=off", "system/Encounter.rs"))
        for method, operation in (("GET", "$status"), ("GET", "$events"), ("POST", "$resend?eventsSinceNumber=1"),
                                  ("GET", "$get-ws-binding-token")):  # fmt: skip
            for id in ("s", "w"):
                answer = await self.world.send(method, f"Subscription/{id}/{operation}")
                self.assertEqual(answer.status, 404, (id, operation, answer.body))
        self.assertEqual((await self.world.send("GET", "Subscription/$get-ws-binding-token?id=w")).status, 404)
        self.assertEqual((await self.world.send("GET", "Subscription/$get-ws-binding-token")).status, 404)
        self.assertEqual((await self.ok("GET", "Subscription/$status"))["total"], 1)
        self.assertEqual((await self.ok("GET", "Subscription/$status?id=s&id=quiet"))["total"], 1)
        self.assertEqual((await self.ok("GET", "Subscription/quiet/$status"))["total"], 1)

    async def test_dry_run(self) -> None:
        """The dry run finds the changes that fired; nothing is stored."""
        await self.some()
        self.world.pass_time()
        await self.store(encounter("e1", "finished", "p2"))
        await self.store(encounter("e1", "in-progress", "p2"))
        await self.ok("DELETE", "Encounter/e2")
        stored = await self.queue.health(self.world.tenant, "s")
        found = await self.ok("POST", "Subscription/s/$dry-run")
        self.assertEqual(said(found, "count"), [stored.last_event_number])
        self.assertEqual((said(found, "complete"), said(found, "examined")), ([True], [6]))
        self.assertEqual(
            said(found, "day"), [[{"name": "date", "valueDate": "2026-01-31"}, {"name": "count", "valueInteger": 4}]]
        )
        newest = said(found, "example")[0][0]["valueReference"]["reference"]
        self.assertEqual(newest, "http://localhost:8090/fhir/Encounter/e1/_history/3")
        for sent, count in ((subscription("patient=Patient/p2"), 1), (subscription("patient=Patient/p9"), 0),
                            (subscription(criteria="Encounter?status=finished", channel={"_payload": None}), 1),
                            (subscription(criteria="Encounter?", channel={"_payload": None}), 5)):  # fmt: skip
            answer = await self.ok("POST", "Subscription/$dry-run?examples=1&days=30", sent)
            self.assertEqual(said(answer, "count"), [count], sent)
            self.assertEqual(len(said(answer, "example")), min(count, 1))
        gone = topic(
            id="t2", url=URL + "-gone", resourceTrigger=[{"resource": "Encounter", "supportedInteraction": ["delete"]}]
        )
        await self.store(gone)
        asked = {"resourceType": "Parameters", "parameter": [
            {"name": "resource", "resource": subscription(criteria=URL + "-gone")}]}  # fmt: skip
        self.assertEqual(said(await self.ok("POST", "Subscription/$dry-run", asked), "count"), [1])
        self.assertEqual((await self.ok("GET", "Subscription?_summary=count"))["total"], 2)
        for sent, code in ((subscription("nonsense=1"), 422), (subscription(criteria="urn:x"), 422), (None, 400)):
            self.assertEqual((await self.world.send("POST", "Subscription/$dry-run", sent)).status, code)
        self.assertEqual((await self.world.send("POST", "Subscription/s/$dry-run?days=0")).status, 400)

    async def test_req_2_46_48_57_121_discovery(self) -> None:
        await self.store(topic())
        statement = await self.ok("GET", "metadata")
        self.assertIn(SERVER, statement["instantiates"])
        (found,) = [one for one in statement["rest"][0]["resource"] if one["type"] == "Subscription"]
        self.assertEqual(found["extension"], [{"url": TOPICS, "valueCanonical": URL}])
        self.assertLessEqual(
            {"status", "events", "get-ws-binding-token", "resend"}, {one["name"] for one in found["operation"]}
        )
        await self.ok("DELETE", "SubscriptionTopic/t1")
        (found,) = [
            one for one in (await self.ok("GET", "metadata"))["rest"][0]["resource"] if one["type"] == "Subscription"
        ]
        self.assertNotIn("extension", found)


class OperationTests(OperationSuite, OnMemory):
    async def setUp(self) -> None:
        await super().setUp()
        self.queue = self.world.deliveries = MemoryDeliveryQueue(self.world.store)
        self.world.bindings = MemoryBindingTokens()


class OperationOnPostgresTests(OperationSuite, OnSharedPostgres):
    """SQL holds the events."""

    async def setUp(self) -> None:
        await super().setUp()
        self.queue = self.world.deliveries = PostgresDeliveryQueue(self.database)
        self.world.bindings = PostgresBindingTokens(self.database)
