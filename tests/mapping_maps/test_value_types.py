"""OBX-5 of a type that R4 has no value for: a text in which no part of it is lost."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.fhir.structure.check import structure_issues
from ipf.hl7.message import Message
from ipf.ports import Json
from tests.corpus import samples

HEAD = "MSH|^~\\&|LAB|X|||20260301||ORU^R01^ORU_R01|1|P|2.5.1\rPID|1||1^^^N^MR||A^B\rOBR|1||F1|G^G^L\r"
TEXTS = {
    # type and OBX-5: the text
    "MO 5^USD": "5^USD",
    "CP 5&USD^AP": "5&USD^AP",
    "PL W^1^2": "W^1^2",
    "HD A^1.2^ISO": "A^1.2^ISO",
    "XON Org^L^7": "Org^L^7",
    "JCC A^B": "A^B",
    "TQ 1^2": "1^2",
    "RI Q6H": "Q6H",
    "ZZ x^y&z": "x^y&z",
    "ZZ x\\T\\y": "x&y",
    " a^b": "a^b",
    " a": "a",
    "XPN Doe^J": "J Doe",
    "PN Doe^J": "J Doe",
    "XCN 1^Doe^J": "J Doe (1)",
    "XAD 1 Main^^Town": "1 Main, Town",
    "XTN 555^PRN^PH": "555",
    "XTN ^NET^Internet^a@b": "a@b",
    "CD 1^a&b^c": "1^a&b^c",
    "EI 7": "7",
}
WITH_AUTHORITY = {"EI 7^LAB": "7^LAB", "CX 7^^^LAB&1.2&ISO^MR": "7^LAB&1.2&ISO^MR"}
KINDS = ("MO", "CP", "PL", "HD", "XON", "EI", "CX", "CF", "RI", "ZZ", "")


def observation(sent: str) -> tuple[Json, list[str]]:
    """The Observation of an OBX-5 (`TYPE value`), and what is lost."""
    kind, _, value = sent.partition(" ")
    result = samples.library().run(Message.parse(f"{HEAD}OBX|1|{kind}|X^X^L||{value}||||||F\r".encode()))
    (found,) = [one["resource"] for one in result.bundle["entry"] if one["resource"]["resourceType"] == "Observation"]
    return found, [one.path for one in result.unread() if one.kind in ("unread", "dropped")]


class ValueTypeTests(TestCase):
    def test_texts(self) -> None:
        """As sent, or what a person would write."""
        for sent, text in TEXTS.items():
            found, lost = observation(sent)
            self.assertEqual((found["valueString"], lost), (text, []), sent)
            self.assertNotIn("_valueString", found, sent)

    def test_numbers_with_their_authority(self) -> None:
        """The number is the value; all of it stands beside."""
        for sent, text in WITH_AUTHORITY.items():
            found, lost = observation(sent)
            self.assertEqual((found["valueString"], lost), ("7", []), sent)
            self.assertEqual(found["_valueString"]["extension"][0]["valueString"], text)

    def test_no_part_is_lost(self) -> None:
        """Each of five parts, of each type, is in the resource."""
        for kind in KINDS:
            found, _ = observation(f"{kind} p1^p2^p3^p4^p5")
            shown = str(found) if kind in ("CF",) else str(found.get("valueString")) + str(found.get("_valueString"))
            for part in ("p1", "p2", "p4", "p5") if kind == "CF" else ("p1", "p2", "p3", "p4", "p5"):
                self.assertIn(part, shown, kind)
            self.assertFalse(structure_issues(found), kind)
