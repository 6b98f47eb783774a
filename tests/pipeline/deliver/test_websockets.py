"""Notifications over websockets: binding, content, authorization, expiry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.pipeline.deliver.authorization import Authorization
from ipf.pipeline.deliver.websockets import WebsocketNotifier
from ipf.ports import Caller, Event, Json, Lease, NewEvent, Notification, Session, SubscriptionState, Terms
from ipf.ports.grants import Writer
from tests.contracts.resources import Writing, change, patient
from tests.fakes import MemoryDeliveryQueue, MemoryFhirStore
from tests.fakes.bindings import MemoryBindingTokens
from tests.pipeline.deliver.test_authorization import Grants
from tests.pipeline.test_worker import MemoryNotifier

START = datetime(2026, 1, 1, tzinfo=UTC)


class Client:
    """Records received texts; `is_cut_off`: disconnected."""

    def __init__(self) -> None:
        self.received_texts: list[str] = []
        self.is_cut_off = False
        self.ended: str | None = None

    def send(self, texts: Sequence[bytes]) -> bool:
        if not self.is_cut_off:
            self.received_texts += [text.decode() for text in texts]
        return not self.is_cut_off

    def end(self, reason: str) -> None:
        self.ended = reason


class PlainComposer:
    """Composes lists of resource ids; without content for ids that begin with `empty`."""

    heartbeat_seconds: int | None = None
    max_count = 1
    is_topic = True

    def terms(self, subscription: Json) -> Terms:
        return Terms("websocket", "", self.is_topic, max_count=self.max_count, heartbeat_seconds=self.heartbeat_seconds)

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        body = None if lease.subscription_id.startswith("empty") else ",".join(event.id for event in events).encode()
        return self.made(lease, body)

    async def heartbeat(self, lease: Lease) -> Notification:
        return self.made(lease, b"heartbeat")

    async def handshake(self, lease: Lease) -> Notification:
        return self.made(lease, f"handshake {lease.subscription_id} {lease.last_event_number}".encode())

    def made(self, lease: Lease, body: bytes | None) -> Notification:
        return Notification("", "", (), body, "c", lease.tenant, lease.subscription_id)


class PayloadComposer(PlainComposer):
    """The same, with a payload."""

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        made = await super().events(lease, events)
        return replace(made, body=None) if lease.is_content_withheld else made


class NumberingComposer(PlainComposer):
    """Shows numbers, and the total in heartbeats."""

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        return self.made(lease, ",".join(f"{event.number} {event.id}" for event in events).encode())

    async def heartbeat(self, lease: Lease) -> Notification:
        return self.made(lease, f"heartbeat {lease.last_event_number}".encode())


class WebsocketNotifierTests(Writing):
    def setUp(self) -> None:
        self.clock = Clock()
        self.store = MemoryFhirStore()
        self.queue = MemoryDeliveryQueue(self.store, self.now)
        self.tokens = MemoryBindingTokens(self.now)
        self.compose = PlainComposer()
        self.hub = self.another()

    def another(self) -> WebsocketNotifier:
        """The hub of another process."""
        return WebsocketNotifier(self.queue, self.tokens, self.compose, MemoryNotifier(), self.clock, self.now)

    def now(self) -> datetime:
        return START + timedelta(seconds=self.clock.seconds())

    async def websocket(self, id: str = "s1") -> int:
        return await self.subscribe(id, channel_type="websocket")

    async def fire(self, rid: int, id: str) -> None:
        made = change(await self.store.new_rid(), patient(id))
        await self.write(made, events=[NewEvent(rid, 0)])

    async def become(self, rid: int, id: str, status: str, number: int = 2) -> None:
        resource = {"resourceType": "Subscription", "id": id, "status": status}
        state = SubscriptionState("default", rid, id, status, channel_type="websocket")
        await self.write(change(rid, resource, number, resource), subscriptions_change=True, subscriptions=[state])

    async def test_bound_by_id(self) -> None:
        """`ping`, then the content, in order; ledger and cursor are written."""
        rid = await self.websocket()
        await self.fire(rid, "before")
        client = Client()
        await self.hub.bind(client, Session(), "s1")
        self.assertFalse(await self.hub.step())
        await self.fire(rid, "a")
        await self.fire(rid, "b")
        self.assertTrue(await self.hub.step())
        self.assertEqual(client.received_texts, ["ping s1", "a", "ping s1", "b"])
        self.assertFalse(await self.hub.step())
        health = await self.queue.health("default", "s1")
        assert health is not None
        self.assertEqual((health.delivered_number, health.success_count), (3, 2))

    async def test_without_a_payload_only_ping(self) -> None:
        rid = await self.websocket("empty1")
        client = Client()
        await self.hub.bind(client, Session(), "empty1")
        await self.fire(rid, "a")
        await self.hub.step()
        self.assertEqual(client.received_texts, ["ping empty1"])

    async def test_secrets_of_subscriptions_are_redacted(self) -> None:
        """An included resource may be a Subscription."""
        rid = await self.websocket()
        client = Client()
        await self.hub.bind(client, Session(), "s1")
        await self.fire(rid, "ipf-sealed:0:czNjcmV0")
        await self.hub.step()
        self.assertEqual(client.received_texts, ["ping s1", "***"])

    async def test_many_clients_in_many_processes(self) -> None:
        """Each process serves its own clients; each client receives each event once."""
        rid = await self.websocket()
        other, clients = self.another(), [Client() for _ in range(4)]
        for client, hub in zip(clients, (self.hub, self.hub, other, other), strict=True):
            await hub.bind(client, Session(), "s1")
        await self.fire(rid, "a")
        for hub in (self.hub, other, self.hub):
            await hub.step()
        self.assertEqual([client.received_texts for client in clients], [["ping s1", "a"]] * 4)

    async def test_refused_bindings(self) -> None:
        await self.subscribe("hook")
        await self.websocket("mine")
        for session, id in (
            (Session(), "nobody"),
            (Session(), "hook"),
            (Session("north"), "mine"),
            (Session(may_read=lambda _: False), "mine"),
        ):
            with self.assertRaises(Problem):
                await self.hub.bind(Client(), session, id)
        self.assertEqual(self.hub.clients, 0)

    async def test_token_binds_all_of_its_subscriptions(self) -> None:
        """A handshake with the newest number, then Bundles until the token expires."""
        first, second = await self.websocket("s1"), await self.websocket("s2")
        await self.fire(first, "before")
        token = await self.tokens.issue("default", ["s1", "s2", "gone"], self.now() + timedelta(seconds=10))
        client = Client()
        self.assertEqual((await self.hub.bind_with_token(client, token)).bound, ["s1", "s2"])
        self.assertEqual(client.received_texts, ["handshake s1 1", "handshake s2 0"])
        await self.fire(second, "a")
        await self.hub.step()
        self.assertEqual(client.received_texts[2:], ["a"])
        self.clock.advance(11)
        await self.fire(second, "b")
        await self.hub.step()
        self.assertEqual(
            client.received_texts[2:], ["a", *(f"error the token for {id} has expired" for id in ("s1", "s2"))]
        )
        with self.assertRaises(Problem):
            await self.hub.bind_with_token(client, token)

    async def test_token_for_a_subscription_without_a_topic(self) -> None:
        """`bound` and pings, as after `bind`."""
        self.compose.is_topic = False
        rid = await self.websocket()
        client = Client()
        token = await self.tokens.issue("default", ["s1"], self.now() + timedelta(seconds=10))
        self.assertEqual((await self.hub.bind_with_token(client, token)).bound, ["s1"])
        await self.fire(rid, "a")
        await self.hub.step()
        self.assertEqual(client.received_texts, ["bound s1", "ping s1", "a"])

    async def with_payload(self) -> int:
        """A websocket subscription with a payload."""
        resource = {"resourceType": "Subscription", "id": "s1", "status": "active", "criteria": "Patient?",
                    "meta": {"versionId": "1"},
                    "channel": {"type": "websocket", "payload": "application/fhir+json"}}  # fmt: skip
        rid = await self.store.new_rid()
        state = SubscriptionState("default", rid, "s1", "active", channel_type="websocket")
        await self.write(change(rid, resource), subscriptions_change=True, subscriptions=[state])
        return rid

    def authorized(self, grants: Grants) -> WebsocketNotifier:
        """A hub that checks grants."""
        authorization = Authorization(grants, PayloadComposer(), self.store.read_version)
        return WebsocketNotifier(
            self.queue,
            self.tokens,
            authorization,
            MemoryNotifier(),
            self.clock,
            self.now,
            authorization_filter=authorization.authorization_filter,
            numbered_from=authorization.numbered_from,
        )

    async def test_grants_of_another_version_are_not_used(self) -> None:
        rid = await self.with_payload()
        grants, client = Grants(Caller("service", scopes=("system/*.cruds",))), Client()
        hub = self.authorized(grants)
        await hub.bind(client, Session(), "s1")
        await self.fire(rid, "a")
        grants.newest = 2
        await hub.step()
        self.assertEqual(client.received_texts, [])
        grants.newest = 1
        await hub.step()
        self.assertEqual(client.received_texts, ["ping s1", "a"])

    async def test_numbers_of_a_client_that_sees_a_part(self) -> None:
        """Its own count, each event alone, and heartbeats that others do not postpone."""
        rid = await self.with_payload()
        wide, narrow = (
            Caller("ada", "app", ("system/Subscription.r", *scopes.split()))
            for scopes in ("system/Patient.rs", "system/Patient.rs?_id=b,d,e,B,D,E")
        )
        compose = NumberingComposer()
        self.compose = compose
        for writers, first, ids in (((wide,), None, "abcdef"), ((Writer(narrow, 2),), 2, "ABCDEF")):
            compose.max_count, compose.heartbeat_seconds = 2, 30
            authorization = Authorization(Grants(*writers), compose, self.store.read_version)
            hub = WebsocketNotifier(
                self.queue, self.tokens, authorization, MemoryNotifier(), self.clock, self.now,
                authorization_filter=authorization.authorization_filter, numbered_from=authorization.numbered_from,
            )  # fmt: skip
            lease = await self.queue.websocket_subscription("default", "s1")
            assert lease is not None
            before = lease.last_event_number
            clients = []
            for caller in (wide, narrow):
                client = Client()
                token = await self.tokens.issue("default", ["s1"], self.now() + timedelta(hours=9), caller)
                await hub.bind_with_token(client, token)
                clients.append(client)
            start = 0 if first is None else before - first
            for id in ids[:-1]:
                await self.fire(rid, id)
            await hub.step()
            for advanced in (20, 10):
                self.clock.advance(advanced)
                await hub.step()
            await self.fire(rid, ids[-1])
            await hub.step()
            self.clock.advance(30)
            await hub.step()
            shown = [ids[1], ids[3], ids[4]]
            expected = [f"handshake s1 {start}", *(f"{start + n} {id}" for n, id in enumerate(shown, 1)),
                        f"heartbeat {start + 3}", f"heartbeat {start + 3}"]  # fmt: skip
            self.assertEqual(clients[1].received_texts, expected)
            if first is None:
                self.assertEqual(
                    clients[0].received_texts,
                    ["handshake s1 0", "1 a,2 b", "3 c,4 d", "5 e", "heartbeat 5", "6 f", "heartbeat 6"],
                )

    async def test_client_receives_only_what_it_may_read(self) -> None:
        """The grants of the writers and of the client apply, with both ways of binding."""
        rid = await self.with_payload()
        grants = Grants(Caller("service", scopes=("system/*.cruds",)))
        hub = self.authorized(grants)
        received = {}
        for scopes in ("system/*.rs", "system/Subscription.r", "system/Subscription.r system/Patient.r?_id=b",
                       "system/Subscription.r system/Patient.s"):  # fmt: skip
            ada = Caller("ada", scopes=tuple(scopes.split()))
            by_id, by_token = Client(), Client()
            await hub.bind(by_id, Session(caller=ada), "s1")
            token = await self.tokens.issue("default", ["s1"], self.now() + timedelta(hours=1), ada)
            await hub.bind_with_token(by_token, token)
            received[scopes] = by_id, by_token
        for id in ("a", "b"):
            await self.fire(rid, id)
        await hub.step()
        for (by_id, by_token), expected in zip(
            received.values(), (["a", "b"], ["", ""], ["b"], ["a", "b"]), strict=True
        ):
            received_texts = [text for id in expected for text in (("ping s1", id) if id else ("ping s1",))]
            self.assertEqual(by_id.received_texts, received_texts)
            self.assertEqual(by_token.received_texts[1:], [id or "ping s1" for id in expected])
        stranger = await self.tokens.issue("default", ["s1"], self.now() + timedelta(hours=1), Caller("bob"))
        self.assertEqual((await hub.bind_with_token(Client(), stranger)).bound, [])

    async def test_token_expiry(self) -> None:
        """Its client is informed without an event; a client without bindings is closed and cannot bind again."""
        for id in ("s1", "s2"):
            await self.websocket(id)
        short = Session(until=self.now() + timedelta(seconds=10))
        client, other = Client(), Client()
        await self.hub.bind(client, short, "s1")
        await self.hub.bind(client, Session(), "s2")
        await self.hub.bind(other, short, "s1")
        await self.hub.step()
        self.assertEqual((client.received_texts, other.ended), ([], None))
        self.clock.advance(10)
        await self.hub.step()
        for one, ended in ((client, None), (other, "its token has expired")):
            self.assertEqual((one.received_texts, one.ended), (["error the token for s1 has expired"], ended))
        failed = await self.assertFailure(Deferred.fromCoroutine(self.hub.bind(client, short, "s1")), Problem)
        self.assertEqual(failed.category, Category.UNAUTHORIZED)

    async def test_rights_are_checked_at_each_notification(self) -> None:
        """A bound client that lost its right receives nothing."""
        rid = await self.websocket()
        client, allowed = Client(), [True]
        await self.hub.bind(client, Session(may_read=lambda _: allowed[0]), "s1")
        await self.fire(rid, "a")
        await self.hub.step()
        allowed.clear()
        allowed.append(False)
        await self.fire(rid, "b")
        await self.hub.step()
        self.assertEqual(client.received_texts, ["ping s1", "a"])

    async def test_left_clients_are_removed(self) -> None:
        rid = await self.websocket()
        client = Client()
        await self.hub.bind(client, Session(), "s1")
        self.hub.leave(client)
        self.hub.leave(client)
        await self.fire(rid, "a")
        self.assertFalse(await self.hub.step())
        self.assertEqual((client.received_texts, self.hub.clients), ([], 0))

    async def test_disconnected_client_is_a_failure(self) -> None:
        rid = await self.websocket()
        client = Client()
        client.is_cut_off = True
        await self.hub.bind(client, Session(), "s1")
        await self.fire(rid, "a")
        await self.hub.step()
        page = await self.queue.history("default", "s1", 5, 0)
        assert page is not None
        self.assertEqual([(one.succeeded, one.event_number) for one in page.attempts], [(False, 1)])

    async def test_off_pauses(self) -> None:
        rid = await self.websocket()
        client = Client()
        await self.hub.bind(client, Session(), "s1")
        await self.become(rid, "s1", "off")
        await self.fire(rid, "a")
        self.assertFalse(await self.hub.step())
        await self.become(rid, "s1", "active", 3)
        self.assertTrue(await self.hub.step())
        self.assertEqual(client.received_texts, ["ping s1", "a"])

    async def test_deleted_subscription_closes_its_clients(self) -> None:
        rid = await self.websocket()
        client = Client()
        await self.hub.bind(client, Session(), "s1")
        await self.fire(rid, "a")
        found = await self.queue.events_after({rid: 0}, 5)
        await self.become(rid, "s1", "deleted")
        self.clock.advance(2)
        self.queue.events_after = lambda cursors, limit: _at_once(found)  # type: ignore[method-assign]  # read just before
        await self.hub.step()
        self.assertEqual((client.received_texts, client.ended), ([], "Subscription/s1 is gone"))

    async def test_batches_and_heartbeats(self) -> None:
        """`max_count` events in one Bundle; heartbeats go to clients with a token only."""
        self.compose.max_count, self.compose.heartbeat_seconds = 2, 30
        rid = await self.websocket()
        token = await self.tokens.issue("default", ["s1"], self.now() + timedelta(hours=1))
        bare, topical = Client(), Client()
        await self.hub.bind(bare, Session(), "s1")
        await self.hub.bind_with_token(topical, token)
        for id in ("a", "b", "c"):
            await self.fire(rid, id)
        await self.hub.step()
        self.assertEqual(topical.received_texts[1:], ["a,b", "c"])
        for _ in range(4):
            self.clock.advance(10)
            await self.hub.step()
        self.assertEqual(topical.received_texts[3:], ["heartbeat"])
        self.assertNotIn("heartbeat", bare.received_texts)

    async def test_a_new_period_applies_whether_there_are_events_or_not(self) -> None:
        """At the same time in both cases: a hidden event must not show in the time of a heartbeat."""
        for is_eventful in (False, True):
            self.compose.heartbeat_seconds = None
            id = f"s{is_eventful}"
            rid = await self.websocket(id)
            token = await self.tokens.issue("default", [id], self.now() + timedelta(hours=1))
            client = Client()
            await self.hub.bind_with_token(client, token)
            self.compose.heartbeat_seconds = 5
            for seconds in range(1, 15):
                self.clock.advance(1)
                if is_eventful and seconds == 3:
                    await self.fire(rid, "a")
                await self.hub.step()
                heartbeats = client.received_texts.count("heartbeat")
                self.assertEqual(heartbeats, int(seconds >= 10), (is_eventful, seconds))

    async def test_ledger_is_written_once_the_store_is_reachable(self) -> None:
        rid = await self.websocket()
        client = Client()
        await self.hub.bind(client, Session(), "s1")
        await self.fire(rid, "a")
        received = self.queue.record_sent

        async def unreachable(*written: object) -> None:
            raise StoreUnreachable()

        self.queue.record_sent = unreachable  # type: ignore[method-assign]  # the store goes away in between
        with self.assertRaises(StoreUnreachable):
            await self.hub.step()
        self.queue.record_sent = received  # type: ignore[method-assign]  # and comes back
        await self.hub.step()
        self.assertEqual(client.received_texts, ["ping s1", "a"])
        health = await self.queue.health("default", "s1")
        assert health is not None
        self.assertEqual((health.success_count, health.delivered_number), (1, 1))

    async def test_stop_closes_clients(self) -> None:
        await self.websocket()
        client = Client()
        await self.hub.bind(client, Session(), "s1")
        await self.hub.stop()
        self.assertEqual(client.ended, "the service stops")


async def _at_once(value: object) -> object:
    return value
