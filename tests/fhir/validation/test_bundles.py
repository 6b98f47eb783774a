"""Rules of Bundles, and findings as an OperationOutcome."""

from __future__ import annotations

import copy

from twisted.trial.unittest import TestCase

from ipf.fhir.validation.findings import Finding, outcome
from tests.fhir.validation.rules import PATIENT, Base, Json, found, with_


class Bundles(Base):
    """Full urls, documents, messages, searches."""

    def test_bundles(self) -> None:
        def bundle(kind: str, *entries: Json) -> Json:
            return {"resourceType": "Bundle", "type": kind, "entry": list(entries)}

        patient = with_(PATIENT, id="1")
        url = "http://x.test/fhir/Patient/1"
        self.check(
            [
                (bundle("collection", {"fullUrl": url, "resource": patient}), []),
                (
                    bundle("collection", {"fullUrl": "Patient/1", "resource": patient}),
                    [("invalid", "Bundle.entry[0].fullUrl")],
                ),
                (
                    bundle("collection", {"fullUrl": url, "resource": with_(patient, id="2")}),
                    [("invalid", "Bundle.entry[0].fullUrl")],
                ),
                (
                    bundle("collection", {"fullUrl": url, "resource": with_(patient, gender="x")}),
                    [("code-invalid", "Bundle.entry[0].resource.gender")],
                ),
                (
                    bundle("searchset", {"fullUrl": url, "resource": patient, "search": {"mode": "outcome"}}),
                    [("invalid", "Bundle.entry[0].resource")],
                ),
            ]
        )
        message = found(bundle("message", {"fullUrl": url, "resource": patient}))
        self.assertIn(("invalid", "Bundle.entry[0]"), message)

    def test_document_contains_targets_of_composition(self) -> None:
        composition = {
            "resourceType": "Composition",
            "id": "c",
            "status": "final",
            "type": {"text": "x"},
            "date": "2024",
            "title": "x",
            "author": [{"reference": "Patient/1"}],
        }
        document = {
            "resourceType": "Bundle",
            "type": "document",
            "identifier": {"system": "urn:ietf:rfc:3986", "value": "urn:uuid:c757873d-ec9a-4326-a141-556f43239520"},
            "timestamp": "2024-01-01T00:00:00Z",
            "entry": [
                {"fullUrl": "http://x.test/fhir/Composition/c", "resource": composition},
                {"fullUrl": "http://x.test/fhir/Patient/1", "resource": with_(PATIENT, id="1")},
            ],
        }
        self.assertEqual(found(document), [])
        lost = copy.deepcopy(document)
        lost["entry"][1]["fullUrl"] = "http://y.test/fhir/Patient/1"  # type: ignore[index]
        self.assertEqual(found(lost), [("not-found", "Bundle.entry[0].resource.author[0]")])


class Outcomes(TestCase):
    """OperationOutcome."""

    def test_outcome(self) -> None:
        made = outcome([Finding("error", "value", "text", "Patient.name")])
        issue = {"severity": "error", "code": "value", "diagnostics": "text", "expression": ["Patient.name"]}
        self.assertEqual(made, {"resourceType": "OperationOutcome", "issue": [issue]})
        self.assertEqual(outcome([])["issue"][0]["severity"], "information")
