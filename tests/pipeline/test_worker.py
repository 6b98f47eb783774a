"""The worker on a `task.Clock`."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import TestCase

from ipf.errors import StoreUnreachable
from ipf.pipeline.equal_failures import MOST
from ipf.pipeline.worker import FailureLog, ReactorYield, Sleep, Worker
from ipf.ports import Notifier


class MemoryNotifier:
    """Notifies in this process only."""

    def __init__(self) -> None:
        self.wakes: dict[str, list[Callable[[], None]]] = {}

    def notify(self, name: str) -> None:
        for wake in self.wakes.get(name, []):
            wake()

    def subscribe(self, name: str, wake: Callable[[], None]) -> None:
        self.wakes.setdefault(name, []).append(wake)


_: type[Notifier] = MemoryNotifier


class ScriptedStep:
    """A step with results that the test sets: `open` holds the running steps."""

    def __init__(self) -> None:
        self.started = 0
        self.work = 0
        self.hold = False
        self.error: Exception | None = None
        self.open: list[Deferred[bool]] = []

    async def step(self) -> bool:
        self.started += 1
        if self.error is not None:
            raise self.error
        if self.hold:
            waiting: Deferred[bool] = Deferred()
            self.open.append(waiting)
            return await waiting
        if self.work:
            self.work -= 1
            return True
        return False


class WorkerTests(TestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.notifier = MemoryNotifier()
        self.stage = ScriptedStep()

    def worker(self, concurrency: int = 1) -> Worker:
        worker = Worker(self.stage.step, self.notifier, "work", 10.0, self.clock, name="stage", concurrency=concurrency)
        worker.start()
        return worker

    def test_drains_then_sleeps_until_the_poll_deadline(self) -> None:
        self.stage.work = 3
        self.worker()
        self.assertEqual(self.stage.started, 4)
        self.clock.advance(9.9)
        self.assertEqual(self.stage.started, 4)
        self.clock.advance(0.1)
        self.assertEqual(self.stage.started, 5)

    def test_notification_wakes_it_in_the_next_turn(self) -> None:
        self.worker()
        self.stage.work = 1
        self.notifier.notify("work")
        self.notifier.notify("work")
        self.assertEqual(self.stage.started, 1)
        self.clock.advance(0)
        self.assertEqual(self.stage.started, 3)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)

    def test_notification_during_a_step_is_not_lost(self) -> None:
        self.stage.hold = True
        self.worker()
        self.notifier.notify("work")
        self.stage.hold = False
        self.stage.open.pop().callback(False)
        self.assertEqual(self.stage.started, 2)

    def test_failing_step_backs_off_and_continues(self) -> None:
        self.stage.error = ValueError("broken")
        self.worker()
        for seconds, started in ((0.9, 1), (0.1, 2), (1.9, 2), (0.1, 3), (3.9, 3), (0.1, 4)):
            self.clock.advance(seconds)
            self.assertEqual(self.stage.started, started)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.stage.error = None
        self.clock.advance(8)
        self.notifier.notify("work")
        self.clock.advance(0)
        self.assertEqual(self.stage.started, 6)

    def test_notification_does_not_shorten_backoff(self) -> None:
        self.stage.error = StoreUnreachable()
        self.worker()
        self.notifier.notify("work")
        self.clock.advance(0.5)
        self.assertEqual(self.stage.started, 1)
        for _ in range(5):
            self.clock.advance(1.0)
        self.assertEqual(self.stage.started, 6)

    def test_notification_wakes_one_runner_and_a_backlog_wakes_all(self) -> None:
        self.worker(concurrency=3)
        self.assertEqual(self.stage.started, 3)
        self.stage.hold = True
        self.notifier.notify("work")
        self.clock.advance(0)
        self.assertEqual(len(self.stage.open), 1)
        self.stage.open.pop().callback(True)
        self.stage.open.pop().callback(True)
        self.clock.advance(0)
        self.assertEqual(len(self.stage.open), 2)

    async def test_stop_waits_for_running_steps(self) -> None:
        self.stage.hold = True
        worker = self.worker()
        stopping = Deferred.fromCoroutine(worker.stop(5.0))
        self.assertNoResult(stopping)
        self.stage.open.pop().callback(True)
        self.assertTrue(self.successResultOf(stopping))
        self.assertEqual(self.stage.started, 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    async def test_stop_ends_sleep_and_backoff(self) -> None:
        for error in (None, StoreUnreachable()):
            self.stage.error = error
            stopping = Deferred.fromCoroutine(self.worker().stop(5.0))
            self.clock.advance(0)
            self.assertTrue(self.successResultOf(stopping))
            self.assertEqual(self.clock.getDelayedCalls(), [])

    async def test_stop_cancels_after_the_time_limit(self) -> None:
        self.stage.hold = True
        stopping = Deferred.fromCoroutine(self.worker().stop(5.0))
        self.clock.advance(5.0)
        self.assertFalse(self.successResultOf(stopping))


class SleepTests(TestCase):
    def test_ends_once(self) -> None:
        clock = Clock()
        for how in ("time", "end", "cancel"):
            sleep = Sleep(clock, 1.0)
            if how == "cancel":
                sleep.finished.cancel()
                self.failureResultOf(sleep.finished)
            else:
                if how == "end":
                    sleep.end()
                clock.advance(1.0 if how == "time" else 0)
                self.assertIsNone(self.successResultOf(sleep.finished))
            sleep.end()
            self.assertEqual(clock.getDelayedCalls(), [])


class ReactorYieldTests(TestCase):
    def test_yields_after_holding_the_reactor(self) -> None:
        clock = Clock()
        breather = ReactorYield(clock)
        for held, waits in ((0.0, False), (0.001, False), (0.0009, False), (0.0002, True), (0.0, False), (0.5, True)):
            clock.rightNow += held  # time passes, and the reactor does not turn
            breathing = Deferred.fromCoroutine(breather())
            if waits:
                self.assertNoResult(breathing)
                clock.advance(0)
            self.assertIsNone(self.successResultOf(breathing), held)


class FailureLogTests(TestCase):
    def test_repeats_are_counted(self) -> None:
        clock, lines = Clock(), []

        def observe(event: dict[str, object]) -> None:
            if event.get("log_namespace") == "ipf.pipeline.worker":
                lines.append(event)

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        failures = FailureLog("stage", clock)
        for _ in range(121):
            failures.failed(StoreUnreachable())
            clock.advance(1)
        self.assertEqual([line["repeats"] for line in lines], ["", *[" (repeated 59 times since the last line)"] * 2])
        failures.worked()
        self.assertEqual(lines[-1]["times"], 121)
        failures.worked()
        self.assertEqual(len(lines), 4)

    def test_equal_failures_are_a_problem_until_a_step_works(self) -> None:
        """Not those of the database, which has a health component of its own."""
        failures = FailureLog("stage", Clock())
        for _ in range(2 * MOST):
            failures.failed(StoreUnreachable())
        self.assertIsNone(failures.problem)
        for _ in range(MOST):
            try:
                raise ZeroDivisionError("Hansen")
            except ZeroDivisionError as error:
                failures.failed(error)
        self.assertEqual(failures.problem, f"{MOST} items in succession failed: ZeroDivisionError")
        failures.worked()
        self.assertIsNone(failures.problem)
        self.flushLoggedErrors(ZeroDivisionError)
