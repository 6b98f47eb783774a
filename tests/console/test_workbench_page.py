"""The mapping workbench, used as a person who mends a map uses it."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from ipf.console.pages.workbench import NEW_MAP
from tests.console import data
from tests.console.browser import BrowserTest
from tests.console.stage import Stage

GROUP = "browsers"
FAMILY = "console"


class WorkbenchPageTests(BrowserTest):
    engine_of_class: data.Engine

    @classmethod
    def prepare(cls, stage: Stage) -> None:
        engine = cls.engine_of_class = data.Engine(stage.engine)
        engine.send(*(data.admission(f"W{n}", f"200{n}", "Hansen", "Kari", "0221") for n in range(2)))
        engine.settled()

    def type_map(self, page: Page, text: str) -> None:
        """Replace the text of the editor."""
        editor = page.get_by_role("textbox", name="Map")
        editor.click()
        page.keyboard.press("Control+a")
        page.keyboard.press("Delete")  # chromium styles text that it types over other text
        page.keyboard.insert_text(text)

    def open(self) -> Page:
        """A new map beside the newest message."""
        page = self.page()
        page.goto("/workbench")
        page.locator("select[name=message]").select_option(index=1)
        page.get_by_label("Start from").select_option("A new map")
        with page.expect_navigation():
            page.get_by_role("button", name="Open").click()
        return page

    def test_a_mistake_is_marked_at_its_place_while_typing(self) -> None:
        page = self.open()
        expect(page.locator("#result .fine")).to_contain_text("ran in")
        self.type_map(page, NEW_MAP.replace("patient.identifier", "patient.identifyer"))
        expect(page.locator("#result .error")).to_contain_text("candidate.fml, line 11, column")
        expect(page.locator(".cm-lintRange-error")).to_have_text("patient.identifyer")
        expect(page.locator(".cm-lint-marker-error")).to_be_visible()

    def test_a_map_is_tried_compared_installed_and_removed(self) -> None:
        page = self.open()
        expect(page.locator("#right")).to_contain_text("2001")
        page.locator("#left .field", has_text="PID-3").click()
        expect(page.locator("#rule")).to_contain_text("candidate.fml:")
        expect(page.locator("#result")).to_contain_text("Fields that are not in the result")
        expect(page.locator("#result section", has_text="Fields that are not").get_by_text("PID-5")).to_be_visible()
        page.locator("#result summary", has_text="Kept by the update").click()
        expect(page.locator("#result details", has_text="Kept by the update").locator("li code")).to_have_text(
            "Patient"
        )
        page.locator("select[name=message_type]").select_option("ADT_A01")
        page.get_by_role("button", name="Compare with the installed map").click()
        count = self.engine_of_class.must("GET", "/admin/messages?message_type=ADT_A01")["total"]
        expect(page.locator("#compared")).to_contain_text(
            f"{count} messages compared: 0 with the same result, {count} with a different one."
        )
        page.on("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Install", exact=True).click()
        expect(page.locator("#installed")).to_contain_text("is installed, version 1")
        in_use = self.engine_of_class.must("GET", "/admin/mapping")["message_types"]
        self.assertIn({"message_type": "ADT_A01", "map_url": "http://example.org/StructureMap/ADT_A01"}, in_use)
        page.locator("#installed").get_by_role("link").click()
        page.get_by_role("button", name="Remove, and use the previous map again").click()
        expect(page.get_by_role("button", name="Remove, and use the previous map again")).to_have_count(0)
        in_use = self.engine_of_class.must("GET", "/admin/mapping")["message_types"]
        self.assertIn({"message_type": "ADT_A01", "map_url": "urn:ipf:map:ADT_A01"}, in_use)

    def test_the_text_of_an_installed_map_has_its_comments(self) -> None:
        page = self.page()
        page.goto("/workbench?map=urn:ipf:map:ADT_A01")
        expect(page.locator(".cm-content")).to_contain_text("// Another event of the same content")
        expect(page.get_by_text("35 of 35 rows")).to_be_visible()
        page.get_by_role("link", name="Coverage of the guide").click()
        expect(page.get_by_role("row", name="ADT_A01")).to_contain_text("31")

    def test_what_is_no_message_is_said_on_the_page(self) -> None:
        page = self.page()
        page.goto("/workbench")
        expect(page.locator("#result")).to_contain_text("Paste a message")
        page.locator("textarea[name=message]").fill("this is no message")
        expect(page.locator("#result .error")).to_contain_text("MSH")
