"""A message that is several, broken, without its subject, or with two, is refused."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.hl7.checks import check_message
from ipf.hl7.message import Message
from tests.hl7.samples import MSH

ONE, TWO, SAME = "PID|||1^^^A^MR", "PID|||2^^^A^MR", "PID|||1^^^A^MR~7^^^B^PI"
ORDER, OTHER, PRIOR, RESULT = "ORC|NW|1\rOBR|1|1", "ORC|NW|2\rOBR|1|2", "ORC|PR|0\rOBR|1|0\rOBX|1", "OBR|1\rOBX|1"

SUBJECTS = [
    ("ORM^O01", [ONE, ORDER, TWO, OTHER], False),
    ("ORM^O01", [ONE, ORDER, SAME, OTHER], True),
    ("ORM^O01", [ONE, ORDER, "PID||", OTHER], True),
    ("OML^O21", [ONE, ORDER, TWO, OTHER], False),
    ("OML^O21", [ONE, ORDER, SAME, OTHER], True),
    ("OML^O21", [ONE, ORDER, TWO, PRIOR, OTHER], True),
    ("ORU^R01", [ONE, RESULT, TWO, RESULT], True),
    ("ADT^A08", [ONE, "PV1||I", TWO, "PV1||I"], False),
    ("ADT^A17", [ONE, "PV1||I", TWO, "PV1||I"], True),
    ("ADT^A40", [ONE, "MRG|3", TWO, "MRG|4"], True),
    ("VXU^V04", [ONE, TWO], False),
]
"""Type, segments, whether the message has one patient wherever its structure has one."""

VISIT, VISIT_2, NO_NUMBER = "PV1||I|||||||||||||||||V1", "PV1||I|||||||||||||||||V2", "PV1||I|W1"
VISITS = [
    ("ORM^O01", [ONE, VISIT, ORDER, VISIT_2, OTHER], False),
    ("OML^O21", [ONE, VISIT, ORDER, VISIT_2, OTHER], False),
    ("OMG^O19", [ONE, VISIT, ORDER, VISIT_2, OTHER], False),
    ("ORU^R01", [ONE, VISIT, RESULT, VISIT_2, RESULT], False),
    ("ORU^R01", [ONE, VISIT, RESULT, VISIT, RESULT], True),
    ("ORU^R01", [ONE, VISIT, RESULT, NO_NUMBER, RESULT], True),
    ("ORU^R01", [ONE, NO_NUMBER, RESULT, "PV1||O|W1", RESULT], False),
    ("ORU^R01", [ONE, VISIT, RESULT, TWO, VISIT_2, RESULT], True),
    ("ADT^A01", [ONE, VISIT, VISIT_2], False),
]
"""The same for visits."""

OTHERS = [
    ("MRG", "ADT^A40", [ONE, "MRG|3", "MRG|4"]),
    ("MRG", "ADT^A47", [ONE, "MRG|3", "MRG|4"]),
    ("TXA", "MDM^T02", [ONE, VISIT, "TXA|1|OP||||||||||D1", "OBX|1", "TXA|1|OP||||||||||D2"]),
    ("PID", "ADT^A08", ["PID|||1^^^NORTH^MR", "PID|||1^^^SOUTH^MR"]),
    ("PID", "ADT^A08", ["PID|||||BRAVO^B", "PID|||||ALPHA^A"]),
    ("PID", "MDM^T02", [ONE, TWO, VISIT, "TXA|1|OP||||||||||D1", "OBX|1"]),
]
"""Segment, type and segments: two subjects."""

EMPTY_PIDS = ["PID", "PID|1", "PID|1||||||19800101|F", 'PID|1||""^^^A||""^""', "PID|1||^^^A^MR||^^^^^^L"]
"""They name nobody."""

MISSING = [
    ("PID", "ADT^A01", ["EVN|A01", VISIT]),
    ("PID", "VXU^V04", ["ORC|RE", "RXA|0|1|2026"]),
    ("PID", "MDM^T02", [VISIT, "TXA|1", "OBX|1"]),
    ("PID", "BAR^P01", ["EVN|P01", VISIT]),
    ("PID", "DFT^P03", ["EVN|P03", "FT1|1"]),
    ("FT1", "DFT^P03", [ONE]),
    ("TXA", "MDM^T02", [ONE, VISIT, "OBX|1"]),
    ("MRG", "ADT^A40", [ONE]),
    ("MRG", "ADT^A40", [ONE, "MRG|3", TWO]),
    ("MRG", "ADT^A18", [ONE]),
    ("OBR", "ORU^R01", [ONE]),
    ("OBR", "ORU^R01", [ONE, "OBX|1"]),
    ("OBR", "ORU^R01", [ONE, "ORC|RE|1", "OBX|1"]),
    ("PID", "ORU^R01", [RESULT]),
    ("PID", "SIU^S12", ["SCH|1", "RGS|1"]),
    ("PID", "RDE^O11", ["ORC|NW|1", "RXE||1"]),
    ("PID", "OML^O21", [ORDER, TWO, PRIOR][:1]),
    ("SCH", "SIU^S12", [ONE, "RGS|1"]),
    ("RXE", "RDE^O11", [ONE, "ORC|NW|1"]),
    ("NPU", "ADT^A20", ["EVN|A20"]),
    ("ORC", "ORM^O01", [ONE, VISIT]),
    ("ORC", "ORM^O01", [ONE, "ORC||||"]),
    ("ORC", "OML^O21", [ONE, "NTE|1||no order", "OBX|1"]),
    *(("PID", "ADT^A01", [empty, VISIT]) for empty in EMPTY_PIDS),
    *(("PID", "ORU^R01", [empty, RESULT]) for empty in EMPTY_PIDS),
    ("PID", "ORU^R01", [ONE, RESULT, "PID|2", RESULT]),
    ("PID", "ADT^A08", [ONE, "PID|2", VISIT]),
    ("PID", "ADT^A17", [ONE, VISIT, "PID|2", VISIT_2]),
    ("MRG", "ADT^A40", [ONE, "MRG|||ACC"]),
    ("MRG", "ADT^A40", [ONE, "MRG|3", TWO, "MRG|||ACC"]),
    ("MRG", "ADT^A18", [ONE, "MRG|^^^A"]),
    ("MRG", "ADT^A47", [ONE, 'MRG|""||ACC']),
    ("MRG", "ADT^A41", [ONE, "MRG|3"]),
    ("MRG", "ADT^A42", [ONE, "MRG|3", VISIT]),
    ("OBR", "ORU^R01", [ONE, 'OBR|""|""', "OBX|1"]),
    ("OBR", "ORU^R01", [ONE, "OBR", "OBX|1"]),
    ("MRG", "ADT^A40", [ONE, "MRG||||"]),
    ("TXA", "MDM^T02", [ONE, VISIT, "TXA||", "OBX|1"]),
]
"""Segment, type and segments: it is missing, or says nothing."""

WHOLE = [
    ("ADT^A01", ["EVN|A01", "PID|1||||^Given"]),
    ("ADT^A01", ["EVN|A01", "PID|1|7"]),
    ("ORM^O01", [ONE, "OBR|1|1"]),
    ("ORM^O01", [ONE, "RXO|1"]),
    ("SIU^S23", ["SCH|1", "PID|", "PV1||I", "RGS|1"]),
    ("ADT^A01", ["EVN|A01", ONE]),
    ("ADT^A01", [ONE, VISIT, "ZZ1|x", "PV2"]),
    ("ADT^A28", [ONE]),
    ("ADT^A40", ["MRG|3", ONE]),
    ("ADT^A40", [ONE, "MRG|3", TWO, "MRG|4"]),
    ("ORU^R01", [ONE, "OBX|1", VISIT, RESULT]),
    ("SIU^S23", ["SCH|1", "RGS|1"]),
    ("MFN^M02", ["MFI|STF", "MFE|MAD", "STF|1"]),
]
"""Type and segments of messages that are converted."""

BROKEN = [
    ("pid|||1^^^A^MR", "no segment"), (" PID|||1^^^A^MR", "no segment"), ("ing text||||||F", "no segment"),
    ("PI|||1", "no segment"), ("PIDX|1", "no segment"), ("1PD|1", "no segment"), ("pid", "no segment"),
    ("|", "no segment"), ("HIV", "no segment"), ("CBC ", "no segment"),
    (MSH + "ADT^A01|2|P|2.5.1", "second message"), ("BHS|^~\\&", "second message"), ("BTS|1", "second message"),
]  # fmt: skip
"""A line among the segments, and what is said of it."""


def parsed(kind: str, segments: list[str]) -> Message:
    """A message."""
    return Message.parse((MSH + f"{kind}|1|P|2.5.1\r" + "\r".join(segments) + "\r").encode())


class CheckTests(TestCase):
    """Row by row."""

    def check(self, kind: str, segments: list[str]) -> Problem | None:
        """The permanent problem of a message; it has no number of a patient."""
        try:
            check_message(parsed(kind, segments), ("SIU_S23",))
        except Problem as problem:
            self.assertTrue(problem.is_permanent)
            self.assertNotIn("^^^", problem.text)
            return problem
        return None

    def test_subjects(self) -> None:
        """One wherever the structure has one."""
        for kind, segments, is_right in [*SUBJECTS, *VISITS]:
            with self.subTest(kind=kind, segments=segments):
                problem = self.check(kind, segments)
                self.assertEqual(problem is None, is_right, problem)
        for name, kind, segments in OTHERS:
            with self.subTest(kind=kind, segments=segments):
                problem = self.check(kind, segments)
                self.assertEqual(problem and problem.place, name)

    def test_many_numbers_are_looked_up(self) -> None:
        """5,000 PID, each beside the first one with its 5,000 numbers: two minutes when compared one by one."""
        numbers = "~".join(f"{number}^^^A^MR" for number in range(5000))
        again = [f"PID|||{number}^^^A^MR" for number in range(5000)]
        self.assertIsNone(self.check("ADT^A08", [f"PID|||{numbers}", *again]))
        problem = self.check("ADT^A08", [f"PID|||{numbers}", *again, "PID|||5000^^^A^MR"])
        self.assertEqual(problem and problem.place, "PID")

    def test_authorities(self) -> None:
        """An equal number of another authority is another number; one without authority may be of any."""
        for one, other, is_same in (
            ("1^^^A", "1^^^A", True), ("1^^^A", "1^^^B", False), ("1", "1^^^B", True), ("1^^^A", "1", True),
            ("1^^^A~1^^^B", "1^^^B", True), ("1^^^A~1", "1^^^C", True), ("1^^^A~2^^^B", "1^^^B~2^^^A", False),
        ):  # fmt: skip
            problem = self.check("ADT^A08", [f"PID|||{one}", f"PID|||{other}"])
            self.assertEqual(problem is None, is_same, (one, other))

    def test_what_is_missing(self) -> None:
        """Segment and structure are named."""
        for name, kind, segments in MISSING:
            with self.subTest(kind=kind, segments=segments):
                problem = self.check(kind, segments)
                self.assertEqual(problem and problem.place, name)
                self.assertIn(kind[:3], problem.text if problem else "")
        for kind, segments in WHOLE:
            with self.subTest(kind=kind, segments=segments):
                self.assertIsNone(self.check(kind, segments))

    def test_broken_lines(self) -> None:
        """The line is named, wherever it is."""
        for line, text in BROKEN:
            for place in range(3):
                with self.subTest(line=line, place=place):
                    segments = [ONE, "PV1||I"]
                    segments.insert(place, line)
                    problem = self.check("ADT^A01", segments)
                    self.assertEqual(problem and problem.place, f"line {place + 2}")
                    self.assertIn(text, problem.text if problem else "")

    def test_the_patient_of_a_second_visit(self) -> None:
        """A PV1 out of place begins no patient without a PID."""
        tree = parsed("ORU^R01", [ONE, VISIT, RESULT, VISIT, RESULT]).tree()
        self.assertEqual(len(tree.children("PATIENT_RESULT")), 1)

    def test_segments_of_newer_versions(self) -> None:
        """They have the place that the newest structure gives them, with a warning."""
        for kind, version, segments, name, group in (
            ("ORU^R01", "2.3", [ONE, RESULT, "SPM|1"], "SPM", "ORDER_OBSERVATION"),
            ("MDM^T02", "2.4", [ONE, VISIT, "ORC|RE", "OBR|1", "TXA|1", "OBX|1"], "OBR", "COMMON_ORDER"),
            ("ADT^A31", "2.2", [ONE, VISIT, "ROL|1"], "ROL", ""),
        ):
            with self.subTest(kind=kind):
                text = MSH + f"{kind}|1|P|{version}\r" + "\r".join(segments)
                message = Message.parse(text.encode())
                self.assertIn(name, message.definition.all_names if message.definition else ())
                self.assertIn(group, str(_groups_of(message.tree())))
                self.assertIn(f"not in {message.structure} of v{version}", str(message.warnings))


def _groups_of(group: Any) -> list[str]:
    inner = [node for node in group.nodes if node.kind == "group"]
    return [one for node in inner for one in (node.name, *_groups_of(node))]
