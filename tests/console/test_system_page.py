"""The system page: components in words, settings in effect, and no secret."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.console.browser import BrowserTest
from tests.console.stage import SECRET

GROUP = "browsers"
FAMILY = "console"


class SystemPageTests(BrowserTest):
    def test_settings_in_effect_without_secrets(self) -> None:
        page = self.page()
        page.goto("/system")
        expect(page.get_by_role("row", name="SUBSCRIPTION_SERVICE_SIGNING_SECRET")).to_be_visible()
        self.assertNotIn(SECRET, page.content())
        expect(page.get_by_role("row", name="IPF_MAX_ATTEMPTS")).to_be_visible()
        page.get_by_role("link", name="Only settings that are set").click()
        expect(page.get_by_role("row", name="IPF_MAX_ATTEMPTS")).to_have_count(0)
        page.get_by_role("link", name="All settings").click()
        expect(page.get_by_role("row", name="IPF_MAX_ATTEMPTS")).to_be_visible()
