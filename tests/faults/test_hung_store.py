"""PostgreSQL hangs (SIGSTOP of all its processes) under load: answers instead of waits, and it goes on by itself."""

from __future__ import annotations

import asyncio
from typing import Any

from twisted.trial.unittest import TestCase

from tests import processes
from tests.event_loop import LIMIT, run
from tests.faults.scenario import Scenario
from tests.service_process import ServiceProcess
from tests.waiting import until

GROUP = "kills"

PATHS = ("/fhir/Patient?_count=1", "/fhir/Patient/none", "/admin/messages", "/admin/subscriptions/health")
HEALTH_ANSWERS = 300
"""A read is answered before so many requests for the health, one after the other: three seconds on a quiet machine."""


class HungStoreTests(TestCase):
    """The embedded server, so that the supervisor sees one that runs."""

    timeout = LIMIT

    def test_reads_and_senders_are_answered(self) -> None:
        """503 soon after DOWN, those that had begun included; AE; nothing acknowledged is lost."""
        run(self._hang(2))

    def test_stop(self) -> None:
        """SIGTERM ends the service while its store hangs."""
        run(self._stop())

    async def _hang(self, times: int) -> None:
        async with Scenario(IPF_WORKER_PROCESSES="1") as scenario:
            scenario.feed.start()
            await scenario.feed.until(50)
            for _ in range(times):
                lost = scenario.feed.codes["lost"]
                stopped = processes.suspend(postmaster(scenario))
                try:
                    await self._answers(scenario)
                    await scenario.feed.refused()
                finally:
                    processes.resume(stopped)
                self.assertEqual(scenario.feed.codes["lost"], lost)
                await scenario.feed.more(50)
            await scenario.feed.stop()
            await scenario.settled()
            self.assertEqual(scenario.broken_promises(), [])
            self.assertIsNone(scenario.service.ended())
            log = scenario.service.log_path.read_text()
            for event in ("store_hung", "store_back"):
                self.assertIn(event, log)

    async def _answers(self, scenario: Scenario) -> None:
        """Reads begun at once, at DOWN and after it: each is answered 503, soon, while the store hangs."""
        service = scenario.service
        begun = [asyncio.create_task(read(service, path)) for path in PATHS]
        await until(lambda: asyncio.to_thread(scenario.is_down), "the health is DOWN")
        for _ in range(2):
            begun += [asyncio.create_task(read(service, path)) for path in PATHS]
            await self._soon(scenario, begun)
        for path, status, body in [one.result() for one in begun]:
            self.assertEqual(status, 503, path)
            if path.startswith("/fhir"):
                self.assertEqual(body["resourceType"], "OperationOutcome")
            else:
                self.assertEqual(set(body), {"error", "message"})

    async def _soon(self, scenario: Scenario, begun: list[asyncio.Task[Any]]) -> None:
        """All have ended before so many answers that need no store."""
        count = 0

        async def ended() -> bool:
            nonlocal count
            count += 1
            self.assertTrue(await asyncio.to_thread(scenario.is_down))
            self.assertLess(count, HEALTH_ANSWERS)
            return all(one.done() for one in begun)

        await until(ended, "reads are answered")

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


async def read(service: ServiceProcess, path: str) -> tuple[str, int, Any]:
    """A GET: path, status and body."""
    status, body = await asyncio.to_thread(service.get, path)
    return path, status, body


def postmaster(scenario: Scenario) -> int:
    """The process id of its PostgreSQL."""
    return int((scenario.postgres / "postmaster.pid").read_text().split()[0])
