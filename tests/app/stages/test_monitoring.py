"""How often the queue is measured, and which senders count as silent."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.app.runtime.process import now
from ipf.app.stages.monitoring import DutyCycle, silent_senders
from ipf.ports.messages.statistics import Sender, SendersNow


class DutyCycleTests(TestCase):
    """Rounds are due every two seconds, and each takes some time."""

    async def rounds(self, takes: float, count: int) -> list[float]:
        """When the rounds that ran began."""
        clock, began = Clock(), []
        duty_cycle = DutyCycle(clock.seconds, 0.0025, 20.0)

        async def work() -> None:
            began.append(clock.seconds())
            clock.advance(takes)

        for number in range(count):
            clock.advance(max(0.0, 2.0 * number - clock.seconds()))
            await duty_cycle.run(work)
        return began

    async def test_short_rounds_all_run(self) -> None:
        self.assertEqual(await self.rounds(0.004, 4), [0, 2, 4, 6])

    async def test_a_long_round_delays_the_next(self) -> None:
        self.assertEqual(await self.rounds(0.012, 8), [0, 6, 12])

    async def test_the_longest_delay(self) -> None:
        self.assertEqual(await self.rounds(1.0, 24), [0, 22, 44])

    async def test_a_failure_counts_as_a_round(self) -> None:
        clock = Clock()
        duty_cycle = DutyCycle(clock.seconds, 0.01, 20.0)
        calls = []

        async def work() -> None:
            calls.append(clock.seconds())
            clock.advance(0.1)
            raise ValueError

        for _ in range(3):
            try:
                await duty_cycle.run(work)
            except ValueError:
                clock.advance(4)
        self.assertEqual(calls, [0])


class Senders:
    """Statistics of two senders: one was heard a minute ago, one an hour ago."""

    async def senders(self, at: datetime) -> SendersNow:
        heard = {"LAB": timedelta(minutes=1), "RIS": timedelta(hours=1)}
        return SendersNow([Sender("default", name, None, at, now() - ago) for name, ago in heard.items()])


class SilentSendersTests(TestCase):
    async def test_senders_that_are_silent_for_longer_than_expected(self) -> None:
        statistics: Any = Senders()
        for expected, count in [({}, 0), ({"LAB": 120, "RIS": 120}, 1), ({"*": 30}, 2), ({"RIS": 7200}, 0)]:
            self.assertEqual(await silent_senders(statistics, expected), count)
