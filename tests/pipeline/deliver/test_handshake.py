"""Handshakes on request of an operator."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.pipeline.deliver.handshake import TestNotification
from ipf.ports import HANDSHAKE, Attempt, Delivered, Lease
from tests.pipeline.deliver.test_activate import NOW, GuidedQueue, HandshakeChannel


class MissingQueue(GuidedQueue):
    """A queue in which no subscription has the id `gone`."""

    async def peek(self, tenant: str, subscription_id: str) -> Lease | None:
        return None if subscription_id == "gone" else await super().peek(tenant, subscription_id)


class TestNotificationTests(TestCase):
    def setUp(self) -> None:
        self.queue, self.channel = MissingQueue(), HandshakeChannel(w="websocket", e="email", p="pigeon")
        self.without_email = HandshakeChannel()
        self.without_email.unavailable = "no mail server is configured"
        channels: Any = {"rest-hook": self.channel, "websocket": self.channel, "email": self.without_email}
        queue: Any = self.queue
        compose: Any = self.channel
        self.test = TestNotification(queue, channels, compose, lambda: NOW)

    def send(self, id: str) -> Attempt:
        return self.successResultOf(Deferred.fromCoroutine(self.test("default", id)))

    def test_the_attempt_is_sent_and_recorded(self) -> None:
        for answer, succeeded, error in (
            (Delivered(200, 3, None), True, None),
            (Delivered(404, 3, None), False, "HTTP status 404"),
            (Delivered(None, 3, "refused"), False, "refused"),
        ):
            self.queue.ledger, self.channel.answers = [], [answer]
            attempt = self.send("a")
            self.assertEqual((attempt.succeeded, attempt.error, attempt.kind), (succeeded, error, HANDSHAKE))
            self.assertEqual((attempt.event_number, attempt.http_status), (0, answer.http_status))
            self.assertEqual(self.queue.ledger, [("a", attempt)])

    def test_there_is_nothing_to_send_to(self) -> None:
        for id, category, reason in (
            ("gone", Category.NOT_FOUND, "there is no subscription with id gone"),
            ("w", Category.BUSINESS_RULE, "its client gets a handshake when it binds"),
            ("e", Category.BUSINESS_RULE, "no mail server is configured"),
            ("p", Category.BUSINESS_RULE, "this server has no channel pigeon"),
        ):
            problem = self.failureResultOf(Deferred.fromCoroutine(self.test("default", id)), Problem).value
            self.assertEqual(problem.category, category, id)
            self.assertIn(reason, problem.text)
        self.assertEqual((self.channel.sent, self.queue.ledger), ([], []))
