"""Value sets and code systems in expressions, on a terminology service in memory."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.fhirpath import FhirPathError, compile
from ipf.fhir.fhirpath.evaluation.terms import Terminology, terminology_host


class MemoryTerms:
    """Value sets as lists of (system, code), systems as child -> parent."""

    def __init__(self, sets: dict[str, list[tuple[str, str]]], parents: dict[str, dict[str, str]]) -> None:
        self._sets = sets
        self._parents = parents

    def contains(self, value_set: str, system: str | None, code: str) -> bool | None:
        found = self._sets.get(value_set)
        return None if found is None else any(code == b and system in (None, a) for a, b in found)

    def subsumes(self, system: str, above: str, below: str) -> bool | None:
        parents = self._parents.get(system)
        if parents is None:
            return None
        while below != above and below in parents:
            below = parents[below]
        return below == above


TERMS: Terminology = MemoryTerms(
    {"http://hl7.org/fhir/ValueSet/sex": [("urn:s", "m"), ("urn:s", "f")]}, {"urn:s": {"b": "a", "c": "b"}}
)
PATIENT = {
    "resourceType": "Patient",
    "gender": "m",
    "maritalStatus": {"coding": [{"system": "urn:x", "code": "f"}, {"system": "urn:s", "code": "f"}]},
    "contact": [{"relationship": [{"coding": [{"system": "urn:x", "code": "f"}]}]}],
    "language": "zz",
}
CASES: list[tuple[str, list[Any]]] = [
    ("gender.memberOf('http://hl7.org/fhir/ValueSet/sex')", [True]),
    ("gender.memberOf(%vs-sex)", [True]),
    ("gender.memberOf(%`vs-sex`)", [True]),
    ("language.memberOf(%vs-sex)", [False]),
    ("maritalStatus.memberOf(%vs-sex)", [True]),
    ("maritalStatus.coding.first().memberOf(%vs-sex)", [False]),
    ("contact.relationship.memberOf(%vs-sex)", [False]),
    ("gender.memberOf('urn:other')", []),
    ("name.memberOf(%vs-sex)", []),
    ("maritalStatus.coding.memberOf(%vs-sex)", []),
    ("telecom.memberOf(%vs-sex)", []),
    ("gender.memberOf({})", []),
]
CODINGS: dict[str, Any] = {
    "resourceType": "CodeableConcept",
    "coding": [{"system": "urn:s", "code": one} for one in "acx"],
}
SUBSUMPTION: list[tuple[str, list[Any]]] = [
    ("coding[0].subsumes(coding[1])", [True]),
    ("coding[1].subsumes(coding[0])", [False]),
    ("coding[1].subsumedBy(coding[0])", [True]),
    ("coding[0].subsumes(coding[2])", [False]),
]


class TermsTests(TestCase):
    def test_member_of(self) -> None:
        for text, wanted in CASES:
            self.assertEqual(compile(text).evaluate(PATIENT, host=terminology_host(TERMS)), wanted, text)

    def test_subsumption(self) -> None:
        for text, wanted in SUBSUMPTION:
            self.assertEqual(compile(text).evaluate(CODINGS, host=terminology_host(TERMS)), wanted, text)

    def test_codings_that_cannot_be_compared(self) -> None:
        """R4: a relationship between code systems that is not defined is an error."""
        data = {**CODINGS, "coding": [*CODINGS["coding"], {"system": "urn:other", "code": "a"}, {"code": "a"}]}
        for text in (
            "coding[0].subsumes(coding[3])",
            "coding[3].subsumedBy(coding[0])",
            "coding[4].subsumes(coding[4])",
            "'a'.subsumes('b')",
        ):
            self.assertRaises(FhirPathError, compile(text).evaluate, data, host=terminology_host(TERMS))

    def test_no_service_is_an_error(self) -> None:
        for text in ("gender.memberOf(%vs-sex)", "maritalStatus.subsumes(maritalStatus)"):
            self.assertRaises(FhirPathError, compile(text).evaluate, PATIENT)
