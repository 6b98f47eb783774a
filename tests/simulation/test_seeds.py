"""Seeds that ever failed, those that find planted faults (without the fault), and that a seed repeats its run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests.simulation.planted import PLANTED
from tests.simulation.run import first_failure, simulate

KEPT = Path(__file__).with_name("seeds.txt")
PROGRAM = "from tests.simulation.run import simulate\nprint(*(simulate(seed).digest for seed in (3, 17, 94)))"
SEEDS = (3, 17, 94)


class SeedTests(TestCase):
    def test_kept_seeds_hold_all_rules(self) -> None:
        lines = [line for line in KEPT.read_text().splitlines() if not line.startswith("#")]
        self._hold([int(line.split()[0]) for line in lines])

    def test_seeds_that_find_planted_faults_hold_all_rules_without_the_fault(self) -> None:
        self._hold(sorted({planted.seed for planted in PLANTED}))

    def _hold(self, seeds: list[int]) -> None:
        found = first_failure(seeds)
        assert found is None, f"{found[1]}\n  bin/simulate --seed {found[0]}" if found else ""

    def test_a_seed_repeats_its_run(self) -> None:
        first, second = simulate(17), simulate(17)
        assert first == second

    def test_a_seed_repeats_its_run_with_other_hashes(self) -> None:
        environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True
        )  # fmt: skip
        assert done.stdout.split() == [simulate(seed).digest for seed in SEEDS]
