"""The engine goes away while people work, and comes back."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.console import data
from tests.console.browser import BrowserTest

GROUP = "browsers"
FAMILY = "console"


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
        expect(overview.locator("#down")).to_be_visible()
        message.goto("/messages/1")
        expect(message.get_by_role("heading", name="The engine does not answer")).to_be_visible()
        form.get_by_role("button", name="Retry").click()
        expect(form.get_by_text("look before you repeat it")).to_be_visible()
        self.engine.start()
        self.engine.wait_ready()
        expect(overview.locator("#down")).to_be_hidden()
        self.assertEqual(overview.evaluate("() => performance.timeOrigin"), loaded)  # live: without a reload
        expect(message.get_by_role("heading", name="Message 1")).to_be_visible()
        self.assertEqual(engine.must("GET", "/admin/messages/1")["status"], "DEAD_LETTER")
        expect(form.get_by_text("look before you repeat it")).to_be_visible()  # a form is not repeated by itself
