"""The composition root's own decisions: where listeners bind, whose work is up for grabs, what a missing map means."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from twisted.trial.unittest import TestCase

from ipf.converter import is_dead, worker_name
from ipf.doors import bound

HOST = socket.gethostname()

BOUND = [
    ("tcp:2575", False, "tcp:2575:interface=127.0.0.1"),
    ("tcp:2575:interface=0.0.0.0", False, "tcp:2575:interface=0.0.0.0"),
    ("ssl:8443:privateKey=a.pem", False, "ssl:8443:privateKey=a.pem:interface=127.0.0.1"),
    ("tcp6:2575", False, "tcp6:2575:interface=\\:\\:1"),
    ("unix:/run/ipf.sock", False, "unix:/run/ipf.sock"),
    ("systemd:domain=INET:index=0", False, "systemd:domain=INET:index=0"),
    ("tcp:2575", True, "tcp:2575"),
]


class ServiceTests(TestCase):
    def test_unprotected_listeners_bind_loopback(self) -> None:
        for endpoint, is_protected, expected in BOUND:
            self.assertEqual(bound(endpoint, is_protected), expected)

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
