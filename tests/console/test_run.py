"""`bin/run`: the service and the console as one command."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from twisted.trial.unittest import SkipTest, TestCase

from tests.console.process import ConsoleProcess
from tests.service_process import ROOT, ServiceProcess
from tests.waiting import LIMIT, PATIENCE, block_until

GROUP = "flows"


class RunTests(TestCase):
    timeout = 5 * LIMIT  # it blocks, and each of its waits has a limit

    def setUp(self) -> None:
        if not (ROOT / ".venv").exists():
            raise SkipTest("bin/run would install .venv")
        self.folder = Path(tempfile.mkdtemp(prefix="ipf-run-"))
        self.folder.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.engine = ServiceProcess(self.folder)
        self.engine.prepare()
        self.console = ConsoleProcess(self.folder, "")
        del self.console.environment["IPF_UI_ENGINE_URL"]  # bin/run knows where its engine listens

    def run_both(self, **settings: str) -> subprocess.Popen[bytes]:
        """The command; it is stopped when the test ends."""
        environment = self.engine.environment | self.console.environment | settings
        log = (self.folder / "log").open("wb")
        self.addCleanup(log.close)
        running = subprocess.Popen(["bin/run"], cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
        self.addCleanup(running.wait, PATIENCE)
        self.addCleanup(running.send_signal, signal.SIGTERM)
        return running

    def test_both_start_and_stop_together(self) -> None:
        running = self.run_both()
        block_until(self.engine.answers)
        block_until(self.console.answers)
        line = f"console {self.console.url} of {self.engine.base_url}"
        block_until(lambda: line in (self.folder / "log").read_text())
        running.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(PATIENCE), 0)
        block_until(lambda: not self.console.answers())

    def test_a_console_that_cannot_start_leaves_the_engine_alone(self) -> None:
        running = self.run_both(IPF_UI_LISTEN=f"tcp:{self.engine.http_port}:interface=203.0.113.1")
        block_until(self.engine.answers)
        block_until(lambda: "IPF_UI_LISTEN" in (self.folder / "log").read_text())
        self.assertIsNone(running.poll())
