"""Messages are sent from the console: a sample, and what is no message."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.console.browser import BrowserTest

GROUP = "browsers"
FAMILY = "console"


class SendPageTests(BrowserTest):
    def test_a_sample_is_sent_and_followed(self) -> None:
        page = self.page()
        page.goto("/send")
        page.get_by_label("Sample").select_option("ADT^A01: admission")
        with page.expect_navigation():
            page.get_by_role("button", name="Use this sample").click()
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.locator("#sent .fine")).to_contain_text("accepted")
        page.locator("#sent").get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Message")

    def test_what_is_no_message_is_rejected_with_the_reason(self) -> None:
        page = self.page()
        page.goto("/send")
        page.get_by_label("Message", exact=True).fill("this is no message")
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.locator("#sent .error")).to_contain_text("AR rejected")
        page.locator("#sent").get_by_role("link", name="Rejects").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Rejects")
