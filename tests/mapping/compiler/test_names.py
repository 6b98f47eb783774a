"""Names that a map cannot mean: segments and fields of HL7 v2, groups, imports.  Each error has its line and column."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.mapping.language.lexer import FmlError
from tests.mapping.support import HEAD, V2, mapped, program

PID_TYPE = 'uses "urn:ipf:v2:PID" alias PID as source\nuses "urn:ipf:v2:CX" alias CX as source\n'

# rules of a group with `src` (ADT_A01), `pid` (PID), `cx` (CX); column of the rule; what the error says
REFUSED = [
    ("src.PDI as p -> tgt.active = true;", 1, "HL7 v2 has no segment or group 'PDI'"),
    ("src.PATIENTS as p -> tgt.active = true;", 1, "HL7 v2 has no segment or group 'PATIENTS'"),
    ("src.INSURANCE.IN_1 as i -> tgt.active = true;", 1, "HL7 v2 has no segment or group 'IN_1'"),
    ("src.PID.PID_99 as p -> tgt.active = true;", 1, "PID has 40 fields: there is no PID_99"),
    ("pid.PID_41 as p -> tgt.active = true;", 1, "PID has 40 fields: there is no PID_41"),
    ("pid.PV1_3 as p -> tgt.active = true;", 1, "'PV1_3' is no field of PID"),
    ("pid.name as p -> tgt.active = true;", 1, "'name' is no field of PID"),
    ("pid.PID_3.CX_40 as p -> tgt.active = true;", 1, "CX has 12 components: there is no 'CX_40'"),
    ("cx.CX_40 as p -> tgt.active = true;", 1, "CX has 12 components: there is no 'CX_40'"),
    ("pid.PID_3 as c then { c.CX_4 as a then { a.HD_9 -> tgt.active = true; }; };", 42, "HD has 3 components"),
    ("pid where (PID_99.exists()) -> tgt.active = true;", 1, "there is no PID_99"),
    ("cx where (pid.PID_99.exists()) -> tgt.active = true;", 1, "there is no PID_99"),
    ("pid.PID_3 as c where (CX_1.exists() and c.CX_50 = 'x') -> tgt.active = true;", 1, "there is no 'CX_50'"),
    ("src where (PID.where(PID_99 = '1').exists()) -> tgt.active = true;", 1, "there is no PID_99"),
    ("src where (PID.first().PID_3.select(CX_60).exists()) -> tgt.active = true;", 1, "there is no 'CX_60'"),
    ("pid -> tgt.active = true, tgt.gender = evaluate(pid, PID_77);", 27, "there is no PID_77"),
    ("pid -> tgt.gender = (pid.PID_77.first());", 8, "there is no PID_77"),
]

# rules that read what may come
ACCEPTED = [
    "src.ZPD as z then { z.ZPD_99 as p -> tgt.active = true; };",
    "src.MRG as m then { m.MRG_1 as p -> tgt.active = true; };",
    "src.PATIENT_RESULT.PATIENT.PID.PID_40 as p -> tgt.active = true;",
    "src.MSH.MSH_28 as p -> tgt.active = true;",
    "pid.PID_3.CX_12 as p -> tgt.active = true;",
    "pid.PID_10.CE_6 as p -> tgt.active = true;",
    "pid.`3`.`1` as p -> tgt.active = true;",
    "pid.PID_7.TS_1 as p -> tgt.active = true;",
    "src.OBX.OBX_5.ANY_17 as p -> tgt.active = true;",
    "pid.PID_13 as x where (x.XTN_18.exists() or $this.XTN_3 in ('PH' | 'FX')) -> tgt.active = true;",
]


def _program(rules: str) -> object:
    head = HEAD + V2 + PID_TYPE
    call = "src.PID as p then { p.PID_3 as c then g(src, p, c, tgt); };"
    main = f"group main(source src : ADT_A01, target tgt : Patient) {{ {call} }}\n"
    return program(f"{head}{main}group g(source src, source pid : PID, source cx : CX, target tgt) {{\n{rules}\n}}")


class NameTests(TestCase):
    def test_names_that_no_message_can_have(self) -> None:
        for rules, column, wanted in REFUSED:
            error = self.assertRaises(FmlError, _program, rules)
            self.assertIn(wanted, error.text, rules)
            self.assertEqual(str(error.place), f"map0.fml:7:{column}", rules)

    def test_names_that_a_message_may_have(self) -> None:
        for rules in ACCEPTED:
            _program(rules)

    def test_a_group_without_types_takes_several_segments(self) -> None:
        rules = "src.PID as p then a(p, tgt); src.PV1 as v then a(v, tgt);"
        text = f"group main(source src : ADT_A01, target tgt : Patient) {{ {rules} }}"
        made = mapped(
            program(f"{HEAD}{V2}{text} group a(source s, target t) {{ s.PV1_2 -> t.active = true; }}"), "PV1||I"
        )
        self.assertEqual(made, {"active": True})


GROUP = "group {}(source p, target t : Patient) {{ p.PID_7 as d -> t.birthDate = d; }}"
MAIN = "group main(source src : ADT_A01, target t : Patient) { src.PID as p then a(p, t); }"


def _library(url: str, *names: str, imports: str = "") -> str:
    return f'/// url = "urn:test:{url}"\n{imports}' + "\n".join(GROUP.format(one) for one in names)


class ImportTests(TestCase):
    def _refused(self, text: str, *others: str) -> tuple[str, str]:
        error = self.assertRaises(FmlError, program, text, *others)
        return str(error.place), error.text

    def test_an_import_that_matches_nothing(self) -> None:
        for pattern in ("urn:test:lib/z", "urn:test:lib/*"):
            place, text = self._refused(f'{HEAD}{V2}  imports "{pattern}"\n{MAIN}\n{GROUP.format("a")}')
            self.assertEqual((place, text), ("map0.fml:3:3", f"no map is installed that '{pattern}' matches"))

    def test_two_groups_of_one_name_in_a_map(self) -> None:
        place, text = self._refused(f"{HEAD}{V2}{MAIN}\n{GROUP.format('a')}\n  {GROUP.format('a')}")
        self.assertEqual((place, text), ("map0.fml:5:3", "there is already a group 'a' in this map"))

    def test_two_imported_groups_of_one_name(self) -> None:
        main = f'{HEAD}{V2}imports "urn:test:*"\n{MAIN}'
        place, text = self._refused(main, _library("one", "a"), _library("two", "b", "a"))
        self.assertEqual(place, "map0.fml:4:74")
        self.assertEqual(text, "two imported groups are named 'a': in urn:test:one and urn:test:two")

    def test_a_group_of_the_map_itself_comes_first(self) -> None:
        own = "group a(source p, target t : Patient) { p -> t.active = true; }"
        main = f'{HEAD}{V2}imports "urn:test:*"\n{MAIN}\n{own}'
        made = mapped(program(main, _library("one", "a"), _library("two", "a")), "PID|1")
        self.assertEqual(made, {"active": True})

    def test_a_name_that_nothing_uses_may_be_there_twice(self) -> None:
        main = f'{HEAD}{V2}imports "urn:test:*"\n{MAIN}'
        made = mapped(program(main, _library("one", "a", "b"), _library("two", "b")), "PID|||||||2001")
        self.assertEqual(made, {"birthDate": "2001"})
