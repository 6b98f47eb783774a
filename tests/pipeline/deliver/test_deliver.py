"""The deliver stage on a `task.Clock`: order, retries, budget, leases, isolation of slow endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.pipeline.deliver import deliver as stage
from ipf.pipeline.deliver.attempts import reason_of, retry_delay_seconds
from ipf.pipeline.deliver.authorization import SubscriptionChanged
from ipf.pipeline.deliver.deliver import Deliver
from ipf.pipeline.deliver.destinations import Destinations
from ipf.ports import Attempt, Backoff, Delivered, DeliveryEnd, Event, Json, Lease, Notification, Terms
from ipf.ports.delivery import Settled
from ipf.telemetry import metrics
from tests.pipeline.test_worker import MemoryNotifier

START = datetime(2026, 1, 1, tzinfo=UTC)
BACKOFF = Backoff(1000, 2.0, 60000, 3)
OK = Delivered(200, 5, None)


@dataclass
class Row:
    """A subscription in the queue below."""

    events: list[Event]
    delivered: int = 0
    attempt_count: int = 0
    token: int = 0
    until: datetime | None = None
    ready_at: datetime = START
    active: bool = True
    failing_since: datetime | None = None
    ledger: list[Attempt] = field(default_factory=list)


def resource_of(name: str) -> Json:
    """A leased Subscription."""
    return {"id": name, "meta": {"versionId": "1"}}


class Queue:
    """Subscriptions by name, leased with the rules of the PostgreSQL queue."""

    def __init__(self, now) -> None:
        self.now = now
        self.rows: dict[str, Row] = {}
        self.down = False
        self.leased = 0
        self.beats: list[str] = []

    def add(self, name: str, count: int) -> Row:
        row = self.rows.setdefault(name, Row([]))
        for number in range(len(row.events) + 1, len(row.events) + count + 1):
            body = f"{name}{number}".encode()
            row.events.append(Event(number, "Patient", f"{name}{number}", 1, START, f"c-{name}{number}", body))
        return row

    async def lease(self, worker: str, limit: int, until: datetime) -> list[Lease]:
        self.check()
        self.leased += 1
        found = []
        for rid, (name, row) in enumerate(sorted(self.rows.items(), key=lambda item: item[1].ready_at)):
            is_held = row.until is not None and row.until > self.now()
            due = row.active and len(row.events) > row.delivered and row.ready_at <= self.now() and not is_held
            if due and len(found) < limit:
                row.token += 1
                row.until = until
                since = row.failing_since
                events = tuple(row.events[row.delivered : row.delivered + 20])
                found.append(
                    Lease(
                        "default",
                        rid,
                        name,
                        row.token,
                        until,
                        resource_of(name),
                        row.attempt_count,
                        since,
                        events=events,
                    )
                )
        return found

    async def heartbeats(self, worker: str, limit: int, until: datetime) -> list[Lease]:
        self.check()
        due, self.beats = self.beats, []
        return [
            Lease(
                "default", 0, name, self.rows[name].token, until, resource_of(name), self.rows[name].attempt_count, None
            )
            for name in due
        ]

    async def events(self, lease: Lease, limit: int) -> list[Event]:
        self.check()
        row = self.rows[lease.subscription_id]
        return row.events[row.delivered : row.delivered + limit]

    async def settle(self, lease: Lease, end: DeliveryEnd) -> Settled | None:
        self.check()
        row = self.rows[lease.subscription_id]
        if row.token != lease.token:
            return None
        row.delivered = max(row.delivered, end.delivered_to or 0)
        row.ledger.extend(end.attempts)
        row.attempt_count = end.attempt_count
        row.failing_since = (row.failing_since or self.now()) if end.attempt_count else None
        row.ready_at = end.retry_at or self.now()
        events = row.events[row.delivered :]
        row.until = end.keep_until if row.active and (events or not end.more) else None
        return Settled(row.until is not None, tuple(events[: end.more]))

    def check(self) -> None:
        if self.down:
            raise StoreUnreachable()


class ScriptedChannel:
    """A channel that responds at once, or when the test responds."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.answers: dict[str, Delivered] = {}
        self.pending: set[str] = set()
        self.open: dict[str, Deferred[Delivered]] = {}

    unavailable = None

    def destination(self, endpoint: str) -> str:
        return endpoint

    async def send(self, notification: Notification) -> Delivered:
        assert notification.body is not None
        text = notification.body.decode()
        self.sent.append(text)
        name = text.rstrip("0123456789")
        if name in self.pending:
            waiting: Deferred[Delivered] = Deferred()
            self.open[name] = waiting
            return await waiting
        return self.answers.get(name, OK)


