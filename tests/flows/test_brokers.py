"""Subscriptions to message brokers through the whole service, with real brokers: NATS and, where installed, Kafka."""

from __future__ import annotations

import asyncio
import hmac
import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from twisted.trial.unittest import TestCase

from tests.brokers.kafka_server import MISSING, KafkaServer, installed
from tests.brokers.nats_server import NatsServer, Stored
from tests.event_loop import LIMIT, run
from tests.faults.scenario import scratch
from tests.service_process import ServiceProcess
from tests.traffic.sink import Sink
from tests.waiting import until

GROUP = "brokers"
CONTENT = "http://hl7.org/fhir/uv/subscriptions-backport/StructureDefinition/backport-payload-content"
TOPIC = "http://example.org/topics/observation-changes"
SECRET = "0123456789abcdef"
FULL = {"payload": "application/fhir+json", "_payload": {"extension": [{"url": CONTENT, "valueCode": "full-resource"}]}}
QUICK = {
    "SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_BASE_MS": "50",
    "SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_MAX_MS": "200",
    "SUBSCRIPTION_SERVICE_DELIVERY_MAX_ATTEMPTS": "4",
    "SUBSCRIPTION_SERVICE_DELIVERY_TIMEOUT_MS": "3000",
}


class Flow:
    """`async with Flow(brokers)`: a service that knows these brokers, and a topic of changes of Observations."""

    def __init__(self, brokers: str, **environment: str) -> None:
        self.folder = scratch()
        self.service = ServiceProcess(
            self.folder / "service", IPF_WORKER_PROCESSES="0", IPF_BROKERS=brokers, **(QUICK | environment)
        )

    async def __aenter__(self) -> Flow:
        self.service.start()
        await self.until(self.service.ready)
        trigger = {"resource": "Observation", "supportedInteraction": ["create", "update", "delete"]}
        topic = {"resourceType": "SubscriptionTopic", "url": TOPIC, "status": "active", "resourceTrigger": [trigger]}
        await self.ask("POST", "/fhir/SubscriptionTopic", topic)
        return self

    async def __aexit__(self, *exc: object) -> None:
        status = await asyncio.to_thread(self.service.stop)
        shutil.rmtree(self.folder, True)
        assert status == 0 or exc[0], f"it ended with {status}"

    async def until(self, holds: Callable[[], Any]) -> Any:
        """Wait until `holds`, which may block, says something true; what it said."""
        return await until(lambda: asyncio.to_thread(holds))

    async def ask(self, method: str, path: str, body: object = None, expected: int | None = None) -> Any:
        status, answer = await asyncio.to_thread(self.service.request, method, path, body)
        assert status == expected if expected else status < 300, (status, answer)
        return answer

    async def subscribe(
        self, endpoint: str, criteria: str = "Observation?", kind: str = "message", **channel: Any
    ) -> tuple[str, str, str]:
        """Register, and wait for the first status after `requested`: id, status, error."""
        made = {
            "resourceType": "Subscription", "status": "requested", "reason": "test", "criteria": criteria,
            "channel": {"type": kind, "endpoint": endpoint, **channel},
        }  # fmt: skip
        id = (await self.ask("POST", "/fhir/Subscription", made))["id"]
        found = await self.until(lambda: self._decided(id))
        return id, found["status"], found.get("error", "")

    def _decided(self, id: str) -> Any:
        found = self.service.get(f"/fhir/Subscription/{id}")[1]
        return found if found["status"] != "requested" else None

    async def observe(self, id: str, patient: str = "p1") -> Any:
        """Write an Observation of a patient."""
        made = {
            "resourceType": "Observation", "id": id, "status": "final", "code": {"text": "x"},
            "subject": {"reference": f"Patient/{patient}"},
        }  # fmt: skip
        return await self.ask("PUT", f"/fhir/Observation/{id}", made)

    async def health(self, id: str) -> Any:
        """The subscription's item of the admin API."""
        found = await self.ask("GET", "/admin/subscriptions/health")
        return next(one for one in found["items"] if one["id"] == f"Subscription/{id}")


