"""Short turns of the service, and usual ones of what converts, as the kernel shows them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SkipTest, TestCase

_SHOWN = Path("/proc/self/sched")
_ASKING = """
import os, subprocess, sys
from pathlib import Path
from ipf.turns import short_turns, usual_turns

def turn():
    (line,) = [line for line in Path("/proc/self/sched").read_text().splitlines() if line.startswith("se.slice")]
    return int(line.rpartition(":")[2])

if sys.argv[1:]:
    print(turn())
    sys.exit()
before = turn()
began = os.nice(0)
os.nice(3)
assert short_turns()
print(turn() < before, os.nice(0) - began)
print(int(subprocess.run([sys.executable, __file__, "child"], stdout=subprocess.PIPE).stdout) == turn())
assert usual_turns()
print(turn() == before, os.nice(0) - began)
"""


class TurnsTests(TestCase):
    def test_what_the_kernel_says(self) -> None:
        """Shorter, inherited, as before again; and the priority is left alone."""
        release = tuple(int(part) for part in platform.release().split(".")[:2] if part.isdigit())
        if release < (6, 12) or not _SHOWN.exists() or "se.slice" not in _SHOWN.read_text():
            raise SkipTest("this kernel grants or shows no turns of a length of one's own")
        script = Path(self.mktemp())
        script.write_text(_ASKING)
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        command = [sys.executable, str(script)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual((done.stdout.split(), done.stderr), (["True", "3", "True", "True", "3"], ""))
