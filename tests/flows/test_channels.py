"""Every channel through the whole service, each with a real far end: web server, mail server, websocket clients.

One service for all, so that one change is sent over every channel at once.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Awaitable, Callable, Sequence
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller
from autobahn.twisted.websocket import WebSocketClientFactory
from treq.client import HTTPClient
from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent
from twisted.web.resource import Resource
from twisted.web.server import Site

from tests.faults.scenario import scratch
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE, free_port
from tests.wire.channels.test_websocket import Caller

CONTENT = "http://hl7.org/fhir/uv/subscriptions-backport/StructureDefinition/backport-payload-content"
MAX_COUNT = "http://hl7.org/fhir/uv/subscriptions-backport/StructureDefinition/backport-max-count"
HEARTBEAT = "http://hl7.org/fhir/uv/subscriptions-backport/StructureDefinition/backport-heartbeat-period"
TOPIC = "http://example.org/topics/patient-changes"


class Hook(Resource):
    """A subscriber's web server: remembers every request, by the first segment of its path."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.status = 200

    def render(self, request: Any) -> bytes:
        headers = {
            name.decode().lower(): values[0].decode() for name, values in request.requestHeaders.getAllRawHeaders()
        }
        path = request.path.decode()
        self.requests.append((request.method.decode(), path, headers, request.content.read()))
        request.setResponseCode(self.status if path.startswith("/broken") else 200)
        return b""

    def at(self, path: str) -> list[tuple[str, str, dict[str, str], bytes]]:
        return [one for one in self.requests if one[1].startswith(path)]


