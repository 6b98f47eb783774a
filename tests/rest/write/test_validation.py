"""Converted messages under each validation mode."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.model.packages import Packages
from ipf.ports import Json
from ipf.rest.write.conformance import Conformance
from ipf.rest.write.unit import Unit, UnitResult
from ipf.rest.write.validation import validated
from tests.rest.world import World, create, unit

VALID: Json = {"resourceType": "Patient", "gender": "female"}
WRONG: Json = {"resourceType": "Patient", "gender": "wrong"}


class ValidationModeTests(TestCase):
    """Units in, results or Problems out."""

    async def run_in(self, mode: str) -> tuple[list[UnitResult | Problem], list[Unit], list[tuple[int, int]]]:
        """Submit one valid, one invalid and one valid unit."""
        world = World()
        sent: list[Unit] = []
        reported: list[tuple[int, int]] = []

        async def submit(units: Sequence[Unit]) -> list[UnitResult | Problem]:
            sent.extend(units)
            return [UnitResult() for _ in units]

        conformance = Conformance(Packages, world.store, lambda: world.now, mode)
        submit_validated = validated(
            submit, conformance, lambda unit, errors, others: reported.append((errors, others))
        )
        units = [unit(create(VALID)), unit(create(VALID), create(WRONG)), unit(create(VALID))]
        return await submit_validated(units), sent, reported

    async def test_off(self) -> None:
        results, sent, reported = await self.run_in("off")
        self.assertEqual((len(results), len(sent), reported), (3, 3, []))

    async def test_warn(self) -> None:
        results, sent, reported = await self.run_in("warn")
        self.assertEqual((len(results), len(sent)), (3, 3))
        self.assertEqual([errors for errors, _ in reported], [0, 1, 0])

    async def test_enforce(self) -> None:
        results, sent, _ = await self.run_in("enforce")
        self.assertEqual(len(sent), 2)
        problem = results[1]
        assert isinstance(problem, Problem)
        self.assertEqual(problem.category, Category.INVALID)
        self.assertEqual(problem.place, "Bundle.entry[1].resource (Patient.gender)")
        self.assertEqual([isinstance(one, UnitResult) for one in results], [True, False, True])
