"""kill -9 of the service while it sends 500 events to a broker, and of the broker meanwhile: nothing is lost, in order.

A consumer recognizes a repetition by subscription and event number.  JetStream drops those within its duplicate window,
so the stream has each event once.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.trial.unittest import TestCase

from tests.brokers.kafka_server import MISSING, KafkaServer, installed
from tests.brokers.nats_server import NatsServer
from tests.brokers.rabbitmq_server import RabbitServer
from tests.event_loop import LIMIT, run
from tests.faults.scenario import Scenario, scratch
from tests.waiting import until

GROUP = "brokers"

EVENTS = 500
PATIENTS = 7
KILLED_AT = (40, 140, 240, 340)
"""Messages at the broker when the service is killed."""
QUICK = {"IPF_WORKER_PROCESSES": "0", "SUBSCRIPTION_SERVICE_DELIVERY_TIMEOUT_MS": "3000"}
Action = Callable[[], Awaitable[None]]


async def subscribe(scenario: Scenario, endpoint: str) -> None:
    """Every change of an Observation goes to the endpoint."""
    made = {
        "resourceType": "Subscription", "status": "requested", "reason": "faults", "criteria": "Observation?",
        "channel": {"type": "message", "endpoint": endpoint, "payload": "application/fhir+json"},
    }  # fmt: skip
    status, created = await asyncio.to_thread(scenario.service.request, "POST", "/fhir/Subscription", made)
    assert status == 201, created

    def is_active() -> bool:
        return bool(scenario.service.get(f"/fhir/Subscription/{created['id']}")[1]["status"] == "active")

    await until(lambda: asyncio.to_thread(is_active), "the subscription is active")


async def write(scenario: Scenario) -> None:
    """500 Observations of seven patients, in one transaction, so that the whole backlog waits to be sent."""
    entries = [
        {
            "resource": {
                "resourceType": "Observation", "id": f"o{number}", "status": "final", "code": {"text": str(number)},
                "subject": {"reference": f"Patient/p{number % PATIENTS}"},
            },
            "request": {"method": "PUT", "url": f"Observation/o{number}"},
        }
        for number in range(EVENTS)
    ]  # fmt: skip
    bundle = {"resourceType": "Bundle", "type": "transaction", "entry": entries}
    status, answer = await asyncio.to_thread(scenario.service.request, "POST", "/fhir", bundle)
    assert status == 200, answer


async def kill_while_sending(scenario: Scenario, disturb: Action, count: Callable[[], Awaitable[int]]) -> None:
    """Kill the service several times while it sends; `disturb` the broker in between.  `count`: its messages."""
    for kill, threshold in enumerate(KILLED_AT):

        async def is_reached(wanted: int = threshold) -> bool:
            return await count() >= wanted

        await until(is_reached, f"{threshold} messages at the broker")
        scenario.service.kill()
        if kill == 1:
            await disturb()
        scenario.service.start()
        await scenario.ready()
    await scenario.settled()


def expected(scenario: Scenario) -> list[tuple[str, str]]:
    """(event number, patient) of every event, in order of number."""
    query = (
        "SELECT e.event_number, v.body::json #>> '{subject,reference}' FROM subscription_events e"
        " JOIN resource_versions v ON v.rid = e.resource_rid AND v.version_id = e.version_id"
        " JOIN resources r ON r.rid = e.resource_rid WHERE r.resource_type = 'Observation' ORDER BY 1"
    )
    return [(number, patient) for number, patient in scenario.sql("fhir", query)]


class NatsKillTests(TestCase):
    timeout = LIMIT

    def test_kills(self) -> None:
        run(self._kills())

    async def _kills(self) -> None:
        folder = scratch()
        server = NatsServer(folder / "nats")
        try:
            await server.start()
            await server.add_stream("FHIR", "fhir.>")
            async with Scenario(IPF_BROKERS=f"nats://127.0.0.1:{server.port}", **QUICK) as scenario:
                await subscribe(scenario, f"nats://127.0.0.1:{server.port}/fhir.observations")
                await write(scenario)

                async def restart() -> None:
                    server.kill()
                    await server.start()

                await kill_while_sending(scenario, restart, lambda: server.count("FHIR"))
                wanted = expected(scenario)
                self.assertEqual(len(wanted), EVENTS)
                stored = await server.stored("FHIR")
                found = [(one.headers["X-Ipf-Event-Number"], one.headers["X-Ipf-Key"]) for one in stored]
                self.assertEqual(found, wanted, "each once, in order of number")
                bodies = [json.loads(one.data)["subject"]["reference"] for one in stored]
                self.assertEqual(bodies, [patient for _, patient in wanted])
        finally:
            server.kill()
            shutil.rmtree(folder, True)


class AmqpKillTests(TestCase):
    timeout = LIMIT

    def test_kills(self) -> None:
        run(self._kills())

    async def _kills(self) -> None:
        folder = scratch()
        server, queue = RabbitServer(folder / "rabbitmq"), "fhir.observations"
        try:
            await server.start()
            await server.add_queue(queue)
            async with Scenario(IPF_BROKERS=f"amqp://guest:guest@127.0.0.1:{server.port}", **QUICK) as scenario:
                await subscribe(scenario, f"amqp://127.0.0.1:{server.port}/{queue}")
                await write(scenario)

                async def restart() -> None:
                    server.kill()
                    await server.start()

                await kill_while_sending(scenario, restart, lambda: server.count(queue))
                wanted = expected(scenario)
                self.assertEqual(len(wanted), EVENTS)
                headers = [properties.headers for properties, _ in await server.stored(queue)]
                found = dict.fromkeys((one["X-Ipf-Event-Number"], one["X-Ipf-Key"]) for one in headers)
                self.assertEqual(list(found), wanted, "in order of number, behind repetitions")
        finally:
            server.end()
            shutil.rmtree(folder, True)


class KafkaKillTests(TestCase):
    timeout = LIMIT
    if installed() is None:
        skip = MISSING

    def test_kills(self) -> None:
        run(self._kills())

    async def _kills(self) -> None:
        folder = scratch()
        server, topic = KafkaServer(folder / "kafka"), "fhir.observations"
        try:
            await server.start()
            await server.add_topic(topic, 3)
            async with Scenario(IPF_BROKERS=f"kafka://{server.servers}", **QUICK) as scenario:
                await subscribe(scenario, f"kafka://{server.servers}/{topic}")
                await write(scenario)

                async def restart() -> None:
                    server.kill()
                    await server.start()

                await kill_while_sending(scenario, restart, lambda: asyncio.to_thread(server.count, topic))
                wanted = expected(scenario)
                self.assertEqual(len(wanted), EVENTS)
                self._check(await asyncio.to_thread(server.stored, topic), wanted)
        finally:
            server.kill()
            shutil.rmtree(folder, True)

    def _check(self, stored: list[Any], wanted: list[tuple[str, str]]) -> None:
        """Every event of a patient, in order of number, behind repetitions of at most a batch."""
        found: dict[str, list[str]] = {}
        for one in stored:
            number = dict(one.headers())["X-Ipf-Event-Number"].decode()
            found.setdefault(one.key().decode(), []).append(number)
        for patient, numbers in found.items():
            in_order = [number for number, whose in wanted if whose == patient]
            self.assertEqual(list(dict.fromkeys(numbers)), in_order, patient)
        self.assertEqual(sum(len(set(numbers)) for numbers in found.values()), EVENTS)
