"""The message tree and access to it; `test_second_opinion.py` compares it with that of python-hl7."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.hl7.message import Message, Segment, number_of
from tests.hl7.samples import MSH, SAMPLES

Parts = dict[tuple[int, int, int, int, int], str]


def ours(message: Message) -> Parts:
    """Every primitive as sent, by segment, field, repetition, component and subcomponent; without empty ones."""
    found: Parts = {}
    for number, segment in enumerate(message.all_segments):
        for field in range(1, len(segment.fields)):
            for repetition, node in enumerate(segment.children(f"{segment.name}_{field}")):
                for component in range(1, len(node.parts) + 1):
                    for part in node.children(f"X_{component}"):
                        for sub in range(1, len(part.parts) + 1):
                            for leaf in part.children(f"Y_{sub}"):
                                found[number, field, repetition, component, sub] = leaf.raw
    return found


class LineEndTests(TestCase):
    def test_line_ends_do_not_matter(self) -> None:
        for name, text in SAMPLES.items():
            expected = ours(Message.parse(text.encode()))
            for end in ("\n", "\r\n", "\r\n\r\n", "\n\n"):
                self.assertEqual(ours(Message.parse(text.replace("\r", end).encode())), expected, (name, end))


class WalkTests(TestCase):
    def setUp(self) -> None:
        self.message = Message.parse(SAMPLES["dense admission"].encode())
        (self.pid,) = self.message.children("PID")

    def test_refused_members(self) -> None:
        identifier = self.pid.children("PID_3")[0]
        authority = identifier.children("CX_4")[0]
        universal = authority.children("HD_2")[0]
        nodes = (self.message, self.pid, identifier, authority, universal)
        self.assertEqual([node.kind for node in nodes], ["message", "segment", "field", "component", "subcomponent"])
        self.assertEqual([node.name for node in nodes], ["ADT_A01", "PID", "PID_3", "PID_3.4", "PID_3.4.2"])

    def test_text(self) -> None:
        first, second = self.pid.children("PID.3")
        self.assertEqual((first.text, second.text), ("77001", "999-1"))
        self.assertEqual(first.children("CX_4")[0].text, "HOSP")
        self.assertEqual([one.text for one in first.children("4")[0].children("2")], ["1.2.3"])
        self.assertEqual([one.children("XPN_1")[0].text for one in self.pid.children("PID_5")], ["Sample", "Maid"])
        self.assertIsNone(self.pid.text)

    def test_absent_children_are_empty_lists(self) -> None:
        first = self.pid.children("PID_3")[0]
        for node, name in (
            (self.pid, "PID_4"),
            (self.pid, "PID_99"),
            (self.pid, "PID"),
            (first, "CX_2"),
            (first, "CX_0"),
        ):
            self.assertEqual(node.children(name), [], name)
        self.assertEqual(self.message.children("ZZZ"), [])

    def test_segments_and_groups_of_a_message(self) -> None:
        raw = b"MSH|^~\\&|S|F|R|F|20200101||ADT^A01^ADT_A01|1|P|2.5\rPID|1\rEVN|A01\rPV1|1\rIN1|1\rIN1|2\rZZZ|1\r"
        counts = {"PID": 1, "EVN": 1, "INSURANCE": 2, "IN1": 0, "ZZZ": 1, "AL1": 0, "PROCEDURE": 0, "PR1": 0, "XYZ": 0}
        for name, count in counts.items():
            message = Message.parse(raw)
            self.assertEqual(len(message.children(name)), count, name)
            if name in ("INSURANCE", "IN1", "PR1", "XYZ"):  # others stand in no group: no need to put it in order
                self.assertEqual(message.warnings, ("segment 3 (EVN) is out of order",), name)

    def test_separators_are_not_split(self) -> None:
        (msh,) = self.message.children("MSH")
        self.assertEqual([msh.children(f"MSH_{n}")[0].text for n in (1, 2, 3)], ["|", "^~\\&", "REG"])

    def test_null(self) -> None:
        (pid,) = Message.parse(SAMPLES["nulls"].encode()).children("PID")
        self.assertTrue(pid.is_null("PID_8"))
        self.assertFalse(pid.is_null("PID_7"))
        self.assertFalse(pid.is_null("PID_3"))
        self.assertEqual(pid.children("PID_8"), [])
        (name,) = pid.children("PID_5")  # the repetition that is null is left out
        self.assertTrue(name.is_null("XPN_1"))
        self.assertEqual((name.children("XPN_1"), name.text), ([], None))

    def test_escapes_are_resolved_after_splitting(self) -> None:
        (obx,) = Message.parse(SAMPLES["escapes"].encode()).segments("OBX")
        self.assertEqual(obx.children("OBX_5")[0].text, "a|b^c&d~e\\f\ngAhij\\Z1\\")

    def test_free_text_with_missing_escapes_is_not_cut(self) -> None:
        message = Message.parse((MSH + "ORU^R01|1|P|2.5\rOBX|1|TX|c||Q&A ^ x~more\rNTE|1||R&D\r").encode())
        self.assertEqual([one.text for one in message.segments("OBX")[0].children("OBX_5")], ["Q&A ^ x", "more"])
        self.assertEqual(message.segments("NTE")[0].children("NTE_3")[0].text, "R&D")

    def test_line_feed_inside_a_value_is_kept(self) -> None:
        (obx,) = Message.parse((MSH + "ORU^R01|1|P|2.5\rOBX|1|TX|c||one\ntwo\r").encode()).segments("OBX")
        self.assertEqual(obx.children("OBX_5")[0].text, "one\ntwo")

    def test_original_bytes_and_characters(self) -> None:
        text = SAMPLES["characters"]
        for codec, stated in (("utf-8", ""), ("utf-8", "UNICODE UTF-8"), ("latin-1", "")):
            raw = text.replace("Łukasz^^李", "x").replace("|2.5\r", f"|2.5||||||{stated}\r").encode(codec)
            message = Message.parse(raw)
            self.assertEqual(message.raw, raw)
            self.assertEqual(message.children("PID")[0].children("PID_5")[0].text, "Müller", codec)
            self.assertEqual(bool(message.warnings), codec == "latin-1")
        self.assertEqual(Message.parse(text.encode("utf-16")).children("PID")[0].children("PID_5")[0].text, "Müller")

    def test_given_charset(self) -> None:
        raw = SAMPLES["characters"].replace("Łukasz^^李", "x").encode("cp1252")
        self.assertEqual(Message.parse(raw, "cp1252").warnings, ())
        self.assertEqual(len(Message.parse(raw, "utf-8").warnings), 1)

    def test_no_message(self) -> None:
        for raw in (b"", b"hello", b"MSH", b"PID|1"):
            self.assertRaises(Problem, Message.parse, raw)

    def test_fields_are_split_on_demand(self) -> None:
        self.message.children("PV1")[0].children("PV1_2")
        touched = [s.name for s in self.message.all_segments if s._fields is not None]
        self.assertEqual(touched, ["PV1"])

    def test_numbers(self) -> None:
        cases = {"PID_3": 3, "PID.3": 3, "CX_10": 10, "3": 3, "PID": 0, "": 0, "X_": 0, "X_-1": 0, "X_²": 0}
        for name, number in cases.items():
            self.assertEqual(number_of(name), number, name)


class FuzzTests(TestCase):
    @settings(max_examples=150, deadline=None)
    @given(
        st.text(alphabet='MSHPIDOBXZ1|^~\\&\r\n"\x00 #é', max_size=120), st.sampled_from(["utf-8", "latin-1", "utf-16"])
    )
    def test_no_exception_but_problem(self, tail: str, codec: str) -> None:
        for raw in (tail.encode(codec), (MSH + tail).encode(codec), ("MSH" + tail).encode(codec)):
            try:
                message = Message.parse(raw)
            except Problem:
                continue
            ours(message)
            self.assertEqual(message.raw, raw)
            self.assertTrue(all(isinstance(one, Segment) for one in message.all_segments))
            self.assertEqual(sum(1 for _ in _segments(message.tree())), len(message.all_segments))


def _segments(group: Any) -> Any:
    for node in group.nodes:
        yield from (_segments(node) if node.kind == "group" else (node,))
