"""PostgreSQL hangs (SIGSTOP of all its processes) under load: answers instead of waits, and it goes on by itself."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from twisted.trial.unittest import TestCase

from tests import processes
from tests.event_loop import run
from tests.faults.scenario import Scenario
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE

GROUP = "kills"

PATHS = ("/fhir/Patient?_count=1", "/fhir/Patient/none", "/admin/messages", "/admin/subscriptions/health")
AFTER_DOWN_SECONDS = 3.0


class HungStoreTests(TestCase):
    """The embedded server, so that the supervisor sees one that runs."""

    def test_reads_and_senders_are_answered(self) -> None:
        """503 within three seconds of DOWN, those that had begun included; AE; nothing acknowledged is lost."""
        run(self._hang(2))

    def test_stop(self) -> None:
        """SIGTERM ends the service while its store hangs."""
        run(self._stop())

    async def _hang(self, times: int) -> None:
        async with Scenario(IPF_WORKER_PROCESSES="1") as scenario:
            scenario.feed.start()
            await scenario.feed.until(100)
            for _ in range(times):
                refused, lost = scenario.feed.codes["AE"], scenario.feed.codes["lost"]
                stopped = processes.suspend(postmaster(scenario))
                try:
                    await self._answers(scenario.service)
                    async with asyncio.timeout(PATIENCE):
                        while scenario.feed.codes["AE"] <= refused:
                            await asyncio.sleep(0.05)
                finally:
                    processes.resume(stopped)
                self.assertEqual(scenario.feed.codes["lost"], lost)
                await scenario.feed.until(len(scenario.feed.accepted) + 100)
            await scenario.feed.stop()
            await scenario.settled()
            self.assertEqual(scenario.broken_promises(), [])
            self.assertIsNone(scenario.service.ended())
            log = scenario.service.log_path.read_text()
            for event in ("store_hung", "store_back"):
                self.assertIn(event, log)

    async def _answers(self, service: ServiceProcess) -> None:
        """Reads begun at once and again and again: each is answered 503 within the bound after the first DOWN."""
        stalls = Stalls()
        begun = [asyncio.create_task(timed(service, path)) for path in PATHS]
        async with asyncio.timeout(PATIENCE):
            while (await asyncio.to_thread(service.get, "/actuator/health"))[0] != 503:
                await asyncio.sleep(0.05)
            down = time.monotonic()
            begun += [asyncio.create_task(timed(service, path)) for path in PATHS]
            answers = await asyncio.gather(*begun)
            late = [asyncio.create_task(timed(service, path)) for path in PATHS]
            answers += await asyncio.gather(*late)
        bound = AFTER_DOWN_SECONDS + stalls.end()
        for path, status, body, ended in answers:
            self.assertEqual(status, 503, path)
            self.assertLess(ended - down, bound, path)
            if path.startswith("/fhir"):
                self.assertEqual(body["resourceType"], "OperationOutcome")
            else:
                self.assertEqual(set(body), {"error", "message"})

    async def _stop(self) -> None:
        async with Scenario(IPF_WORKER_PROCESSES="1", IPF_STOP_SECONDS="2") as scenario:
            scenario.feed.start()
            await scenario.feed.until(20)
            stopped = processes.suspend(postmaster(scenario))
            try:
                self.assertEqual(await asyncio.to_thread(scenario.service.stop), 0)
            finally:
                processes.resume(stopped)
                scenario.feed.abandon()


class Stalls:
    """How much longer this process slept than it meant to: what a busy machine adds to every time that is measured."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._task = asyncio.create_task(self._sleep())

    def end(self) -> float:
        """Seconds in all."""
        self._task.cancel()
        return self._seconds

    async def _sleep(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.02)
            self._seconds += time.monotonic() - before - 0.02


async def timed(service: ServiceProcess, path: str) -> tuple[str, int, Any, float]:
    """A GET: path, status, body, and when it ended."""
    status, body = await asyncio.to_thread(service.get, path)
    return path, status, body, time.monotonic()


def postmaster(scenario: Scenario) -> int:
    """The process id of its PostgreSQL."""
    return int((scenario.postgres / "postmaster.pid").read_text().split()[0])
