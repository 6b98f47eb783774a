"""Which messages a destination gets, and what is changed in them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.pipeline.forward.changes import changed, matches
from ipf.pipeline.forward.content import check
from ipf.ports.messages.forwards import Candidate, Destination

RAW = b"MSH|^~\\&|EHR^1|WEST|IPF|H|2026||ADT^A01^ADT_A01|7|P|2.5.1\rPID|1||77^^^H^MR||A^B\rPV1|1|I\rZPI|x\rZPV|y\r"
RESULT = (
    b"MSH|^~\\&|LAB|WEST|IPF|H|2026||ORU^R01^ORU_R01|8|P|2.5.1\rPID|1||77^^^H^MR~5^^^US^SS||A^B\rPV1|1|I\rOBR|1|1|2|X\r"
    b"OBX|1|NM|GLU^Glucose||12.5|mg\rOBX|2|ST|N^Note||a\\T\\b\rZPI|x\r"
)


def destination(**values: Any) -> Destination:
    return Destination("lab", "127.0.0.1", 1, **values)


class MatchTests(TestCase):
    def test_each_filter(self) -> None:
        message = Candidate(1, datetime.now(UTC), "default", "EHR", "ADT_A01", "tcp:2575", "utf-8", RAW)
        for values, expected in (
            ({}, True),
            ({"senders": frozenset({"EHR", "X"})}, True),
            ({"senders": frozenset({"LAB"})}, False),
            ({"facilities": frozenset({"WEST"})}, True),
            ({"facilities": frozenset({"EAST"})}, False),
            ({"types": ("ORU_R01", "ADT_*")}, True),
            ({"types": ("ADT_A02",)}, False),
            ({"listeners": frozenset({"tcp:2575"})}, True),
            ({"listeners": frozenset({"lab"})}, False),
            ({"tenant": "north"}, False),
            ({"senders": frozenset({"EHR"}), "types": ("ORU_*",)}, False),
        ):
            self.assertIs(matches(destination(**values), message), expected, values)

    def test_a_condition(self) -> None:
        message = Candidate(1, datetime.now(UTC), "default", "LAB", "ORU_R01", "l", "", RESULT)
        for where, expected in (
            ("PV1.PV1_2 = 'I'", True),
            ("PV1.PV1_2 = 'O'", False),
            ("PID.PID_3.where(CX_5 = 'SS').exists()", True),
            ("OBX.OBX_8.exists()", False),
            ("OBX.where(OBX_3.CWE_1 = 'GLU').OBX_5.toDecimal() > 10", True),
            ("PATIENT_RESULT.ORDER_OBSERVATION.OBSERVATION.OBX.count() = 2", True),
            ("MSH.MSH_4.HD_1 = 'WEST' and ZPI.ZPI_1 = 'x'", True),
            ("{}", False),
        ):
            self.assertIs(matches(destination(where=where), message), expected, where)
        with self.assertRaisesRegex(Problem, r"OBX.OBX_5.single\(\)"):
            matches(destination(where="OBX.OBX_5.single() = 1"), message)

    def test_a_message_without_a_header(self) -> None:
        message = Candidate(1, datetime.now(UTC), "default", "EHR", "ADT_A01", "l", "", b"nothing")
        self.assertFalse(matches(destination(facilities=frozenset({"WEST"})), message))


class ChangeTests(TestCase):
    def lines(self, raw: bytes = RAW, **values: Any) -> list[str]:
        return changed(destination(**values), raw, "utf-8").decode().split("\r")

    def test_without_changes_the_bytes_stay(self) -> None:
        odd = RAW.replace(b"A^B", b"\xc4\xff") + b"\n"
        self.assertIs(changed(destination(), odd, ""), odd)

    def test_fields_are_set(self) -> None:
        found = self.lines(changes=(("MSH-5", "LAB"), ("PV1-5", "{PID-3}"), ("ZPI-1", ""), ("EVN-2", "x")))
        self.assertEqual(found[0], "MSH|^~\\&|EHR^1|WEST|LAB|H|2026||ADT^A01^ADT_A01|7|P|2.5.1")
        self.assertEqual(found[2:4], ["PV1|1|I|||77^^^H^MR", "ZPI|"])
        self.assertEqual(len(found), 6)

    def test_every_segment_of_a_name(self) -> None:
        found = self.lines(RAW + b"OBX|1|ST\rOBX|2|ST\r", changes=(("OBX-3", "c"),))
        self.assertEqual(found[-3:-1], ["OBX|1|ST|c", "OBX|2|ST|c"])

    def test_computed_fields(self) -> None:
        found = self.lines(RESULT, changes=(("PV1-2", "changed"),), remove=("Z*",), computed=(
            ("PV1-2", "iif(PV1.PV1_2 = 'I', 'INP', 'OUT')"),
            ("PID-3", "PID.PID_3.where(CX_5 = 'MR')"),
            ("PID-2", "PID.PID_3.CX_1"),
            ("OBX-4", "%segment.OBX_3.CWE_1.lower() & '&' & ZPI.ZPI_1"),
            ("PID-7", "{}"),
        ))  # fmt: skip
        self.assertEqual(found[1], "PID|1|77~5|77^^^H^MR||A^B||")
        self.assertEqual(found[2], "PV1|1|INP")
        self.assertEqual([one for one in found if one.startswith("OBX")],
                         ["OBX|1|NM|GLU^Glucose|glu\\T\\x|12.5|mg", "OBX|2|ST|N^Note|n\\T\\x|a\\T\\b"])  # fmt: skip

    def test_what_cannot_be_computed(self) -> None:
        for values in ({"computed": (("PV1-2", "OBX.OBX_5.single()"),)}, {"where": "OBX.OBX_5.single() = 1"}):
            with self.assertRaisesRegex(Problem, "single"):
                self.lines(RESULT, **values)

    def test_expressions_are_checked(self) -> None:
        check(destination(where="PV1.PV1_2 = 'I' and Z01.Z01_1 = 'x'", computed=(("OBX-4", "%segment.OBX_3.CWE_1"),)))
        for values, reason in (
            ({"where": "PV1.PV1_2 ="}, "where: is no FHIRPath"),
            ({"where": "PV1.PV2_2 = 'I'"}, "PV2_2"),
            ({"where": "PVI.PV1_2 = 'I'"}, "PVI"),
            ({"computed": (("OBX-4", "%segment.PID_3"),)}, "compute: OBX-4: .*PID_3"),
            ({"computed": (("OBX-4", "PID.PID_99"),)}, "PID_99"),
        ):
            with self.assertRaisesRegex(Problem, reason):
                check(destination(**values))

    def test_lines_that_end_otherwise(self) -> None:
        found = self.lines(RAW.replace(b"\r", b"\r\n"), changes=(("PV1-2", "O"),), remove=("ZPI",))
        self.assertEqual([line[:3] for line in found], ["MSH", "PID", "PV1", "ZPV", ""])
        self.assertEqual(found[2], "PV1|1|O")

    def test_segments_are_removed(self) -> None:
        for remove, left in ((("ZPI",), ["PID", "PV1", "ZPV"]), (("Z*",), ["PID", "PV1"]), (("PV1", "Z*"), ["PID"])):
            self.assertEqual([line[:3] for line in self.lines(remove=remove)[1:] if line], left)

    def test_other_delimiters(self) -> None:
        found = self.lines(
            b"MSH#^~\\&#A#B#C#D#2026##ADT^A01#7\rPID#1##77\r", changes=(("MSH-6", "X"), ("PID-4", "{PID-3}"))
        )
        self.assertEqual(found[:2], ["MSH#^~\\&#A#B#C#X#2026##ADT^A01#7", "PID#1##77#77"])

    def test_the_character_set_stays(self) -> None:
        raw = RAW.replace(b"2.5.1", b"2.5.1||||||8859/1").replace(b"A^B", b"\xc5sa")
        self.assertIn(b"\xc5sa", changed(destination(changes=(("MSH-5", "\xd8st"),)), raw, "iso-8859-1"))
        with self.assertRaises(Problem):
            changed(destination(changes=(("MSH-5", "\u4e2d"),)), raw, "iso-8859-1")
