"""From the socket to the stored resource: segments that the stated version has no place for."""

from __future__ import annotations

from tests.flows.engine import EngineTestCase

FAMILY = "engine"


class PlaceTests(EngineTestCase):
    def test_roles_and_allergies_of_an_old_version(self) -> None:
        """ROL and IAM in ADT of version 2.3, after a procedure too."""
        for number, procedure in enumerate(("", "PR1|1||P1^Proc^L||20260101\r")):
            message = (
                f"MSH|^~\\&|PLACES|GENERAL|||20260301||ADT^A01|P{number}|P|2.3\rEVN|A01|20260301\r"
                f"PID|1||PLACES{number}^^^B^MR||X^Y\rPV1|1|I|W^1{'|' * 16}VPLACES{number}\r"
                f"{'' if procedure else 'ROL|1|AD|AT^Attending^HL70443|9^Doc' + chr(13)}"
                f"{procedure}IAM|1|DA|PEN^Penicillin^L\r"
            )
            self.send(message.encode())
            self.assertIsNone(self.row("PLACES", f"P{number}", "DELIVERED")["last_error"])
            allergies = self.found(f"AllergyIntolerance?patient.identifier=PLACES{number}")
            self.assertEqual([one["code"]["coding"][0]["code"] for one in allergies], ["PEN"])
            (encounter,) = self.found(f"Encounter?identifier=VPLACES{number}")
            self.assertEqual("participant" in encounter, not procedure)
