"""What the page of the system says of a component, and the coverage of the guide by the maps."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.console.content.coverage import coverage, coverage_of
from ipf.console.pages.system import words_of


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
