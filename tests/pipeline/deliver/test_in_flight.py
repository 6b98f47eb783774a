"""Several notifications in flight, on a `task.Clock`: what is settled, what is sent again, what is kept in order."""

from __future__ import annotations

from datetime import timedelta

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import TestCase

from ipf.pipeline.deliver.destinations import Postponed
from ipf.pipeline.deliver.lease_run import all_ended
from ipf.pipeline.deliver.window import Window
from ipf.ports import Delivered, Event, Notification
from tests.pipeline.deliver.test_deliver import OK, START, DeliverFixture, Row, ScriptedChannel

FAILED = Delivered(500, 5, None)


def event(number: int, id: str = "") -> Event:
    """An event of a resource of its own, unless `id` names one."""
    return Event(number, "Patient", id or str(number), number, START, f"c-{number}", b"")


class WindowTests(TestCase):
    waiting: Deferred[object] | None = None

    def window(self, *events: Event, width: int = 3, size: int = 1) -> Window:
        return Window([events[start : start + size] for start in range(0, len(events), size)], width)

    def take(self, window: Window) -> Deferred[object]:
        return Deferred.fromCoroutine(window.take())

    def taken(self, window: Window) -> list[int]:
        """The numbers that may be sent now."""
        numbers = []
        while True:
            one, self.waiting = self.waiting or self.take(window), None
            if not one.called:
                self.waiting = one
                return numbers
            result = self.successResultOf(one)
            if result is None:
                return numbers
            numbers.append(result[1][0].number)

    def test_width_counts_from_the_oldest_unacknowledged(self) -> None:
        window = self.window(*map(event, range(1, 9)))
        self.assertEqual(self.taken(window), [1, 2, 3])
        self.assertFalse(window.acknowledge(1))
        self.assertFalse(window.acknowledge(2))
        self.assertEqual((window.acknowledged_to, self.taken(window)), (None, []))
        self.assertTrue(window.acknowledge(0))
        self.assertEqual((window.acknowledged_to, self.taken(window)), (3, [4, 5, 6]))

    def test_versions_of_a_resource_are_never_in_flight_together(self) -> None:
        window = self.window(event(1, "a"), event(2, "b"), event(3, "a"), event(4, "c"), width=9)
        self.assertEqual(self.taken(window), [1, 2])
        window.acknowledge(1)
        self.assertEqual(self.taken(window), [])
        window.acknowledge(0)
        self.assertEqual((window.acknowledged_to, window.is_acknowledged), (2, False))

    def test_notifications_of_several_events(self) -> None:
        window = self.window(event(1, "a"), event(2, "b"), event(3, "c"), event(4, "b"), event(5), size=2)
        self.assertEqual(self.taken(window), [1])
        window.acknowledge(0)
        self.assertEqual((self.taken(window), window.acknowledged_to), ([3, 5], 2))

    def test_first_failure_and_longest_wait(self) -> None:
        window = self.window(*map(event, range(1, 5)), width=4)
        self.taken(window)
        window.fail(3, Delivered(429, 1, None, 30.0))
        window.fail(1, Delivered(503, 1, None, 7.0))
        window.fail(2, Postponed(1.0, "closed"))
        window.acknowledge(0)
        failure = window.failure
        assert failure is not None
        self.assertEqual((failure[0][0].number, failure[1].http_status, window.retry_after), (2, 503, 30.0))
        self.assertEqual((window.acknowledged_to, window.is_acknowledged), (1, False))

    def test_nothing_is_taken_after_the_end(self) -> None:
        window = self.window(event(1), event(2), width=1)
        self.taken(window)
        waiting = self.take(window)
        window.end()
        self.assertIsNone(self.successResultOf(waiting))
        self.assertIsNone(self.successResultOf(self.take(window)))

    def test_without_notifications(self) -> None:
        window = self.window()
        self.assertIsNone(self.successResultOf(self.take(window)))
        self.assertEqual((window.is_acknowledged, window.acknowledged_to, window.failure), (True, None, None))


class AllEndedTests(TestCase):
    def test_waits_for_the_last_and_raises_the_first(self) -> None:
        waiting: Deferred[None] = Deferred()

        async def fails() -> None:
            raise ValueError

        async def waits() -> None:
            await waiting

        both = Deferred.fromCoroutine(all_ended([fails(), waits()]))
        self.assertNoResult(both)
        waiting.callback(None)
        self.failureResultOf(both, ValueError)

    def test_cancels_all(self) -> None:
        cancelled = []

        async def waits(name: str) -> None:
            try:
                await Deferred()
            finally:
                cancelled.append(name)

        running = Deferred.fromCoroutine(all_ended([waits("a"), waits("b")]))
        running.cancel()
        self.failureResultOf(running, CancelledError)
        self.assertEqual(cancelled, ["a", "b"])


