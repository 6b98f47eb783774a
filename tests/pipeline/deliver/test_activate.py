"""Activation of requested subscriptions, with and without a handshake."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.pipeline.deliver.activate import Activate
from ipf.ports import HANDSHAKE, Attempt, Delivered, Json, Lease, Notification, Terms


class RequestedQueue:
    """The part of the delivery queue that activation uses."""

    def __init__(self, *waiting: tuple[str, str]) -> None:
        self.waiting = list(waiting)

    async def requested(self, limit: int) -> list[tuple[str, str]]:
        return self.waiting[:limit]


class ActivateTests(TestCase):
    def setUp(self) -> None:
        self.calls: list[tuple[str, str, str, str | None]] = []
        self.errors: dict[str, Exception] = {}
        self.queue = RequestedQueue(("default", "a"), ("other", "b"), ("default", "c"))

    async def set_status(
        self, tenant: str, subscription_id: str, status: str, error: str | None, version_id: str | None
    ) -> None:
        if subscription_id in self.errors:
            raise self.errors[subscription_id]
        self.calls.append((tenant, subscription_id, status, error))
        self.queue.waiting.remove((tenant, subscription_id))

    def step(self, stage: Activate | None = None) -> bool:
        stage = stage or Activate(self.queue, self.set_status)
        return self.successResultOf(Deferred.fromCoroutine(stage.step()))

    def test_each_becomes_active(self) -> None:
        self.assertTrue(self.step())
        self.assertEqual(
            self.calls,
            [("default", "a", "active", None), ("other", "b", "active", None), ("default", "c", "active", None)],
        )
        self.assertFalse(self.step())

    def test_failed_activation_does_not_affect_others(self) -> None:
        self.errors["b"] = Problem(Category.NOT_FOUND, "gone")
        self.assertTrue(self.step())
        self.assertEqual([call[1] for call in self.calls], ["a", "c"])
        self.assertFalse(self.step())

    def test_one_that_fails_in_a_way_that_nobody_foresaw(self) -> None:
        """Its status is `error`, or it waits; the next ones are activated."""
        self.errors["a"] = ZeroDivisionError("Hansen")
        peeked: list[str] = []

        async def peek(tenant: str, subscription_id: str) -> Lease | None:
            peeked.append(subscription_id)
            if subscription_id == "b":
                raise ZeroDivisionError("Hansen")
            return None

        self.queue.peek = peek  # type: ignore[attr-defined]
        composer: Any = object()
        self.assertTrue(self.step(Activate(self.queue, self.set_status, {}, composer)))
        self.assertEqual(self.calls, [("other", "b", "error", "unexpected ZeroDivisionError"),
                                      ("default", "c", "active", None)])  # fmt: skip
        self.assertEqual(peeked, ["a", "b", "c"])
        self.flushLoggedErrors(ZeroDivisionError)

    def test_refusal_is_logged_once(self) -> None:
        lines: list[object] = []

        def observe(event: dict[str, object]) -> None:
            if event.get("log_namespace") == "ipf.pipeline.deliver.activate" and "problem" in event:
                lines.append(event["problem"])

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        self.errors["b"] = Problem(Category.INVALID, "no")
        stage = Activate(self.queue, self.set_status)
        for _ in range(5):
            self.step(stage)
        self.errors["b"] = Problem(Category.INVALID, "still no")
        self.step(stage)
        self.assertEqual(lines, ["no", "still no"])

    def test_unreachable_store_passes_through(self) -> None:
        self.errors["a"] = StoreUnreachable()
        stage = Activate(self.queue, self.set_status)
        self.failureResultOf(Deferred.fromCoroutine(stage.step()), StoreUnreachable)


NOW = datetime(2026, 1, 31, tzinfo=UTC)


class GuidedQueue(RequestedQueue):
    """A queue with readable subscriptions."""

    def __init__(self, *waiting: tuple[str, str]) -> None:
        super().__init__(*waiting)
        self.ledger: list[tuple[str, Attempt]] = []
        self.ended_rows: list[tuple[str, str]] = []
        self.versions: dict[str, int] = {}
        self.errors: dict[str, str] = {}

    async def peek(self, tenant: str, subscription_id: str) -> Lease | None:
        version = self.versions.setdefault(subscription_id, 1)
        resource: Json = {"id": subscription_id, "meta": {"versionId": str(version)}}
        if subscription_id in self.errors:
            resource["error"] = self.errors[subscription_id]
        if (tenant, subscription_id) in self.ended_rows:
            resource["end"] = NOW.isoformat()
        return Lease(tenant, 1, subscription_id, 0, NOW, resource, 0, None)

    async def record(self, tenant: str, subscription_id: str, attempts: list[Attempt]) -> None:
        self.ledger += [(subscription_id, attempt) for attempt in attempts]

    async def ended(self, limit: int) -> list[tuple[str, str]]:
        return self.ended_rows[:limit]


class HandshakeChannel:
    """Composer and channel in one: records handshakes and returns scripted results."""

    unavailable: str | None = None

    def __init__(self, **kinds: str) -> None:
        self.kinds = kinds
        self.answers: list[Deferred[Delivered] | Delivered] = []
        self.sent: list[str] = []

    def terms(self, subscription: Json) -> Terms:
        kind = self.kinds.get(subscription["id"], "rest-hook")
        return Terms(kind, "https://h.example.org", True, needs_handshake=kind == "rest-hook")

    async def handshake(self, lease: Lease) -> Notification:
        return Notification("POST", "https://h.example.org", (), b"{}", "c", subscription_id=lease.subscription_id)

    async def send(self, notification: Notification) -> Delivered:
        self.sent.append(notification.subscription_id)
        answer = self.answers.pop(0) if self.answers else Delivered(200, 3, None)
        return await answer if isinstance(answer, Deferred) else answer


class HandshakeTests(TestCase):
    """Requirements 19, 20, 21, 29, 30 and 31 of the guide."""

    def setUp(self) -> None:
        self.calls: list[tuple[str, str, str | None]] = []
        self.said: list[str | None] = []
        self.fences: list[str | None] = []
        self.clock = Clock()
        self.queue = GuidedQueue(("default", "a"))
        self.channel = HandshakeChannel()
        self.without_email = HandshakeChannel()
        self.without_email.unavailable = "no mail server is configured"

    async def set_status(
        self, tenant: str, subscription_id: str, status: str, error: str | None, version_id: str | None
    ) -> None:
        self.fences.append(version_id)
        if status == "requested" and error is not None:
            if version_id != str(self.queue.versions[subscription_id]):
                return
            self.said.append(error)
            self.queue.errors[subscription_id] = error
            self.queue.versions[subscription_id] += 1
            return
        self.calls.append((subscription_id, status, error))
        if (tenant, subscription_id) in self.queue.waiting:
            self.queue.waiting.remove((tenant, subscription_id))

    def stage(self, **more: Any) -> Activate:
        channels: Any = {"rest-hook": self.channel, "websocket": self.channel, "email": self.without_email}
        queue: Any = self.queue
        compose: Any = self.channel
        return Activate(queue, self.set_status, channels, compose, lambda: NOW, clock=self.clock, **more)

    def step(self, stage: Activate) -> bool:
        return self.successResultOf(Deferred.fromCoroutine(stage.step()))

    def test_acknowledged_handshake_activates(self) -> None:
        self.assertTrue(self.step(self.stage()))
        self.assertEqual((self.channel.sent, self.calls), (["a"], [("a", "active", None)]))
        ((id_, attempt),) = self.queue.ledger
        self.assertEqual((id_, attempt.kind, attempt.event_number, attempt.succeeded), ("a", HANDSHAKE, 0, True))

    def test_a_handshake_that_fails_is_repeated_for_thirty_seconds(self) -> None:
        """With growing pauses; health and the resource say each time how often, and at the end."""
        for answer, reason in (
            (Delivered(404, 3, None), "HTTP status 404"),
            (Delivered(None, 3, "refused"), "refused"),
        ):
            self.queue.waiting, self.queue.ledger, self.calls, self.said = [("default", "a")], [], [], []
            self.queue.versions, self.queue.errors, self.fences = {}, {}, []
            self.channel.answers, self.channel.sent = [answer] * 20, []
            stage = self.stage()
            self.assertFalse(self.step(stage))
            began, times, failed = self.clock.seconds(), [0.0], 1
            while not self.calls and self.clock.seconds() < began + 60:
                self.clock.advance(0.25)
                self.step(stage)
                if len(self.channel.sent) > failed:
                    failed = len(self.channel.sent)
                    times.append(self.clock.seconds() - began)
            self.assertEqual(times, [0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 23.5, 29.0])
            self.assertEqual(self.calls, [("a", "error", f"the handshake failed 8 times in 29 s: {reason}")])
            self.assertEqual(self.fences, [str(number) for number in range(1, 9)])
            times = ["once", *[f"{count} times" for count in range(2, 8)]]
            said = [f"the handshake failed {count} and is repeated for 30 s: {reason}" for count in times]
            self.assertEqual(self.said, said)
            errors = [attempt.error for _, attempt in self.queue.ledger]
            self.assertEqual(errors[0], f"{reason} (handshake 1, the next in 0.5 s)")
            self.assertEqual(errors[5:], [f"{reason} (handshake 6, the next in 8 s)",
                                          f"{reason} (handshake 7, the next in 5.5 s)", reason])  # fmt: skip

    def test_one_failure_is_no_error(self) -> None:
        """A connection that was closed during the handshake."""
        self.channel.answers = [Delivered(None, 3, "connection closed"), Delivered(503, 3, None, 3.0)]
        stage = self.stage()
        self.step(stage)
        self.clock.advance(0.5)
        self.assertEqual((len(self.channel.sent), self.calls), (2, []))
        self.clock.advance(1.0)
        self.clock.advance(1.0)
        self.assertEqual(len(self.channel.sent), 2, "Retry-After is the least pause")
        self.clock.advance(1.0)
        self.assertEqual((len(self.channel.sent), self.calls), (3, [("a", "active", None)]))
        self.assertEqual([attempt.succeeded for _, attempt in self.queue.ledger], [False, False, True])

    def test_a_changed_subscription_gets_its_handshake_within_a_second(self) -> None:
        """Whatever the pause after the failures of the former version."""
        self.channel.answers = [Delivered(404, 3, None)] * 6
        stage = self.stage()
        self.step(stage)
        for _ in range(16):
            self.clock.advance(1.0)
            self.step(stage)
        self.assertEqual(len(self.channel.sent), 6)
        self.queue.versions["a"] = 20
        self.clock.advance(1.0)
        self.step(stage)
        self.assertEqual((len(self.channel.sent), self.calls, self.fences[-1]), (7, [("a", "active", None)], "20"))

    def test_one_that_is_written_while_its_failure_is_gets_a_handshake_at_once(self) -> None:
        """The client's version is read instead of the one with the error: whatever it changed, its error is gone."""
        self.channel.answers = [Delivered(404, 3, None)]
        real = self.set_status

        async def overtaken(*asked: Any) -> None:
            await real(*asked)
            self.queue.errors.clear()
            self.queue.versions["a"] += 1

        self.set_status = overtaken  # type: ignore[method-assign]
        stage = self.stage()
        self.step(stage)
        self.assertEqual((len(self.channel.sent), self.calls), (1, []))
        self.step(stage)
        self.assertEqual((len(self.channel.sent), self.calls), (2, [("a", "active", None)]))

    def test_a_failure_that_cannot_be_written_stops_nothing(self) -> None:
        self.channel.answers = [Delivered(404, 3, None)] * 2
        real = self.set_status

        async def refused(tenant: str, id: str, status: str, error: str | None, version_id: str | None) -> None:
            if status == "requested":
                raise Problem(Category.CONFLICT, "the subscription is being changed concurrently")
            await real(tenant, id, status, error, version_id)

        self.set_status = refused  # type: ignore[method-assign]
        self.step(self.stage())
        self.clock.advance(0.5)
        self.clock.advance(1.0)
        self.assertEqual((len(self.channel.sent), self.calls, self.fences), (3, [("a", "active", None)], ["1"]))

    def test_a_stop_ends_the_pause(self) -> None:
        """The status stays requested, and the next process begins anew."""
        self.channel.answers = [Delivered(404, 3, None)]
        stage = self.stage()
        self.step(stage)
        stopped = Deferred.fromCoroutine(stage.stop(5.0, self.clock))
        self.clock.advance(0)
        self.assertTrue(self.successResultOf(stopped))
        self.assertEqual((self.calls, self.queue.waiting), ([], [("default", "a")]))

    def test_the_time_limit_of_an_attempt_ends_with_the_thirty_seconds(self) -> None:
        limits: list[float | None] = []
        real = self.channel.send

        async def send(notification: Notification) -> Delivered:
            limits.append(notification.timeout_seconds)
            self.clock.rightNow += min(10.0, notification.timeout_seconds or 10.0)  # it does not answer
            return await real(notification)

        self.channel.send = send  # type: ignore[method-assign]
        self.channel.answers = [Delivered(None, 10_000, "no answer")] * 9
        stage = self.stage()
        self.step(stage)
        for _ in range(120):
            self.clock.advance(0.25)
        self.assertEqual(limits, [30.0, 19.5, 8.5])
        self.assertEqual(self.calls, [("a", "error", "the handshake failed 3 times in 30 s: no answer")])

    def test_no_handshake_without_a_content_level(self) -> None:
        self.queue.waiting = [("default", "w"), ("default", "e"), ("default", "p")]
        self.channel.kinds = {"w": "websocket", "e": "email", "p": "pigeon"}
        self.step(self.stage())
        self.assertEqual(self.channel.sent, [])
        self.assertEqual(self.calls, [("w", "active", None), ("e", "error", "no mail server is configured"),
                                      ("p", "error", "this server has no channel pigeon")])  # fmt: skip

    def test_channels_that_never_send_are_active_without_a_handshake(self) -> None:
        """email without a mail server: no error, no handshake, no attempt."""
        self.queue.waiting = [("default", "e"), ("default", "a")]
        self.channel.kinds = {"e": "email"}
        self.step(self.stage(never_sent=frozenset({"email", "rest-hook"})))
        self.assertEqual(self.calls, [("e", "active", None), ("a", "active", None)])
        self.assertEqual((self.channel.sent, self.without_email.sent, self.queue.ledger), ([], [], []))

    def test_slow_endpoint_does_not_delay_others_and_gets_one_handshake(self) -> None:
        slow: Deferred[Delivered] = Deferred()
        self.queue.waiting, self.channel.answers = [("default", "a"), ("default", "b")], [slow]
        stage = self.stage()
        self.step(stage)
        self.assertEqual(self.calls, [("b", "active", None)])
        self.assertFalse(self.step(stage))
        stopped = Deferred.fromCoroutine(stage.stop(5.0, Clock()))
        self.assertNoResult(stopped)
        slow.callback(Delivered(200, 900, None))
        self.successResultOf(stopped)
        self.assertEqual((self.channel.sent, self.calls[1:]), (["a", "b"], [("a", "active", None)]))

    def test_response_of_a_previous_endpoint_is_ignored(self) -> None:
        slow: Deferred[Delivered] = Deferred()
        self.channel.answers = [slow]
        stage = self.stage()
        self.step(stage)
        self.queue.versions["a"] = 2
        slow.callback(Delivered(500, 900, None))
        self.assertEqual(self.calls, [])
        self.step(stage)
        self.assertEqual((self.channel.sent, self.calls), (["a", "a"], [("a", "active", None)]))

    def test_end_time_and_removed_topic(self) -> None:
        self.queue.waiting, self.queue.ended_rows = [], [("default", "old")]

        async def unserved() -> list[tuple[str, str, str, str]]:
            return [("default", "lost", "3", "no topic")]

        stage = self.stage(end=self.set_status, unserved=unserved)
        self.assertTrue(self.step(stage))
        self.assertEqual(
            self.calls, [("old", "off", None), ("lost", "error", "it cannot be served any more: no topic")]
        )
        self.assertFalse(self.step(stage))  # looked at once a second, however often the notifier rings
