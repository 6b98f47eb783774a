"""Every channel, each with a real far end: web server, mail server, websocket clients."""

from __future__ import annotations

import json
from typing import Any

from autobahn.twisted.websocket import WebSocketClientFactory
from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ClientEndpoint

from tests.flows.engine import EngineTestCase
from tests.wire.channels.test_websocket import Caller

FAMILY = "engine"
BACKPORT = "http://hl7.org/fhir/uv/subscriptions-backport/StructureDefinition/backport-"
TOPIC = "http://example.org/topics/device-changes"
JSON = {"payload": "application/fhir+json"}


class ChannelFlowTests(EngineTestCase):
    async def call(self) -> Caller:
        """A websocket client."""
        factory = WebSocketClientFactory(f"ws://127.0.0.1:{self.engine.http_port}/websocket")
        factory.noisy, factory.protocol = False, Caller
        caller = await TCP4ClientEndpoint(reactor, "127.0.0.1", self.engine.http_port).connect(factory)
        self.addCleanup(lambda: caller.closed)
        self.addCleanup(caller.dropConnection, abort=True)
        await caller.opened
        return caller

    def store(self, kind: str, id: str) -> Any:
        """A resource whose identifier is its id."""
        resource = {"resourceType": kind, "id": id, "identifier": [{"value": id}]}
        return self.ask("PUT", f"/fhir/{kind}/{id}", resource)

    def hooked(self, path: str, count: int = 1) -> list[Any]:
        """So many requests at this path."""
        return self.wait(lambda: len(sent := self.engine.hook.at(path)) >= count and sent, f"{count} at {path}")

    def history(self, id: str) -> list[Any]:
        """The attempts of a subscription."""
        items: list[Any] = self.ask("GET", f"/admin/subscriptions/{id}/history")["items"]
        return items

    async def test_one_change_over_every_channel(self) -> None:
        """Legacy subscriptions: PUT, empty POST, message Bundle, mail, ping and content; then the ledger."""
        hook, criteria = self.engine.hook.url, "Patient?identifier=every-channel"
        channels: dict[str, dict[str, Any]] = {
            "put": {"type": "rest-hook", "endpoint": f"{hook}/put", **JSON, "header": ["Authorization: Bearer s3cret"]},
            "post": {"type": "rest-hook", "endpoint": f"{hook}/post"},
            "message": {"type": "message", "endpoint": f"{hook}/message", **JSON},
            "mail": {"type": "email", "endpoint": "mailto:ward@example.org", **JSON},
            "content": {"type": "websocket", **JSON},
            "bare": {"type": "websocket"},
        }
        ids = {name: self.subscribe(channel, criteria)["id"] for name, channel in channels.items()}
        caller = await self.call()
        for name in ("content", "bare"):
            caller.sendMessage(f"bind {ids[name]}".encode())
            self.assertEqual(await caller.received.get(), f"bound {ids[name]}")
        stored = self.store("Patient", "every-channel")
        (put,), (post,), (message,) = (self.hooked(path) for path in ("/put", "/post", "/message"))
        self.assertEqual((*put[:2], json.loads(put.body)), ("PUT", "/put/Patient/every-channel", stored))
        self.assertEqual(put.headers["authorization"], "Bearer s3cret")
        self.assertEqual(put.headers["content-type"], "application/fhir+json; charset=UTF-8")
        self.assertEqual((*post[:2], post.headers["content-length"], post.body), ("POST", "/post", "0", b""))
        bundle = json.loads(message.body)
        self.assertEqual((*message[:2], bundle["type"]), ("POST", "/message", "message"))
        self.assertEqual(bundle["entry"][1]["resource"], stored)
        (mail,) = self.wait(lambda: self.engine.mailbox.to("ward@example.org"), "a mail")
        (attached,) = mail.iter_attachments()
        self.assertEqual(json.loads(attached.get_payload(decode=True)), stored)
        received = [await caller.received.get() for _ in range(3)]
        pings = sorted(text for text in received if text.startswith("ping"))
        self.assertEqual(pings, sorted(f"ping {ids[name]}" for name in ("content", "bare")))
        self.assertEqual(json.loads(received[received.index(f"ping {ids['content']}") + 1]), stored)
        self.check_the_ledger(ids)

    def check_the_ledger(self, ids: dict[str, str]) -> None:
        """Each has had its notification."""

        def settled() -> dict[str, Any]:
            items = self.ask("GET", "/admin/subscriptions/health?limit=200")["items"]
            found = {item["id"].partition("/")[2]: item for item in items}
            return found if all(found[id]["delivery_success_count"] == 1 for id in ids.values()) else {}

        health = self.wait(settled, "all are counted")
        kinds = {name: health[id]["channel_type"] for name, id in ids.items()}
        self.assertEqual((kinds["message"], kinds["mail"], kinds["bare"]), ("message", "email", "websocket"))
        self.assertEqual({health[id]["last_attempt_outcome"] for id in ids.values()}, {"success"})
        (attempt,) = self.history(ids["put"])
        self.assertEqual((attempt["http_status"], attempt["outcome"], attempt["event_number"]), (200, "success", 1))

    async def test_topics(self) -> None:
        """A handshake decides; batches; heartbeats; a token binds a websocket."""
        trigger = {"resource": "Device", "supportedInteraction": ["create", "update", "delete"]}
        topic = {"resourceType": "SubscriptionTopic", "url": TOPIC, "status": "active", "resourceTrigger": [trigger]}
        self.ask("POST", "/fhir/SubscriptionTopic", topic)
        level = {"extension": [{"url": f"{BACKPORT}payload-content", "valueCode": "id-only"}]}
        guide = {**JSON, "_payload": level}
        more = {"extension": [{"url": f"{BACKPORT}heartbeat-period", "valueUnsignedInt": 1},
                              {"url": f"{BACKPORT}max-count", "valuePositiveInt": 10}]}  # fmt: skip
        endpoint = self.engine.hook.url
        hooked = self.subscribe({"type": "rest-hook", "endpoint": f"{endpoint}/topic", **guide, **more}, TOPIC)
        self.assertEqual(hooked["status"], "active")
        self.assertIn("handshake", self.kinds("/topic"))
        made = {"type": "rest-hook", "endpoint": f"{endpoint}/refused", **guide}
        self.engine.hook.refusals["/refused"] = 500
        refused = self.ask("POST", "/fhir/Subscription", {
            "resourceType": "Subscription", "status": "requested", "reason": "flow", "criteria": TOPIC, "channel": made,
        })  # fmt: skip
        self.wait(lambda: len(self.history(refused["id"])) >= 2, "a handshake that fails is repeated")
        self.assertEqual(self.ask("GET", f"/fhir/Subscription/{refused['id']}")["status"], "requested")
        del self.engine.hook.refusals["/refused"]
        self.wait(lambda: self.ask("GET", f"/fhir/Subscription/{refused['id']}")["status"] == "active", "it is active")
        tried = [(one["kind"], one["http_status"]) for one in self.history(refused["id"])]
        self.assertEqual((tried[0], set(tried[1:])), (("handshake", 200), {("handshake", 500)}))
        socket = self.subscribe({"type": "websocket", **guide}, TOPIC)
        bound = self.ask("GET", f"/fhir/Subscription/{socket['id']}/$get-ws-binding-token")
        values = {one["name"]: one for one in bound["parameter"]}
        self.assertTrue(values["websocket-url"]["valueUrl"].endswith("/websocket"), values)
        caller = await self.call()
        caller.sendMessage(f"bind-with-token {values['token']['valueString']}".encode())
        self.assertEqual(kind_of((await caller.received.get()).encode()), "handshake")
        self.store("Device", "d1")
        self.assertEqual(kind_of((await caller.received.get()).encode()), "event-notification")
        self.wait(
            lambda: {"heartbeat", "event-notification"} <= set(self.kinds("/topic")), "notification and heartbeat"
        )
        self.assertEqual(self.kinds("/topic").count("event-notification"), 1)
        wanted = {"handshake", "event-notification", "heartbeat"}
        # the far end has a notification before the ledger has
        self.wait(lambda: {one["kind"] for one in self.history(hooked["id"])} == wanted, "the ledger has them")

    def kinds(self, path: str) -> list[str]:
        """The types of the notifications at a path."""
        return [kind_of(one.body) for one in self.engine.hook.at(path)]

    def test_a_dead_hook(self) -> None:
        """Since when and why is said; events go on being numbered; a PUT with `requested` serves them all, in order."""
        hook = self.engine.hook
        hook.refusals["/broken"] = 503
        channel = {"type": "rest-hook", "endpoint": f"{hook.url}/broken", **JSON}
        made = self.subscribe(channel, "Patient?identifier=dead-a,dead-b")
        self.store("Patient", "dead-a")

        def failed() -> Any:
            found = self.ask("GET", f"/admin/subscriptions/{made['id']}/resource")
            return found["status"] == "error" and found

        found = self.wait(failed, "it is in error")
        self.assertRegex(found["error"], r"a notification failed 3 times since 20..-..-..T..:..:..Z: HTTP status 503")
        self.store("Patient", "dead-b")
        tried = len(hook.at("/broken"))
        del hook.refusals["/broken"]
        self.ask("PUT", f"/fhir/Subscription/{made['id']}", {**found, "status": "requested"})
        sent = self.hooked("/broken", tried + 2)[tried:]
        self.assertEqual([one.path for one in sent], ["/broken/Patient/dead-a", "/broken/Patient/dead-b"])


def kind_of(body: bytes) -> str:
    """The type of a notification Bundle of the guide's R4 form."""
    parameters = json.loads(body)["entry"][0]["resource"]["parameter"]
    return next(str(one["valueCode"]) for one in parameters if one["name"] == "type")
