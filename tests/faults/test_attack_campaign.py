"""All attacks at once beside an MLLP feed: every acknowledgement within a second, nothing lost, memory bounded.

`IPF_ATTACK_SECONDS` says how long (default 60; 3600 is the hour of the acceptance).  `bin/bench attacks` shows figures.
"""

from __future__ import annotations

import os

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.attacked import Attacked, Report
from tests.faults.attackers import ATTACKS
from tests.waiting import SLOW

GROUP = "campaigns"

SECONDS = float(os.environ.get("IPF_ATTACK_SECONDS", "60"))
ACKNOWLEDGED_SECONDS = 1.0 * SLOW
MEMORY_MIB, CONSOLE_MIB = 2048, 512
"""`MemoryMax` of the systemd units."""


class AttackTests(TestCase):
    timeout = SECONDS + 2 * LIMIT

    def test_all_attacks_at_once(self) -> None:
        attacked = Attacked()
        try:
            attacked.start()
            report = run(attacked.run(SECONDS), seconds=self.timeout)
        finally:
            attacked.stop()
        self._check(report)

    def _check(self, report: Report) -> None:
        self.assertEqual(report.lost, [])
        self.assertEqual(set(report.codes), {"AA"}, report.codes)
        self.assertLess(report.slowest, ACKNOWLEDGED_SECONDS, f"{report.stalls} {report.stalled_by}; {report.lag}")
        self.assertEqual(report.health, "UP")
        self.assertLess(report.memory["service"], MEMORY_MIB, report.memory)
        self.assertLess(report.memory["console"], CONSOLE_MIB, report.memory)
        for name in ATTACKS:
            self.assertTrue(report.attacks[name], f"{name} was never answered")
        answers = {answer for each in report.attacks.values() for answer in each}
        self.assertFalse({answer for answer in answers if answer.startswith("5")} - {"503"}, report.attacks)
