"""`bin/summary`: what CI reads of the reports of trial."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.service_process import ROOT

PASSED = "tests.a\n  One\n    test_x ...   [OK]\n\nRan 3 tests in 1.0s\n\nPASSED (skips=1, successes=2)\n"
LINE = "=" * 79
FAILED = f"""
{LINE}
[FAIL]
Traceback (most recent call last):
  File "a.py", line 1, in test_x
    self.assertEqual(1, 2)
twisted.trial.unittest.FailTest: not equal:
a = 1

tests.a.One.test_x
tests.a.One.test_y
{LINE}
[ERROR]
Traceback (most recent call last):
  File "b.py", line 2, in test_z
builtins.ValueError: no number

tests.b.Two.test_z
{LINE}
[ERROR]
Traceback (most recent call last):
  File "a.py", line 9, in run
--- <exception caught here> ---
  File "c.py", line 3, in test_w
    process.send_signal(9)
psutil.NoSuchProcess: process no longer exists (pid=7)

tests.c.Three.test_w
{"-" * 79}
Ran 4 tests in 1.0s

FAILED (failures=2, errors=2, successes=1)
"""
SKIPPED = "  test_x ...   [SKIPPED]\nno PostgreSQL here\nRan 2 tests in 1.0s\n\nPASSED (skips=1, successes=1)\n"


class SummaryTests(SynchronousTestCase):
    def summary(self, *reports: str, ci: str = "") -> tuple[int, list[str]]:
        """The exit status and the lines for these reports."""
        paths = []
        for report in reports:
            paths.append(self.mktemp())
            Path(paths[-1]).write_text(report)
        command = [sys.executable, str(ROOT / "bin/summary"), *paths]
        ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"CI": ci}, check=False)
        return ended.returncode, ended.stdout.splitlines()

    def test_reports(self) -> None:
        self.assertEqual(self.summary(PASSED, PASSED), (0, ["4 passed, 0 failed, 2 skipped"]))
        self.assertEqual(
            self.summary(PASSED, FAILED),
            (
                1,
                [
                    "failed: tests.a.One.test_x: twisted.trial.unittest.FailTest: not equal: a = 1",
                    "failed: tests.a.One.test_y: twisted.trial.unittest.FailTest: not equal: a = 1",
                    "failed: tests.b.Two.test_z: builtins.ValueError: no number",
                    "failed: tests.c.Three.test_w: psutil.NoSuchProcess: process no longer exists (pid=7)",
                    "3 passed, 4 failed, 1 skipped",
                ],
            ),
        )

    def test_what_did_not_run_is_no_success(self) -> None:
        """A report that breaks off, one without tests, and in CI a skip for want of PostgreSQL."""
        for report in ("", "tests.a\n", "Ran 0 tests in 0.0s\n\nPASSED\n"):
            self.assertEqual(self.summary(report), (1, ["trial did not finish", "0 passed, 1 failed, 0 skipped"]))
        self.assertEqual(self.summary(SKIPPED)[0], 0)
        self.assertEqual(self.summary(SKIPPED, ci="true")[0], 1)
