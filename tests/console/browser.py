"""The console in a real browser: engine and console as child processes, Debian's chromium driven by Playwright.

`ConsoleProcess` is one `twistd ipf-ui`.  `BrowserTest` is the base of all browser tests.
"""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from hl7.client import MLLPClient
from playwright.sync_api import Page, sync_playwright
from twisted.trial.unittest import SkipTest, TestCase

from tests.service_process import ROOT, ServiceProcess
from tests.waiting import PATIENCE, free_port

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MILLISECONDS = float(os.environ.get("IPF_BROWSER_SECONDS", PATIENCE)) * 1000


class ConsoleProcess:
    """One `twistd ipf-ui` on loopback, in front of an engine."""

    def __init__(self, folder: Path, engine: str, **environment: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.log_path = folder / "console.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IPF_", "OIDC_"))}
        self.environment = kept | {
            "PYTHONPATH": str(ROOT),
            "IPF_UI_LISTEN": f"tcp:{self.port}:interface=127.0.0.1",
            "IPF_UI_ENGINE_URL": engine,
            **environment,
        }

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = self.log_path.open("ab")
        twistd = Path(sys.executable).with_name("twistd")
        command = [str(twistd), "--nodaemon", "--pidfile=", "ipf-ui"]
        self._process = subprocess.Popen(command, env=self.environment, cwd=self.folder, stdout=self._log,
                                         stderr=subprocess.STDOUT)  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        pause = getattr(time, "sleep")  # noqa: B009  # blocking on purpose: there is no reactor here
        while not self.answers():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the console does not answer:\n{self.log_path.read_text()[-2000:]}")
            pause(0.05)

    def answers(self) -> bool:
        """Whether it serves pages."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", "/signed-out")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        """SIGTERM."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(PATIENCE)
        if self._log is not None:
            self._log.close()


def send(port: int, *messages: bytes) -> None:
    """Send messages over MLLP with the client of PyPI hl7; AssertionError for one that is not accepted."""
    with MLLPClient("127.0.0.1", port) as client:
        for message in messages:
            assert b"MSA|AA" in client.send_message(message), message


class BrowserTest(TestCase):
    """Base of the browser tests: an engine, a console and a browser for each test, so that none sees another's data."""

    timeout = PATIENCE

    def setUp(self) -> None:
        if CHROMIUM is None:
            raise SkipTest("chromium is not installed (Debian: apt-get install chromium)")
        folder = Path(tempfile.mkdtemp(prefix="ipf-console-"))
        folder.chmod(0o755)
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.engine = ServiceProcess(folder)
        self.engine.start()
        self.addCleanup(self.engine.stop)
        self.console = self.open_console(folder)
        self.console.start()
        self.addCleanup(self.console.stop)
        playwright = sync_playwright().start()
        self.addCleanup(playwright.stop)
        self.browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        self.addCleanup(self.browser.close)
        self.engine.wait_ready()

    def open_console(self, folder: Path) -> ConsoleProcess:
        """The console of the test, not started: a sandbox."""
        return ConsoleProcess(folder, self.engine.base_url)

    def page(self, **options: Any) -> Page:
        """A page of a new browser context.  Script errors and refusals of the content policy fail the test."""
        context = self.browser.new_context(base_url=self.console.url, **options)
        context.set_default_timeout(MILLISECONDS)
        self.addCleanup(context.close)
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if "Content Security" in message.text else None)
        self.addCleanup(lambda: self.assertEqual(errors, []))
        return page
