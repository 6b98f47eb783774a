"""Documents (MDM): header and content become a DocumentReference; the events differ in what they do to it."""

from __future__ import annotations

import base64
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from tests.corpus import samples
from tests.mapping_maps.facts import hold
from tests.mapping_maps.validity import kinds

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


REPORT = (
    "MSH|^~\\&|A|B|||20260310||ORU^R01^ORU_R01|1|P|2.5.1\nPID|1||1^^^B^MR||X\n"
    "OBR|1|||T^Test^L\nOBX|1|ED|PDF^Report^L||{}||||||F"
)
PDF = base64.b64encode(b"%PDF-1.4\n").decode()


def form(sent: str) -> dict[str, Any]:
    """The document of a report with this OBX-5."""
    bundle = samples.library().transform_message(samples.parse(REPORT.format(sent)))
    [report] = [one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == "DiagnosticReport"]
    [only] = report["presentedForm"]
    return dict(only)


class EncodingTests(TestCase):
    """ED.4 says how ED.5 is written."""

    def test_spellings(self) -> None:
        """Base64 and hexadecimal in any case, with blanks; the same document."""
        names = [f"{stem}{mark}64" for stem in ("Base", "BASE", "base", "bAsE") for mark in ("", "-", "_", " ")]
        for name in [*names, *(f" {one} " for one in names)]:
            with self.subTest(name=name):
                self.assertEqual(form(f"^AP^PDF^{name}^{PDF}")["data"], PDF)
        for name in ("Hex", "HEX", "hex", " hex "):
            with self.subTest(name=name):
                self.assertEqual(
                    form(f"^AP^PDF^{name}^{b'%PDF-1.4'.hex()}")["data"], base64.b64encode(b"%PDF-1.4").decode()
                )

    def test_without_an_encoding(self) -> None:
        """Base64 of what is binary is never encoded again; text is text, also if it could be Base64."""
        for kind in ("AP^PDF", "AP^pdf", "application^pdf", "IM^JPEG", "AP^DOCX", "AP^", "^application/pdf", "IM^PNG"):
            for encoding in ("", " "):
                with self.subTest(kind=kind, encoding=encoding):
                    self.assertEqual(form(f"^{kind}^{encoding}^{PDF}")["data"], PDF)
        for kind in ("TX^PLAIN", "FT^", "^", "text^plain", "AP^XML", "AP^HTML"):
            for text in ("Dear colleague", "word", "JVBERi0xLjQK"):
                with self.subTest(kind=kind, text=text):
                    self.assertEqual(base64.b64decode(form(f"^{kind}^^{text}")["data"]).decode(), text)
        self.assertEqual(base64.b64decode(form("^AP^PDF^^%PDF-1.4")["data"]), b"%PDF-1.4")

    def test_failures(self) -> None:
        """An unknown encoding, or data that are not in theirs, fail the message and name the component."""
        table = (
            ("^AP^PDF^uuencode^x", "ED-4"),
            ("^AP^PDF^gzip^JVBERi0xLjQK", "ED-4"),
            ("^AP^PDF^Base64^JVBERi0xLjQ", "ED-5"),
            ("^AP^PDF^Base64^%PDF", "ED-5"),
            ("^AP^PDF^Base64^JVBE=i0x", "ED-5"),
            ("^AP^PDF^Hex^25504", "ED-5"),
            ("^AP^PDF^Hex^xyz", "ED-5"),
            ("^AP^PDF^^JVBERi0xLjQ", "ED-5"),
        )
        for sent, component in table:
            with self.subTest(sent=sent):
                problem = self.assertRaises(Problem, form, sent)
                self.assertEqual((problem.category, component in str(problem)), (Category.MAPPING, True))


class MediaTypeTests(TestCase):
    """What is no media type is kept beside the element; the message does not fail for it."""

    def test_table(self) -> None:
        for kind, value, expected in (
            ("RP", "^^application^pdf", "application/pdf"),
            ("RP", "^^^Application/PDF", "Application/PDF"),
            ("RP", "^^^application/pdf;version=2", "application/pdf;version=2"),
            ("RP", "^^application^%", None),
            ("RP", "^^image^jpeg 2000", None),
            ("RP", "^^^a b/c", None),
            ("RP", "^^^/", None),
            ("RP", "^^application^x;charset", None),
            ("ED", "^application^%^Base64^JVBERi0xLjQK", None),
            ("ED", "^^a/b/c^Base64^JVBERi0xLjQK", None),
            ("ED", "^a/%^^Base64^JVBERi0xLjQK", None),
        ):
            for head in (
                "MSH|^~\\&|A|B|||2026||MDM^T10^MDM_T02|1|P|2.5\nPID|1||1^^^A^MR\nTXA|1",
                "MSH|^~\\&|A|B|||2026||ORU^R01^ORU_R01|1|P|2.5\nPID|1||1^^^A^MR\nOBR|1",
            ):
                text = f"{head}\nOBX|1|{kind}|1^x^L||{value}||||||F"
                self.assertEqual(kinds(text), set(), text)
                bundle = samples.library().transform_message(samples.parse(text), checked=False)
                found = attachments(bundle)  # of a result one in the Observation, and one in the report
                self.assertEqual(len(found), 1 if "MDM" in head else 2, text)
                self.assertEqual({one.get("contentType") for one in found}, {expected}, text)
                for attachment in found if expected is None else ():
                    (kept,) = attachment["_contentType"]["extension"]
                    self.assertEqual(kept["url"], "urn:ipf:StructureDefinition/value-as-sent")
                    self.assertIn("/", kept["valueString"])


def attachments(value: Any) -> list[dict[str, Any]]:
    """All objects with a content type or what was sent for it, at any depth."""
    if isinstance(value, list):
        return [found for one in value for found in attachments(one)]
    if not isinstance(value, dict):
        return []
    own = [value] if value.keys() & {"contentType", "_contentType"} else []
    return own + [found for one in value.values() for found in attachments(one)]
