"""Subscriptions: registration, firing, status changes by the service."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.ports import DEFAULT_TENANT, DeliveryQueue, Json, SubscriptionState, Version
from ipf.rest.operations.subscription_status import set_status
from ipf.store.deliveries.deliveries import PostgresDeliveryQueue
from ipf.subscriptions.endpoints import EndpointRules
from ipf.subscriptions.notification import notification
from ipf.subscriptions.notification_topic import NotificationContext
from ipf.subscriptions.policy import PERMISSIVE, STRICT, ChannelPolicy
from ipf.subscriptions.status import Trigger, origins
from tests.fakes import MemoryDeliveryQueue
from tests.rest.interactions.test_transaction import bundle, entry
from tests.rest.world import (
    CORRELATION_ID,
    OnMemory,
    OnPostgres,
    Suite,
    World,
    delete,
    issues,
    patient,
    put,
    unit,
)

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def subscription(criteria: str = "Patient?identifier=urn:mrn|1", **members: Any) -> Json:
    """A valid rest-hook Subscription; None removes a member."""
    channel = {
        "type": "rest-hook",
        "endpoint": "https://hook.example.org",
        "payload": "application/fhir+json",
        "header": ["Authorization: Bearer x"],
    }
    made = {
        "resourceType": "Subscription",
        "status": "requested",
        "reason": "test",
        "criteria": criteria,
        "channel": channel,
        **members,
    }
    return {name: value for name, value in made.items() if value is not None}


def states(world: World) -> list[SubscriptionState]:
    """The service's own rows."""
    return [stream.state for stream in world.store.streams.values()]


