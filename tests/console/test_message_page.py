"""The page of one message, used as an operator uses it: why it failed, its fields, what came of it, replay."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import expect

from tests.console.browser import BrowserTest, admission_from, send
from tests.console.stage import Stage

GROUP = "browsers"
FAMILY = "console"


class MessagePageTests(BrowserTest):
    @classmethod
    def prepare(cls, stage: Stage) -> None:
        """Two messages."""
        send(stage.engine.mllp_port, *(admission_from("PAGES", f"PAGE{number}") for number in range(2)))

    def opened(self, **options: Any) -> Any:
        """The page of the message PAGE1, found by a search."""
        page = self.page(**options)
        for number in range(2):
            self.message_id(f"PAGE{number}", "DELIVERED")
        page.goto("/messages?status=DELIVERED&source_system=PAGES")
        expect(page.get_by_role("row")).to_have_count(3)
        page.locator("tbody a").first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Message ")
        page.wait_for_load_state()
        return page

    def test_fields_have_names_and_paths(self) -> None:
        page = self.opened(permissions=["clipboard-read", "clipboard-write"])
        row = page.get_by_role("row").filter(has_text="PID-5")
        expect(row).to_contain_text("Patient Name")
        family = row.locator(".part").first
        expect(family).to_have_attribute("title", "PID-5.1")
        expect(family.locator("small")).to_have_text("Family Name")  # visible, without pointing at it
        family.click()
        self.wait(lambda: page.evaluate("navigator.clipboard.readText()") == "PID-5.1")

    def test_what_came_of_it(self) -> None:
        page = self.opened()
        page.get_by_role("link", name="Effects").click()
        expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
        expect(page.locator(".timeline li")).to_have_count(3)
        page.locator(".tree a", has_text="Patient/").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Patient")

    def test_a_replay_shows_what_it_changes_first(self) -> None:
        page = self.opened()
        page.get_by_role("link", name="Replay preview").click()
        expect(page.get_by_text("Nothing has been changed")).to_be_visible()
        expect(page.locator("summary", has_text="Patient/")).to_contain_text("unchanged")
        page.get_by_role("button", name="Replay").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Job")
        expect(page.get_by_text("1 of 1", exact=False)).to_be_visible()

    def test_the_next_message_of_the_list(self) -> None:
        page = self.opened()
        first = page.url
        page.keyboard.press("j")
        expect(page).not_to_have_url(first)
        expect(page.get_by_role("link", name="Previous")).to_be_visible()
        page.wait_for_load_state()
        page.keyboard.press("k")
        expect(page).to_have_url(first)

    def test_a_trace_leads_from_fields_to_elements_and_back(self) -> None:
        page = self.opened()
        page.get_by_role("link", name="Trace").click()
        page.locator(".field", has_text="PID-5").click()
        expect(page.locator("#rule")).to_contain_text("XPN_HumanName.fml")
        expect(page.locator(".element.marked", has_text="name[0].family")).to_have_count(1)
        self.assertTrue(page.url.endswith("#PID-5"), page.url)
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        chosen = page.locator(".element:focus")
        expect(chosen).to_have_count(1)
        place = chosen.get_attribute("data-place")
        page.reload()
        expect(page.locator(".element:focus")).to_have_attribute("data-place", place)
        expect(page.locator(".field.marked").first).to_be_visible()
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".field:focus")).to_have_count(1)