async def in_stream(server: NatsServer, count: int) -> list[Stored]:
    """The messages of the stream FHIR, when there are so many."""

    async def reached() -> bool:
        return bool(await server.count("FHIR") >= count)

    await until(reached)
    found = await server.stored("FHIR")
    assert len(found) == count, found
    return found


def numbers(stored: list[Stored], subject: str) -> list[str]:
    """The event numbers of a subject, in the order of the stream."""
    return [one.headers.get("X-Ipf-Event-Number", "") for one in stored if one.subject == subject]


class NatsFlowTests(TestCase):
    timeout = LIMIT  # the start of a broker and of the service, and the broker's failures

    def test_nats(self) -> None:
        """Handshake, events with key and signature, a deletion, $resend, the ledger."""
        run(self._nats())

    def test_refused_registrations(self) -> None:
        """With 422, and the rule."""
        run(self._refused())

    def test_a_dead_broker(self) -> None:
        """Others are served meanwhile; the budget ends in `error`; afterwards everything comes, in order."""
        run(self._dead())

    def test_a_broker_that_does_not_answer(self) -> None:
        """Twenty subscriptions wait for it, and a web hook gets each event at once."""
        run(self._silent())

    async def _nats(self) -> None:
        folder = scratch()
        server = NatsServer(folder / "nats")
        try:
            await server.start()
            await server.add_stream("FHIR", "fhir.>")
            async with Flow(f"nats://127.0.0.1:{server.port}/fhir.*") as flow:
                await self._use(flow, server)
        finally:
            server.kill()
            shutil.rmtree(folder, True)

    async def _use(self, flow: Flow, server: NatsServer) -> None:
        host = f"nats://127.0.0.1:{server.port}"
        header = [f"X-Ipf-Signing-Secret: {SECRET}", "X-Route: north"]
        topic, status, _ = await flow.subscribe(f"{host}/fhir.topic", TOPIC, header=header, **FULL)
        self.assertEqual(status, "active")
        (handshake,) = await in_stream(server, 1)
        self.assertEqual(handshake.headers["X-Ipf-Notification-Type"], "handshake")
        search, _, _ = await flow.subscribe(f"{host}/fhir.search", payload="application/fhir+json")
        empty, _, _ = await flow.subscribe(f"{host}/fhir.empty")
        stored = await flow.observe("o1")
        found = {one.subject: one for one in (await in_stream(server, 4))[1:]}
        self.assertEqual(json.loads(found["fhir.search"].data), stored)
        self.assertEqual(found["fhir.search"].headers["X-Ipf-Key"], "Patient/p1")
        self.assertEqual(found["fhir.empty"].data, b"")
        self.assertEqual(found["fhir.empty"].headers["X-Ipf-Key"], f"Subscription/{empty}")
        self._check_topic(found["fhir.topic"], topic)
        await flow.ask("DELETE", "/fhir/Observation/o1")
        deletion = (await in_stream(server, 5))[-1]
        self.assertEqual(deletion.headers["X-Ipf-Key"], "Patient/p1", "of the version before")
        await flow.ask("POST", f"/fhir/Subscription/{topic}/$resend?eventsSinceNumber=1")
        again = await in_stream(server, 7)
        self.assertEqual(numbers(again, "fhir.topic"), ["", "1", "2", "1", "2"], "no duplicates for the stream")
        await flow.until(lambda: flow.service.get("/admin/subscriptions/health")[1]["items"][0]["pending_count"] == 0)
        health = await flow.health(topic)
        self.assertEqual((health["channel_type"], health["endpoint"]), ("message", f"{host}/fhir.topic"))
        self.assertEqual((health["delivery_success_count"], health["delivery_failure_count"]), (5, 0))
        history = await flow.ask("GET", f"/admin/subscriptions/{search}/history")
        (attempt,) = history["items"]
        self.assertEqual((attempt["outcome"], attempt["http_status"], attempt["event_number"]), ("success", None, 1))

    def _check_topic(self, message: Stored, topic: str) -> None:
        bundle = json.loads(message.data)
        self.assertEqual((bundle["type"], bundle["entry"][1]["resource"]["id"]), ("history", "o1"))
        expected = {
            "X-Ipf-Subscription": f"Subscription/{topic}", "X-Ipf-Event-Number": "1", "X-Ipf-Topic": TOPIC,
            "X-Ipf-Notification-Type": "event-notification", "X-Ipf-Key": "Patient/p1", "X-Route": "north",
            "Content-Type": "application/fhir+json",
        }  # fmt: skip
        self.assertEqual({name: message.headers.get(name) for name in expected}, expected)
        time, _, signature = message.headers["X-Ipf-Signature"].removeprefix("t=").partition(",v1=")
        made = hmac.new(SECRET.encode(), f"{time}.".encode() + message.data, sha256).hexdigest()
        self.assertEqual(signature, made)
        self.assertNotIn("X-Ipf-Signing-Secret", message.headers)

    async def _refused(self) -> None:
        async with Flow("nats://ipf:hidden-word@127.0.0.1:1/fhir.*") as flow:
            for endpoint, header, rule in (
                ("nats://127.0.0.1:2/fhir.a", [], "this server knows no broker with these hosts"),
                ("kafka://127.0.0.1:1/fhir.a", [], "this server knows no broker with these hosts"),
                ("nats://ipf:x@127.0.0.1:1/fhir.a", [], "without credentials"),
                ("nats://127.0.0.1:1/other", [], "this server does not allow the subject other"),
                ("nats://127.0.0.1:1/fhir.>", [], "a subject has words"),
                ("nats://127.0.0.1:1/fhir.a", ["Authorization: Bearer x"], "whoever reads the topic would read it"),
            ):
                made = {
                    "resourceType": "Subscription", "status": "requested", "reason": "x", "criteria": "Patient?",
                    "channel": {"type": "message", "endpoint": endpoint} | ({"header": header} if header else {}),
                }  # fmt: skip
                refused = await flow.ask("POST", "/fhir/Subscription", made, 422)
                self.assertIn(rule, json.dumps(refused))
            id, status, error = await flow.subscribe("nats://127.0.0.1:1/fhir.a", TOPIC, **FULL)
            self.assertEqual(status, "error")
            self.assertRegex(error, r"the handshake failed \d+ times in \d+ s: NATS: not connected")
            self.assertNotIn(b"hidden-word", flow.service.log_path.read_bytes())
            self.assertNotIn("hidden-word", json.dumps(await flow.ask("GET", f"/fhir/Subscription/{id}")))

    async def _dead(self) -> None:
        folder = scratch()
        server = NatsServer(folder / "nats")
        sink = Sink()
        try:
            await server.start()
            await server.add_stream("FHIR", "fhir.>")
            async with Flow(f"nats://127.0.0.1:{server.port}") as flow:
                url = await sink.start()
                await flow.subscribe(url, kind="rest-hook", payload="application/fhir+json")
                json_payload = {"payload": "application/fhir+json"}
                id, _, _ = await flow.subscribe(f"nats://127.0.0.1:{server.port}/fhir.a", **json_payload)
                await flow.observe("o0")
                await in_stream(server, 1)
                server.kill()
                for number in range(1, 31):
                    await flow.observe(f"o{number}")
                await flow.until(lambda: len(sink.times) >= 31)
                await flow.until(lambda: flow.service.get(f"/fhir/Subscription/{id}")[1]["status"] == "error")
                failed = await flow.ask("GET", f"/fhir/Subscription/{id}")
                self.assertRegex(failed["error"], "a notification failed 4 times since .*: NATS: ")
                await server.start()
                failed["status"] = "requested"
                await flow.ask("PUT", f"/fhir/Subscription/{id}", failed)
                stored = await in_stream(server, 31)
                self.assertEqual(numbers(stored, "fhir.a"), [str(number) for number in range(1, 32)])
        finally:
            sink.close()
            server.kill()
            shutil.rmtree(folder, True)

    async def _silent(self) -> None:
        folder = scratch()
        server = NatsServer(folder / "nats")
        sink = Sink()
        try:
            await server.start()
            await server.add_stream("FHIR", "fhir.>")
            limits = {"SUBSCRIPTION_SERVICE_DELIVERY_TIMEOUT_MS": "20000"}
            async with Flow(f"nats://127.0.0.1:{server.port}", **limits) as flow:
                for number in range(20):
                    await flow.subscribe(f"nats://127.0.0.1:{server.port}/fhir.s{number}")
                await flow.subscribe(await sink.start(), kind="rest-hook", payload="application/fhir+json")
                await server.pause()
                for number in range(30):
                    await flow.observe(f"o{number}")
                    await flow.until(lambda expected=number + 1: len(sink.times) >= expected)
                waiting = (await flow.ask("GET", "/admin/subscriptions/health"))["items"]
                delivered = [one["delivery_success_count"] for one in waiting if one["channel_type"] == "message"]
                self.assertEqual(delivered, [0] * 20)
                server.go_on()
                stored = await in_stream(server, 600)
                for number in range(20):
                    found = numbers(stored, f"fhir.s{number}")
                    self.assertEqual(found, [str(event) for event in range(1, 31)], number)
        finally:
            sink.close()
            server.kill()
            shutil.rmtree(folder, True)


