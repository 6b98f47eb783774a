"""What is live: the overview, the interfaces, the tail of the message list."""

from __future__ import annotations

import time
from collections.abc import Mapping

from playwright.sync_api import Page, expect

from tests.console.browser import BrowserTest, send
from tests.faults.feed import admission


def of(sender: str, control_id: str, kind: str = "ADT^A01^ADT_A01") -> bytes:
    """An admission of this sender."""
    message = admission(control_id, "P1", "1").replace(b"|FEED|", f"|{sender}|".encode())
    return message.replace(b"ADT^A01^ADT_A01", kind.encode())


class LivePagesTests(BrowserTest):
    engine_settings: Mapping[str, str] = {"IPF_EXPECTED_INTERVALS": "QUIET=1s", "IPF_PERMANENT_ERRORS": "dead_letter"}

    def test_the_overview_follows_a_message_within_a_second(self) -> None:
        send(self.engine.mllp_port, of("FIRST", "O0"))
        self.wait(lambda: self.engine.get("/admin/observe/system")[1]["queue"]["received"] == 0)
        page = self.page()
        page.goto("/")
        figure = page.locator("[data-queue=dead_letter]")
        before = self.engine.get("/admin/observe/system")[1]["queue"]["dead_letter"]
        expect(figure).to_have_text(str(before))
        page.wait_for_timeout(1500)  # the stream is open
        send(self.engine.mllp_port, of("SICK", "O1", "ZZZ^Z01"))
        self.wait(lambda: self.engine.get("/admin/observe/system")[1]["queue"]["dead_letter"] > before)
        began = time.monotonic()
        expect(figure).to_have_text(str(before + 1))
        self.assertLess(time.monotonic() - began, max(1, 20 * self.trip(page)))
        expect(page.get_by_role("link", name="no StructureMap is installed")).to_be_visible()
        expect(page.get_by_role("rowheader", name="SICK")).to_be_visible()

    def trip(self, page: Page) -> float:
        """The seconds that the browser, the console and the engine take for a page now: the limit of this machine."""
        began = time.monotonic()
        page.evaluate("fetch('/').then(answer => answer.text())")
        return time.monotonic() - began

    def test_interfaces_show_who_is_silent_and_who_fails(self) -> None:
        send(self.engine.mllp_port, of("QUIET", "I1"), of("BROKEN", "I2", "ZZZ^Z01"), of("FINE", "I3"))
        self.wait(lambda: self.engine.get("/admin/observe/system")[1]["queue"]["received"] == 0)
        page = self.page()
        page.goto("/interfaces")
        for name, state in (("QUIET", "Silent for"), ("BROKEN", "Look"), ("FINE", "Good")):
            row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name))
            expect(row).to_contain_text(state)
        expect(page.get_by_role("main")).to_contain_text("One sender is silent for longer than expected.")
        page.get_by_role("link", name="FINE").click()
        expect(page.get_by_role("row")).to_have_count(2)

    def test_the_tail_shows_new_messages_that_match(self) -> None:
        send(self.engine.mllp_port, of("TAIL", "T0"), of("OTHER", "T1"))
        page = self.page()
        page.goto("/messages?source_system=TAIL")
        expect(page.get_by_role("row")).to_have_count(2)
        page.get_by_label("Live", exact=True).check()
        expect(page).to_have_url(f"{self.console.url}/messages?source_system=TAIL&live=1")
        page.wait_for_timeout(1500)
        send(self.engine.mllp_port, of("OTHER", "T2"), of("TAIL", "T3"), of("TAIL", "T4"))
        rows = page.locator("[data-rows] tbody tr")
        expect(rows).to_have_count(3)
        expect(rows.nth(0)).to_contain_text("T4")
        expect(rows.nth(1)).to_contain_text("T3")
        expect(rows.nth(0)).to_contain_text("Delivered")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.get_by_text("T4", exact=True).first).to_be_visible()

    def test_a_tail_that_is_paused_shows_nothing_more(self) -> None:
        send(self.engine.mllp_port, of("PAUSE", "U0"))
        page = self.page()
        page.goto("/messages?source_system=PAUSE&live=1")
        expect(page.get_by_label("Live", exact=True)).to_be_checked()
        page.get_by_label("Live", exact=True).uncheck()
        send(self.engine.mllp_port, of("PAUSE", "U1"))
        page.wait_for_timeout(2000)
        expect(page.locator("[data-rows] tbody tr")).to_have_count(1)
        page.get_by_label("Live", exact=True).check()
        expect(page.locator("[data-rows] tbody tr")).to_have_count(2)
        page.goto("/messages?text=U1")
        expect(page.get_by_label("Live", exact=True)).to_have_count(0)