class RegisterTests(TestCase):
    def setUp(self) -> None:
        self.world = World()

    async def test_register(self) -> None:
        answer = await self.world.send("POST", "Subscription", subscription(error="mine"))
        stored = loads(answer.body)
        self.assertEqual((answer.status, stored["status"]), (201, "requested"))
        self.assertNotIn("error", stored)
        (state,) = states(self.world)
        self.assertEqual((state.id, state.status, state.error), (stored["id"], "requested", None))
        self.assertEqual(self.world.store.epoch, 1)

    async def test_refusals(self) -> None:
        channel = subscription()["channel"]
        table: list[tuple[Json, list[str]]] = [
            (subscription(status="active"), ["Subscription.status"]),
            (subscription(status="error"), ["Subscription.status"]),
            (subscription(status=None), ["Subscription.status"]),
            (subscription(reason=None), ["Subscription.reason"]),
            (subscription("Patient?nonsense=1"), ["Subscription.criteria"]),
            (subscription("Nonsense?a=1"), ["Subscription.criteria"]),
            (subscription("http://example.org/topic"), ["Subscription.criteria"]),
            (subscription("urn:topic"), ["Subscription.criteria"]),
            (subscription(criteria=None), ["Subscription.criteria"]),
            (subscription(channel={**channel, "type": "pigeon"}), ["Subscription.channel.type"]),
            (subscription(channel={**channel, "payload": "text/plain"}), ["Subscription.channel.payload"]),
            (subscription(channel={**channel, "payload": "image/png"}), ["Subscription.channel.payload"]),
            (
                subscription(channel={**channel, "payload": "application/fhir+json; fhirVersion=4.3"}),
                ["Subscription.channel.payload"],
            ),
            (subscription("Patient?general-practitioner.name=x"), ["Subscription.criteria"]),
            (subscription(end="tomorrow"), ["Subscription.end"]),
            (subscription(channel=None), ["Subscription.channel"]),
            (
                subscription("x", status="off", channel={"type": "rest-hook", "endpoint": "http://h.example.org"}),
                ["Subscription.channel.endpoint", "Subscription.channel.header", "Subscription.criteria"],
            ),
        ]
        for resource, places in table:
            answer = await self.world.send("POST", "Subscription", resource)
            self.assertEqual((answer.status, [place for _, _, place in issues(answer)]), (422, places), resource)
        self.assertEqual(self.world.store.commits, 0)

    async def test_refusals_name_what_is_refused(self) -> None:
        for criteria, word in (
            ("Patient?nonsense=1", "nonsense"),
            ("http://example.org/topic", "http://example.org/topic"),
        ):
            answer = await self.world.send("POST", "Subscription", subscription(criteria))
            ((code, text, _),) = issues(answer)
            self.assertEqual(code, "business-rule")
            self.assertIn(word, text)

    async def test_every_write_interaction_checks_subscriptions(self) -> None:
        bad = subscription(id="s", channel={**subscription()["channel"], "endpoint": "http://h.example.org"})
        put_answer = await self.world.send("PUT", "Subscription/s", bad)
        conditional = await self.world.send("PUT", "Subscription?_id=s", bad)
        whole = await self.world.send("POST", "", bundle("transaction", entry("POST", "Subscription", bad)))
        self.assertEqual([put_answer.status, conditional.status, whole.status], [422, 422, 422])
        self.assertEqual(issues(whole)[0][2], "Bundle.entry[0].resource (Subscription.channel.endpoint)")
        self.world.policy = ChannelPolicy(PERMISSIVE)
        self.assertEqual((await self.world.send("PUT", "Subscription/s", bad)).status, 201)

    async def test_endpoints_in_every_write_interaction(self) -> None:
        """With tenants, private addresses need ALLOW; without, they are valid.  A refusal names its setting."""
        for rules, host, setting in (
            (EndpointRules(), "10.1.2.3", ""),
            (EndpointRules(has_tenants=True), "10.1.2.3", "SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW"),
            (EndpointRules(has_tenants=True), "printer.local", "SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW"),
            (EndpointRules(("10.1.0.0/16",), has_tenants=True), "10.1.2.3", ""),
            (EndpointRules((), ("10.1.0.0/16",)), "10.1.2.3", "SUBSCRIPTION_SERVICE_ENDPOINT_DENY"),
            (EndpointRules(own_ports=lambda: {443: "IPF_HTTP_LISTEN"}), "127.0.0.1", "IPF_HTTP_LISTEN"),
            (EndpointRules(("*",)), "169.254.169.254", "SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW"),
        ):
            self.world.policy = ChannelPolicy(STRICT, rules)
            made = subscription(id="s", channel={**subscription()["channel"], "endpoint": f"https://{host}/hook"})
            for answer in (
                await self.world.send("PUT", "Subscription/s", made),
                await self.world.send("POST", "Subscription", made),
                await self.world.send("POST", "", bundle("transaction", entry("POST", "Subscription", made))),
            ):
                self.assertEqual(answer.status == 422, bool(setting), (rules, host, answer.body))
                self.assertIn(setting.encode(), answer.body)


class FireTests(TestCase):
    def setUp(self) -> None:
        self.world = World()

    async def subscribe(self, id: str, criteria: str, status: str = "requested", tenant: str = DEFAULT_TENANT) -> None:
        """Register a Subscription."""
        resource = subscription(criteria, id=id, status=status)
        answer = await self.world.send("PUT", f"Subscription/{id}", resource, tenant)
        self.assertIn(answer.status, (200, 201), answer.body)

    def fired(self) -> list[tuple[str, str, int]]:
        """(subscription, resource, version) of all events so far, which are forgotten."""
        events = []
        for stream in self.world.store.streams.values():
            events += [(stream.state.id, event.id, event.version_id) for event in stream.events]
            stream.events = []
        return events

    async def test_firing(self) -> None:
        await self.subscribe("one", "Patient?identifier=urn:mrn|1")
        await self.subscribe("men", "Patient?gender=male")
        await self.subscribe("all", "Patient?")
        await self.subscribe("off", "Patient?", "off")
        await self.subscribe("elsewhere", "Patient?", tenant="other")
        await self.subscribe("visits", "Encounter?")
        for entry_, expected in (
            (put(patient("1", id="a")), {"one", "all"}),
            (put(patient("1", id="a")), set()),
            (put(patient("1", id="a", gender="male")), {"one", "men", "all"}),
            (put(patient("2", id="b")), {"all"}),
            (delete("Patient/a"), set()),
        ):
            await self.world.commit(unit(entry_))
            self.assertEqual({name for name, _, _ in self.fired()}, expected, entry_)

    async def test_each_version_of_one_commit_fires(self) -> None:
        await self.subscribe("all", "Patient?")
        units = [unit(put(patient("1", str(number), id="a"))) for number in range(3)]
        await self.world.commit(*units)
        self.assertEqual(self.fired(), [("all", "a", 1), ("all", "a", 2), ("all", "a", 3)])

    async def test_units_see_the_subscriptions_of_units_before_them(self) -> None:
        sub = subscription("Patient?", id="new")
        await self.world.commit(
            unit(put(patient("1", id="before"))), unit(put(sub)), unit(put(patient("2", id="after")))
        )
        self.assertEqual(self.fired(), [("new", "after", 1)])

    async def test_changes_take_effect_at_once(self) -> None:
        await self.subscribe("s", "Patient?identifier=urn:mrn|1")
        await self.subscribe("s", "Patient?identifier=urn:mrn|2")
        await self.world.commit(unit(put(patient("1", id="a"))), unit(put(patient("2", id="b"))))
        self.assertEqual([id for _, id, _ in self.fired()], ["b"])
        await self.world.send("DELETE", "Subscription/s")
        await self.world.commit(unit(put(patient("2", "Neu", id="b"))))
        self.assertEqual(self.fired(), [])
        self.assertEqual([state.status for state in states(self.world)], ["deleted"])


