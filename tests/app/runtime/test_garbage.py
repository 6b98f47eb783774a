"""When the main process collects garbage, and what it leaves out."""

from __future__ import annotations

import gc
from contextlib import AsyncExitStack

from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.app.runtime.garbage import SECONDS, FullCollections, collect_in_small_steps
from ipf.ports.threads import NEVER, is_large_work_running, without_full_collections


class FullCollectionTests(TestCase):
    async def done(self, waiting: int, is_busy: bool, takes: float) -> list[str]:
        clock, done = Clock(), []

        def collect() -> None:
            done.append("collect")
            clock.advance(takes)

        full = FullCollections(lambda: waiting, lambda: is_busy, collect, lambda: done.append("freeze"), clock.seconds)
        await full.check()
        return done

    async def test_when_it_collects_and_what_it_leaves_out_afterwards(self) -> None:
        for waiting, is_busy, takes, expected in [
            (9, False, 1, []),
            (10, False, 0.001, ["collect"]),
            (10, False, 0.02, ["collect", "freeze"]),
            (10, True, 1, []),
            (999, True, 1, []),
            (1000, True, 0.001, ["collect"]),
        ]:
            self.assertEqual(await self.done(waiting, is_busy, takes), expected, (waiting, is_busy, takes))


class ThresholdTests(TestCase):
    def setUp(self) -> None:
        self.addCleanup(gc.set_threshold, *gc.get_threshold())
        self.addCleanup(gc.unfreeze)

    async def test_the_main_process_collects_a_thousand_objects_at_a_time(self) -> None:
        """Collections on their own look at 11,000 objects at most; a full one comes from a timer."""
        clock = Clock()
        async with AsyncExitStack() as stack:
            collect_in_small_steps(clock, stack)
            new, old, full = gc.get_threshold()
            self.assertLessEqual(new * (old + 1), 11_000)
            self.assertEqual(full, NEVER)
            self.assertEqual([one.getTime() for one in clock.getDelayedCalls()], [SECONDS])
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_large_work_leaves_collections_of_new_objects(self) -> None:
        gc.set_threshold(700, 10, 11)
        self.assertFalse(is_large_work_running())
        with without_full_collections():
            with without_full_collections():
                self.assertEqual(gc.get_threshold(), (700, 10, NEVER))
            self.assertTrue(is_large_work_running())
            self.assertEqual(gc.get_threshold(), (700, 10, NEVER))
        self.assertEqual(gc.get_threshold(), (700, 10, 11))
        self.assertFalse(is_large_work_running())
        self.assertTrue(gc.isenabled())
