"""What is live: the overview, the interfaces, the tail of the message list."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.console import data
from tests.console.browser import BrowserTest, admission_from, send

GROUP = "browsers"
FAMILY = "console"


class LivePagesTests(BrowserTest):
    def send(self, *messages: bytes) -> None:
        """Send messages, and wait until each has been tried."""
        send(self.engine.mllp_port, *messages)
        data.Engine(self.engine).settled()

    def test_the_overview_follows_a_message_without_a_reload(self) -> None:
        """How often it looks is in `tests/console/test_live.py`."""
        self.send(admission_from("FIRST", "O0"))
        page = self.page()
        page.goto("/")
        page.wait_for_function("() => window.streams.events > 0")
        before = self.engine.get("/admin/observe/system")[1]["queue"]
        for status in ("dead_letter", "delivered"):
            expect(page.locator(f"[data-queue={status}]")).to_have_text(str(before[status]))
        self.send(admission_from("SICK", "O1", "ZZY^Z01"), admission_from("SICK", "O2"))
        for status in ("dead_letter", "delivered"):
            expect(page.locator(f"[data-queue={status}]")).to_have_text(str(before[status] + 1))
        expect(page.get_by_role("link", name="no StructureMap is installed for ZZY_Z01")).to_be_visible()
        expect(page.get_by_role("rowheader", name="SICK")).to_be_visible()

    def test_interfaces_show_who_is_silent_and_who_fails(self) -> None:
        self.send(
            admission_from("QUIET", "I1"),
            admission_from("BROKEN", "I2", "ZZZ^Z01"),
            admission_from("FINE", "I3"),
        )
        page = self.page()
        page.goto("/interfaces")
        for name, state in (("QUIET", "Silent for"), ("BROKEN", "Check"), ("FINE", "Normal")):
            row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name))
            expect(row).to_contain_text(state)
        expect(page.get_by_role("main")).to_contain_text("One sender is silent for longer than expected.")
        page.get_by_role("link", name="FINE").click()
        expect(page.get_by_role("row")).to_have_count(2)

    def test_the_tail_shows_new_messages_that_match(self) -> None:
        self.send(admission_from("TAIL", "T0"), admission_from("OTHER", "T1"))
        page = self.page()
        page.goto("/messages?source_system=TAIL")
        expect(page.get_by_role("row")).to_have_count(2)
        page.get_by_label("Live", exact=True).check()
        expect(page).to_have_url(f"{self.console.url}/messages?source_system=TAIL&live=1")
        page.wait_for_function("() => window.streams.open > 0")
        self.send(
            admission_from("OTHER", "T2"),
            admission_from("TAIL", "T3"),
            admission_from("TAIL", "T4"),
        )
        rows = page.locator("[data-rows] tbody tr")
        expect(rows).to_have_count(3)
        expect(rows.nth(0)).to_contain_text("T4")
        expect(rows.nth(1)).to_contain_text("T3")
        expect(rows.nth(0)).to_contain_text("Delivered")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.get_by_text("T4", exact=True).first).to_be_visible()

    def test_a_tail_that_is_paused_shows_nothing_more(self) -> None:
        self.send(admission_from("PAUSE", "U0"))
        page, other = self.page(), self.page()
        for one in (page, other):
            one.goto("/messages?source_system=PAUSE&live=1")
            expect(one.get_by_label("Live", exact=True)).to_be_checked()
            one.wait_for_function("() => window.streams.open > 0")
        page.get_by_label("Live", exact=True).uncheck()
        self.send(admission_from("PAUSE", "U1"))
        expect(other.locator("[data-rows] tbody tr")).to_have_count(2)
        expect(page.locator("[data-rows] tbody tr")).to_have_count(1)
        page.get_by_label("Live", exact=True).check()
        expect(page.locator("[data-rows] tbody tr")).to_have_count(2)
        page.goto("/messages?text=U1")
        expect(page.get_by_label("Live", exact=True)).to_have_count(0)
