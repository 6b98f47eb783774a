"""The system page: components in words, settings in effect, and no secret."""

from __future__ import annotations

from playwright.sync_api import expect
from twisted.trial.unittest import TestCase

from ipf.console.content.coverage import coverage, coverage_of
from ipf.console.pages.system import words_of
from tests.console.browser import BrowserTest

SECRET = "a-secret-that-signs-notifications"


class WordTests(TestCase):
    def test_what_a_component_says(self) -> None:
        for detail, words in (
            (None, ""),
            ("fine", "fine"),
            ({"DEAD_LETTER": 3, "empty": [], "topics": [{"url": "urn:x", "rule": None}]},
             "dead letter 3, topics url urn:x"),
            ([1, "", 2], "1; 2"),
        ):  # fmt: skip
            self.assertEqual(words_of(detail), words)


class CoverageTests(TestCase):
    def test_a_map_has_the_table_it_is_named_after(self) -> None:
        self.assertEqual([one.table for one in coverage_of("messages/ADT_A01.fml")], ["ADT_A01"])
        self.assertEqual([one.table for one in coverage_of("segments/AL1_AllergyIntolerance.fml")],
                         ["AL1[AllergyIntolerance]"])  # fmt: skip
        self.assertEqual(coverage_of(""), ())
        self.assertTrue(all(one.rows == one.mapped + one.decided + len(one.missing) for one in coverage()))


class SystemPageTests(BrowserTest):
    engine_settings = {"SUBSCRIPTION_SERVICE_SIGNING_SECRET": SECRET}

    def test_settings_in_effect_without_secrets(self) -> None:
        page = self.page()
        page.goto("/system")
        expect(page.get_by_role("row", name="SUBSCRIPTION_SERVICE_SIGNING_SECRET")).to_be_visible()
        self.assertNotIn(SECRET, page.content())
        expect(page.get_by_role("row", name="IPF_MAX_ATTEMPTS")).to_be_visible()
        page.get_by_role("link", name="Only those that are set").click()
        expect(page.get_by_role("row", name="IPF_MAX_ATTEMPTS")).to_have_count(0)
        page.get_by_role("link", name="All settings").click()
        expect(page.get_by_role("row", name="IPF_MAX_ATTEMPTS")).to_be_visible()
