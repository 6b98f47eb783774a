"""Documents (MDM): header and content become a DocumentReference; the events differ in what they do to it."""

from __future__ import annotations

import base64
from typing import Any

from twisted.trial.unittest import TestCase

from tests.corpus import samples
from tests.mapping_maps.facts import hold

DOCUMENT = "DocumentReference"
TEXT = "Dear colleague,\n\nShe is well.\nÆ ø å & more."

NOTE = [
    (DOCUMENT, "", "masterIdentifier.value", "DOC-1"),
    (DOCUMENT, "", "masterIdentifier.system", "urn:oid:1.2.3.4.5"),
    (DOCUMENT, "", "identifier.value", "DOC-1 | note1.txt"),
    (DOCUMENT, "", "status", "current"),
    (DOCUMENT, "", "docStatus", "final"),
    (DOCUMENT, "", "type.coding.code", "CN"),
    (DOCUMENT, "", "date", "2026-03-10T10:05:00Z"),
    (DOCUMENT, "", "author.display", "Lars Lege"),
    (DOCUMENT, "", "authenticator.display", "Siri Sjef"),
    (DOCUMENT, "", "securityLabel.coding.code", "R"),
    (DOCUMENT, "", "description", "Consultation of March"),
    (DOCUMENT, "", "subject.reference", "Patient-1"),
    (DOCUMENT, "", "context.encounter.reference", "Encounter-1"),
    (DOCUMENT, "", "context.related.reference", "ServiceRequest-1"),
    (DOCUMENT, "", "content.0.attachment.contentType", "text/plain;charset=utf-8"),
    (DOCUMENT, "", "content.0.attachment.data", base64.b64encode(TEXT.encode()).decode()),
    (DOCUMENT, "", "content.1.attachment.data", base64.b64encode(b"Dictated, not read\nsecond line").decode()),
    (DOCUMENT, "", "content.2.attachment.contentType", "application/pdf"),
    (DOCUMENT, "", "content.2.attachment.data", "JVBERi0xLjQ="),
    ("ServiceRequest", "", "note.text", "Please compare with last year"),
    ("Observation", "", "valueQuantity.value", "72"),
    ("Patient", "", "name.family", "Næss"),
]

OTHERS = {
    "mdm_t01_notice": [
        (DOCUMENT, "", "docStatus", "preliminary"),
        (DOCUMENT, "", "content.attachment.contentType", "text/plain"),
        (DOCUMENT, "", "content.attachment.extension.valueCode", "unknown"),
    ],
    "mdm_t06_addendum": [
        (DOCUMENT, "", "relatesTo.code", "appends"),
        (DOCUMENT, "", "relatesTo.target.identifier.value", "DOC-1"),
        (DOCUMENT, "", "status", "superseded"),
        (DOCUMENT, "", "_status.extension.valueCodeableConcept.coding.code", "OB"),
        (DOCUMENT, "", "date", "2026-03-11T00:00:00Z"),
        (DOCUMENT, "", "content.attachment.data", base64.b64encode(b"One more thing.").decode()),
    ],
    "mdm_t08_edit": [
        (DOCUMENT, "", "status", "current"),
        (DOCUMENT, "", "docStatus", "preliminary"),
        ("Provenance", "target.reference=DocumentReference-1", "reason.text", "Typing errors | Typing errors"),
        ("Provenance", "reason.text=Typing errors", "recorded", "2026-03-11T12:00:00Z | 2026-03-11T12:05:00Z"),
        ("Provenance", "recorded=2026-03-11T12:05:00Z", "agent.role.coding.code", "IRCP"),
        ("Provenance", "recorded=2026-03-11T12:05:00Z", "agent.who.display", "Lars Lege | Kai Kopi"),
    ],
    "mdm_t10_replace": [
        (DOCUMENT, "", "relatesTo.code", "replaces"),
        (DOCUMENT, "", "content.attachment.url", "https://docs.example.org/DOC-4.pdf"),
        (DOCUMENT, "", "content.attachment.contentType", "application/pdf"),
    ],
    "mdm_t11_cancel": [
        (DOCUMENT, "", "status", "entered-in-error"),
        (DOCUMENT, "", "docStatus", "entered-in-error"),
    ],
}


def request(name: str) -> dict[str, Any]:
    """How the document of a sample is written."""
    entries = samples.bundle(name)["entry"]
    found: dict[str, Any] = next(one["request"] for one in entries if one["resource"]["resourceType"] == DOCUMENT)
    return found


class DocumentTests(TestCase):
    """What stands in the samples."""

    def test_facts(self) -> None:
        """Each in its place."""
        hold(self, "mdm_t02_note", NOTE)
        for name, facts in OTHERS.items():
            hold(self, name, facts)

    def test_same_document(self) -> None:
        """An edit meets the document that it edits, a cancellation the replacement that it cancels."""
        self.assertEqual(request("mdm_t08_edit"), request("mdm_t02_note"))
        self.assertEqual(request("mdm_t11_cancel"), request("mdm_t10_replace"))
        self.assertNotEqual(request("mdm_t06_addendum"), request("mdm_t02_note"))

    def test_a_notification_overwrites_nothing(self) -> None:
        """It may come after the content."""
        self.assertEqual(request("mdm_t01_notice")["method"], "POST")
        self.assertIn("DOC-2", request("mdm_t01_notice")["ifNoneExist"])

    def test_text_of_old_versions(self) -> None:
        """Before version 2.5 the OBX of a document stand beside PID: they are no observations of the patient."""
        types = [one["resource"]["resourceType"] for one in samples.bundle("mdm_t06_addendum")["entry"]]
        self.assertNotIn("Observation", types)

    def test_every_event_has_a_map(self) -> None:
        """T01 to T11."""
        self.assertTrue(all(f"MDM_T{number:02}" in samples.library().message_types for number in range(1, 12)))
