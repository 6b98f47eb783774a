"""What a person decides: dead letters by cause, identity conflicts, codes without a target."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.console import data
from tests.console.browser import BrowserTest
from tests.console.stage import Stage

GROUP = "browsers"
FAMILY = "console"

NO_MAP = "no StructureMap is installed for ZDM_Z01"


class DecisionPagesTests(BrowserTest):
    engine_of_class: data.Engine

    @classmethod
    def prepare(cls, stage: Stage) -> None:
        engine = cls.engine_of_class = data.Engine(stage.engine)
        data.ambiguous(engine)
        engine.send(*(data.message("ZDM^Z01", f"Z01-{n}", "ZDM|1|no map", sender="PUMPS") for n in range(3)))
        marital = data.admission("U1", "3001", "Hansen", "Kari").replace(b"|||M\r", b"|||QQ\r")
        engine.send(marital)
        engine.settled()

    def test_a_group_of_dead_letters_is_retried_and_discarded(self) -> None:
        page = self.page()
        page.goto("/dead-letters")
        page.get_by_role("row", name=NO_MAP).get_by_role("link", name="Retry").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Retry 3 messages?")
        page.get_by_role("button", name="Retry").click()
        expect(page.locator("#progress")).to_contain_text("Done")
        expect(page.locator("#progress")).to_contain_text("3 of 3: 3 changed")
        self.engine_of_class.settled()
        page.goto("/dead-letters")
        page.get_by_role("row", name=NO_MAP).get_by_role("link", name="Discard").click()
        expect(page.get_by_text("This cannot be undone")).to_be_visible()
        page.get_by_role("button", name="Discard").click()
        expect(page.locator("#progress")).to_contain_text("3 of 3: 3 changed")
        page.goto("/dead-letters")
        expect(page.get_by_role("heading", level=1)).to_have_text("Dead letters")
        expect(page.get_by_role("row", name=NO_MAP)).to_have_count(0)

    def test_a_conflict_shows_where_candidates_differ_and_is_answered(self) -> None:
        page = self.page()
        page.goto("/messages?source_id=AMB-0")
        page.locator("tbody a").first.click()
        page.get_by_role("link", name="Resolve the conflict").click()
        expect(page).to_have_url(re.compile("/conflicts"))
        page.locator("tbody a").first.click()
        row = page.get_by_role("row", name="Born")
        expect(row.locator("td.differs")).to_have_count(2)
        expect(page.get_by_role("row", name="Names").locator("td.differs")).to_have_count(0)
        page.get_by_label("The selected candidate is meant").check()
        page.get_by_label("Reason").fill("checked with the ward")
        page.get_by_role("button", name="Decide, and convert the waiting messages").click()
        expect(page.get_by_text("Answered").or_(page.get_by_text("Closed")).first).to_be_visible()
        self.engine_of_class.settled()
        items = self.engine_of_class.must("GET", "/admin/messages?source_id=AMB-0")["items"]
        self.assertEqual([one["status"] for one in items], ["DELIVERED"])

    def test_a_code_is_found_in_the_target_system_and_mapped(self) -> None:
        page = self.page()
        page.goto("/codes?code=QQ")
        page.locator("tbody a").first.click()
        page.get_by_label("Search the target system").fill("married")
        page.locator(".offered button", has_text="Never").first.click()
        expect(page.locator("input[name=code]")).to_have_value("S")
        page.get_by_role("button", name="Map", exact=True).click()
        expect(page.locator("main .badge").first).to_have_text("Mapped")
        self.engine_of_class.settled()
        self.wait(lambda: self.is_single("3001"))

    def is_single(self, number: str) -> bool:
        """Whether the patient has the marital status S."""
        bundle = self.engine_of_class.must("GET", f"/fhir/Patient?identifier={number}")
        resource = bundle["entry"][0]["resource"]
        return [one["code"] for one in resource.get("maritalStatus", {}).get("coding", ())][:1] == ["S"]