class LifeSuite(Suite):
    """From registration to the leased events."""

    world: World
    queue: DeliveryQueue

    async def test_life(self) -> None:
        send, parts = self.world.send, self.world.repository
        await send("PUT", "Subscription/s", subscription("Patient?gender=male", id="s"))
        await send("PUT", "Patient/a", patient("1", id="a", gender="male"))
        self.assertEqual(await self.queue.requested(10), [("default", "s")])
        until = datetime.now(UTC) + timedelta(minutes=1)
        self.assertEqual(await self.queue.lease("w", 10, until), [])
        await set_status("default", "s", "active", None, parts.store, parts.matcher, parts.clock)
        self.assertEqual(await self.queue.requested(10), [])
        await send("PUT", "Patient/b", patient("2", id="b", gender="female"))
        changed = await send("PUT", "Patient/a", patient("1", "Neu", id="a", gender="male"))
        (lease,) = await self.queue.lease("w", 10, until)
        events = await self.queue.events(lease, 10)
        self.assertEqual([(event.number, event.id, event.version_id) for event in events], [(1, "a", 1), (2, "a", 2)])
        self.assertEqual((events[1].body, events[1].correlation_id), (changed.body, CORRELATION_ID))
        reported = notification(lease.resource, events[1:2], NotificationContext("", NOW, 2))
        self.assertEqual((reported.method, reported.url), ("PUT", "https://hook.example.org/Patient/a"))

    async def test_status_changes_are_versions_of_the_resource(self) -> None:
        parts = self.world.repository
        await self.world.send("PUT", "Subscription/s", subscription(id="s"))
        for status in ("active", "error"):
            await set_status("default", "s", status, None, parts.store, parts.matcher, parts.clock)
        await self.world.send("PUT", "Subscription/s", subscription(id="s"))
        history = [loads(version.body)["status"] for version in await self.world.versions("Subscription/s")]
        self.assertEqual(history, ["requested", "active", "error", "requested"])
        health = await self.queue.health("default", "s")
        self.assertEqual(health and health.status, "requested")

    async def test_writers_and_changes_of_subscriptions_at_once(self) -> None:
        """Every patient stored after the subscription has an event, and no other one."""
        parts = self.world.repository
        works = [Deferred.fromCoroutine(self.world.commit(unit(put(patient(str(n), id=f"p{n}"))))) for n in range(10)]
        works.append(Deferred.fromCoroutine(self.world.commit(unit(put(subscription("Patient?", id="s"))))))
        works += [Deferred.fromCoroutine(self.world.commit(unit(put(patient(str(n), id=f"q{n}"))))) for n in range(10)]
        self.assertEqual([one for (one,) in await gatherResults(works) if isinstance(one, Problem)], [])
        await set_status("default", "s", "active", None, parts.store, parts.matcher, parts.clock)
        await self.world.commit(unit(put(patient("x", id="last"))))
        (lease,) = await self.queue.lease("w", 10, datetime.now(UTC) + timedelta(minutes=1))
        events = await self.queue.events(lease, 100)
        self.assertEqual([event.number for event in events], list(range(1, len(events) + 1)))
        self.assertEqual(events[-1].id, "last")


