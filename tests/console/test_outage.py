"""The engine goes away while people work, or hangs, and comes back."""

from __future__ import annotations

import os
import re
import signal

from playwright.sync_api import expect

from tests.console import data
from tests.console.browser import BrowserTest

GROUP = "browsers"
FAMILY = "console"

SAID = re.compile(r"No answer since \d{1,2}:\d\d:\d\d")
PAGES = ("/", "/messages", "/interfaces", "/dead-letters", "/rejects", "/send", "/conflicts", "/codes", "/unread",
         "/workbench", "/browse", "/subscriptions", "/topics", "/jobs", "/audit", "/profiles", "/system", "/reference",
         "/messages/1", "/messages/1?tab=raw", "/messages?live=1")  # fmt: skip


class OutageTests(BrowserTest):
    has_own_engine = True  # it stops

    def test_pages_say_so_and_recover_by_themselves(self) -> None:
        engine = data.Engine(self.engine)
        engine.send(data.message("ZDM^Z01", "Z1", "ZDM|1|nothing maps this"))
        engine.settled()
        overview, message, form = self.page(), self.page(), self.page()
        overview.goto("/")
        form.goto("/messages/1")
        expect(overview.locator("[data-queue=dead_letter]")).to_have_text("1")
        loaded = overview.evaluate("() => performance.timeOrigin")
        self.engine.stop()
        expect(overview.locator("#verdict")).to_have_text(SAID)
        message.goto("/messages/1")
        expect(message.get_by_role("heading", name=SAID)).to_be_visible()
        form.get_by_role("button", name="Retry").click()
        expect(form.get_by_text("check before you repeat it")).to_be_visible()
        self.engine.start()
        self.engine.wait_ready()
        expect(overview.locator("#down")).to_be_hidden()
        expect(overview.locator("#verdict")).to_contain_text("Dead letters: 1")
        self.assertEqual(overview.evaluate("() => performance.timeOrigin"), loaded)  # live: without a reload
        expect(message.get_by_role("heading", name="Message 1")).to_be_visible()
        self.assertEqual(engine.must("GET", "/admin/messages/1")["status"], "DEAD_LETTER")
        expect(form.get_by_text("check before you repeat it")).to_be_visible()  # a form is not repeated by itself


class HungTests(BrowserTest):
    has_own_engine = True  # it is stopped with SIGSTOP

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(self.hang, False)

    def hang(self, yes: bool) -> None:
        """Stop or continue the process of the engine; its connections stay open, and new ones are accepted."""
        os.kill(self.engine.pid, signal.SIGSTOP if yes else signal.SIGCONT)

    def test_no_page_looks_well(self) -> None:
        """An open page turns, others say so instead of opening; all go on by themselves.

        The five seconds are in `test_pulse.py`.
        """
        engine = data.Engine(self.engine)
        engine.send(data.message("ZDM^Z01", "Z1", "ZDM|1|nothing maps this"))
        engine.settled()
        overview, page = self.page(), self.page()
        overview.goto("/")
        overview.wait_for_function("() => window.streams.events > 0")
        before = overview.locator("#verdict").inner_text()
        self.hang(True)
        expect(overview.locator("#verdict")).to_have_text(SAID)
        expect(overview.locator("body")).to_have_class("is-down")
        self.assertIn("grayscale", overview.locator(".tiles").first.evaluate(_FILTER))
        for path in PAGES:
            page.goto(path)
            expect(page.locator("#down")).to_be_visible()
            expect(page.locator("#down")).to_contain_text(SAID)
        self.hang(False)
        expect(overview.locator("#verdict")).to_have_text(before)
        expect(overview.locator("#down")).to_be_hidden()
        self.assertEqual(overview.locator(".tiles").first.evaluate(_FILTER), "none")
        expect(page.get_by_role("heading", name="Messages")).to_be_visible()  # the last of the pages

    def test_every_open_page_turns_and_comes_back(self) -> None:
        engine = data.Engine(self.engine)
        engine.send(data.message("ZDM^Z01", "Z2", "ZDM|1|nothing maps this"))
        engine.settled()
        for path in PAGES:
            page = self.page()
            page.goto(path)
            self.hang(True)
            expect(page.locator("#down")).to_be_visible()
            expect(page.locator("#down")).to_have_text(_BEFORE)
            self.hang(False)
            expect(page.locator("#down")).to_be_hidden()
            page.context.close()


_FILTER = "(one) => getComputedStyle(one.closest('main > *')).filter"
_BEFORE = re.compile(SAID.pattern + ".* This page shows what was known before", re.DOTALL)
