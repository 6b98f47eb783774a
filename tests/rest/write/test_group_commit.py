"""Group commit of HTTP writes: concurrent requests share a transaction and fail individually."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.rest.write.group_commit import WriteGroup
from ipf.rest.write.unit import Unit, UnitResult
from tests.rest.world import create, patient, unit


class WriteGroupTests(TestCase):
    def setUp(self) -> None:
        self.write_group = WriteGroup()
        self.calls: list[int] = []
        self.gates: list[Deferred[None]] = []
        self.failing: Unit | None = None
        self.failure: Exception = RuntimeError("poison")

    async def store(self, units: Sequence[Unit]) -> list[UnitResult | Problem]:
        """Waits for its gate; fails when the poison is among them."""
        self.calls.append(len(units))
        gate: Deferred[None] = Deferred()
        self.gates.append(gate)
        await gate
        if self.failing in units:
            raise self.failure
        return [UnitResult() for _ in units]

    def send(self, one: Unit) -> Deferred[Any]:
        """One request."""
        return Deferred.fromCoroutine(self.write_group.store(one, self.store))

    def open(self) -> None:
        """Finish all running transactions and those that follow."""
        while self.gates:
            self.gates.pop(0).callback(None)

    def test_single_request_does_not_wait_and_many_share(self) -> None:
        sent = [self.send(unit(create(patient(str(n))))) for n in range(10)]
        self.assertEqual(self.calls, [1, 1])
        self.open()
        self.assertEqual(self.calls, [1, 1, 8])
        self.assertEqual([self.successResultOf(one) for one in sent], [UnitResult()] * 10)

    def test_large_units_have_their_own_transaction(self) -> None:
        large = unit(*(create(patient(str(n))) for n in range(20)))
        sent = [self.send(unit(create(patient("a")))), self.send(unit(create(patient("b")))), self.send(large)]
        self.assertEqual(self.calls, [1, 1, 1])
        self.open()
        for one in sent:
            self.successResultOf(one)

    def test_failing_unit_is_isolated(self) -> None:
        units = [unit(create(patient(str(n)))) for n in range(6)]
        self.failing = units[4]
        sent = [self.send(one) for one in units]
        self.open()
        self.assertEqual(self.calls, [1, 1, 4, 1, 1, 1, 1])
        self.failureResultOf(sent[4], RuntimeError)
        for number in (0, 1, 2, 3, 5):
            self.successResultOf(sent[number])
        again = self.send(units[0])
        self.open()
        self.successResultOf(again)

    def test_unreachable_store_is_not_retried_for_each_unit(self) -> None:
        units = [unit(create(patient(str(n)))) for n in range(6)]
        self.failing, self.failure = units[4], StoreUnreachable()
        sent = [self.send(one) for one in units]
        self.open()
        self.assertEqual(self.calls, [1, 1, 4])
        for one in sent[2:]:
            problem = self.failureResultOf(one, StoreUnreachable).value
            self.assertEqual(problem.category, Category.UNAVAILABLE)
