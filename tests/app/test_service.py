"""The composition root's own decisions: where listeners bind, whose work is up for grabs, what a missing map means."""

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

from ipf.app.converter import is_dead, worker_name
from ipf.app.endpoints import MLLP, bound, check_places, listen, most_clients, most_senders
from ipf.config.settings import Listener, Settings
from ipf.errors import Problem

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


JUMP = """
import time
of_day, ahead = time.time, 0
time.time = lambda: of_day() + ahead
from twisted.internet import reactor
from ipf.app.converter import steady_timers
steady_timers(reactor)
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


RAISED = """
import resource
from ipf.app.endpoints import raise_file_limit
print(raise_file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))
"""


class ServiceTests(TestCase):
    def test_unprotected_listeners_bind_loopback(self) -> None:
        for endpoint, is_protected, expected in BOUND:
            self.assertEqual(bound(endpoint, is_protected), expected)

    def test_places_that_cannot_be_used_are_named(self) -> None:
        for settings, variable in (
            (Settings(http_listen="8090"), "IPF_HTTP_LISTEN"),
            (Settings(mllp_listen=(Listener("lab", ""),)), "IPF_MLLP_LISTEN"),
            (Settings(mllp_listen=(Listener("lab", "tcp:x"),)), "IPF_MLLP_LISTEN"),
            (Settings(mllp_listen=(Listener("lab", "tcp:1:nothing=2"),)), "IPF_MLLP_LISTEN"),
            (Settings(mllp_listen=(Listener("lab", "ssl:2575:privateKey=/nowhere.pem"),)), "IPF_MLLP_LISTEN"),
            (Settings(maps_dir="/nowhere/at/all"), "IPF_MAPS_DIR"),
            (Settings(package_dir=__file__), "IPF_PACKAGE_DIR"),
        ):
            with self.assertRaisesRegex(Problem, f"^{variable}: "):
                check_places(settings, reactor)
        check_places(Settings(), reactor)

    async def test_listeners_that_cannot_be_opened_are_named(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            for port in (taken.getsockname()[1], 99999):
                opening = Deferred.fromCoroutine(listen(reactor, f"tcp:{port}", Factory(), "MLLP lab", MLLP))
                failed = await self.assertFailure(opening, Problem)
                self.assertTrue(str(failed).startswith("IPF_MLLP_LISTEN: MLLP lab cannot listen on tcp:"), failed)

    def test_files_are_left_for_all_else(self) -> None:
        two = Settings(mllp_listen=(Listener("a", "tcp:1"), Listener("b", "tcp:2")), mllp_max_connections=5000)
        for files, most in ((65_536, 5000), (4096, 1792), (600, 44), (100, 1)):
            self.assertEqual(most_senders(two, files), most)
        one = Settings(http_max_connections=20_000)
        for files, most in ((65_536, 20_000), (20_000, 14_744), (4096, 1024), (1024, 256), (100, 25)):
            self.assertEqual(most_clients(one, files), most, files)
        self.assertEqual(most_clients(Settings(), 65_536), 10_000)

    def test_the_limit_of_a_login_shell_is_raised(self) -> None:
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        command = ["bash", "-c", f"ulimit -Sn 1024; ulimit -Hn 4096; exec {sys.executable} -c '{RAISED}'"]
        done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=True)
        self.assertEqual(done.stdout.decode(), "4096 (4096, 4096)\n")

    def test_timers_do_not_follow_the_time_of_day(self) -> None:
        """A clock that is set back by an hour while a timer runs does not hold it up, set forward does not fire it."""
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
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