class Mailbox:
    """aiosmtpd's handler."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        return "250 OK"


class ChannelFlowTests(TestCase):
    timeout = 600

    async def setUp(self) -> None:
        self.folder = scratch()
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.box = Mailbox()
        post = Controller(self.box, hostname="127.0.0.1", port=free_port())
        await deferToThread(post.start)
        self.addCleanup(deferToThread, post.stop)
        self.hook = Hook()
        port = reactor.listenTCP(0, Site(self.hook), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.url = f"http://127.0.0.1:{port.getHost().port}"
        self.service = ServiceProcess(
            self.folder / "service",
            IPF_WORKER_PROCESSES="0",
            IPF_SMTP_URL=f"smtp://127.0.0.1:{post.port}?from=ipf@example.org",
            SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_BASE_MS="50",
            SUBSCRIPTION_SERVICE_DELIVERY_MAX_ATTEMPTS="3",
            SUBSCRIPTION_SERVICE_DELIVERY_TIMEOUT_MS="120000",  # what is slow to answer is not sent again
        )
        self.service.start()
        self.addCleanup(deferToThread, self.service.stop)
        await self.until(lambda: deferToThread(self.service.ready), 60)

    async def until(self, holds: Callable[[], Awaitable[object]], seconds: float = PATIENCE) -> None:
        """Wait until `holds` says something true."""
        deadline = reactor.seconds() + seconds
        while not await holds():
            if reactor.seconds() > deadline:
                self.fail(f"not within {seconds} s")
            await deferLater(reactor, 0.05)

    async def eventually(self, found: Callable[[], Sequence[Any]], count: int) -> Any:
        """Wait until so many were found; all of them."""

        async def enough() -> bool:
            return len(found()) >= count

        await self.until(enough)
        return found()

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        status, answer = await deferToThread(self.service.request, method, path, body)
        self.assertLess(status, 300, answer)
        return answer

    async def subscribe(self, channel: dict[str, Any], criteria: str = "Patient?", **members: Any) -> str:
        """Register and wait for the first status after `requested`; the id."""
        made = {
            "resourceType": "Subscription", "status": "requested", "reason": "test", "criteria": criteria,
            "channel": channel, **members,
        }  # fmt: skip
        created = await self.ask("POST", "/fhir/Subscription", made)

        async def decided() -> bool:
            found = await self.ask("GET", f"/fhir/Subscription/{created['id']}")
            self.status = found["status"]
            return found["status"] != "requested"

        await self.until(decided)
        return str(created["id"])

    async def topic(self) -> None:
        """Every change of a Patient."""
        trigger = {"resource": "Patient", "supportedInteraction": ["create", "update", "delete"]}
        made = {"resourceType": "SubscriptionTopic", "url": TOPIC, "status": "active", "resourceTrigger": [trigger]}
        await self.ask("POST", "/fhir/SubscriptionTopic", made)

    async def call(self) -> Caller:
        """A websocket client."""
        factory = WebSocketClientFactory(f"ws://127.0.0.1:{self.service.http_port}/websocket")
        factory.noisy, factory.protocol = False, Caller
        caller = await TCP4ClientEndpoint(reactor, "127.0.0.1", self.service.http_port).connect(factory)
        self.addCleanup(caller.dropConnection, abort=True)
        await caller.opened
        return caller

    async def patient(self, id: str) -> Any:
        return await self.ask("PUT", f"/fhir/Patient/{id}", {"resourceType": "Patient", "id": id, "gender": "female"})

    async def test_channels(self) -> None:
        """One after another on one service: its start is what takes long."""
        for part in (self.over_every_channel, self.topics, self.a_dead_hook, self.mail_without_a_server):
            await part()
            for item in (await self.ask("GET", "/admin/subscriptions/health"))["items"]:
                await self.ask("DELETE", f"/fhir/{item['id']}")
            self.hook.requests.clear()
            self.hook.status = 200

    async def over_every_channel(self) -> None:
        """Legacy subscriptions: PUT, empty POST, message Bundle, mail, ping and content; then the ledger."""
        json_payload = {"payload": "application/fhir+json"}
        header = {"header": ["Authorization: Bearer s3cret"]}
        put = await self.subscribe({"type": "rest-hook", "endpoint": f"{self.url}/put", **json_payload, **header})
        await self.subscribe({"type": "rest-hook", "endpoint": f"{self.url}/post"})
        message = await self.subscribe({"type": "message", "endpoint": f"{self.url}/message", **json_payload})
        mail = await self.subscribe({"type": "email", "endpoint": "mailto:ward@example.org", **json_payload})
        socket = await self.subscribe({"type": "websocket", **json_payload})
        bare = await self.subscribe({"type": "websocket"})
        caller = await self.call()
        for id in (socket, bare):
            caller.sendMessage(f"bind {id}".encode())
            self.assertEqual(await caller.received.get(), f"bound {id}")
        stored = await self.patient("p1")
        ((method, path, headers, body),) = await self.eventually(lambda: self.hook.at("/put"), 1)
        self.assertEqual((method, path, json.loads(body)), ("PUT", "/put/Patient/p1", stored))
        self.assertEqual(headers["authorization"], "Bearer s3cret")
        self.assertEqual(headers["content-type"], "application/fhir+json; charset=UTF-8")
        ((method, path, headers, body),) = await self.eventually(lambda: self.hook.at("/post"), 1)
        self.assertEqual((method, path, headers["content-length"], body), ("POST", "/post", "0", b""))
        ((method, path, _, body),) = await self.eventually(lambda: self.hook.at("/message"), 1)
        bundle = json.loads(body)
        self.assertEqual((method, path, bundle["type"]), ("POST", "/message", "message"))
        self.assertEqual(bundle["entry"][1]["resource"], stored)
        (received,) = await self.eventually(lambda: self.box.mails, 1)
        (attached,) = received.iter_attachments()
        self.assertEqual(json.loads(attached.get_payload(decode=True)), stored)
        received = [await caller.received.get() for _ in range(3)]
        self.assertEqual(
            sorted(text for text in received if text.startswith("ping")), sorted([f"ping {socket}", f"ping {bare}"])
        )
        content = received[received.index(f"ping {socket}") + 1]
        self.assertEqual(json.loads(content), stored)

        async def settled() -> bool:
            self.items = (await self.ask("GET", "/admin/subscriptions/health"))["items"]
            return all(item["delivery_success_count"] == 1 for item in self.items)

        await self.until(settled)
        channels = {item["id"].partition("/")[2]: item["channel_type"] for item in self.items}
        self.assertEqual((channels[message], channels[mail], channels[bare]), ("message", "email", "websocket"))
        self.assertEqual({item["last_attempt_outcome"] for item in self.items}, {"success"})
        page = await self.ask("GET", f"/admin/subscriptions/{put}/history")
        (attempt,) = page["items"]
        self.assertEqual((attempt["http_status"], attempt["outcome"], attempt["event_number"]), (200, "success", 1))

    async def topics(self) -> None:
        """A handshake decides; batches; heartbeats; a token binds a websocket; a dead hook ends in error."""
        await self.topic()
        guide = {"payload": "application/fhir+json", "_payload": level("id-only")}
        extra = {"extension": [{"url": HEARTBEAT, "valueUnsignedInt": 1}, {"url": MAX_COUNT, "valuePositiveInt": 10}]}
        hooked = await self.subscribe({"type": "rest-hook", "endpoint": f"{self.url}/topic", **guide, **extra}, TOPIC)
        self.assertEqual(self.status, "active")
        self.assertEqual([kind_of(one[3]) for one in self.hook.at("/topic")], ["handshake"])
        self.hook.status = 500
        refused = await self.subscribe({"type": "rest-hook", "endpoint": f"{self.url}/broken", **guide}, TOPIC)
        self.assertEqual(self.status, "error")
        socket = await self.subscribe({"type": "websocket", **guide}, TOPIC)
        bound = await self.ask("GET", f"/fhir/Subscription/{socket}/$get-ws-binding-token")
        values = {one["name"]: one for one in bound["parameter"]}
        self.assertTrue(values["websocket-url"]["valueUrl"].endswith("/websocket"), values)
        caller = await self.call()
        caller.sendMessage(f"bind-with-token {values['token']['valueString']}".encode())
        self.assertEqual(kind_of((await caller.received.get()).encode()), "handshake")
        await self.patient("p2")
        self.assertEqual(kind_of((await caller.received.get()).encode()), "event-notification")

        def kinds() -> list[str]:
            return [kind_of(one[3]) for one in self.hook.at("/topic")]

        await self.eventually(lambda: [kind for kind in kinds() if kind == "heartbeat"], 1)
        self.assertEqual(kinds().count("event-notification"), 1)

        async def written() -> bool:
            history = await self.ask("GET", f"/admin/subscriptions/{hooked}/history")
            return {one["kind"] for one in history["items"]} == {"handshake", "event-notification", "heartbeat"}

        await self.until(written)  # the far end has a notification before the ledger has
        history = await self.ask("GET", f"/admin/subscriptions/{refused}/history")
        self.assertEqual((history["items"][0]["kind"], history["items"][0]["http_status"]), ("handshake", 500))

    async def a_dead_hook(self) -> None:
        """Since when and why is said; events go on being numbered; a PUT with `requested` serves them all, in order."""
        self.hook.status = 503
        id = await self.subscribe(
            {"type": "rest-hook", "endpoint": f"{self.url}/broken", "payload": "application/fhir+json"}
        )
        await self.patient("a")

        async def failed() -> bool:
            self.found = await self.ask("GET", f"/admin/subscriptions/{id}/resource")
            return bool(self.found["status"] == "error")

        await self.until(failed)
        self.assertRegex(
            self.found["error"], r"a notification failed 3 times since 20..-..-..T..:..:..Z: HTTP status 503"
        )
        await self.patient("b")
        self.hook.status = 200
        self.hook.requests.clear()
        await self.ask("PUT", f"/fhir/Subscription/{id}", {**self.found, "status": "requested"})
        sent = await self.eventually(lambda: self.hook.at("/broken"), 2)
        self.assertEqual([one[1] for one in sent], ["/broken/Patient/a", "/broken/Patient/b"])

    async def mail_without_a_server(self) -> None:
        """Accepted with 201; then `error` says why."""
        await deferToThread(self.service.stop)
        del self.service.environment["IPF_SMTP_URL"]
        self.service.start()
        await self.until(lambda: deferToThread(self.service.ready), 60)
        id = await self.subscribe({"type": "email", "endpoint": "mailto:ward@example.org"})
        found = await self.ask("GET", f"/fhir/Subscription/{id}")
        self.assertIn("IPF_SMTP_URL", found["error"])
        client = HTTPClient(Agent(reactor))
        metrics = await (await client.get(f"{self.service.base_url}/actuator/prometheus")).text()
        self.assertIn("fhir_subscription_active", metrics)
        await deferLater(reactor, 0.01)


def level(code: str) -> dict[str, Any]:
    """The extension of the guide's content level."""
    return {"extension": [{"url": CONTENT, "valueCode": code}]}


def kind_of(body: bytes) -> str:
    """The type of a notification Bundle of the guide's R4 form."""
    parameters = json.loads(body)["entry"][0]["resource"]["parameter"]
    return next(str(one["valueCode"]) for one in parameters if one["name"] == "type")
