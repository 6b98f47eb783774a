"""Free memory is returned when work is over: not while it runs, not again and again."""

from __future__ import annotations

import ctypes
import sys
from contextlib import AsyncExitStack

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from ipf.app.runtime import free_memory
from ipf.app.runtime.free_memory import FreeMemory, resident_mib, start_returning_memory
from ipf.ports.threads import run_inline


class FreeMemoryTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.resident = 90.0
        self.pinned = 0.0
        self.returns = 0
        self.memory = FreeMemory(lambda: self.resident, self.give_back, run_inline)

    def give_back(self) -> None:
        self.returns += 1
        self.resident = 90.0 + self.pinned

    def check(self, *sizes: float) -> int:
        """Memory has these sizes one after another; how often free memory was returned then."""
        before = self.returns
        for size in sizes:
            self.resident = size
            self.successResultOf(Deferred.fromCoroutine(self.memory.check()))
        return self.returns - before

    def test_returned_once_it_does_not_change(self) -> None:
        self.assertEqual(self.check(200.0, 350.0, 480.0, 420.0), 0)
        self.assertEqual(self.check(420.5), 1)
        self.assertEqual(self.check(90.0, 90.0, 90.2), 0)

    def test_small_changes_stay(self) -> None:
        self.assertEqual(self.check(100.0, 100.0, 104.0, 104.0, 96.0, 96.0), 0)

    def test_what_is_in_use_is_not_returned_again_and_again(self) -> None:
        self.pinned = 110.0
        self.assertEqual(self.check(400.0, 400.0), 1)
        self.assertEqual(self.check(200.0, 200.0, 200.5, 200.5), 0)

    def test_again_while_memory_is_high(self) -> None:
        """An early return left as much as the end of the work; nothing changes any more."""
        self.pinned = 405.0
        self.assertEqual(self.check(498.0, 498.0), 1)
        self.pinned = 60.0
        self.assertEqual(self.check(*[495.0] * (free_memory.AGAIN - 1)), 0)
        self.assertEqual(self.check(495.0), 1)
        self.assertEqual(self.resident, 150.0)

    def test_after_a_return_that_was_too_early(self) -> None:
        """The work waited for the database, and freed its memory later."""
        self.pinned = 400.0
        self.assertEqual(self.check(495.0, 495.0), 1)
        self.pinned = 60.0
        self.assertEqual(self.check(490.0, 411.0, 411.0), 1)
        self.assertEqual(self.resident, 150.0)


class ProcessTests(SynchronousTestCase):
    def test_of_this_process(self) -> None:
        """glibc's function is found, called in a thread after a change, and not any more after the stop."""
        if not hasattr(ctypes.CDLL(None), "malloc_trim") or sys.platform != "linux":
            self.skipTest("this C library has no malloc_trim")
        self.assertGreater(resident_mib(), 1)
        sizes, clock, ran = iter([90.0, 90.0, 200.0, 200.0, 91.0]), Clock(), []

        async def run(work):
            ran.append(work())

        self.patch(free_memory, "resident_mib", lambda: next(sizes))
        self.patch(free_memory, "run_in_thread", run)
        stack = AsyncExitStack()
        start_returning_memory(clock, stack)
        clock.pump([free_memory.SECONDS] * 2)
        self.assertEqual([type(one) for one in ran], [int])
        self.successResultOf(Deferred.fromCoroutine(stack.aclose()))
        self.assertEqual(clock.getDelayedCalls(), [])