class LifeTests(OnMemory, LifeSuite):
    async def setUp(self) -> None:
        await super().setUp()
        self.queue = MemoryDeliveryQueue(self.world.store)


class LifeOnPostgresTests(OnPostgres, LifeSuite):
    """SQL holds subscriptions and events."""

    async def setUp(self) -> None:
        await super().setUp()
        self.queue = PostgresDeliveryQueue(self.database)


class StatusTests(TestCase):
    def setUp(self) -> None:
        self.world = World()

    async def set(self, status: str, error: str | None = None, **options: Any) -> Version:
        """Change the status of Subscription/s."""
        parts = self.world.repository
        return await set_status("default", "s", status, error, parts.store, parts.matcher, parts.clock, **options)

    async def test_changes_are_versions(self) -> None:
        await self.world.send("PUT", "Subscription/s", subscription(id="s"))
        for status, error, version in (
            ("active", None, 2),
            ("active", None, 2),
            ("error", "410 since 08:05", 3),
            ("off", None, 4),
        ):
            changed = await self.set(status, error)
            resource = loads(changed.body)
            self.assertEqual((resource["status"], resource.get("error"), changed.version_id), (status, error, version))
            (state,) = states(self.world)
            self.assertEqual((state.status, state.error), (status, error))

    async def test_late_trigger_changes_nothing(self) -> None:
        await self.world.send("PUT", "Subscription/s", subscription(id="s", status="off"))
        version = await self.set("active", only_from=origins(Trigger.ACTIVATED))
        self.assertEqual((version.version_id, loads(version.body)["status"]), (1, "off"))

    async def test_a_late_error_does_not_hit_a_later_request(self) -> None:
        """The version that the error is about is compared in the transaction that would write it."""
        exhausted: dict[str, Any] = {"only_from": origins(Trigger.EXHAUSTED)}
        await self.world.send("PUT", "Subscription/s", subscription(id="s"))
        leased = str((await self.set("active")).version_id)
        await self.world.send("PUT", "Subscription/s", subscription(id="s", reason="again"))
        active = await self.set("active")
        for version_id in (leased, "1", "3"):
            late = await self.set("error", "too late", version_id=version_id, **exhausted)
            self.assertEqual((late.version_id, loads(late.body)["status"]), (active.version_id, "active"))
        found = await self.set("error", "now", version_id=str(active.version_id), **exhausted)
        self.assertEqual(loads(found.body)["status"], "error")

    async def test_a_request_between_the_reading_and_the_writing(self) -> None:
        await self.world.send("PUT", "Subscription/s", subscription(id="s"))
        leased = str((await self.set("active")).version_id)
        real, store = self.world.store.read, self.world.store

        async def read(*named: str) -> Version | None:
            version: Version | None = await real(*named)
            store.read = real
            await self.world.send("PUT", "Subscription/s", subscription(id="s", reason="again"))
            await self.set("active")
            return version

        store.read = read
        found = await self.set("error", "too late", version_id=leased)
        self.assertEqual((found.version_id, loads(found.body)["status"]), (4, "active"))

    async def test_subscriber_may_request_again(self) -> None:
        await self.world.send("PUT", "Subscription/s", subscription(id="s"))
        await self.set("error", "down")
        answer = await self.world.send("PUT", "Subscription/s", subscription(id="s"))
        self.assertEqual((answer.status, loads(answer.body)["status"]), (200, "requested"))

    async def test_unknown(self) -> None:
        with self.assertRaises(Problem) as raised:
            await self.set("off")
        self.assertEqual(raised.exception.category, Category.NOT_FOUND)
        with self.assertRaises(Problem) as raised:
            await self.set("sleeping")
        self.assertEqual(raised.exception.category, Category.VALUE)
