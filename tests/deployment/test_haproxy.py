"""haproxy reads etc/haproxy/haproxy.cfg; `tests/deployment/test_two_hosts.py` compares it with the settings."""

from __future__ import annotations

import shutil
import subprocess

from twisted.trial.unittest import TestCase

from tests.deployment.helm_values import ROOT
from tests.waiting import PATIENCE

GROUP = "deployment"


class HaproxyTests(TestCase):
    def test_haproxy_takes_its_file(self) -> None:
        program = shutil.which("haproxy", path="/usr/sbin:/usr/bin")
        assert program is not None, "haproxy is not installed"
        command = [program, "-c", "-f", str(ROOT / "etc/haproxy/haproxy.cfg")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
