"""Which fields count as read, and declarations of fields that are ignored on purpose."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.mapping.compiler.compile import Program
from ipf.mapping.language.grammar import parse
from ipf.mapping.runtime.unread import Findings
from tests.mapping.support import HEAD, V2, mapped, message, patient_program, program

PID = "PID|1||A^^^X^MR~B^^^X^PI||DOE^JO||19700101|F||||||||M||||||||Y"
"""PID-1, 3, 5, 7, 8, 16, 24 have a value."""

RULES = {
    # rules of a group with PID as `pid`: the fields of PID that they leave unread
    "pid.PID_8 as x -> tgt.gender = 'female';": "1 3 5 7 16 24",
    "pid.PID_9 as x -> tgt.gender = 'female';": "",  # no field was read: the whole segment
    "pid.PID_8 as x where ($this = 'M') -> tgt.gender = 'male';": "",
    "pid.PID_8 as x where (x = 'F') -> tgt.gender = 'female';": "1 3 5 7 16 24",
    "pid where (PID_8 = 'F') -> tgt.gender = 'female';": "1 3 5 7 16 24",  # the rule stands for the value
    "pid where (PID_8 != 'M') -> tgt.gender = 'female';": "",  # it may be anything else
    "pid where ((PID_8 = 'M').not()) -> tgt.gender = 'female';": "",
    "pid where ((PID_8 != 'F').not()) -> tgt.gender = 'female';": "1 3 5 7 16 24",
    "pid where (PID_8.exists()) -> tgt.gender = 'female';": "",
    "pid where (PID_8 in ('F' | 'A') and PID_24 = 'Y') -> tgt.gender = 'female';": "1 3 5 7 16",
    "pid where (PID_8 = 'F' or PID_24 = 'N') -> tgt.gender = 'female';": "",  # which of them is not known
    "pid where (PID_8 = 'F' or PID_8 = 'W') -> tgt.gender = 'female';": "1 3 5 7 16 24",
    "pid where (PID_8.startsWith('F')) -> tgt.gender = 'female';": "1 3 5 7 16 24",
    "pid.PID_7 as x where (pid.PID_24.empty()) -> tgt.birthDate = x;": "",
    "pid.PID_7 as x where (pid.PID_24 = 'Y') -> tgt.birthDate = x;": "1 3 5 8 16",
    "pid.PID_3 as cx where (CX_5 = 'PI') -> tgt.identifier as id, id.value = (cx.CX_1);": "1 5 7 8 16 24",
    "pid.PID_3 as cx where (CX_5 = 'SS') -> tgt.identifier as id, id.value = (cx.CX_1);": "",
    "pid.PID_3.CX_1 first as x -> tgt.id = x;": "1 5 7 8 16 24",
    "pid.PID_3 as a, pid.PID_9 as b -> tgt.id = a;": "",  # does not fire: there is no PID-9
    "pid.PID_3 as a, pid.PID_8 as b -> tgt.gender = 'female';": "1 5 7 16 24",
    "pid -> tgt.id = (pid.PID_3.CX_1.first() & '-' & pid.PID_8);": "1 5 7 16 24",
    "pid -> tgt.id = (iif(pid.PID_16 = 'M', pid.PID_8, pid.PID_7));": "1 3 5 24",
    "pid -> tgt.id = (pid.PID_3.where(CX_5 = 'PI').CX_1.first());": "1 5 7 8 16 24",
    "pid -> tgt.id = (src.PID.where(PID_8 = 'F').PID_5.XPN_1.first());": "1 3 7 8 16 24",
    "pid -> tgt.id = (src.PID.where(PID_8 = 'M').PID_5.XPN_1.first());": "",
    "pid -> tgt.id = (src.PID.select(PID_8 & PID_16).first());": "1 3 5 7 24",
    "pid -> evaluate(pid, PID_5.XPN_1.first()) as x, tgt.id = x;": "1 3 7 8 16 24",
    "src.PID.PID_8 as x -> tgt.gender = 'female';": "1 3 5 7 16 24",
    "src.PID.PID_8 first as x -> tgt.gender = 'female';": "1 3 5 7 16 24",
    "src.PID.PID_3.CX_1 first as x -> tgt.id = x;": "1 5 7 8 16 24",
    "src.PID as p where (PID_8 = 'F') then { p.PID_7 -> tgt.birthDate; };": "1 3 5 16 24",
    "src.PID as p where (PID_8 = 'M') then { p.PID_7 -> tgt.birthDate; };": "",
    "pid.PID_9 as x then { pid.PID_8 as y -> tgt.gender = 'female'; };": "",
    "pid.PID_16 as x then { pid.PID_8 as y -> tgt.gender = 'female'; };": "1 3 5 7 24",
    "pid.PID_7 : DTM as x -> tgt.birthDate = x;": "1 3 5 8 16 24",
    "pid.PID_7 as x check (x.exists()) -> tgt.birthDate = x;": "1 3 5 8 16 24",
    "pid.PID_8 as pid -> tgt.gender = 'female';": "1 3 5 7 16 24",
}


def unread(compiled: Program, *segments: str) -> list[str]:
    """Paths of the unread fields of a message, without MSH; `kind path` for those that are not only unread."""
    source = message(*segments)
    compiled.run(source, b"k")
    found = Findings(source, compiled.unread).paths()
    return [
        one.path if one.kind == "unread" else f"{one.kind} {one.path}"
        for one in found
        if not one.path.startswith("MSH") and "-" not in one.path.rpartition(".")[0] and "[" not in one.path
    ]


def compiled_with(*comments: str) -> Program:
    """A program that reads PID-8, with comments before its group."""
    group = "group main(source src : ADT_A01, target tgt : Patient) {\n"
    rules = " src.PID as pid then { pid.PID_8 as x -> tgt.gender = 'female'; }; }"
    return program(HEAD + V2 + "\n".join(comments) + "\n" + group + rules)


class ReadTests(TestCase):
    def test_rules(self) -> None:
        """A field is read when a rule fires that takes, evaluates or decides by its value."""
        for rule, numbers in RULES.items():
            with self.subTest(rule=rule):
                expected = [f"PID-{one}" for one in numbers.split()] or ["PID"]
                self.assertEqual(unread(patient_program(rule), PID), expected, rule)

    def test_an_alternative_that_was_not_taken(self) -> None:
        """IN1-36 is not read when IN1-49 is there."""
        rule = """src.INSURANCE.IN1 as in1 then {
            in1.IN1_36 as x where (in1.IN1_49.empty()) -> tgt.id = x; in1.IN1_49 as y -> tgt.id = y; };"""
        fields = [""] * 50
        fields[36] = "A"
        self.assertEqual(unread(patient_program(rule), PID, "|".join(["IN1", *fields[1:]])), ["PID"])
        fields[49] = "B"
        self.assertEqual(unread(patient_program(rule), PID, "|".join(["IN1", *fields[1:]])), ["PID", "IN1-36"])

    def test_values(self) -> None:
        """Null, separators and spaces are no values."""
        compiled = patient_program("pid.PID_8 as x -> tgt.gender = 'female';")
        self.assertEqual(unread(compiled, 'PID|""|^^|~|&| |""~""|x|F'), ["PID-7"])
        self.assertEqual(unread(compiled, 'PID|||||||""'), [])

    def test_segments(self) -> None:
        """Each segment by itself; a path is listed once."""
        compiled = patient_program("src.NK1 first as nk1 then { nk1.NK1_3 as x -> tgt.id = x; };")
        segments = ("PID|1", "NK1|1||A", "NK1|2||B", "NK1|3||C", "ZZZ|x")
        self.assertEqual(unread(compiled, *segments), ["PID", "NK1-1", "NK1", "ZZZ"])
        source = message(*segments)
        compiled.run(source, b"k")
        found = Findings(source, compiled.unread).by_segment()
        self.assertEqual([(one.field.path, one.number) for one in found if one.segment == "NK1"],
                         [("NK1-1", 1), ("NK1", 2), ("NK1", 3)])  # fmt: skip

    def test_thousands_of_fields(self) -> None:
        """Fields beyond number 1023 are not told apart."""
        found = unread(patient_program("pid.PID_8 as x -> tgt.id = x;"), "PID|" + "|x" * 5000)
        self.assertEqual((len(found), found[-1]), (1021, "PID-1023"))

    def test_results_are_the_same(self) -> None:
        """Marks change no result."""
        for rule in RULES:
            with_trace, _ = patient_program(rule).run(message(PID), b"a message", trace=True)
            del with_trace["resourceType"]
            self.assertEqual(mapped(patient_program(rule), PID), with_trace)


DECLARATIONS = {
    # comments: what is found of PID, where only PID-8 is read
    ("// not mapped PID-3: kept elsewhere",): "declared PID-3, PID-5",
    ("// not mapped PID-3, PID-5: kept", "// elsewhere"): "declared PID-3, declared PID-5",
    ("// not mapped PID: kept elsewhere",): "declared PID-3, declared PID-5",
    ("// decided PID-3: kept elsewhere",): "PID-3, PID-5",
    ("// not mapped PID-3 (identifier): one target of several",): "PID-3, PID-5",
    ("// not mapped CX.1: a part",): "PID-3, PID-5",
    ("// not mapped PID-8: is read",): "PID-3, PID-5",
    ("// nothing is not mapped PID-3: here",): "PID-3, PID-5",
}
WRONG = {
    "// not mapped PID-99: why": ("there is no field PID-99: PID has 40 fields", 4, 3),
    "// not mapped QQQ: why": ("there is no segment QQQ", 4, 3),
    "// not mapped CX-1: why": None,
    "// not mapped PID-3 because": ("a declaration is written '// not mapped PV1-40: why'", 4, 3),
    "// not mapped PID-3, and others: why": ("a declaration is written '// not mapped PV1-40: why'", 4, 3),
}


class DeclarationTests(TestCase):
    def test_declarations(self) -> None:
        """Fields that a map ignores on purpose are listed apart, with the reason and its place."""
        for comments, expected in DECLARATIONS.items():
            with self.subTest(comments=comments):
                found = unread(compiled_with(*comments), "PID|||A||DOE|||F")
                self.assertEqual(", ".join(found), expected)

    def test_reasons(self) -> None:
        """A reason goes on in further lines, and names file and line."""
        compiled = compiled_with("// not mapped ZZZ, PID-3: kept", "//   elsewhere", "// Another comment.")
        source = message("PID|||A||DOE|||F", "ZZZ|1|2")
        compiled.run(source, b"k")
        found = [(one.path, one.reason) for one in Findings(source, compiled.unread).paths() if one.reason]
        self.assertEqual(found, [("PID-3", "kept elsewhere (map0.fml:3)"), ("ZZZ", "kept elsewhere (map0.fml:3)")])

    def test_a_segment_of_which_nothing_was_read(self) -> None:
        """It is listed as a whole unless all its fields are declared."""
        compiled = compiled_with("// not mapped NK1-1: set ID")
        self.assertEqual(unread(compiled, "PID||||||||F", "NK1|1"), ["declared NK1-1"])
        self.assertEqual(unread(compiled, "PID||||||||F", "NK1|1|A"), ["NK1"])

    def test_maps_of_other_message_types(self) -> None:
        """An import declares for the importing map, unless it is the map of another message type."""
        group = "group other(source src : PID, target tgt : Patient) { src.PID_7 -> tgt.birthDate; }"
        head = '/// url = "urn:test:other"\n'
        for types, expected in (("", ["declared PID-3"]), ('/// types = "ADT_A28"\n', ["PID-3"])):
            main = (
                HEAD + V2 + 'imports "urn:test:other"\ngroup main(source src : ADT_A01, target tgt : Patient) '
                "{ src.PID as p then { p.PID_8 as x -> tgt.gender = 'female'; }; }"
            )
            compiled = program(main, head + types + "// not mapped PID-3: why\n" + group)
            self.assertEqual(unread(compiled, "PID|||A|||||F"), expected)

    def test_mistakes(self) -> None:
        """A declaration about nothing is an error with line and column."""
        for comment, expected in WRONG.items():
            with self.subTest(comment=comment):
                if expected is None:
                    compiled_with("", "  " + comment)
                    continue
                problem = self.assertRaises(Problem, compiled_with, "", "  " + comment)
                text, line, column = expected
                self.assertEqual((problem.text, problem.place), (text, f"map0.fml:{line}:{column}"))

    def test_comments_of_other_maps(self) -> None:
        """Text that only resembles a declaration is a comment."""
        for text in ("// not mapped: PID", "// not mapped yet", "// not mappedPID-3", "/* not mapped PID-99: x */"):
            self.assertEqual(parse(f"{HEAD}{text}\ngroup a(source s, target t) {{ s.a -> t.b; }}").ignored, ())
