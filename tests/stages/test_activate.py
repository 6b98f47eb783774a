"""Activation: requested subscriptions become active, one that cannot does not hold up the others."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.stages.activate import Activate


class Requested:
    """The part of the delivery queue that activation uses."""

    def __init__(self, *waiting: tuple[str, str]) -> None:
        self.waiting = list(waiting)

    async def requested(self, limit: int) -> list[tuple[str, str]]:
        return self.waiting[:limit]


class ActivateTests(TestCase):
    def setUp(self) -> None:
        self.calls: list[tuple[str, str, str, str | None]] = []
        self.errors: dict[str, Exception] = {}
        self.queue = Requested(("default", "a"), ("other", "b"), ("default", "c"))

    async def set_status(self, tenant: str, subscription_id: str, status: str, error: str | None) -> None:
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

    def test_one_that_cannot_be_activated_is_left(self) -> None:
        self.errors["b"] = Problem(Category.NOT_FOUND, "gone")
        self.assertTrue(self.step())
        self.assertEqual([call[1] for call in self.calls], ["a", "c"])
        self.assertFalse(self.step())

    def test_a_refusal_is_written_once(self) -> None:
        lines: list[object] = []

        def observe(event: dict[str, object]) -> None:
            if event.get("log_namespace") == "ipf.stages.activate" and "problem" in event:
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

    def test_a_store_that_is_away_is_the_workers_matter(self) -> None:
        self.errors["a"] = StoreUnreachable()
        stage = Activate(self.queue, self.set_status)
        self.failureResultOf(Deferred.fromCoroutine(stage.step()), StoreUnreachable)
