"""Two services on the same two databases claim disjoint work and notify each other."""

from __future__ import annotations

import asyncio
import json
import shutil

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.feed import Feed
from tests.faults.scenario import Scenario
from tests.service_process import ServiceProcess
from tests.traffic.subscribers import Client, activated, register_websocket, subscribe
from tests.waiting import PATIENCE, until

GROUP = "flows"


class ReplicaTests(TestCase):
    timeout = LIMIT  # several services, one after the other

    def test_disjoint_work(self) -> None:
        """Both receive and convert; one is killed, and the other continues its messages."""
        run(self._replicas())

    async def _replicas(self) -> None:
        async with Scenario() as scenario:
            second = _replica_of(scenario)
            second.start()
            try:
                await _ready(second)
                await self._feed_both(scenario, second)
            finally:
                second.stop()
                shutil.rmtree(second.folder, ignore_errors=True)

    async def _feed_both(self, scenario: Scenario, second: ServiceProcess) -> None:
        other = Feed(second.mllp_port, senders=4, first_sender=50, patients_each=500)
        scenario.feed.start()
        other.start()
        await until(lambda: all(b"event=delivered" in one.log_path.read_bytes() for one in (scenario.service, second)))
        await other.stop()
        second.kill()
        await scenario.feed.until(len(scenario.feed.accepted) + 50)
        await scenario.feed.stop()
        scenario.feed.accepted.update(other.accepted)
        scenario.feed.sent.update(other.sent)
        await scenario.settled()
        self.assertEqual(scenario.broken_promises(), [])

    def test_receive_only_next_to_a_worker(self) -> None:
        """IPF_WORKER_ENABLED=false: one receives, the other converts, notified within milliseconds, not by polling."""
        run(self._receive_only())

    async def _receive_only(self) -> None:
        async with Scenario(IPF_WORKER_POLL_MS="60000") as scenario:
            receiver = _replica_of(scenario, IPF_WORKER_ENABLED="false")
            receiver.start()
            try:
                await _ready(receiver)
                await subscribe(receiver, await scenario.sink.start(), "Patient?identifier=nobody")
                notified = False
                for number in range(3):
                    notified = notified or await self._notified(scenario, receiver, number)
                self.assertTrue(notified)
            finally:
                receiver.stop()
                shutil.rmtree(receiver.folder, ignore_errors=True)

    async def _notified(self, scenario: Scenario, receiver: ServiceProcess, number: int) -> bool:
        """Whether a notification arrived long before the next poll; a lost one is made up for by the poll."""
        feed = Feed(receiver.mllp_port, senders=1, first_sender=70 + number)
        feed.start()
        received = len(scenario.sink.times)
        await feed.until(5)
        await feed.stop()
        if await scenario.sink.until(received + len(feed.accepted), 20):
            return True
        await scenario.settled(2 * PATIENCE)
        return False

    def test_websockets_get_events_written_by_the_other_replica(self) -> None:
        """Clients at both, writes at both: each gets every event once, by notification, not by polling."""
        run(self._websockets())

    async def _websockets(self) -> None:
        async with Scenario(IPF_WORKER_PROCESSES="0", IPF_WORKER_POLL_MS="3600000") as scenario:
            second = _replica_of(scenario)
            second.start()
            try:
                await _ready(second)
                id = register_websocket(scenario.service)
                await activated(second, [id])
                clients = [await Client.connect(one.http_port) for one in (scenario.service, second)]
                for client in clients:
                    client.send(f"bind {id}")
                    self.assertEqual(await client.receive(), f"bound {id}")
                for number, writer in enumerate((scenario.service, second, scenario.service, second)):
                    patient = {"resourceType": "Patient", "id": f"w{number}"}
                    status, stored = await asyncio.to_thread(writer.request, "PUT", f"/fhir/Patient/w{number}", patient)
                    self.assertEqual(status, 201, stored)
                    for client in clients:
                        ping, content = [await asyncio.wait_for(client.receive(), PATIENCE) for _ in range(2)]
                        self.assertEqual((ping, json.loads(content)), (f"ping {id}", stored))
                for client in clients:
                    client.close()
            finally:
                second.stop()
                shutil.rmtree(second.folder, ignore_errors=True)


def _replica_of(scenario: Scenario, **environment: str) -> ServiceProcess:
    """Another service on the databases of the first."""
    url = f"host={scenario.postgres} port=5432 user=ipf dbname="
    chosen = scenario.chosen | {"IPF_DB_URL": url + "ipf", "IPF_FHIR_DB_URL": url + "fhir"} | environment
    return ServiceProcess(scenario.folder / "second", **chosen)


async def _ready(service: ServiceProcess) -> None:
    await until(lambda: asyncio.to_thread(service.ready))
