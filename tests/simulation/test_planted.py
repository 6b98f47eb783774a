"""The simulation finds planted faults."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.simulation.planted import PLANTED, Planted
from tests.simulation.run import first_failure

MOST_SEEDS = 2000


class PlantedTests(TestCase):
    """One test for each fault."""

    def find(self, planted: Planted) -> None:
        """Its known seed finds it, or (when draws have changed) another one of the first 2,000."""
        with planted.grown():
            found = first_failure([planted.seed]) or first_failure(range(MOST_SEEDS))
        assert found is not None, f"{MOST_SEEDS} seeds do not find it: {planted.text}"


def _test(planted: Planted) -> object:
    def test(self: PlantedTests) -> None:
        self.find(planted)

    test.__doc__ = f"{planted.text}."
    return test


for one in PLANTED:
    setattr(PlantedTests, f"test_{one.text.replace(' ', '_').replace('-', '_')}", _test(one))
