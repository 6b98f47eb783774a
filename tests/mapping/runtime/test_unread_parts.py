"""The components and repetitions of read fields that no rule of the map reads."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.hl7.message import Message, Segment
from ipf.hl7.reads import EVERY_COMPONENT, REPETITIONS, unread_parts
from ipf.mapping.language.lexer import FmlError
from ipf.mapping.runtime.unread import Findings
from tests.mapping.support import HEAD, V2, message, program, run

PID = "PID|1||A^7^M10^X&1.2&ISO^MR~B^^^X^PI||DOE^JO^X||19700101^Y|F^Female^HL70001|||||||||M^Married^L"
"""The components with a value of PID-3, 5, 7, 8, 16."""

RULES = {
    # rules of a group with PID as `pid`: the components that they leave unread of the fields that they read
    "pid.PID_3 as cx -> tgt.id = cx;": "PID-3.2 PID-3.3 PID-3.4 PID-3.5",
    "pid.PID_3.CX_1 as x -> tgt.id = x;": "PID-3.2 PID-3.3 PID-3.4 PID-3.5",
    "pid.PID_3 first as cx -> tgt.id = cx;": "PID-3.2 PID-3.3 PID-3.4 PID-3.5 PID-3[2]",
    "pid.PID_3.CX_4 as hd then { hd.HD_2 as x -> tgt.id = x; };": "PID-3.1 PID-3.2 PID-3.3 PID-3.5",
    "pid.PID_3 as cx where (CX_5 = 'MR') -> tgt.id = (cx.CX_1);": "PID-3.2 PID-3.3 PID-3.4 PID-3.5",  # PI
    "pid.PID_3 as cx where (CX_5 in ('MR' | 'PI')) -> tgt.id = (cx.CX_1);": "PID-3.2 PID-3.3 PID-3.4",
    "pid.PID_3 as cx where (CX_5 = 'MR' or CX_5 = 'PI') -> tgt.id = (cx.CX_1);": "PID-3.2 PID-3.3 PID-3.4",
    "pid.PID_3 as cx where (CX_5 != 'SS') -> tgt.id = (cx.CX_1);": "PID-3.2 PID-3.3 PID-3.4",
    "pid.PID_3 as cx where ((CX_5 = 'SS').not()) -> tgt.id = (cx.CX_1);": "PID-3.2 PID-3.3 PID-3.4",
    "pid.PID_3 as cx where (cx.where(CX_5 = 'SS').empty()) -> tgt.id = (cx.CX_1);": "PID-3.2 PID-3.3 PID-3.4",
    "pid.PID_3 as cx where (CX_3 = 'M10' and CX_1.exists()) -> tgt.id = (cx.CX_1);": "PID-3.2 PID-3.4 PID-3.5",
    "pid.PID_3 as cx where (CX_3 = 'M11' or CX_1.exists()) -> tgt.id = (cx.CX_1);": "PID-3.2 PID-3.3 PID-3.4 PID-3.5",
    "pid.PID_3 as cx where (CX_4.HD_3 = 'ISO') -> tgt.id = (cx.CX_1);": "PID-3.2 PID-3.3 PID-3.5 PID-3.4",
    "pid.PID_3 as cx -> tgt.id = (iif(cx.CX_5 = 'SS', 'a', cx.CX_1));": "PID-3.2 PID-3.3 PID-3.4",
    "pid.PID_3 as cx where (CX_5.exists()) -> tgt.id = (cx.CX_1);": "PID-3.2 PID-3.3 PID-3.4 PID-3.5",
    "pid -> tgt.id = (pid.PID_3.where(CX_5 = 'MR').CX_1.first());": "PID-3.2 PID-3.3 PID-3.4",
    "pid.PID_3 as c where (CX_5 = 'XX') then Number(c, tgt); pid.PID_3.CX_1 as x -> tgt.id = x;": "PID-3.3 PID-3.4",
    "pid.PID_3 as cx then Other(cx, tgt);": "PID-3.2 PID-3.3 PID-3.4 PID-3.5",
    "pid.PID_3.CX_5 as c then Code(c, tgt); pid.PID_3.CX_1 as x -> tgt.id = x;": "PID-3.2 PID-3.3 PID-3.4 PID-3.5",
    "pid -> tgt.id = (pid.PID_3.select(CX_1 & CX_2).first());": "PID-3.3 PID-3.4 PID-3.5",
    # an operand has one value: no rule reads the second number
    "pid.PID_3 first as cx -> tgt.id = (cx.CX_1 & pid.PID_3.CX_2);": "PID-3.3 PID-3.4 PID-3.5 PID-3[2]",
    "pid -> tgt.id = (pid.PID_3.where(CX_5 = 'MR').CX_1 & 'x');": "PID-3.2 PID-3.3 PID-3.4",
    "pid -> tgt.id = (pid.PID_3.CX_1.join(','));": "PID-3.2 PID-3.3 PID-3.4 PID-3.5",
    "pid -> tgt.id = (pid.PID_3.first().CX_1);": "PID-3.2 PID-3.3 PID-3.4 PID-3.5 PID-3[2]",
    "pid -> tgt.id = (pid.PID_3[0].children().first());": "PID-3[2]",
    "pid.PID_3 as cx then Number(cx, tgt);": "PID-3.3 PID-3.4",
    "pid then Numbers(pid, tgt);": "PID-3.3 PID-3.4",
    "pid.PID_3 first as cx then Number(cx, tgt);": "PID-3.3 PID-3.4 PID-3[2]",
    "pid.PID_3 as cx then Again(cx, tgt);": "",  # a group that calls itself
    "pid.PID_8 as sex -> tgt.id = translate(sex, 'urn:t', 'code');": "",  # text and system belong to the code
    "pid.PID_8 as sex where (sex = 'F') -> tgt.gender = 'female';": "",
    "pid.PID_8 as sex where (sex in ('F' | 'M')) -> tgt.gender = 'female';": "",
    "pid.PID_8 as sex where (sex = 'M') -> tgt.gender = 'male'; pid.PID_8.CWE_2 as x -> tgt.id = x;": "PID-8.1 PID-8.3",
    "pid.PID_8 as sex -> tgt.id = sex;": "PID-8.2 PID-8.3",
    "pid.PID_7 as born where (born = '1') -> tgt.id = born;": "",  # does not fire: PID-7 is unread as a whole
    "pid.PID_7 as born where (born != '1') -> tgt.birthDate = born;": "PID-7.2",
    "pid.PID_9 as other -> tgt.id = other;": "",  # the segment is unread
}  # fmt: skip
GROUPS = """
group Number(source cx : CX, target patient : Patient) {
  cx.CX_1 as x where (cx.CX_5.exists()) -> patient.id = x;
  cx -> patient.id = append(cx, 'x') then Kind(cx, patient);
}
group Kind(source cx, target patient : Patient) {
  cx.CX_2 as x -> patient.language = x;
  cx.CX_5 as x -> patient.language = x;
}
group Other(source cx : CX, target patient : Patient) {
  cx.CX_1 as x where (cx.CX_5 = 'SS') -> patient.id = x;
  cx -> patient.id = cx;
}
group Code(source kind, target patient : Patient) { kind where ($this = 'SS') -> patient.language = 'x'; }
group Numbers(source pid : PID, target patient : Patient) { pid.PID_3 as one then Number(one, patient); }
group Again(source cx : CX, target patient : Patient) {
  cx.CX_9 as x then Again(cx, patient);
  cx.CX_1 as x -> patient.id = x;
}
"""
TABLE = {"resourceType": "ConceptMap", "url": "urn:t", "group": [{"element": []}]}


def parts(rules: str, *segments: str, notes: str = "") -> dict[str, str]:
    """Components and repetitions of a message (PID) after these rules: kind by path."""
    group = f"group main(source src : ADT_A01, target tgt : Patient) {{\n src.PID as pid then {{\n{rules}\n}}; }}"
    compiled = program(f"{HEAD}{V2}{notes}\n{group}{GROUPS}", tables=[TABLE])
    sent = message(*(segments or (PID,)))
    run(compiled, sent)
    found = Findings(sent, compiled.unread).paths()
    return {one.path: one.kind for one in found if one.path.startswith("PID-") and not one.path[4:].isdecimal()}


class RuleTests(TestCase):
    def test_rules(self) -> None:
        for rule, expected in RULES.items():
            with self.subTest(rule=rule):
                self.assertEqual(sorted(parts(rule)), sorted(expected.split()))

    def test_values(self) -> None:
        """Null, blanks and separators alone are no values, and no further repetitions."""
        rule = "pid.PID_3.CX_1 first as x -> tgt.id = x;"
        for field in ("A", "A^^", 'A^""^&', "A~", "A^ ~^", 'A~""', "A^&&^"):
            self.assertEqual(parts(rule, f"PID|1||{field}"), {}, field)
        self.assertEqual(sorted(parts(rule, "PID|1||A^b~B")), ["PID-3.2", "PID-3[2]"])
        self.assertEqual(sorted(parts(rule, "PID|1||^b~B")), ["PID-3.2", "PID-3[2]"])

    def test_declarations(self) -> None:
        """Of a component, of a component of a data type, of the repetitions."""
        rule = "pid.PID_3.CX_1 first as x -> tgt.id = x;"
        notes = "// not mapped PID-3.2, CX.3, PID-3[2]: of no use\n// not mapped CX.5 (type): one target only"
        kinds = parts(rule, notes=notes)
        declared = {path for path, kind in kinds.items() if kind == "declared"}
        self.assertEqual(declared, {"PID-3.2", "PID-3.3", "PID-3[2]"})
        self.assertEqual(set(kinds) - declared, {"PID-3.4", "PID-3.5"})
        self.assertEqual(set(parts(rule, notes="// not mapped PID-3: nothing of it").values()), {"declared"})

    def test_mistakes(self) -> None:
        """A declaration about a component of a field that HL7 v2 does not have."""
        with self.assertRaises(FmlError):
            parts("pid.PID_3.CX_1 as x -> tgt.id = x;", notes="// not mapped PID-99.1: of no use")


class PartTests(TestCase):
    def segment(self, text: str) -> Segment:
        head = "MSH|^~\\&|A|B|||20260101||ORU^R01|1|P|2.5\r"
        return next(iter(Message.parse((head + text).encode()).segments(text[:3])))

    def test_free_text_has_no_components(self) -> None:
        """OBX-5 of a primitive type, NTE-3, and the delimiters in MSH."""
        nothing: frozenset[int] = frozenset()
        self.assertEqual(unread_parts(self.segment("OBX|1|ST|||a^b~c"), 5, nothing, every=False), [])
        self.assertEqual(unread_parts(self.segment("NTE|1||a^b~c"), 3, nothing, every=False), [])
        self.assertEqual(unread_parts(self.segment("OBX|1|CWE|||a^b~c"), 5, nothing, every=True), [1, 2])
        head = self.segment("MSH|^~\\&|A|B|||20260101||ORU^R01|1|P|2.5")
        self.assertEqual([unread_parts(head, number, nothing, every=False) for number in (1, 2)], [[], []])

    def test_repetitions(self) -> None:
        """Components of the repetitions that are read."""
        read = frozenset((1,))
        segment = self.segment("PID|1||a~b^c~^d")
        self.assertEqual(unread_parts(segment, 3, read, every=True), [2])
        self.assertEqual(unread_parts(segment, 3, read, every=False), [REPETITIONS])
        self.assertEqual(unread_parts(segment, 3, frozenset((EVERY_COMPONENT,)), every=True), [])