class KafkaFlowTests(TestCase):
    if installed() is None:
        skip = MISSING

    def test_kafka(self) -> None:
        """Handshake, events by patient, a topic that does not exist, a broker that is down and back."""
        run(self._kafka())

    async def _kafka(self) -> None:
        folder = scratch()
        server = KafkaServer(folder / "kafka")
        try:
            await server.start()
            await server.add_topic("fhir.a", 3)
            async with Flow(f"kafka://{server.servers}/fhir.*") as flow:
                await self._use(flow, server)
        finally:
            server.kill()
            shutil.rmtree(folder, True)

    async def _use(self, flow: Flow, server: KafkaServer) -> None:
        host = f"kafka://{server.servers}"
        _, status, error = await flow.subscribe(f"{host}/fhir.none", TOPIC, **FULL)
        self.assertEqual(status, "error")
        self.assertRegex(error, r"the handshake failed \d+ times in \d+ s: Kafka: ")
        id, status, _ = await flow.subscribe(f"{host}/fhir.a", TOPIC, **FULL)
        self.assertEqual(status, "active")
        for number in range(20):
            await flow.observe(f"o{number}", f"p{number % 4}")
        await self._settled(flow, id, 20)
        server.kill()
        for number in range(20, 40):
            await flow.observe(f"o{number}", f"p{number % 4}")
        await flow.until(lambda: flow.service.get(f"/fhir/Subscription/{id}")[1]["status"] == "error")
        await server.start()
        failed = await flow.ask("GET", f"/fhir/Subscription/{id}")
        # The last attempt ends by an error of librdkafka, or by the time limit with the last one of its connections.
        reason = "(Kafka|no acknowledgement within 3 s): .*(Connection refused|brokers are down)"
        self.assertRegex(failed["error"], reason)
        failed["status"] = "requested"
        await flow.ask("PUT", f"/fhir/Subscription/{id}", failed)
        await self._settled(flow, id, 40)
        by_patient: dict[str, list[int]] = {}
        for one in await asyncio.to_thread(server.stored, "fhir.a"):
            headers = {name: value.decode() for name, value in one.headers()}
            if headers["X-Ipf-Notification-Type"] == "event-notification":
                by_patient.setdefault(one.key().decode(), []).append(int(headers["X-Ipf-Event-Number"]))
        expected = {f"Patient/p{patient}": list(range(patient + 1, 41, 4)) for patient in range(4)}
        self.assertEqual({key: list(dict.fromkeys(found)) for key, found in by_patient.items()}, expected)

    async def _settled(self, flow: Flow, id: str, count: int) -> None:
        """Wait until so many events are acknowledged."""

        def is_settled() -> bool:
            items = flow.service.get("/admin/subscriptions/health")[1]["items"]
            one = next(item for item in items if item["id"] == f"Subscription/{id}")
            return bool(one["last_event_number"] == count and one["pending_count"] == 0)

        await flow.until(is_settled)
