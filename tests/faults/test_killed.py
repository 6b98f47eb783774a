"""kill -9 of the service at random moments under load: what was acknowledged is delivered, exactly once in effect."""

from __future__ import annotations

import random
import signal

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import Scenario

GROUP = "kills"

KILLS = 6


class KilledTests(TestCase):
    timeout = LIMIT

    def test_kills(self) -> None:
        """A converter process does the work, as in most installations."""
        run(self._kills(KILLS, IPF_WORKER_PROCESSES="1"))

    def test_kills_in_one_process(self) -> None:
        """The main process converts."""
        run(self._kills(3, IPF_WORKER_PROCESSES="0"))

    def test_a_converter_process_is_killed(self) -> None:
        """Its rows are taken up again at once, by the process that replaces it."""
        run(self._kill_converters(4))

    def test_a_converter_process_is_asked_to_end(self) -> None:
        """SIGTERM, or Ctrl-C for all processes: what it has in hand is finished, and no message has lost an attempt."""
        run(self._ask_converters())

    async def _ask_converters(self) -> None:
        # Rows are held for long: what a slow machine holds up is not taken for lost, which would be an attempt.
        async with Scenario(IPF_WORKER_PROCESSES="1", IPF_WORKER_TRANSFORMING_STALE_SECONDS="600") as scenario:
            scenario.feed.start()
            for number in (signal.SIGTERM, signal.SIGINT):
                await scenario.feed.more(60)
                scenario.service.kill_converter(number)
            await self._end(scenario)
            self.assertEqual(scenario.sql("ipf", "SELECT max(attempt_count) FROM ingested_messages"), [["0"]])

    async def _kills(self, count: int, **environment: str) -> None:
        chance = random.Random(count)
        async with Scenario(**environment) as scenario:
            scenario.feed.start()
            for _ in range(count):
                await scenario.feed.more(chance.randint(1, 60))
                scenario.service.kill()
                scenario.service.start()
                await scenario.ready()
            await self._end(scenario)

    async def _kill_converters(self, count: int) -> None:
        chance = random.Random(7)
        async with Scenario(IPF_WORKER_PROCESSES="2") as scenario:
            scenario.feed.start()
            for _ in range(count):
                await scenario.feed.more(chance.randint(1, 60))
                scenario.service.kill_converter()
            await self._end(scenario)

    async def _end(self, scenario: Scenario) -> None:
        await scenario.feed.until(max(150, len(scenario.feed.accepted) + 50))
        await scenario.feed.stop()
        await scenario.settled()
        self.assertEqual(scenario.broken_promises(), [])
