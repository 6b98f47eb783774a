"""The console in a real browser: Debian's chromium driven by Playwright, one for all tests of a process.

`BrowserTest` is the base of all browser tests.  Their modules have `GROUP = "browsers"` and `FAMILY = "console"`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from hl7.client import MLLPClient
from playwright.sync_api import Browser, Page, expect, sync_playwright
from twisted.trial.unittest import TestCase

from tests.console.process import ConsoleProcess
from tests.console.stage import SETTINGS, Stage, end_own, own, shared
from tests.faults.feed import admission
from tests.waiting import LIMIT, PATIENCE, block_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync")  # fmt: skip
MILLISECONDS = float(os.environ.get("IPF_BROWSER_SECONDS", PATIENCE)) * 1000
expect.set_options(timeout=MILLISECONDS)

_STREAMS = """(() => {
    const Source = window.EventSource;
    window.streams = {open: 0, events: 0};
    window.EventSource = class extends Source {
        constructor(...given) {
            super(...given);
            this.addEventListener("open", () => { window.streams.open += 1; });
            for (const name of ["state", "rows"]) this.addEventListener(name, () => { window.streams.events += 1; });
        }
    };
})()"""
"""Counts streams that are open, and events that have come, for tests that wait for them."""


class _Chromium:
    """The browser of this process, which ends with it.

    Playwright keeps an asyncio loop running between its calls.  Tests of other modules run loops of their own, so it is
    the running one only between `enter` and `leave`.
    """

    def __init__(self) -> None:
        self._browser: Browser | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def enter(self) -> Browser:
        """Its browser, started when needed."""
        if self._loop is None:
            self._playwright = sync_playwright().start()
            self._loop = asyncio.get_running_loop()
        asyncio._set_running_loop(self._loop)
        if self._browser is None or not self._browser.is_connected():
            self._browser = self._playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        return self._browser

    def leave(self) -> None:
        """Let other loops run."""
        asyncio._set_running_loop(None)


_chromium = _Chromium()


def send(port: int, *messages: bytes) -> None:
    """Send messages over MLLP with the client of PyPI hl7; AssertionError for one that is not accepted."""
    with MLLPClient("127.0.0.1", port) as client:
        for message in messages:
            assert b"MSA|AA" in client.send_message(message), message


def admission_from(sender: str, control_id: str, kind: str = "ADT^A01^ADT_A01") -> bytes:
    """An admission by this sender, of a patient of its own."""
    message = admission(control_id, f"P-{sender}-{control_id}", "1").replace(b"|FEED|", f"|{sender}|".encode())
    return message.replace(b"ADT^A01^ADT_A01", kind.encode())


class BrowserTest(TestCase):
    """Base of the browser tests: a console in front of an engine, and a browser context for each page.

    Classes share the engine: they use ids and senders of their own.  `has_own_engine`: the class has one alone, with
    `engine_settings`.  `is_alone`: each test has one alone.
    """

    timeout = 10 * LIMIT  # it blocks: each of its waits has a limit, and the first test of a class starts an engine
    maxDiff = None
    has_own_engine = False
    is_alone = False
    engine_settings: Mapping[str, str] = SETTINGS
    console_name = "sandbox"

    def setUp(self) -> None:
        assert CHROMIUM is not None, "chromium is not installed"
        case = type(self)
        if case.is_alone:
            end_own()
        stage = own(case, case.engine_settings) if case.is_alone or case.has_own_engine else shared()
        self.engine, self.console = stage.engine, stage.console(case.console_name, case.open_console)
        if case.__dict__.get("_prepared") is not stage:
            case.prepare(stage)
            case._prepared = stage
        self.browser = _chromium.enter()
        self.addCleanup(_chromium.leave)

    @classmethod
    def open_console(cls, stage: Stage) -> ConsoleProcess:
        """The console of the class, not started: a sandbox."""
        return ConsoleProcess(stage.folder, stage.engine.base_url)

    @classmethod
    def prepare(cls, stage: Stage) -> None:
        """What the class puts into its engine before its first test."""

    def wait(self, condition: Callable[[], bool], what: str = "") -> None:
        """Block until something holds that no page shows."""
        block_until(condition, what, seconds=MILLISECONDS / 1000)

    def message_id(self, source_id: str, status: str = "") -> int:
        """The id of a message that was sent, as soon as it has this status."""

        def found() -> int:
            items = self.engine.get(f"/admin/messages?source_id={source_id}")[1]["items"]
            return int(items[0]["id"]) if items and status in ("", items[0]["status"]) else 0

        return block_until(found, f"the message {source_id} is {status or 'there'}")

    def page(self, **options: Any) -> Page:
        """A page of a new browser context.  Script errors and refusals of the content policy fail the test."""
        context = self.browser.new_context(base_url=self.console.url, **options)
        context.set_default_timeout(MILLISECONDS)
        context.add_init_script(_STREAMS)
        self.addCleanup(context.close)
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if "Content Security" in message.text else None)
        self.addCleanup(lambda: self.assertEqual(errors, []))
        return page
