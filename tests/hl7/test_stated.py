"""What a message states: values, nulls, what is left out; of several segments of one name."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.hl7.message import Message
from ipf.hl7.stated import Statement
from ipf.ports.queries.field_sources import NullNumber

HEAD = "MSH|^~\\&|A|B|C|D|2024||ORU^R01^ORU_R01|1|P|2.5.1"


def message(*segments: str) -> Message:
    """A message of these segments."""
    return Message.parse("\r".join((HEAD, *segments)).encode() + b"\r")


class StatedTests(TestCase):
    def test_fields(self) -> None:
        """A value, null, null in each repetition, a value beside null, nothing."""
        stated = Statement(message('PID|1||7||""|x~y|""~""|""~z')).whole
        for field, is_stated, is_null in (
            ("PID-1", True, False), ("PID-2", False, False), ("PID-5", True, True), ("PID-6", True, False),
            ("PID-7", True, True), ("PID-8", True, False), ("PID-40", False, False), ("ZXX-1", False, False),
        ):  # fmt: skip
            self.assertEqual((stated.states(field), stated.is_null(field)), (is_stated, is_null), field)

    def test_several_fields(self) -> None:
        """All of them, or one that is null."""
        stated = Statement(message('PID|1||7||""|x')).whole
        for fields, is_stated in (("PID-3 PID-6", True), ("PID-3 PID-9", False), ("PID-5 PID-9", True)):
            self.assertIs(stated.states(fields), is_stated, fields)
        self.assertTrue(stated.states_any("PID-9 PID-3"))
        self.assertFalse(stated.states_any("PID-9 PID-10"))

    def test_null_numbers(self) -> None:
        """A repetition without a value, of an authority; not one that is empty, and not with several persons."""
        pid = 'PID|1||7^^^NORTH^MR~""^^^GOV^NI~""^^^A&1.2.3&ISO~^^^X^PI~""'
        expected = (NullNumber("GOV", "", "NI"), NullNumber("", "1.2.3", ""))
        self.assertEqual(Statement(message(pid)).whole.numbers, expected)
        self.assertEqual(Statement(message(pid, pid)).whole.numbers, ())

    def test_several_segments(self) -> None:
        """Of the whole message what all state; of a resource what its own segment states, or those of its group."""
        told = message(
            "PID|1||7", "OBR|1|A||X|5", "OBX|1|ST|A||1|u", "OBX|2|ST|B||1", 'OBR|2|B||Y||""', "OBX|1|ST|C||1|v"
        )
        statement = Statement(told)
        self.assertFalse(statement.whole.states("OBR-5"))
        self.assertFalse(statement.whole.is_null("OBR-6"))
        first, second = told.segments("OBR")
        self.assertTrue(statement.about([(first,)]).states("OBR-5"))
        self.assertFalse(statement.about([(second,)]).states("OBR-5"))
        self.assertTrue(statement.about([(second,)]).is_null("OBR-6"))
        self.assertFalse(statement.about([(first,), (second,)]).states("OBR-5"))
        (result,) = told.children("PATIENT_RESULT")
        one, other = result.children("ORDER_OBSERVATION")
        self.assertTrue(statement.about([(result, other)]).states("OBX-6"))
        self.assertFalse(statement.about([(result, one)]).states("OBX-6"))
        self.assertTrue(statement.about([(result, one)]).states("OBR-5"))
        self.assertTrue(statement.about([(result, one)]).states("PID-3"))
