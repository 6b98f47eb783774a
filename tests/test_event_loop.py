"""A scenario that hangs, or swallows its cancellation, ends at its bound."""

from __future__ import annotations

import asyncio

from twisted.trial.unittest import TestCase

from tests.event_loop import run


class EventLoopTests(TestCase):
    def test_the_result(self) -> None:
        async def scenario() -> int:
            await asyncio.sleep(0)
            return 7

        self.assertEqual(run(scenario()), 7)

    def test_the_error(self) -> None:
        async def scenario() -> None:
            raise ValueError("broken")

        self.assertRaises(ValueError, run, scenario())

    def test_a_scenario_that_hangs_names_its_place(self) -> None:
        async def scenario() -> None:
            await asyncio.Event().wait()

        self.assertIn("still waits at", str(self.assertRaises(TimeoutError, run, scenario(), 0.01)))

    def test_tasks_that_are_left_are_cancelled(self) -> None:
        ended: list[str] = []

        async def other() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("other")

        async def scenario() -> None:
            self._task = asyncio.create_task(other())
            await asyncio.sleep(0)

        run(scenario())
        self.assertEqual(ended, ["other"])
