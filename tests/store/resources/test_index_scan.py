"""Searches that one index scan answers, and how their other tests are evaluated."""

from __future__ import annotations

from typing import Any, cast

from twisted.trial.unittest import TestCase

from ipf.fhir.search.language.query import parse_criteria
from ipf.store.postgres.symbols import SymbolTable
from ipf.store.resources.searches.query import PLANNER, SearchSql


class _Symbols:
    """A symbol table with one number."""

    def partition(self, tenant: str) -> int:
        return 1

    def parameter(self, resource_type: str, code: str) -> int:
        return 7


def page(criteria: str) -> str:
    """The SQL of the first page."""
    return SearchSql("default", parse_criteria(criteria), cast(SymbolTable, cast(Any, _Symbols()))).page(21).text


class IndexScanTest(TestCase):
    """`resources` is joined behind the limit only where the index answers alone."""

    def test_what_the_index_answers_alone(self) -> None:
        for criteria, fenced, planned in (
            ("Patient?identifier=urn:mrn|7", 0, False),
            ("Observation?patient=7&code=http://loinc.org|c1&date=ge2020", 2, False),
            ("Patient?family=smith&gender=male,female", 1, False),
            ("Patient?name=smith", 0, False),
            ("Patient?gender=male&birthdate=1980", 0, False),
            ("Observation?patient=7&value-quantity=gt5", 0, True),
            ("Patient?identifier=urn:mrn|", 0, False),
            ("Patient?family=sm", 0, False),
            ("Observation?value-quantity=gt5", 0, False),
            ("Patient?name:contains=mit&identifier=urn:mrn|", 0, True),
        ):
            sql = page(criteria)
            self.assertEqual(sql.count("FROM resources"), 0, sql)
            self.assertIn("LIMIT 21) d JOIN resources r", sql)
            self.assertIn("ON r.rid = d.rid ORDER BY d.rid) r JOIN resource_versions v", sql)
            self.assertEqual(sql.count("OFFSET 0"), fenced, sql)
            self.assertEqual(sql.startswith(PLANNER), planned, sql)

    def test_counts_and_chains(self) -> None:
        """Whatever the order of the page is."""
        for criteria in ("Patient?identifier=urn:mrn|&_sort=birthdate", "Patient?gender=male&birthdate=1980"):
            sql = SearchSql("default", parse_criteria(criteria), cast(SymbolTable, cast(Any, _Symbols())))
            self.assertNotIn("resources", sql.count().text)
            self.assertIn("LIMIT 9) d JOIN resources r", sql.ids(9).text)

    def test_what_takes_more(self) -> None:
        for criteria in (
            "Patient",
            "Patient?_id=1,2&family=smith",
            "Patient?family=smith&_lastUpdated=ge2020",
            "Patient?family=smith&_sort=birthdate",
        ):
            self.assertIn("FROM resources r", page(criteria), criteria)
