"""Vendor profiles in the console: an archive is checked, installed, and rolled back, as an admin does it."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.console.browser import BrowserTest
from tests.console.stage import Stage
from tests.vendor_profiles.samples import MAP, small, tar
from tests.waiting import free_port

GROUP = "browsers"
FAMILY = "console"


class ProfilesPageTests(BrowserTest):
    @classmethod
    def prepare(cls, stage: Stage) -> None:
        """A port for the profile."""
        cls.port = free_port()

    def archive(self, version: str, **changed: str) -> str:
        """The path of an archive."""
        path = Path(self.mktemp()).with_name("acme.tar.gz")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tar(small("acme", version, port=self.port) | changed))
        return str(path)

    def test_check_install_upgrade_and_roll_back(self) -> None:
        page = self.page()
        page.goto("/profiles")
        for version in ("1.0", "2.0"):
            page.get_by_label("Archive (").set_input_files(self.archive(version))
            expect(page.get_by_text("Cases: 1 passed, 0 failed")).to_be_visible()
            page.get_by_role("button", name="Install").click()
            expect(page.get_by_role("heading", name=f"acme {version}")).to_be_visible()
        page.get_by_role("button", name="Roll back").click()
        expect(page.get_by_role("heading", name="acme 1.0")).to_be_visible()

    def test_findings_are_at_their_line(self) -> None:
        page = self.page()
        page.goto("/profiles")
        broken = {"maps/a04.fml": MAP.replace("bundle.entry", "bundle.enty")}
        page.get_by_label("Archive (").set_input_files(self.archive("3.0", **broken))
        expect(page.get_by_text("maps/a04.fml:5")).to_be_visible()
        expect(page.get_by_text("not valid")).to_be_visible()
        expect(page.get_by_role("button", name="Install")).to_have_count(0)

    def test_what_is_no_archive_is_said(self) -> None:
        page = self.page()
        page.goto("/profiles")
        path = Path(self.mktemp()).with_suffix(".tar")
        path.write_bytes(b"<script>alert(1)</script>")
        page.get_by_label("Archive (").set_input_files(str(path))
        expect(page.locator("#check")).to_contain_text("archive")
