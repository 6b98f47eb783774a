"""New seeds of each run of the suite, in modules that workers run side by side."""

from __future__ import annotations

import os

from tests.simulation.run import first_failure

SEEDS = 25


class NewSeeds:
    """Seeds that nobody has run before."""

    def test_new_seeds_hold_all_rules(self) -> None:
        self.run_seeds()

    def test_more_new_seeds_hold_all_rules(self) -> None:
        self.run_seeds()

    def run_seeds(self) -> None:
        """Run seeds from a base that the system draws."""
        base = int.from_bytes(os.urandom(5))
        found = first_failure(range(base, base + SEEDS))
        assert found is None, f"{found[1]}\n  bin/simulate --seed {found[0]}\nkeep it in seeds.txt" if found else ""
