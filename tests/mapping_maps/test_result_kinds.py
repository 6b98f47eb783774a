"""Results that are documents, and observations on a container: Observations with their code, whatever the structure."""

from __future__ import annotations

import base64
from typing import Any

from twisted.trial.unittest import TestCase

from tests.corpus import samples
from tests.mapping_maps.validity import errors

FAMILY = "maps"

PDF = base64.b64encode(b"%PDF-1.4\n").decode()
PATIENT = "PID|1||1^^^B^MR||X^Y\n"
VOLUME = "OBX|{0}|NM|VOL^Volume^L||{0}|mL|||||F\n"
RESULT = "OBX|9|NM|GLU^Glucose^L||5|mg/dL|||||F\n"
SPECIMEN, CONTAINER = "SPM|1|S1^F1||BLD\n", "SAC|||C1\n"


def entries(kind: str, version: str, body: str) -> list[dict[str, Any]]:
    """The resources of a message; all are valid."""
    head = f"MSH|^~\\&|A|B|||20260310120000||{kind}|1|P|{version}\n"
    assert errors(head + PATIENT + body) == [], errors(head + PATIENT + body)
    bundle = samples.library().transform_message(samples.parse(head + PATIENT + body))
    return [one["resource"] for one in bundle["entry"]]


def of(resources: list[dict[str, Any]], resource_type: str) -> list[dict[str, Any]]:
    """Those of a type."""
    return [one for one in resources if one["resourceType"] == resource_type]


def document(kind: str, value: str, status: str = "F") -> str:
    """A result that is a document."""
    return f"OBX|1|{kind}|PDF^Report as PDF^L||{value}||||||{status}|||20260309101500\n"


class DocumentTests(TestCase):
    def test_document(self) -> None:
        """Code, status, time and attachment, in every structure of results, and the form of the report."""
        order = "OBR|1||F1|T^Test^L|||20260309\n"
        sent = {"ED": f"^AP^PDF^Base64^{PDF}", "RP": "https://pacs.example.org/1.pdf^^AP^PDF"}
        for kind, value in sent.items():
            for message, before in (("ORU^R01^ORU_R01", ""), ("OUL^R22^OUL_R22", SPECIMEN)):
                with self.subTest(kind=kind, message=message):
                    found = entries(message, "2.5.1", before + order + document(kind, value))
                    [observation], [report] = of(found, "Observation"), of(found, "DiagnosticReport")
                    coding = {"code": "PDF", "display": "Report as PDF"}
                    self.assertEqual(observation["code"]["coding"], [coding])
                    self.assertEqual(
                        (observation["status"], observation["effectiveDateTime"][:10]), ("final", "2026-03-09")
                    )
                    attachment = observation["extension"][0]["valueAttachment"]
                    self.assertEqual(attachment["contentType"], "application/pdf")
                    self.assertIn(attachment.get("data", PDF), PDF)
                    self.assertEqual(len(report["result"]), 1)
                    self.assertEqual(report["presentedForm"][0].get("data"), attachment.get("data"))

    def test_what_was_taken_back(self) -> None:
        """The Observation says so; it is no form of the report."""
        for status, expected in (("D", "entered-in-error"), ("W", "entered-in-error"), ("X", "cancelled")):
            body = "OBR|1||F1|T^Test^L\n" + document("ED", f"^AP^PDF^Base64^{PDF}", status)
            found = entries("ORU^R01^ORU_R01", "2.5.1", body)
            self.assertEqual([one["status"] for one in of(found, "Observation")], [expected])
            self.assertNotIn("presentedForm", of(found, "DiagnosticReport")[0])

    def test_without_a_code(self) -> None:
        """Only the form of the report: an Observation needs a code."""
        found = entries("ORU^R01^ORU_R01", "2.5.1", f"OBR|1||F1|T^Test^L\nOBX|1|ED|||^AP^PDF^Base64^{PDF}||||||F\n")
        self.assertEqual(of(found, "Observation"), [])
        self.assertEqual(len(of(found, "DiagnosticReport")[0]["presentedForm"]), 1)

    def test_nothing_is_unread(self) -> None:
        head = "MSH|^~\\&|A|B|||20260310120000||ORU^R01^ORU_R01|1|P|2.5.1\n"
        text = head + PATIENT + "OBR|1||F1|T^Test^L\n" + document("ED", f"^AP^PDF^Base64^{PDF}")
        unread = [one.path for one in samples.library().run(samples.parse(text)).unread() if one.kind == "unread"]
        self.assertEqual([one for one in unread if one.startswith("OBX")], [])


class ContainerTests(TestCase):
    def test_structures(self) -> None:
        """OBX below SPM and below SAC are about the specimen; the results that follow are of the order."""
        order, request = "OBR|1||F1|T^Test^L\n", "ORC|NW|P1\nOBR|1|P1||T^Test^L\n"
        below = SPECIMEN + VOLUME.format(1) + CONTAINER + VOLUME.format(2)
        table = [
            ("OUL^R22^OUL_R22", ("2.5.1", "2.7", "2.8"), below + order + RESULT),
            ("OUL^R23^OUL_R23", ("2.5.1", "2.7", "2.8"), below + order + RESULT),
            ("OML^O21^OML_O21", ("2.5.1", "2.8"), request + below),
            ("OML^O33^OML_O33", ("2.5.1", "2.8"), below + request),
            ("OML^O35^OML_O35", ("2.5.1", "2.8"), below + request),
            ("ORU^R01^ORU_R01", ("2.5.1", "2.8"), order + RESULT + below),
        ]
        for kind, versions, body in table:
            for version in versions:
                with self.subTest(kind=kind, version=version):
                    found = entries(kind, version, body)
                    self.assertEqual(len(of(found, "Specimen")), 1)
                    volumes = [one for one in of(found, "Observation") if one["code"]["coding"][0]["code"] == "VOL"]
                    self.assertEqual(sorted(one["valueQuantity"]["value"] for one in volumes), [1, 2])
                    self.assertTrue(all("specimen" in one and "focus" in one for one in volumes))
                    results = [one for one in of(found, "Observation") if one not in volumes]
                    self.assertEqual(len(results), body.count("GLU"))
                    self.assertTrue(all("focus" not in one for one in results))
