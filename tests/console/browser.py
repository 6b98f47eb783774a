"""The console in a real browser: engine and console as child processes, Debian's chromium driven by Playwright.

`ConsoleProcess` is one `twistd ipf-ui`.  `BrowserTest` is the base of all browser tests.
"""

from __future__ import annotations

import atexit
import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

from hl7.client import MLLPClient
from playwright.sync_api import Page, expect, sync_playwright
from twisted.trial.unittest import SkipTest, TestCase

from tests.service_process import ROOT, ServiceProcess
from tests.waiting import PATIENCE, free_port

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MILLISECONDS = float(os.environ.get("IPF_BROWSER_SECONDS", PATIENCE)) * 1000
expect.set_options(timeout=MILLISECONDS)


def wait_until(condition: Callable[[], bool]) -> None:
    """Block until a condition holds.  TimeoutError after PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    pause = getattr(time, "sleep")  # noqa: B009  # blocking on purpose: there is no reactor here
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        pause(0.05)


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

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = self.log_path.open("ab")
        twistd = Path(sys.executable).with_name("twistd")
        command = [str(twistd), "--nodaemon", "--pidfile=", "ipf-ui"]
        self._process = subprocess.Popen(command, env=self.environment, cwd=self.folder, stdout=self._log,
                                         stderr=subprocess.STDOUT)  # fmt: skip
        try:
            wait_until(self.answers)
        except TimeoutError:
            raise TimeoutError(f"the console does not answer:\n{self.log_path.read_text()[-2000:]}") from None

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


class Backstage:
    """The engine and the console of a class of tests, started once.  What fails to start is stopped again."""

    current: Backstage | None = None

    def __init__(self, case: type[BrowserTest]) -> None:
        self.case = case
        self.folder = Path(tempfile.mkdtemp(prefix="ipf-console-"))
        self.folder.chmod(0o755)
        self._stops: list[Callable[[], object]] = [partial(shutil.rmtree, self.folder, ignore_errors=True)]
        self.engine = ServiceProcess(self.folder, **case.engine_settings)
        try:
            self.engine.start()
            self.add_stop(self.engine.stop)
            self.console = case.open_console(self)
            self.add_stop(self.console.stop)
            self.console.start()
            self.engine.wait_ready()
            case.prepare(self)
        except BaseException:
            self.stop()
            raise

    def add_stop(self, stop: Callable[[], object]) -> None:
        """Something to stop at the end, before everything that was added earlier."""
        self._stops.append(stop)

    def stop(self) -> None:
        """Stop both."""
        while self._stops:
            self._stops.pop()()

    @classmethod
    def of(cls, case: type[BrowserTest]) -> Backstage:
        """Those of this class of tests; those of the class before are stopped.  There is one at a time."""
        if cls.current is None or cls.current.case is not case:
            cls.end()
            cls.current = cls(case)
        return cls.current

    @classmethod
    def end(cls) -> None:
        """Stop the present ones."""
        if cls.current is not None:
            cls.current.stop()
            cls.current = None


atexit.register(Backstage.end)


class BrowserTest(TestCase):
    """Base of the browser tests: an engine and a console for each class of tests, a browser context for each page.

    Tests of one class see each other's messages: they use ids of their own.  A test that stops the engine starts it
    again, or has `is_alone`: then each test of the class gets an engine of its own.
    """

    timeout = PATIENCE
    maxDiff = None
    is_alone = False
    engine_settings: Mapping[str, str] = {}

    def setUp(self) -> None:
        if CHROMIUM is None:
            raise SkipTest("no browser: chromium is not installed (Debian: apt-get install chromium)")
        if self.is_alone:
            Backstage.end()
        backstage = Backstage.of(type(self))
        self.engine, self.console = backstage.engine, backstage.console
        playwright = sync_playwright().start()  # not for longer: asyncio runs no other loop meanwhile
        self.addCleanup(playwright.stop)
        self.browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        self.addCleanup(self.browser.close)

    @classmethod
    def open_console(cls, backstage: Backstage) -> ConsoleProcess:
        """The console of the class, not started: a sandbox."""
        return ConsoleProcess(backstage.folder, backstage.engine.base_url)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Block until something holds that no page shows."""
        deadline = time.monotonic() + MILLISECONDS / 1000
        pause = getattr(time, "sleep")  # noqa: B009  # blocking on purpose: there is no reactor here
        while not condition():
            self.assertLess(time.monotonic(), deadline, "what is waited for does not happen")
            pause(0.05)

    @classmethod
    def prepare(cls, backstage: Backstage) -> None:
        """What the engine of the class holds before its first test."""

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
