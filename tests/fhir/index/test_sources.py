"""The sources of all search parameters are worked out once, at the start; a new parameter costs what it is."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.fhir.index import sources
from ipf.fhir.search.language.query import parse_query


class SourcesTests(TestCase):
    def misses(self) -> tuple[int, int]:
        """How often a type, and a parameter, was worked out."""
        return sources._sources.cache_info().misses, sources._own.cache_info().misses

    def test_a_chain_over_all_types_finds_them_worked_out(self) -> None:
        sources.work_out()
        before = self.misses()
        self.assertRaises(Problem, parse_query, "Provenance", [("target.subject.name", "a")] * 190)
        self.assertEqual(self.misses(), before)

    def test_parameters_that_stay_are_known(self) -> None:
        """After a SearchParameter was written, the types are read again, and no expression of another parameter."""
        sources.work_out()
        _, before = self.misses()
        sources.forget()
        sources.work_out()
        self.assertEqual(self.misses()[1], before)
