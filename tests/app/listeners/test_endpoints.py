"""Endpoint strings, connection limits and the limit of open files."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory
from twisted.trial.unittest import TestCase

from ipf.app.listeners.endpoints import MLLP, Listeners, bound, http_connections, mllp_connections
from ipf.app.listeners.mllp import metric_label
from ipf.config.settings import Listener, Settings
from ipf.errors import Problem

BOUND = [
    ("tcp:2575", False, "tcp:2575:interface=127.0.0.1"),
    ("tcp:2575:interface=0.0.0.0", False, "tcp:2575:interface=0.0.0.0"),
    ("ssl:8443:privateKey=a.pem", False, "ssl:8443:privateKey=a.pem:interface=127.0.0.1"),
    ("tcp6:2575", False, "tcp6:2575:interface=\\:\\:1"),
    ("unix:/run/ipf.sock", False, "unix:/run/ipf.sock"),
    ("systemd:domain=INET:index=0", False, "systemd:domain=INET:index=0"),
    ("tcp:2575", True, "tcp:2575"),
]


RAISED = """
import resource
from ipf.app.listeners.endpoints import raise_file_limit
print(raise_file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))
"""


class EndpointTests(TestCase):
    def test_labels_of_metrics_have_no_address(self) -> None:
        for name, label in (
            ("lab", "lab"),
            ("tcp:2575", "tcp:2575"),
            ("tcp:2575:interface=10.1.2.3", "tcp:2575"),
            (r"ssl:2576:interface=\:\:1:privateKey=/etc/key", "ssl:2576"),
            ("tcp:port=2575:interface=10.1.2.3", "tcp:port=2575"),
        ):
            self.assertEqual(metric_label(name), label)

    def test_unprotected_listeners_bind_loopback(self) -> None:
        for endpoint, is_protected, expected in BOUND:
            self.assertEqual(bound(endpoint, is_protected), expected)

    async def test_listeners_that_cannot_be_opened_are_named(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            opening = Deferred.fromCoroutine(Listeners(reactor).open(f"tcp:{port}", Factory(), "MLLP lab", MLLP))
            failed = await self.assertFailure(opening, Problem)
            self.assertEqual(str(failed), f"IPF_MLLP_LISTEN: tcp:{port}: the port is in use")

    def test_connection_limits_leave_open_files(self) -> None:
        two = Settings(mllp_listen=(Listener("a", "tcp:1"), Listener("b", "tcp:2")), mllp_max_connections=5000)
        for files, most in ((65_536, 5000), (4096, 1792), (600, 44), (100, 1)):
            self.assertEqual(mllp_connections(two, files), most)
        one = Settings(http_max_connections=20_000)
        for files, most in ((65_536, 20_000), (20_000, 14_744), (4096, 1024), (1024, 256), (100, 25)):
            self.assertEqual(http_connections(one, files), most, files)
        self.assertEqual(http_connections(Settings(), 65_536), 10_000)

    def test_the_limit_of_open_files_is_raised(self) -> None:
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}
        command = ["bash", "-c", f"ulimit -Sn 1024; ulimit -Hn 4096; exec {sys.executable} -c '{RAISED}'"]
        done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=True)
        self.assertEqual(done.stdout.decode(), "4096 (4096, 4096)\n")
