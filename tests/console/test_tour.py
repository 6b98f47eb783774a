"""docs/tutorials/tour.md, step by step, as it is written."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from queue import Queue
from threading import Thread

from playwright.sync_api import Locator, Page, expect

from tests.console.browser import BrowserTest
from tests.service_process import ROOT
from tests.waiting import PATIENCE

GROUP = "browsers"
FAMILY = "console"

TOUR = (ROOT / "docs/tutorials/tour.md").read_text()


class TourTests(BrowserTest):
    has_own_engine = True  # it counts messages from the first
    engine_settings = {"IPF_BACKOFF_BASE_MS": "100"}  # five attempts, sooner than in the 15 seconds of the page

    def test_the_tour(self) -> None:
        subscriber = self.subscriber()
        page = self.page(locale="en-GB")
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto("/")
        expect(page.get_by_role("status")).to_contain_text("All systems normal")
        # 2: a sample
        page.get_by_role("link", name="Send a message").click()
        page.get_by_label("Sample").select_option(label="ADT^A01: admission")
        with page.expect_navigation():
            page.get_by_role("button", name="Use this sample").click()
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.locator("#sent")).to_contain_text("AA")
        self.assertRegex(subscriber.get(timeout=PATIENCE), r"^PUT /Patient/\S+ version 1")
        # 3: an event that no map knows
        with page.expect_navigation():
            page.get_by_role("button", name="Use this sample").click()
        text = page.get_by_label("Message")
        changed = text.input_value()
        for before, after in (("ADT^A01", "ADT^Z01"), ("Marlowe", "Marlowe-Hart")):
            self.assertIn(f"`{before}` to `{after}`", TOUR)
            changed = changed.replace(before, after, 1)
        text.fill(changed)
        page.get_by_role("button", name="Send", exact=True).click()
        page.locator("#sent").get_by_role("link", name=re.compile("essage 2")).click()
        # 4: see why
        expect(page).to_have_url(re.compile("/messages/2"))
        self.shown_later(page.locator(".error", has_text="no StructureMap is installed for ADT_Z01").first)
        page.goto("/")
        expect(page.get_by_role("status")).to_contain_text("Dead letters: 1")
        page.get_by_role("status").get_by_role("link", name="Dead letters").click()
        expect(page.get_by_text("no StructureMap is installed for ADT_Z01").first).to_be_visible()
        # 5: mend the map
        page.goto("/workbench?map=urn:ipf:map:ADT_A01&message=2")
        editor = page.locator(".cm-content")
        expect(editor).to_contain_text("ADT_A01 ADT_A02")
        editor.get_by_text("ADT_A01 ADT_A02").click()
        page.keyboard.press("End")
        page.keyboard.press("ArrowLeft")
        page.keyboard.insert_text(" ADT_Z01")
        expect(page.locator("#result")).to_contain_text("Patient")
        page.get_by_role("button", name="Install", exact=True).click()
        expect(page.locator("#installed")).to_contain_text("is installed")
        # 6: again
        self.wait(lambda: self.retry(page) or not subscriber.empty(), "the message is delivered")
        self.assertRegex(subscriber.get(timeout=PATIENCE), r"^PUT /Patient/\S+ version 2")
        page.goto("/messages/2?tab=effects")
        self.shown_later(page.get_by_text("Delivered").first)
        page.goto("/")
        expect(page.get_by_role("status")).to_contain_text("All systems normal")

    def retry(self, page: Page) -> None:
        """Retry the message if it is a dead letter: once, unless a converter process compiles the new map for long."""
        if self.engine.get("/admin/messages/2")[1]["status"] == "DEAD_LETTER":
            page.goto("/messages/2")
            with page.expect_navigation():
                page.get_by_role("button", name="Retry").click()

    def shown_later(self, found: Locator) -> None:
        """Reload the page until it shows this: it says what was so when it was opened."""
        self.wait(lambda: found.is_visible() or found.page.reload() is None)

    def subscriber(self) -> Queue[str]:
        """The lines of `bin/subscriber`, which is registered."""
        command = [sys.executable, ROOT / "bin/subscriber", "--http", self.engine.base_url]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.addCleanup(running.wait, PATIENCE)
        self.addCleanup(running.send_signal, signal.SIGTERM)
        lines: Queue[str] = Queue()
        assert running.stdout is not None
        Thread(target=lambda output: [lines.put(line) for line in output], args=[running.stdout]).start()
        self.assertIn("Subscription/", lines.get(timeout=PATIENCE))
        return lines