class HeldChannel(ScriptedChannel):
    """A channel whose requests wait for `answer`."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[str, Deferred[Delivered]] = {}

    async def send(self, notification: Notification) -> Delivered:
        assert notification.body is not None
        text = notification.body.decode()
        self.sent.append(text)
        self.waiting[text] = Deferred()
        return await self.waiting[text]

    def answer(self, *texts: str, delivered: Delivered = OK) -> None:
        """Answer these requests."""
        for text in texts:
            self.waiting.pop(text).callback(delivered)


class InFlightTests(DeliverFixture, TestCase):
    far: HeldChannel

    def setUp(self) -> None:
        super().setUp()
        self.far = HeldChannel()

    def opened(self, count: int, in_flight: int = 4) -> Row:
        """Event 1 is acknowledged, and the next ones are in flight."""
        row = self.queue.add("a", count)
        self.deliver = self.start(in_flight=in_flight)
        self.assertEqual(self.far.sent, ["a1"])  # the first of a lease goes alone
        self.far.answer("a1")
        self.assertEqual(self.far.sent, [f"a{number}" for number in range(1, in_flight + 2)])
        return row

    def test_all_are_settled_in_order_of_number(self) -> None:
        row = self.opened(7)
        self.far.answer("a5", "a4", "a3")
        self.assertEqual(self.far.sent[5:], [])
        self.far.answer("a2")
        self.assertEqual(self.far.sent[5:], ["a6", "a7"])
        self.far.answer("a7", "a6")
        self.assertEqual((row.delivered, row.until, row.attempt_count), (7, None, 0))
        self.assertEqual(sorted(one.event_number for one in row.ledger), list(range(1, 8)))

    def test_progress_is_settled_up_to_the_gap(self) -> None:
        row = self.opened(20)
        self.clock.advance(0.6)
        self.far.answer("a3", "a4")
        self.assertEqual((row.delivered, [one.event_number for one in row.ledger]), (1, [1, 3]))
        self.clock.advance(0.6)
        self.far.answer("a2")
        self.assertEqual((row.delivered, len(row.ledger)), (4, 4))

    def test_failure_settles_the_prefix_and_is_retried(self) -> None:
        """Those behind it that were acknowledged are sent again."""
        row = self.opened(9)
        self.far.answer("a3", delivered=FAILED)
        self.far.answer("a2", "a5")
        self.assertEqual(row.delivered, 0)
        self.far.answer("a4")
        self.assertEqual((row.delivered, row.attempt_count, row.until), (2, 1, None))
        self.assertEqual(row.ready_at, self.now() + timedelta(seconds=1))
        self.clock.advance(1.1)
        self.assertEqual(self.far.sent[5:], ["a3"])
        self.far.answer("a3")
        self.assertEqual(self.far.sent[6:], ["a4", "a5", "a6", "a7"])

    def test_several_failures_are_one_of_the_retry_budget(self) -> None:
        row = self.opened(9)
        self.far.answer("a4", delivered=Delivered(429, 1, None, 30.0))
        self.far.answer("a2", "a5", "a3", delivered=FAILED)
        self.assertEqual((row.delivered, row.attempt_count, len(row.ledger)), (1, 1, 5))
        self.assertEqual(row.ready_at, self.now() + timedelta(seconds=30))

    def test_dead_endpoint_gets_one_request_an_attempt(self) -> None:
        self.queue.add("a", 9)
        self.start(in_flight=4)
        for _ in range(3):
            self.far.answer("a1", delivered=Delivered(None, 1, "connection refused"))
            self.clock.advance(10)
        self.assertEqual(self.far.sent, ["a1", "a1", "a1"])
        self.assertEqual([status for _, _, status, _ in self.statuses], ["error"])

    def test_stop_finishes_those_in_flight(self) -> None:
        row = self.opened(9)
        stopping = Deferred.fromCoroutine(self.deliver.stop(5.0))
        self.clock.advance(0)
        self.far.answer("a3", "a2", "a5")
        self.assertNoResult(stopping)
        self.far.answer("a4")
        self.assertTrue(self.successResultOf(stopping))
        self.assertEqual((row.delivered, row.until, len(self.far.sent)), (5, None, 5))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_cancels_those_in_flight_after_the_limit(self) -> None:
        row = self.opened(9)
        stopping = Deferred.fromCoroutine(self.deliver.stop(5.0))
        self.clock.advance(0)
        self.clock.advance(5.0)
        self.assertFalse(self.successResultOf(stopping))
        self.assertEqual((row.delivered, len(self.far.sent)), (0, 5))

    def test_subscription_that_is_off_ends_the_run(self) -> None:
        row = self.opened(50)
        row.active = False
        self.clock.advance(0.6)
        self.far.answer("a2")
        self.far.answer("a3", "a4", "a5")
        self.assertEqual((row.delivered, row.until, len(self.far.sent)), (2, None, 5))

    def test_lost_lease_ends_the_run(self) -> None:
        row = self.opened(50)
        row.token += 1
        self.clock.advance(0.6)
        self.far.answer("a2", "a3", "a4", "a5")
        self.assertEqual((row.delivered, row.ledger, len(self.far.sent)), (0, [], 5))

    def test_expired_lease_ends_the_run(self) -> None:
        """The store does not answer, so another process may hold the lease."""
        row = self.opened(50)
        self.queue.down = True
        self.clock.advance(29)
        self.far.answer("a2")
        self.far.answer("a3")
        sent = len(self.far.sent)
        self.clock.advance(1)
        self.far.answer("a4", "a5")
        self.assertEqual((row.delivered, len(self.far.sent)), (0, sent))

    def test_what_is_acknowledged_while_a_settlement_is_written(self) -> None:
        row = self.opened(8)
        self.clock.advance(0.6)
        self.queue.down = True
        self.far.answer("a2")  # its settlement waits for the store
        self.far.answer("a3", "a4", "a5")
        self.queue.down = False
        self.clock.advance(1)
        self.assertEqual(row.delivered, 2)
        self.far.answer("a6", "a7", "a8")
        self.assertEqual((row.delivered, sorted(one.event_number for one in row.ledger)), (8, list(range(1, 9))))

    def test_slow_request_frees_its_place(self) -> None:
        """A lease with a request older than a second does not count, however many others it has in flight."""
        self.opened(9)
        self.assertEqual(self.deliver._capacity(), 63)
        self.clock.advance(1.0)
        self.far.answer("a3")
        self.assertEqual(self.deliver._capacity(), 64)