class PlainComposer:
    """Composes the joined bodies of the events; each subscription has its own destination unless `shared`."""

    def __init__(self) -> None:
        self.shared = ""
        self.max_count = 1
        self.error: Exception | None = None

    def terms(self, subscription: Json) -> Terms:
        return Terms("rest-hook", self.shared or subscription["id"], max_count=self.max_count, heartbeat_seconds=60)

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        if self.error is not None:
            raise self.error
        body = b"+".join(event.body for event in events)
        return Notification("PUT", "http://far/" + lease.subscription_id, (), body, events[0].correlation_id)

    async def heartbeat(self, lease: Lease) -> Notification:
        return Notification("POST", "http://far/", (), b"beat-" + lease.subscription_id.encode(), "c")

    async def handshake(self, lease: Lease) -> Notification:
        raise AssertionError("nobody asks delivery for a handshake")


class DeliverFixture:
    """The stage on a `task.Clock`, with the queue and the channel above."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.notifier = MemoryNotifier()
        self.queue = Queue(self.now)
        self.far = ScriptedChannel()
        self.compose = PlainComposer()
        self.statuses: list[tuple[str, str, str, str | None]] = []

    def now(self) -> datetime:
        return START + timedelta(seconds=self.clock.seconds())

    async def set_status(
        self, tenant: str, subscription_id: str, status: str, error: str | None, version_id: str | None
    ) -> None:
        """A change of status sets the failures to 0; the lease stays."""
        self.statuses.append((tenant, subscription_id, status, error))
        row = self.queue.rows[subscription_id]
        row.active, row.attempt_count, row.failing_since = False, 0, None

    def start(self, **options) -> Deliver:
        deliver = Deliver(
            self.queue, {"rest-hook": self.far}, self.compose, self.set_status, self.notifier, self.clock, self.now,
            worker="w", backoff=BACKOFF, poll_seconds=10.0, chance=lambda: 0.0, **options,
        )  # fmt: skip
        deliver.start()
        return deliver


class DeliverTests(DeliverFixture, TestCase):
    def test_events_are_sent_in_order_and_the_cursor_follows(self) -> None:
        row = self.queue.add("a", 250)
        before = metrics.sample("fhir_subscription_delivery_total", outcome="success")
        self.start()
        self.assertEqual(self.far.sent, [f"a{n}" for n in range(1, 251)])
        self.assertEqual((row.delivered, len(row.ledger), row.until), (250, 250, None))
        self.assertEqual([attempt.event_number for attempt in row.ledger], list(range(1, 251)))
        self.assertEqual(row.ledger[0].correlation_id, "c-a1")
        self.assertEqual(metrics.sample("fhir_subscription_delivery_total", outcome="success") - before, 250)

    def test_unauthorized_events_are_skipped(self) -> None:
        async def authorization_filter(lease: Lease, events: Sequence[Event]) -> Sequence[Event]:
            return [event for event in events if event.number % 3 == 0 and event.number < 240]

        row, none = self.queue.add("a", 250), self.queue.add("b", 0)
        self.start(authorization_filter=authorization_filter)
        self.assertEqual(self.far.sent, [f"a{n}" for n in range(3, 240, 3)])
        self.assertEqual((row.delivered, none.delivered, row.until), (250, 0, None))

    def test_channels_that_never_send(self) -> None:
        """Events are skipped without an attempt, heartbeats wait; nothing fails."""
        row, idle = self.queue.add("a", 30), self.queue.add("h", 0)
        self.queue.beats = ["h"]
        self.start(never_sent=frozenset({"rest-hook"}))
        self.assertEqual((self.far.sent, row.delivered, self.statuses), ([], 30, []))
        self.assertEqual((row.ledger, idle.ledger, idle.attempt_count), ([], [], 0))
        self.assertEqual(idle.ready_at, self.now() + timedelta(minutes=1))

    def test_failure_keeps_the_cursor_before_skipped_events(self) -> None:
        async def authorization_filter(lease: Lease, events: Sequence[Event]) -> Sequence[Event]:
            return [event for event in events if event.number in (2, 4)]

        row = self.queue.add("a", 5)
        self.far.answers["a"] = Delivered(500, 5, None)
        self.start(authorization_filter=authorization_filter)
        self.assertEqual((self.far.sent, row.delivered, row.attempt_count), (["a2"], 0, 1))
        self.far.answers.clear()
        self.clock.advance(10)
        self.assertEqual((self.far.sent, row.delivered, row.attempt_count), (["a2", "a2", "a4"], 5, 0))

    def test_nothing_is_sent_for_a_changed_subscription(self) -> None:
        """No attempt and no failure: the lease expires."""
        gone = [True]

        async def authorization_filter(lease: Lease, events: Sequence[Event]) -> Sequence[Event]:
            if gone:
                raise SubscriptionChanged("it was changed")
            return events

        row = self.queue.add("a", 2)
        self.start(authorization_filter=authorization_filter)
        self.assertEqual((self.far.sent, row.delivered, row.ledger), ([], 0, []))
        gone.clear()
        self.clock.advance(31)
        self.assertEqual((self.far.sent, row.delivered), (["a1", "a2"], 2))

    def test_notification_starts_it(self) -> None:
        self.start()
        self.queue.add("a", 1)
        self.notifier.notify("delivery")
        self.clock.advance(0)
        self.assertEqual(self.far.sent, ["a1"])

    def test_new_event_of_a_running_lease_follows_at_once(self) -> None:
        self.far.pending.add("a")
        self.queue.add("a", 1)
        self.start()
        self.queue.add("a", 1)
        self.notifier.notify("delivery")
        self.clock.advance(0)
        self.assertEqual(self.far.sent, ["a1"])
        self.far.open["a"].callback(OK)
        self.clock.advance(0)
        self.assertEqual(self.far.sent, ["a1", "a2"])

    def test_failures_back_off_and_end_in_status_error(self) -> None:
        self.far.answers["a"] = Delivered(500, 5, None)
        row = self.queue.add("a", 2)
        self.start()
        self.assertEqual((self.far.sent, row.attempt_count), (["a1"], 1))
        self.assertEqual(row.ready_at, self.now() + timedelta(seconds=1))
        self.clock.advance(10)
        self.assertEqual((self.far.sent, row.attempt_count), (["a1", "a1"], 2))
        self.assertEqual(row.ready_at, self.now() + timedelta(seconds=2))
        self.clock.advance(10)
        self.assertEqual(len(self.far.sent), 3)
        text = "a notification failed 3 times since 2026-01-01T00:00:00Z: HTTP status 500"
        self.assertEqual(self.statuses, [("default", "a", "error", text)])
        self.assertEqual([attempt.error for attempt in row.ledger], ["HTTP status 500"] * 3)
        self.assertEqual((row.attempt_count, row.delivered), (0, 0))

    def test_no_other_process_sends_before_the_status_error_is_written(self) -> None:
        """Otherwise it could succeed, and the status would be wrong; after a crash the next failure sets it."""
        self.far.answers["a"] = Delivered(500, 5, None)
        row = self.queue.add("a", 1)
        writing: Deferred[None] = Deferred()

        async def crashes(*_: object) -> None:
            await writing

        deliver = self.start()
        deliver._set_status = crashes
        for _ in range(3):
            self.clock.advance(10)
        self.assertEqual((len(self.far.sent), len(row.ledger)), (3, 3))
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(self.queue.lease("other", 1, self.now()))), [])
        deliver._set_status = self.set_status
        self.clock.advance(31)
        self.assertEqual((len(self.far.sent), row.active), (4, False))
        self.assertEqual([status for _, _, status, _ in self.statuses], ["error"])

    def test_retry_is_on_time(self) -> None:
        """The next poll is ten seconds later."""
        self.far.answers.update(a=Delivered(500, 5, None), b=Delivered(503, 5, None, 4.0))
        self.queue.add("a", 1)
        self.queue.add("b", 1)
        deliver = self.start()
        for seconds, sent in ((0.9, 2), (0.11, 3), (1.9, 3), (0.11, 4), (1.0, 5)):
            self.clock.advance(seconds)
            self.assertEqual(len(self.far.sent), sent, self.clock.seconds())
        self.assertEqual(self.far.sent, ["a1", "b1", "a1", "a1", "b1"])
        self.queue.add("a", 1)
        stopping = Deferred.fromCoroutine(deliver.stop())
        self.clock.advance(0)
        self.assertTrue(self.successResultOf(stopping))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_leases_are_taken_at_most_every_interval_while_busy(self) -> None:
        self.far.pending.add("a")
        self.queue.add("a", 1)
        self.start()
        looked = self.queue.leased
        for _ in range(100):
            self.notifier.notify("delivery")
            self.clock.advance(0.001)
        self.assertLess(self.queue.leased - looked, 12)
        self.queue.add("b", 1)
        self.notifier.notify("delivery")
        self.clock.advance(stage.MIN_LEASE_INTERVAL_SECONDS)
        self.assertEqual(self.far.sent, ["a1", "b1"])

    def test_success_after_failures_clears_the_count(self) -> None:
        self.far.answers["a"] = Delivered(None, 5, "connection refused")
        row = self.queue.add("a", 3)
        self.start()
        self.far.answers.clear()
        self.clock.advance(10)
        self.assertEqual(self.far.sent, ["a1", "a1", "a2", "a3"])
        self.assertEqual((row.attempt_count, row.delivered, self.statuses), (0, 3, []))

    def test_slow_endpoint_does_not_delay_another(self) -> None:
        self.far.pending.add("slow")
        self.queue.add("slow", 5)
        self.queue.add("fast", 5)
        self.start()
        self.assertEqual(self.far.sent, ["slow1", *[f"fast{n}" for n in range(1, 6)]])

    def test_slow_endpoints_do_not_use_up_capacity(self) -> None:
        for name in ("x", "y"):
            self.far.pending.add(name)
            self.queue.add(name, 1)
        self.start(max_leases=2)
        self.queue.add("z", 1)
        self.notifier.notify("delivery")
        self.clock.pump([0.05] * 10)
        self.assertNotIn("z1", self.far.sent)
        self.clock.pump([0.05] * 15)
        self.assertIn("z1", self.far.sent)

    def test_long_backlog_yields_to_waiting_subscriptions(self) -> None:
        self.far.pending.add("a")
        self.queue.add("a", 90)
        self.start(max_leases=1)
        self.queue.add("b", 1)
        self.notifier.notify("delivery")
        for _ in range(40):
            self.clock.pump([0.05] * 6)
            self.far.open["a"].callback(OK)
            if "b1" in self.far.sent:
                break
        self.clock.pump([0.05] * 2)
        self.assertIn("b1", self.far.sent)
        self.assertLess(self.queue.rows["a"].delivered, 30)
        self.assertNotEqual(self.queue.rows["a"].delivered, 0)

    def test_progress_is_settled_while_sending(self) -> None:
        self.far.pending.add("a")
        row = self.queue.add("a", 10)
        self.start()
        for settled in (0, 2, 2, 4):
            self.clock.advance(0.25)
            self.far.open["a"].callback(OK)
            self.assertEqual(row.delivered, settled)
        self.assertEqual(row.until, START + timedelta(seconds=31))

    def test_subscription_that_is_off_ends_the_run(self) -> None:
        self.far.pending.add("a")
        row = self.queue.add("a", 9)
        self.start()
        row.active = False
        self.clock.advance(1)
        self.far.open["a"].callback(OK)
        self.assertEqual((row.delivered, row.until, self.far.sent), (1, None, ["a1"]))

    def test_lost_lease_ends_the_run(self) -> None:
        self.far.pending.add("a")
        row = self.queue.add("a", 2)
        self.start()
        row.token += 1
        self.clock.advance(1)
        self.far.open["a"].callback(OK)
        self.assertEqual((row.delivered, row.ledger, self.far.sent), (0, [], ["a1"]))

    def test_store_unreachable_while_sending(self) -> None:
        self.far.pending.add("a")
        row = self.queue.add("a", 1)
        self.start()
        self.queue.down = True
        self.far.open["a"].callback(OK)
        self.clock.pump([1.0] * 5)
        self.assertEqual(row.delivered, 0)
        self.queue.down = False
        self.clock.pump([1.0] * 2)
        self.assertEqual((row.delivered, self.far.sent), (1, ["a1"]))

    def test_unsettled_events_are_sent_again(self) -> None:
        self.far.pending.add("a")
        row = self.queue.add("a", 1)
        self.start()
        self.queue.down = True
        self.far.open["a"].callback(OK)
        self.far.pending.clear()
        self.clock.pump([1.0] * 40)
        self.queue.down = False
        self.clock.pump([1.0] * 40)
        self.assertEqual((row.delivered, self.far.sent), (1, ["a1", "a1"]))

    def test_problem_of_the_composer_is_a_failure(self) -> None:
        row = self.queue.add("a", 1)
        self.compose.error = Problem(Category.INVALID, "no endpoint")
        self.start()
        self.assertEqual((row.attempt_count, row.ledger[0].error, self.far.sent), (1, "no endpoint", []))

    def test_exception_of_the_composer_is_a_failure(self) -> None:
        row = self.queue.add("a", 1)
        self.compose.error = KeyError("channel")
        self.start()
        self.assertEqual(row.attempt_count, 1)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_stop_finishes_the_current_request_and_releases(self) -> None:
        self.far.pending.add("a")
        row = self.queue.add("a", 5)
        deliver = self.start()
        stopping = Deferred.fromCoroutine(deliver.stop(5.0))
        self.clock.advance(0)
        self.assertNoResult(stopping)
        self.far.open["a"].callback(OK)
        self.assertTrue(self.successResultOf(stopping))
        self.assertEqual((row.delivered, row.until, self.far.sent), (1, None, ["a1"]))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_cancels_after_the_time_limit(self) -> None:
        self.far.pending.add("a")
        row = self.queue.add("a", 1)
        stopping = Deferred.fromCoroutine(self.start().stop(5.0))
        self.clock.advance(0)
        self.clock.advance(5.0)
        self.assertFalse(self.successResultOf(stopping))
        self.assertEqual(row.delivered, 0)

    def test_max_count_events_in_one_notification(self) -> None:
        self.compose.max_count = 3
        row = self.queue.add("a", 7)
        self.start()
        self.assertEqual(self.far.sent, ["a1+a2+a3", "a4+a5+a6", "a7"])
        self.assertEqual([(one.event_number, one.to_event_number) for one in row.ledger], [(1, 3), (4, 6), (7, None)])
        self.assertEqual(row.delivered, 7)

    def test_heartbeat_without_events(self) -> None:
        row = self.queue.add("a", 0)
        self.queue.beats = ["a"]
        self.start()
        self.assertEqual(self.far.sent, ["beat-a"])
        self.assertEqual([(one.kind, one.event_number) for one in row.ledger], [("heartbeat", 0)])

    def test_failed_heartbeat_is_a_failure(self) -> None:
        row = self.queue.add("a", 0)
        self.queue.beats = ["a"]
        self.far.answers["beat-a"] = Delivered(503, 1, None)
        self.start()
        self.assertEqual((row.attempt_count, row.ready_at), (1, self.now() + timedelta(seconds=1)))

    def test_missing_channel_is_a_failure(self) -> None:
        row = self.queue.add("a", 1)
        deliver = Deliver(
            self.queue,
            {},
            self.compose,
            self.set_status,
            self.notifier,
            self.clock,
            self.now,
            worker="w",
            backoff=BACKOFF,
        )
        deliver.start()
        self.assertEqual((row.attempt_count, self.far.sent), (1, []))

    def test_open_circuit_sends_probes_only(self) -> None:
        """Twenty subscriptions on one dead host: five attempts open the circuit, then only probes are sent."""
        self.compose.shared = "dead"
        for number in range(20):
            name = "n" + "x" * number
            self.queue.add(name, 1)
            self.far.answers[name] = Delivered(None, 1, "connection refused")
        self.start()
        self.assertEqual(len(self.far.sent), 5)
        self.clock.pump([0.1] * 20)
        self.assertLess(len(self.far.sent), 8)
        self.far.answers.clear()
        self.clock.pump([0.5] * 60)
        self.assertEqual([row.delivered for row in self.queue.rows.values()], [1] * 20)
        self.assertEqual(self.statuses, [])

    def test_retry_budget_ends_while_the_circuit_is_open(self) -> None:
        self.compose.shared = "dead"
        for number in range(20):
            name = "n" + "x" * number
            self.queue.add(name, 1)
            self.far.answers[name] = Delivered(None, 1, "connection refused")
        self.start()
        self.clock.pump([0.5] * 240)
        self.assertEqual({status for _, _, status, _ in self.statuses}, {"error"})
        self.assertEqual(len(self.statuses), 20)
        self.assertTrue(any("could not be sent since 2026" in str(text) for *_, text in self.statuses))
        self.assertLess(len(self.far.sent), 60)

    def test_leases_are_limited_by_capacity(self) -> None:
        for number in range(stage.MAX_LEASES + 10):
            name = "n" + "x" * number
            self.far.pending.add(name)
            self.queue.add(name, 1)
        self.start()
        self.assertEqual(len(self.far.sent), stage.MAX_LEASES)


class DestinationsTests(TestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.destinations = Destinations(self.clock, lambda: 0.0, max_requests=2)

    def acquire(self):
        return Deferred.fromCoroutine(self.destinations.acquire("far"))

    def test_waits_for_a_fast_destination_at_its_limit(self) -> None:
        self.assertIsNone(self.successResultOf(self.acquire()))
        self.assertIsNone(self.successResultOf(self.acquire()))
        third, fourth = self.acquire(), self.acquire()
        self.assertNoResult(third)
        self.destinations.release("far", OK)
        self.clock.advance(0)
        self.assertIsNone(self.successResultOf(third))
        self.clock.advance(0.2)
        postponed = self.successResultOf(fourth)
        self.assertEqual((postponed.reason, postponed.seconds), (None, 0.05))
        self.destinations.release("far", OK)
        self.destinations.release("far", None)
        self.assertEqual(len(self.destinations), 0)

    def test_circuit_opens_is_probed_and_closes(self) -> None:
        down = Delivered(503, 1, None)
        for _ in range(5):
            self.assertIsNone(self.successResultOf(self.acquire()))
            self.destinations.release("far", down, "HTTP status 503")
        self.assertEqual(self.successResultOf(self.acquire()).reason, "HTTP status 503")
        self.clock.advance(1.0)
        self.assertIsNone(self.successResultOf(self.acquire()))
        self.assertEqual(self.successResultOf(self.acquire()).reason, "HTTP status 503")
        self.destinations.release("far", down, "HTTP status 503")
        self.clock.advance(1.5)
        self.assertEqual(self.successResultOf(self.acquire()).seconds, 0.5)
        self.clock.advance(0.5)
        self.assertIsNone(self.successResultOf(self.acquire()))
        self.destinations.release("far", Delivered(404, 1, None), "HTTP status 404")
        self.assertIsNone(self.successResultOf(self.acquire()))

    def test_pauses_double_to_the_maximum(self) -> None:
        for _ in range(20):
            self.clock.advance(31)
            self.assertIsNone(self.successResultOf(self.acquire()))
            self.destinations.release("far", Delivered(None, 1, "x"), "x")
        self.assertEqual(self.successResultOf(self.acquire()).seconds, 30.0)

    def test_a_refusal_opens_no_circuit(self) -> None:
        """A broker that refuses one topic or message takes others, as a server that answers 4xx does."""
        for _ in range(20):
            self.assertIsNone(self.successResultOf(self.acquire()))
            self.destinations.release("far", Delivered(None, 1, "unknown topic", is_refused=True), "unknown topic")
        self.assertIsNone(self.successResultOf(self.acquire()))


class DelayTests(TestCase):
    def test_delays(self) -> None:
        backoff = Backoff(1000, 2.0, 60000, 8)
        for failures, status, retry_after, seconds in (
            (1, None, None, 1.0),
            (1, 500, None, 1.0),
            (3, 503, None, 4.0),
            (3, 503, 30.0, 30.0),
            (8, 503, 30.0, 60.0),
            (1, 404, None, 4.0),
            (1, 410, None, 4.0),
            (1, 408, None, 1.0),
            (1, 429, None, 1.0),
            (1, 429, 7.0, 7.0),
            (1, 429, 10**9, 900.0),
            (1, 429, 0.0, 1.0),
        ):
            delivered = Delivered(status, 1, None, retry_after)
            self.assertEqual(retry_delay_seconds(backoff, failures, delivered), seconds, (failures, status))
        self.assertEqual(retry_delay_seconds(backoff, 1, Delivered(None, 1, "x", is_refused=True)), 4.0)
        self.assertEqual(retry_delay_seconds(backoff, 1, Delivered(None, 1, "x")), 1.0)
        plain, asked = Delivered(500, 1, None), Delivered(429, 1, None, 10.0)
        self.assertEqual(retry_delay_seconds(backoff, 1, plain, 1.0), 0.75)
        self.assertEqual(retry_delay_seconds(backoff, 1, asked, 1.0), 12.5)

    def test_reasons(self) -> None:
        self.assertIsNone(reason_of(OK))
        self.assertEqual(reason_of(Delivered(404, 1, None)), "HTTP status 404")
        self.assertEqual(reason_of(Delivered(None, 1, "connection refused")), "connection refused")
