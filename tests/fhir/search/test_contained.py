"""`_contained`: parameters, and the tests that are put to containers."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.fhir.index.contained import CONTAINED
from ipf.fhir.search.language.contained import ContainedSearch, of_containers, read_contained
from ipf.fhir.search.language.query import parse_criteria
from ipf.ports.queries.predicates import AnyOf, Contained, TextEquals, TextPrefix

INDEXED = [
    ("Medication?code=a|1", (TextEquals(CONTAINED, ("Medication.code\n1\ta",)),)),
    ("Medication?code=1", (TextPrefix(CONTAINED, "Medication.code\n1\t"),)),
    ("Medication?code:missing=false", (TextPrefix(CONTAINED, "Medication.code\n"),)),
    ("Medication?_id=m,n", (TextEquals(CONTAINED, ("Medication\nm", "Medication\nn")),)),
    ("Medication?", (TextPrefix(CONTAINED, "Medication\n"),)),
    ("Practitioner?family=lo", (AnyOf((TextPrefix(CONTAINED, "Practitioner.family\nlo"),
                                       TextPrefix(CONTAINED, "Practitioner.family:word\nlo"))),)),
]  # fmt: skip
READ = [
    ("Medication?code:not=1", TextPrefix(CONTAINED, "Medication\n")),
    ("Medication?expiration-date=2020", TextPrefix(CONTAINED, "Medication\n")),
    ("Medication?code=a|1&form:missing=true", TextEquals(CONTAINED, ("Medication.code\n1\ta",))),
    ("Medication?code=a|1&code=a|2", TextEquals(CONTAINED, ("Medication.code\n1\ta",))),
]


class ContainedTest(TestCase):
    """Tests on containers."""

    def test_what_the_index_answers(self) -> None:
        for criteria, expected in INDEXED:
            self.assertEqual(of_containers(parse_criteria(criteria)), expected, criteria)

    def test_what_the_resources_answer(self) -> None:
        """After the index has found the resources that may be meant."""
        for criteria, first in READ:
            query = parse_criteria(criteria)
            found = of_containers(query)
            self.assertEqual(found[0], first, criteria)
            self.assertEqual(found[-1], Contained("Medication", tuple(term.test for term in query.terms)))

    def test_parameters(self) -> None:
        self.assertEqual(read_contained([("a", "b")]), (None, [("a", "b")]))
        self.assertEqual(read_contained([("_containedType", "contained"), ("_contained", "false")]), (None, []))
        both = [("_contained", "both"), ("a", "b"), ("_containedType", "contained")]
        self.assertEqual(read_contained(both), (ContainedSearch(True, "contained"), [("a", "b")]))
