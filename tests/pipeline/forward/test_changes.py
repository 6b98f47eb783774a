"""Which messages a destination gets, and what is changed in them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.pipeline.forward.changes import changed, matches
from ipf.ports.forwards import Candidate, Destination

RAW = b"MSH|^~\\&|EHR^1|WEST|IPF|H|2026||ADT^A01^ADT_A01|7|P|2.5.1\rPID|1||77^^^H^MR||A^B\rPV1|1|I\rZPI|x\rZPV|y\r"


def destination(**values: Any) -> Destination:
    return Destination("lab", "127.0.0.1", 1, **values)


class MatchTests(TestCase):
    def test_each_filter(self) -> None:
        message = Candidate(1, datetime.now(UTC), "default", "EHR", "ADT_A01", "tcp:2575", RAW)
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

    def test_a_message_without_a_header(self) -> None:
        message = Candidate(1, datetime.now(UTC), "default", "EHR", "ADT_A01", "l", b"nothing")
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
