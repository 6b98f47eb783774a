"""The watchdog is notified only while every listener answers."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.app.runtime.watchdog import Watchdog


class WatchdogTests(TestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.fed: list[float] = []
        self.limits: list[float] = []
        self.found: dict[str, str] | Deferred[dict[str, str]] | Exception = {}

    async def check(self, seconds: float) -> dict[str, str]:
        self.limits.append(seconds)
        if isinstance(self.found, Exception):
            raise self.found
        return await self.found if isinstance(self.found, Deferred) else self.found

    def watchdog(self, interval: float) -> Watchdog:
        return Watchdog(interval, self.check, lambda _: self.fed.append(self.clock.seconds()), self.clock)

    def test_fed_while_all_listeners_answer(self) -> None:
        watchdog = self.watchdog(30.0)
        watchdog.start()
        watchdog.start()
        self.clock.pump([7.5] * 4)
        self.assertEqual((self.fed, set(self.limits)), ([0.0, 7.5, 15.0, 22.5, 30.0], {7.5}))

    def test_not_fed_while_a_listener_does_not_answer(self) -> None:
        self.watchdog(30.0).start()
        self.found = {"MLLP lab": "refused"}
        self.clock.pump([7.5] * 2)
        self.found = RuntimeError("the check failed")
        self.clock.pump([7.5] * 2)
        self.assertEqual(self.fed, [0.0])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 2)
        self.found = {}
        self.clock.advance(7.5)
        self.assertEqual(self.fed, [0.0, 37.5])

    def test_one_check_at_a_time(self) -> None:
        self.found = slow = Deferred()
        self.watchdog(30.0).start()
        self.clock.pump([7.5] * 3)
        self.assertEqual((self.fed, len(self.limits)), ([], 1))
        slow.callback({})
        self.assertEqual(self.fed, [22.5])

    def test_without_a_watchdog_nothing_is_checked(self) -> None:
        self.watchdog(0.0).start()
        self.assertEqual((self.limits, self.clock.getDelayedCalls()), ([], []))
