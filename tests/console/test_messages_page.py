"""The message browser, used as an operator uses it."""

from __future__ import annotations

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
