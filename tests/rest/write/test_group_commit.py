"""Requests that arrive while others are stored share a transaction, and fail for themselves only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.rest.write.group_commit import WriteGroup
from ipf.rest.write.unit import Unit, UnitResult
from tests.rest.world import create, patient, unit


class TogetherTests(TestCase):
    def setUp(self) -> None:
        self.together = WriteGroup()
        self.calls: list[int] = []
        self.gates: list[Deferred[None]] = []
        self.poison: Unit | None = None
        self.failure: Exception = RuntimeError("poison")

    async def store(self, units: Sequence[Unit]) -> list[UnitResult | Problem]:
        """Waits for its gate; fails when the poison is among them."""
        self.calls.append(len(units))
        gate: Deferred[None] = Deferred()
        self.gates.append(gate)
        await gate
        if self.poison in units:
            raise self.failure
        return [UnitResult() for _ in units]

    def send(self, one: Unit) -> Deferred[Any]:
        """One request."""
        return Deferred.fromCoroutine(self.together.store(one, self.store))

    def open(self) -> None:
        """Let everything finish that is under way, and what follows."""
        while self.gates:
            self.gates.pop(0).callback(None)

    def test_a_lone_request_waits_for_nothing_and_many_share(self) -> None:
        sent = [self.send(unit(create(patient(str(n))))) for n in range(10)]
        self.assertEqual(self.calls, [1, 1])
        self.open()
        self.assertEqual(self.calls, [1, 1, 8])
        self.assertEqual([self.successResultOf(one) for one in sent], [UnitResult()] * 10)

    def test_large_units_go_on_their_own(self) -> None:
        large = unit(*(create(patient(str(n))) for n in range(20)))
        sent = [self.send(unit(create(patient("a")))), self.send(unit(create(patient("b")))), self.send(large)]
        self.assertEqual(self.calls, [1, 1, 1])
        self.open()
        for one in sent:
            self.successResultOf(one)

    def test_one_that_breaks_the_others_is_found(self) -> None:
        units = [unit(create(patient(str(n)))) for n in range(6)]
        self.poison = units[4]
        sent = [self.send(one) for one in units]
        self.open()
        self.assertEqual(self.calls, [1, 1, 4, 1, 1, 1, 1])
        self.failureResultOf(sent[4], RuntimeError)
        for number in (0, 1, 2, 3, 5):
            self.successResultOf(sent[number])
        again = self.send(units[0])
        self.open()
        self.successResultOf(again)

    def test_a_store_that_is_away_is_not_asked_again_for_each(self) -> None:
        units = [unit(create(patient(str(n)))) for n in range(6)]
        self.poison, self.failure = units[4], StoreUnreachable()
        sent = [self.send(one) for one in units]
        self.open()
        self.assertEqual(self.calls, [1, 1, 4])
        for one in sent[2:]:
            problem = self.failureResultOf(one, StoreUnreachable).value
            self.assertEqual(problem.category, Category.UNAVAILABLE)
