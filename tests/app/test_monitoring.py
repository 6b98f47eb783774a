"""How often the service looks at itself."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.app.monitoring import DutyCycle


class SeldomTests(TestCase):
    """Rounds come every two seconds and take some time each."""

    async def rounds(self, takes: float, count: int) -> list[float]:
        """When the rounds began that were let through."""
        clock, began = Clock(), []
        seldom = DutyCycle(clock.seconds, 0.0025, 20.0)

        async def work() -> None:
            began.append(clock.seconds())
            clock.advance(takes)

        for number in range(count):
            clock.advance(max(0.0, 2.0 * number - clock.seconds()))
            await seldom.run(work)
        return began

    async def test_quick_rounds_all_pass(self) -> None:
        self.assertEqual(await self.rounds(0.004, 4), [0, 2, 4, 6])

    async def test_a_slow_one_makes_room(self) -> None:
        self.assertEqual(await self.rounds(0.012, 8), [0, 6, 12])

    async def test_never_longer_than_the_bound(self) -> None:
        self.assertEqual(await self.rounds(1.0, 24), [0, 22, 44])

    async def test_a_failure_counts_as_a_round(self) -> None:
        clock = Clock()
        seldom = DutyCycle(clock.seconds, 0.01, 20.0)
        calls = []

        async def work() -> None:
            calls.append(clock.seconds())
            clock.advance(0.1)
            raise ValueError

        for _ in range(3):
            try:
                await seldom.run(work)
            except ValueError:
                clock.advance(4)
        self.assertEqual(calls, [0])
