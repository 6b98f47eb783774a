"""The message browser, used as an operator uses it."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.console.browser import BrowserTest, admission_from, send

GROUP = "browsers"
FAMILY = "console"


class MessagesPageTests(BrowserTest):
    def test_find_a_message_and_open_it_with_the_keyboard(self) -> None:
        send(self.engine.mllp_port, *(admission_from("KEYS", f"KEY{number}") for number in range(3)))
        page = self.page()
        page.goto("/messages")
        page.keyboard.press("/")
        page.keyboard.type("KEY1")
        page.keyboard.press("Enter")
        expect(page.get_by_role("row")).to_have_count(2)
        page.wait_for_load_state()
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_contain_text("Message")
        expect(page.get_by_text("KEY1", exact=True).first).to_be_visible()

    def test_filters_take_what_people_write_and_pages_show(self) -> None:
        """Types in every form, times as the rows have them, times ago; in the reader's zone and in UTC."""
        send(self.engine.mllp_port, admission_from("WRITTEN", "W1"))
        page = self.page(timezone_id="Asia/Tokyo", locale="en-US")
        for text in ("ADT^A01", "adt_a01", "ADT^A01^ADT_A01"):
            page.goto("/messages?source_system=WRITTEN&message_type=x")
            page.locator("input[name=message_type]").fill(text)
            page.keyboard.press("Enter")
            expect(page.locator("[data-rows] tbody tr")).to_have_count(1)
        for form in (r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$"):
            page.goto("/messages?source_system=WRITTEN")
            time = page.locator("[data-rows] time").first
            expect(time).to_have_text(re.compile(form))
            shown = time.inner_text()
            for name, rows in (("received_from", 1), ("received_to", 0)):
                page.goto("/messages?source_system=WRITTEN&message_type=ADT_A01")
                page.locator(f"input[name={name}]").fill(shown)
                page.keyboard.press("Enter")
                expect(page).to_have_url(re.compile(r"received_(from|to)="))
                expect(page.locator("[data-rows] tbody tr")).to_have_count(rows)
            page.locator("details.menu summary").click()
            page.get_by_label("Time zone").select_option("utc")
            page.get_by_role("button", name="Apply").click()
        page.get_by_role("link", name="Last 15 minutes").click()
        expect(page.locator("input[name=received_from]")).to_have_value("15m")
        expect(page.locator("input[name=received_to]")).to_have_value("")  # until now
        expect(page.locator("[data-rows] tbody tr")).to_have_count(1)
        page.goto("/messages?source_system=WRITTEN&received_from=1d")
        expect(page.locator("[data-rows] tbody tr")).to_have_count(1)
