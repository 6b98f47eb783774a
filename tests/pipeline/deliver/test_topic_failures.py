"""The stage that writes the reports of failing topics."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.pipeline.deliver.topic_failures import BATCH, ReportTopicFailures


class ReportTopicFailuresTests(TestCase):
    def setUp(self) -> None:
        self.pending = {"a": "text a", "b": "text b", "c": "text c"}
        self.old = ["x"]
        self.postponed: list[str] = []
        self.written: list[tuple[str, str | None]] = []
        self.answers: dict[str, bool | Exception] = {}
        self.stage = ReportTopicFailures(
            lambda limit: [("default", id, text) for id, text in self.pending.items()][:limit],
            lambda tenant, id: self.pending.__delitem__(id),
            lambda tenant, id: self.postponed.append(id),
            self.report,
            lambda: [("default", id) for id in self.old],
        )

    async def report(self, tenant: str, id: str, error: str | None) -> bool:
        answer = self.answers.get(id, True)
        if isinstance(answer, Exception):
            raise answer
        self.written.append((id, error))
        return answer

    def step(self) -> Deferred[bool]:
        return Deferred.fromCoroutine(self.stage.step())

    def test_reports_and_withdrawals(self) -> None:
        """One that is not active yet stays; one that is gone does not."""
        self.answers = {"b": False, "c": Problem(Category.NOT_FOUND, "gone")}
        self.assertFalse(self.successResultOf(self.step()))
        self.assertEqual(self.written, [("a", "text a"), ("b", "text b"), ("x", None)])
        self.assertEqual((list(self.pending), self.postponed), (["b"], ["b"]))

    def test_an_unreachable_store_keeps_them(self) -> None:
        self.answers = {"b": StoreUnreachable()}
        self.failureResultOf(self.step(), StoreUnreachable)
        self.assertEqual(list(self.pending), ["b", "c"])
        self.answers.clear()
        self.successResultOf(self.step())
        self.assertEqual(self.pending, {})

    def test_a_step_is_bounded(self) -> None:
        self.pending = {str(number): "text" for number in range(BATCH + 1)}
        self.successResultOf(self.step())
        self.assertEqual(len(self.pending), 1)
