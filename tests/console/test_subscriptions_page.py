"""Subscriptions and topics, used as an operator uses them."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.console import data
from tests.console.browser import BrowserTest
from tests.console.stage import Stage

GROUP = "browsers"
FAMILY = "console"


class SubscriptionsPageTests(BrowserTest):
    engine_of_class: data.Engine

    @classmethod
    def prepare(cls, stage: Stage) -> None:
        subscriber, engine = data.Subscriber(), data.Engine(stage.engine)
        stage.add_stop(subscriber.stop)
        cls.engine_of_class = engine
        data.subscribe(engine, f"{subscriber.url}/working", f"{subscriber.url}/broken")
        engine.send(*(data.admission(f"S{n}", f"100{n}", "Hansen", "Kari") for n in range(3)))
        engine.send(data.result("S9", "1001", "Hansen", "Kari", "101"))
        engine.settled()

    def delivered(self, count: int) -> bool:
        """Whether the working subscription has sent so many events."""
        items = self.engine_of_class.must("GET", "/admin/subscriptions/health")["items"]
        return any(one["criteria"] == "Patient?" and one["delivery_success_count"] >= count for one in items)

    def test_a_failing_subscriber_is_tested_and_switched_off(self) -> None:
        page = self.page()
        page.goto("/subscriptions")
        page.get_by_role("row", name="In error").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Observation?code=2345-7")
        page.get_by_role("button", name="Send a test notification").click()
        expect(page.locator("#tested")).to_contain_text("did not acknowledge: HTTP status 500")
        page.reload()
        expect(page.get_by_role("cell", name="handshake").first).to_be_visible()
        expect(page.locator("#chart canvas")).to_be_visible()
        page.get_by_label("Change the status to").select_option("Off")
        page.get_by_role("button", name="Apply").last.click()
        expect(page.locator("main .badge").first).to_have_text("Off")

    def test_a_working_endpoint_acknowledges_a_test(self) -> None:
        page = self.page()
        page.goto("/subscriptions")
        page.get_by_role("row", name="Patient?").click()
        page.get_by_role("button", name="Send a test notification").click()
        expect(page.locator("#tested")).to_contain_text("The endpoint acknowledged (200")

    def test_events_show_how_they_were_delivered(self) -> None:
        self.wait(lambda: self.delivered(3))
        page = self.page()
        page.goto("/subscriptions")
        page.get_by_role("row", name="Patient?").click()
        page.get_by_role("link", name="Events").click()
        first = page.locator("tbody tr").last
        expect(first).to_contain_text("Delivered")
        expect(first).to_contain_text("200")
        first.get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Patient/")

    def test_criteria_are_tried_on_what_is_stored(self) -> None:
        page = self.page()
        page.goto("/subscriptions")
        page.get_by_role("row", name="Patient?").click()
        page.get_by_role("link", name="Dry run").click()
        page.get_by_label("Criteria").fill("Patient?identifier=1001")
        page.get_by_role("button", name="Dry run").click()
        expect(page.locator("#result")).to_contain_text(re.compile(r"\d+ of \d+ changes match(es)?\."))
        expect(page.locator("#result").get_by_role("link").first).to_contain_text("Patient/")
        page.get_by_label("Criteria").fill("Patient?no-such-parameter=1")
        page.get_by_role("button", name="Dry run").click()
        expect(page.locator("#result .error")).to_contain_text("no-such-parameter")

    def test_topics_show_their_triggers(self) -> None:
        page = self.page()
        page.goto("/topics")
        row = page.get_by_role("row", name="Encounter")
        expect(row).to_contain_text("create")
        expect(page.get_by_text("http://example.org/topics/admissions")).to_be_visible()
