"""The name of a process, and timers that do not follow the time of day."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.app.runtime.process import is_dead, worker_name

HOST = socket.gethostname()

JUMP = """
import time
of_day, ahead = time.time, 0
time.time = lambda: of_day() + ahead
from twisted.internet import reactor
from ipf.app.runtime.process import use_monotonic_timers
use_monotonic_timers(reactor)
began = time.monotonic()
def jump(seconds):
    global ahead
    ahead = seconds
def end():
    print(time.monotonic() - began)
    reactor.stop()
reactor.callLater(0.3, end)
reactor.callLater(0.1, jump, 3600)
reactor.callLater(0.2, jump, -3600)
reactor.run()
"""


class ProcessTests(TestCase):
    def test_timers_do_not_follow_the_time_of_day(self) -> None:
        """A clock set back by an hour does not delay a timer; a clock set forward does not fire it."""
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}
        command = [sys.executable, "-c", JUMP]
        done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=True)
        took = float(done.stdout)
        self.assertTrue(0.3 <= took < 20, took)

    def test_dead_workers_of_this_machine(self) -> None:
        child = subprocess.Popen([sys.executable, "-c", ""])
        child.wait()
        for worker, dead in [
            (worker_name(), False),
            (f"{HOST}:{os.getpid()}:1", False),
            (f"{HOST}:{child.pid}", True),
            (f"{HOST}:{child.pid}:2", True),
            (f"elsewhere-{HOST}:{child.pid}", False),
            (HOST, False),
            ("", False),
        ]:
            self.assertEqual(is_dead(worker), dead, worker)
