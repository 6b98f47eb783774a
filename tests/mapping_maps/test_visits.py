"""Encounter.status, class and locations by event, class of patient and time of discharge."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from tests.corpus import samples

MESSAGE = (
    "MSH|^~\\&|APP|HOSP|||2026||ADT^{event}|1|P|2.5.1\nPID|||7\nPV1||{patient_class}|W^1^2||||||||||||||||V1{discharge}"
)
DISCHARGE = "|" * 26 + "20260301"


def encounter(event: str, patient_class: str, *, discharged: bool = False) -> dict[str, Any]:
    """The Encounter of such a message."""
    text = MESSAGE.format(event=event, patient_class=patient_class, discharge=DISCHARGE if discharged else "")
    bundle = samples.library().transform_message(samples.parse(text))
    found = [one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == "Encounter"]
    return found[0] if found else {}


class StatusTests(TestCase):
    """What a visit is said to be."""

    def test_status(self) -> None:
        """The closing events win, then a time of discharge, then the event, then the class."""
        table = [
            ("A01", "I", False, "in-progress"),
            ("A01", "I", True, "finished"),
            ("A02", "I", False, "in-progress"),
            ("A03", "I", False, "finished"),
            ("A03", "I", True, "finished"),
            ("A04", "E", False, "planned"),
            ("A05", "P", False, "planned"),
            ("A08", "I", False, "in-progress"),
            ("A08", "P", False, "planned"),
            ("A08", "U", False, "unknown"),
            ("A08", "ZZ", False, "unknown"),
            ("A08", "O", True, "finished"),
            ("A11", "I", True, "cancelled"),
            ("A13", "I", True, "in-progress"),
        ]
        for event, patient_class, discharged, status in table:
            with self.subTest(event=event, patient_class=patient_class, discharged=discharged):
                self.assertEqual(encounter(event, patient_class, discharged=discharged)["status"], status)

    def test_classes(self) -> None:
        """Translated when the table knows it, kept when it is local, said to be unknown when it is not sent."""
        act = "http://terminology.hl7.org/CodeSystem/v3-ActCode"
        v2 = "http://terminology.hl7.org/CodeSystem/v2-0004"
        table = [("E", act, "EMER"), ("O", act, "AMB"), ("R", v2, "R"), ("DAY", None, "DAY")]
        for sent, system, code in table:
            with self.subTest(sent=sent):
                held = encounter("A01", sent)["class"]
                self.assertEqual((held.get("system"), held["code"]), (system, code))
        self.assertEqual(encounter("A01", "")["class"]["code"], "UNK")

    def test_assigned_location(self) -> None:
        """Where the patient is, will be, or was."""
        table = [
            ("A01", "I", False, "active"),
            ("A05", "P", False, "planned"),
            ("A03", "I", False, "completed"),
            ("A08", "I", True, "completed"),
        ]
        for event, patient_class, discharged, status in table:
            with self.subTest(event=event, patient_class=patient_class):
                held = encounter(event, patient_class, discharged=discharged)["location"][0]
                self.assertEqual(held["status"], status)

    def test_events_about_persons(self) -> None:
        """They make no Encounter of the PV1 that their structure demands."""
        for event in ("A28", "A31"):
            self.assertEqual(encounter(event, "N"), {})


class IdentityTests(TestCase):
    """By what a visit is found again."""

    def key(self, pv1: str, pid18: str = "") -> str:
        """The request of the Encounter."""
        text = f"MSH|^~\\&|APP|HOSP|||2026||ADT^A01|1|P|2.5.1\nPID|||7{'|' * 15}{pid18}\n{pv1}"
        bundle = samples.library().transform_message(samples.parse(text))
        return next(one["request"]["url"] for one in bundle["entry"] if one["resource"]["resourceType"] == "Encounter")

    def test_numbers(self) -> None:
        """Visit number, else alternate visit ID, else account and time of admission under the patient."""
        visit = "PV1||I" + "|" * 17 + "V7"
        alternate = "PV1||I" + "|" * 48 + "ALT7^^^X"
        admitted = "PV1||I" + "|" * 42 + "20260101"
        of_type = "&identifier:of-type=http://terminology.hl7.org/CodeSystem/v2-0203|VN|V7"
        self.assertEqual(self.key(visit), f"Encounter?identifier=urn:ipf:authority:HOSP|V7{of_type}")
        self.assertEqual(self.key(alternate), "Encounter?identifier=urn:ipf:authority:X|ALT7")
        self.assertTrue(self.key(admitted).startswith("Encounter?identifier=urn:ipf:derived|"))
        self.assertEqual(self.key(admitted, "ACC"), self.key(admitted + "|", "ACC"))
        self.assertNotEqual(self.key(admitted, "ACC"), self.key(admitted, "OTHER"))
