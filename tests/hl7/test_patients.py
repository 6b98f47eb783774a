"""A message with two patients where its structure has one is refused."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.hl7.message import Message
from ipf.hl7.patients import check_patients
from tests.hl7.samples import MSH

ONE, TWO, SAME = "PID|||1^^^A^MR", "PID|||2^^^A^MR", "PID|||1^^^A^MR~7^^^B^PI"
ORDER, OTHER, PRIOR, RESULT = "ORC|NW|1\rOBR|1|1", "ORC|NW|2\rOBR|1|2", "ORC|PR|0\rOBR|1|0\rOBX|1", "OBR|1\rOBX|1"

TABLE = [
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


class PatientTests(TestCase):
    """Row by row."""

    def test_table(self) -> None:
        """The error names the place and no number."""
        for kind, segments, is_right in TABLE:
            with self.subTest(kind=kind, segments=segments):
                message = Message.parse((MSH + f"{kind}|1|P|2.5.1\r" + "\r".join(segments) + "\r").encode())
                if is_right:
                    check_patients(message)
                else:
                    problem = self.assertRaises(Problem, check_patients, message)
                    self.assertTrue(problem.is_permanent)
                    self.assertEqual(problem.place, "PID")
                    self.assertNotIn("^^^", problem.text)
