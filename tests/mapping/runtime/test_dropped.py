"""Results of rules that do not reach the Bundle: members of merged entries, and values that others replace."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.mapping.bundle.transaction import finished
from ipf.mapping.compiler.compile import Program
from ipf.mapping.language.lexer import FmlError
from ipf.mapping.runtime.unread import Findings
from tests.mapping.support import HEAD, V2, message, patient_program, program

ORDERS = """group main(source src : ADT_A01, target bundle : Bundle) {
  src.PID as pid -> bundle.entry as pe, pe.resource = create('Patient') as patient, patient.identifier as key,
    key.system = 'urn:p', key.value = 'P1' then {
    src.NK1 as order -> bundle.entry as entry, entry.resource = create('Condition') as request,
      request.subject = reference(patient) then Order(order, request);
  };
}
group Order(source order : NK1, target request : Condition) {
  order.NK1_2 as number -> request.identifier as id, id.system = 'urn:o', id.value = number;
  order.NK1_3 as code -> request.code as concept, concept.text = code;
  order.NK1_4 as note -> request.note as made, made.text = note;
  order.NK1_5 as value -> request.onset = create('Age') as made, made.unit = value;
  order.NK1_6 as value -> request.onset = create('Range') as made then {
    value -> made.low as low, low.unit = value;
  };
}
"""

MERGES = {
    # the second of two orders of one number after "NK1||1|GLU|a|x": what is dropped
    "NK1||1|GLU|a|x": "",
    "NK1||1|GLU": "",
    "NK1||2|NA|b": "",  # another order
    "NK1||1|NA|a": "",  # another code is another resource
    "NK1||1|NA|b": "",
    "NK1||1|GLU|b": "Condition.note",
    "NK1||1|GLU||y": "Condition.onset",
    "NK1||1|GLU|||y": "Condition.onset",  # another type of a choice
}

OVERWRITES = {
    # rules on PID: what is dropped
    "pid.PID_5 as a -> tgt.language = a; pid.PID_6 as b -> tgt.language = b;": "Patient.language",
    "pid.PID_5 as a -> tgt.language = a; pid.PID_5 as b -> tgt.language = b;": "",  # the same value
    "pid.PID_5 as a -> tgt.language = a; pid.PID_9 as b -> tgt.language = b;": "",  # no second value
    "pid -> tgt.language = 'no'; pid.PID_5 as a -> tgt.language = a;": "",  # a default is replaced
    "pid.PID_5 as a -> tgt.language = a; pid -> tgt.language = 'no';": "",  # a decision of the map
    "pid.PID_5 -> tgt.language = 'no'; pid.PID_5 as a -> tgt.language = a; pid.PID_6 as b -> tgt.language = b;":
        "Patient.language",
    "pid.PID_5 as a -> tgt.name as n, n.family = a; pid.PID_6 as b -> tgt.name as n, n.family = b;": "",  # a list
    "pid -> tgt.name as n then { pid.PID_5 as a -> n.text = a; pid.PID_6 as b -> n.text = b; };": "",  # a data type
    "pid.PID_7 as a -> tgt.deceased = cast(a, 'dateTime'); pid.PID_8 as b -> tgt.deceased = cast(b, 'dateTime');":
        "Patient.deceased",
    # another type of a choice
    "pid.PID_7 as a -> tgt.deceased = cast(a, 'dateTime'); pid -> tgt.deceased = true;": "",  # a decision of the map
    "pid -> tgt.deceased = true; pid.PID_7 as a -> tgt.deceased = cast(a, 'dateTime');": "",  # a default is replaced
    "pid.PID_11 as a -> tgt.deceased = cast(a, 'boolean'); pid.PID_7 as b -> tgt.deceased = cast(b, 'dateTime');":
        "Patient.deceased",
    "pid.PID_10 as a -> tgt.id = a;": "Patient.id",  # no id
    "pid -> tgt.contact as c then { pid.PID_5 as a -> c.gender = a; pid.PID_6 as b -> c.gender = b; };":
        "Patient.contact.gender",
}  # fmt: skip
PID = "PID|||||ONE|TWO|19700101|19800101||not an id|Y"


def dropped(compiled: Program, *segments: str) -> str:
    """Paths of what is dropped; `kind path` when it is declared."""
    source = message(*segments)
    bundle, run = compiled.run(source, b"k")
    finished(bundle, run)
    found = [one for one in Findings(source, compiled.unread, run.dropped).paths() if "." in one.path]
    return " ".join(one.path if one.kind == "dropped" else f"{one.kind} {one.path}" for one in found)


class DroppedTests(TestCase):
    def test_merged_entries(self) -> None:
        """Members of the second entry that differ; references to one resource do not."""
        compiled = program(HEAD + V2 + ORDERS)
        for second, expected in MERGES.items():
            self.assertEqual(dropped(compiled, "PID|1", "NK1||1|GLU|a|x", second), expected, second)

    def test_several_entries_of_one_number(self) -> None:
        """Another code is another resource, of which nothing is dropped."""
        compiled = program(HEAD + V2 + ORDERS)
        segments = ["PID|1", *(f"NK1||1|{code}" for code in ("GLU", "NA", "K"))]
        self.assertEqual(dropped(compiled, *segments), "")
        bundle: Any = finished(*compiled.run(message(*segments), b"k")).bundle()
        codes = [one["resource"].get("code") for one in bundle["entry"]]
        self.assertEqual(codes, [None, {"text": "GLU"}, {"text": "NA"}, {"text": "K"}])

    def test_two_subjects_of_one_resource(self) -> None:
        """A rule that sets a second subject, patient or visit fails the message; the same one again does not."""
        patients = "".join(
            f"bundle.entry as {name}, {name}.resource = create('Patient') as {name}p, {name}p.identifier as {name}i, "
            f"{name}i.system = 'urn:p', {name}i.value = '{number}', "
            for name, number in (("a", 1), ("b", 2), ("c", 1))
        )
        for element, first, second, is_right in (
            ("Observation.subject", "ap", "bp", False),
            ("Observation.subject", "ap", "ap", True),
            ("Observation.subject", "ap", "cp", True),  # one entry with it
            ("AllergyIntolerance.patient", "ap", "bp", False),
            ("Coverage.beneficiary", "ap", "bp", False),
            ("Coverage.subscriber", "ap", "bp", True),  # in the ledger
        ):
            kind, _, name = element.partition(".")
            rules = f"o.{name} = reference({first}), o.{name} = reference({second})"
            text = (
                f"{HEAD}{V2}group main(source src : ADT_A01, target bundle : Bundle) {{ src.PID -> {patients}"
                f"bundle.entry as e, e.resource = create('{kind}') as o, {rules}; }}"
            )
            with self.subTest(element=element, second=second):
                if is_right:
                    expected = "Coverage.subscriber" if name == "subscriber" else ""
                    self.assertEqual(dropped(program(text), "PID|1"), expected)
                else:
                    problem = self.assertRaises(Problem, dropped, program(text), "PID|1")
                    self.assertEqual((problem.place, problem.is_permanent), (element, True))

    def test_replaced_values(self) -> None:
        """A value of the message that another one replaces; defaults and data types do not count."""
        for rules, expected in OVERWRITES.items():
            with self.subTest(rules=rules):
                self.assertEqual(dropped(patient_program(rules), PID), expected)

    def test_declarations(self) -> None:
        """What replaces a value on purpose is declared."""
        rules = "pid.PID_5 as a -> tgt.language = a; pid.PID_6 as b -> tgt.language = b;"
        start = "// decided Patient.language: the last one counts\n"
        text = (
            HEAD + V2 + start + "group main(source src : ADT_A01, target tgt : Patient) { src.PID as pid then { %s }; }"
        )
        self.assertEqual(dropped(program(text % rules), PID), "declared Patient.language")
        wrong = self.assertRaises(FmlError, program, (text % rules).replace("Patient.language", "Patient.tongue"))
        self.assertEqual((wrong.text, wrong.place), ("there is no element Patient.tongue", "map0.fml:3:1"))
