"""Saved views on the list of messages, in a browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.console.browser import BrowserTest, admission_from, send

GROUP = "browsers"
FAMILY = "console"


class SavedViewsPageTests(BrowserTest):
    def test_a_view_is_saved_opened_exported_and_removed(self) -> None:
        send(self.engine.mllp_port, *(admission_from("VIEWS", f"VIEW{number}") for number in range(3)))
        page = self.page()
        page.goto("/messages?source_id=VIEW1&columns=source_id,status&offset=0")
        page.get_by_label("Name for this view").fill("Only <b>V1</b>")
        with page.expect_navigation():
            page.get_by_role("button", name="Save this view").click()
        page.goto("/messages?source_system=VIEWS")
        expect(page.get_by_role("row")).to_have_count(4)
        page.get_by_role("link", name="Only <b>V1</b>").click()
        expect(page.get_by_role("row")).to_have_count(2)
        expect(page.get_by_role("columnheader")).to_have_count(2)
        with page.expect_download() as download:
            page.get_by_role("link", name="Export this view as CSV").click()
        text = Path(download.value.path()).read_text("utf-8-sig")
        self.assertEqual(text.splitlines()[0], "source_id,status")
        self.assertEqual([line.split(",")[0] for line in text.splitlines()[1:]], ["VIEW1"])
        page.get_by_role("button", name="Remove the view Only <b>V1</b>").click()
        expect(page.get_by_role("link", name="Only <b>V1</b>")).to_have_count(0)
