"""Two services on the same two databases take disjoint work, and each wakes the other."""

from __future__ import annotations

import asyncio
import json
import shutil

from twisted.trial.unittest import TestCase

from tests.bench.flow import subscribe
from tests.bench.notify import activated
from tests.bench.websocket import Client, register_websocket
from tests.event_loop import run
from tests.faults.feed import Feed
from tests.faults.scenario import Scenario
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE


class ReplicaTests(TestCase):
    def test_disjoint_work(self) -> None:
        """Both receive and convert; one of them is killed in the middle; what it held goes on in the other."""
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
        other = Feed(second.mllp_port, senders=4, first_sender=50, patients_each=500, pause=0)
        scenario.feed.start()
        other.start()
        async with asyncio.timeout(PATIENCE):  # its converter may still be loading maps
            while not all(b"event=delivered" in one.log_path.read_bytes() for one in (scenario.service, second)):
                await asyncio.sleep(0.1)
        await other.stop()
        second.kill()
        await scenario.feed.until(len(scenario.feed.accepted) + 50)
        await scenario.feed.stop()
        scenario.feed.accepted.update(other.accepted)
        scenario.feed.sent.update(other.sent)
        await scenario.settled()
        self.assertEqual(scenario.broken_promises(), [])

    def test_receive_only_beside_a_worker(self) -> None:
        """IPF_WORKER_ENABLED=false: what one takes the other converts, rung for within milliseconds, not polled."""
        run(self._receive_only())

    async def _receive_only(self) -> None:
        async with Scenario(IPF_WORKER_POLL_MS="60000") as scenario:
            door = _replica_of(scenario, IPF_WORKER_ENABLED="false")
            door.start()
            try:
                await _ready(door)
                await subscribe(door, await scenario.sink.start(), "Patient?identifier=nobody")
                rung = False
                for number in range(3):
                    rung = rung or await self._rung_for(scenario, door, number)
                self.assertTrue(rung)
            finally:
                door.stop()
                shutil.rmtree(door.folder, ignore_errors=True)

    async def _rung_for(self, scenario: Scenario, door: ServiceProcess, number: int) -> bool:
        """Whether messages were told of long before the next poll: a ring may be lost, and costs one poll then."""
        feed = Feed(door.mllp_port, senders=1, first_sender=70 + number)
        feed.start()
        told = len(scenario.sink.times)
        await feed.until(5)
        await feed.stop()
        if await scenario.sink.until(told + len(feed.accepted), 20):
            return True
        await scenario.settled(2 * PATIENCE)
        return False

    def test_a_websocket_at_one_hears_of_what_is_written_at_the_other(self) -> None:
        """Clients at both, writes at both: each hears of each at once, rung for, not polled, and once."""
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
                    client.say(f"bind {id}")
                    self.assertEqual(await client.hear(), f"bound {id}")
                for number, writer in enumerate((scenario.service, second, scenario.service, second)):
                    patient = {"resourceType": "Patient", "id": f"w{number}"}
                    status, stored = await asyncio.to_thread(writer.request, "PUT", f"/fhir/Patient/w{number}", patient)
                    self.assertEqual(status, 201, stored)
                    for client in clients:
                        ping, content = [await asyncio.wait_for(client.hear(), PATIENCE) for _ in range(2)]
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
    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(service.ready):
            await asyncio.sleep(0.05)
