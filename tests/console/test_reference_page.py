"""The reference of the operator API, `/admin/docs`, in a browser; its content is in `tests/wire/reference`."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.console.browser import BrowserTest

GROUP = "browsers"
FAMILY = "console"


class ReferencePageTests(BrowserTest):
    def test_in_a_browser(self) -> None:
        """Styled under its policy, no request but the page's own, and an address opens its operation."""
        page, requests, reports = self.page(), [], []  # type: ignore[var-annotated]
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda line: reports.append(line.text))
        address = f"{self.engine.base_url}/admin/docs"
        page.goto(address)
        card = page.locator("#admin-listMessages")
        self.assertEqual(card.evaluate("one => getComputedStyle(one).borderTopStyle"), "solid")
        expect(card.get_by_role("cell", name="source_system", exact=False)).to_be_hidden()
        card.locator("summary").click()
        expect(card.get_by_role("cell", name="source_system", exact=False).first).to_be_visible()
        self.assertEqual([one for one in requests if not one.endswith("favicon.ico")], [address])
        self.assertEqual([one for one in reports if "favicon" not in one], [])
