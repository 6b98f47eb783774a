"""Parsing of reference texts."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.fhir.model.reference import Literal, indexed_form, parse_reference, referenced_type

PARSED = [
    ("Patient/1", Literal("", "Patient", "1")),
    ("Patient/1/_history/2", Literal("", "Patient", "1", "2")),
    ("http://a.org/fhir/Patient/1", Literal("http://a.org/fhir", "Patient", "1")),
    ("http://a.org/fhir/Patient/1/_history/2", Literal("http://a.org/fhir", "Patient", "1", "2")),
    ("Nonsense/1", None),
    ("Patient", None),
    ("Patient/", None),
    ("Patient/a?x=1", None),
    ("Patient?identifier=a/b", None),
    ("other/Patient/1", None),
    ("urn:uuid:0c3151bd-1cbf-4d64-b04d-cd9187a4c6e0", None),
    ("#inner", None),
]
INDEXED = [
    ("Patient/1", "Patient/1"),
    ("Patient/1/_history/2", "Patient/1"),
    ("http://a.org/fhir/Patient/1/_history/2", "http://a.org/fhir/Patient/1"),
    ("urn:uuid:1", "urn:uuid:1"),
    ("#inner", None),
    ("", None),
]


class References(TestCase):
    """Tables of input and result."""

    def test_parsed(self) -> None:
        for text, expected in PARSED:
            self.assertEqual(parse_reference(text), expected, text)

    def test_indexed_form(self) -> None:
        for text, expected in INDEXED:
            self.assertEqual(indexed_form(text), expected, text)

    def test_target_type(self) -> None:
        self.assertEqual(referenced_type({"reference": "Group/1", "type": "Patient"}), "Group")
        self.assertEqual(referenced_type({"reference": "urn:uuid:1", "type": "Patient"}), "Patient")
        self.assertIsNone(referenced_type({"reference": "urn:uuid:1"}))
        self.assertIsNone(referenced_type({"display": "somebody"}))
