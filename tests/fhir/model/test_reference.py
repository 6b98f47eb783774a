"""Parsing of reference texts."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.fhir.model.reference import (
    Literal,
    indexed_form,
    install_base_url,
    local_reference,
    parse_reference,
    referenced_type,
    relative_form,
)

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

    def test_relative_form(self) -> None:
        """By the base URL of the process, of the request, or of both."""
        for installed in (None, "https://a.example:443/fhir/", "http://A.example/fhir"):
            install_base_url(installed)
            self.addCleanup(install_base_url, None)
            for base_url in ("", "http://b.example:8090/fhir"):
                for text, own in (
                    ("https://a.example/fhir/Patient/1", installed),
                    ("https://a.example/fhir//Patient/1", False),
                    ("https://a.example/fhirx/Patient/1", False),
                    ("http://b.example:8090/fhir/Patient/1", base_url),
                    ("http://b.example/fhir/Patient/1", False),
                    ("http://b.example:8090/Patient/1", False),
                ):
                    expected = "Patient/1" if own else text
                    self.assertEqual(relative_form(text, base_url), expected, (installed, base_url, text))
                    found = local_reference(text, base_url)
                    self.assertEqual(found, Literal("", "Patient", "1") if own else None, text)

    def test_indexed_form_of_own_urls(self) -> None:
        install_base_url("https://a.example/fhir")
        self.addCleanup(install_base_url, None)
        self.assertEqual(indexed_form("https://a.example/fhir/Patient/1/_history/2"), "Patient/1")
        self.assertEqual(
            indexed_form("https://b.example/fhir/Patient/1/_history/2"), "https://b.example/fhir/Patient/1"
        )

    def test_target_type(self) -> None:
        self.assertEqual(referenced_type({"reference": "Group/1", "type": "Patient"}), "Group")
        self.assertEqual(referenced_type({"reference": "urn:uuid:1", "type": "Patient"}), "Patient")
        self.assertIsNone(referenced_type({"reference": "urn:uuid:1"}))
        self.assertIsNone(referenced_type({"display": "somebody"}))
