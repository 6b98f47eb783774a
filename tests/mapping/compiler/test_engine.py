"""What a compiled map does, as tables: rules in, target out; and which maps are refused when they are compiled."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.model.json import JsonDecimal, dumps
from ipf.mapping.compiler.conversions import date_time, instant, zone_offset
from ipf.mapping.language.lexer import FmlError
from tests.mapping.support import HEAD, V2, mapped, message, patient_program, program, run

PID = (
    "PID|1||A1^5^M11^AUTH^MR~B2^^^OTHER^SS||DOE^JOHN^Q^III~DOE^JACK^^^^^N||1980"
    "0102|M|||1 MAIN ST&MAIN^^CITY||555|||S||||||||2|||||202001020304|Y"
)

# rules on `pid` and `tgt` (a Patient), what comes out
RULES: list[tuple[str, dict[str, Any]]] = [
    ("pid.PID_7 as d -> tgt.birthDate = d;", {"birthDate": "1980-01-02"}),
    ("pid.PID_8 as s -> tgt.gender = 'male';", {"gender": "male"}),
    ("pid.PID_9 as s -> tgt.gender = 'male';", {}),
    ("pid.PID_31 as s -> tgt.gender = 'male';", {}),
    ("pid -> tgt.active = true;", {"active": True}),
    ("pid -> tgt.active = 'true';", {"active": True}),
    ("pid.PID_24 as x -> tgt.multipleBirth = cast(x, 'integer');", {"multipleBirthInteger": 2}),
    ("pid.PID_30 as x -> tgt.deceased = cast(x, 'boolean');", {"deceasedBoolean": True}),
    ("pid.PID_29 as x -> tgt.deceased = dateOp(x, 'dateTime');", {"deceasedDateTime": "2020-01-02T03:04:00Z"}),
    (
        "pid.PID_30 as x, pid.PID_29 as y -> tgt.deceased = cast(x, 'boolean'), tgt.deceased = dateOp(y, 'dateTime');",
        {"deceasedDateTime": "2020-01-02T03:04:00Z"},
    ),
    (
        "pid.PID_5 as n -> tgt.name as h then { n.XPN_1 as f -> h.family = f; n.XPN_2 as g -> h.given = g; };",
        {"name": [{"family": "DOE", "given": ["JOHN"]}, {"family": "DOE", "given": ["JACK"]}]},
    ),
    ("pid.PID_5.XPN_2 as g -> tgt.name as h, h.given = g;", {"name": [{"given": ["JOHN"]}, {"given": ["JACK"]}]}),
    ("pid.PID_5.XPN_2 as g -> tgt.name as h share one, h.given = g;", {"name": [{"given": ["JOHN", "JACK"]}]}),
    (  # shared by id, and by the element that it is in
        "pid.PID_5.XPN_2 as g -> tgt.contact as c then { g -> c.telecom as t share one, t.value = g;"
        " g -> c.telecom as t share one, t.use = 'home'; g -> c.telecom as t share two, t.use = 'work'; };",
        {
            "contact": [
                {"telecom": [{"value": "JOHN", "use": "home"}, {"use": "work"}]},
                {"telecom": [{"value": "JACK", "use": "home"}, {"use": "work"}]},
            ]
        },
    ),
    ("pid.PID_11.XAD_1.SAD_2 as g -> tgt.address as a, a.line = g;", {"address": [{"line": ["MAIN"]}]}),
    # list modes of the source
    ("pid.PID_5 first as n -> tgt.name as h, h.text = n;", {"name": [{"text": "DOE"}]}),
    ("pid.PID_3.CX_1 last as v -> tgt.identifier as i, i.value = v;", {"identifier": [{"value": "B2"}]}),
    ("pid.PID_3.CX_1 not_first as v -> tgt.identifier as i, i.value = v;", {"identifier": [{"value": "B2"}]}),
    ("pid.PID_3.CX_1 not_last as v -> tgt.identifier as i, i.value = v;", {"identifier": [{"value": "A1"}]}),
    # list modes of the target
    (
        "pid.PID_3.CX_1 as v -> tgt.identifier as i, i.value = v; pid -> tgt.identifier as i first, i.value = '0';"
        "pid -> tgt.identifier as i first, i.value = '1';",
        {"identifier": [{"value": "0"}, {"value": "1"}, {"value": "A1"}, {"value": "B2"}]},
    ),
    (
        "pid -> tgt.identifier as i last, i.value = '9'; pid.PID_3.CX_1 as v -> tgt.identifier as i, i.value = v;",
        {"identifier": [{"value": "A1"}, {"value": "B2"}, {"value": "9"}]},
    ),
    (
        "pid.PID_3.CX_1 as v -> tgt.name as n collate, n.given = v;pid.PID_8 as s -> tgt.name as n single, n.text = s;",
        {"name": [{"given": ["A1", "B2"], "text": "M"}]},
    ),
    (
        "pid.PID_3.CX_1 as v -> tgt.identifier = id('urn:s', v) single;",
        {"identifier": [{"system": "urn:s", "value": "B2"}]},
    ),
    ("pid -> tgt.name as n, n.given = 'a', n.given = 'b' single;", {"name": [{"given": ["b"]}]}),
    ("pid -> tgt.name as n only_one, n.text = 'x';", {"name": [{"text": "x"}]}),
    # of a field that is repeated, the first counts where one value is needed
    ("pid where (PID_3.CX_1 in ('A1' | 'C3')) -> tgt.active = true;", {"active": True}),
    ("pid where (PID_3.CX_1 in ('B2' | 'C3')) -> tgt.active = true;", {}),
    ("pid where (PID_3.CX_1.startsWith('A')) -> tgt.active = true;", {"active": True}),
    ("pid where (PID_3.CX_1.matches('^B')) -> tgt.active = true;", {}),
    ("pid where (PID_3.CX_1.upper() & 'x' = 'A1x') -> tgt.active = true;", {"active": True}),
    # conditions, defaults, cardinality
    (
        "pid.PID_3 as c where (CX_5 = 'MR') -> tgt.identifier as i then { c.CX_1 as v -> i.value = v; };",
        {"identifier": [{"value": "A1"}]},
    ),
    (
        "pid.PID_3 as c where (c.CX_5 != 'MR' and pid.PID_8 = 'M') -> tgt.identifier as i then {"
        "c.CX_1 as v -> i.value = v; };",
        {"identifier": [{"value": "B2"}]},
    ),
    ("pid where (PID_9.exists()) -> tgt.active = true;", {}),
    ("pid.PID_9 default 'M' as x -> tgt.name as n, n.text = x;", {"name": [{"text": "M"}]}),
    ("pid.PID_8 default 'U' as x -> tgt.name as n, n.text = x;", {"name": [{"text": "M"}]}),
    ("pid.PID_9 default ('a' & 'b') as x -> tgt.name as n, n.text = x;", {"name": [{"text": "ab"}]}),
    ("pid.PID_8 1..1 as x -> tgt.name as n, n.text = x;", {"name": [{"text": "M"}]}),
    (
        "pid.PID_5 as x where (XPN_2.startsWith('JA')) -> tgt.name as n, n.text = (x.XPN_1 & ', ' & x.XPN_2);",
        {"name": [{"text": "DOE, JACK"}]},
    ),
    ("pid.PID_8 as x check (x = 'M') -> tgt.gender = 'male';", {"gender": "male"}),
    # empties go, references into what is empty go
    ("pid -> tgt.contact as c, c.name as n; pid -> tgt.maritalStatus as m, m.coding as c;", {}),
    (
        "pid.PID_3 as c -> tgt.identifier as i then { c.CX_1 as v where (v = 'B2') -> i.value = v; };",
        {"identifier": [{"value": "B2"}]},
    ),
    # primitives with extensions
    (
        "pid.PID_5 first as n -> tgt.name as h then { n.XPN_1 as f -> h.family = f as g, "
        "g.extension as e, e.url = 'urn:e', "
        "e.value = true; };",
        {"name": [{"family": "DOE", "_family": {"extension": [{"url": "urn:e", "valueBoolean": True}]}}]},
    ),
    (
        "pid.PID_5 first as n -> tgt.name as h then { n.XPN_2 as f -> h.given = f; n.XPN_3 as f -> h.given = f as g, "
        "g.extension as e, e.url = 'urn:e'; };",
        {"name": [{"given": ["JOHN", "Q"], "_given": [None, {"extension": [{"url": "urn:e"}]}]}]},
    ),
    ("pid -> tgt.gender as g, g.value = 'male';", {"gender": "male"}),
    ("pid -> tgt.gender as g;", {}),
    ("pid.PID_8 as s -> tgt.name as n, n.text = s as t, n.family = t;", {"name": [{"text": "M", "family": "M"}]}),
    # transforms
    ("pid.PID_5.XPN_1 first as f -> tgt.name as n, n.text = truncate(f, 2);", {"name": [{"text": "DO"}]}),
    ("pid.PID_8 as s -> tgt.name as n, n.text = append('<', s, '>', s);", {"name": [{"text": "<M>M"}]}),
    ("pid -> tgt.name as n, n.text = escape('<a>', 'xml');", {"name": [{"text": "&lt;a&gt;"}]}),
    ("pid -> tgt.name as n, n.text = escape('&lt;a&gt;', 'xml', 'text');", {"name": [{"text": "<a>"}]}),
    ("pid -> tgt.name as n, n.text = escape('48 69', 'hex', 'base64');", {"name": [{"text": "SGk="}]}),
    ("pid -> tgt.name as n, n.text = escape('Hi', 'text', 'base64');", {"name": [{"text": "SGk="}]}),
    ("pid -> tgt.name as n, n.text = escape('SGk=', 'base64', 'text');", {"name": [{"text": "Hi"}]}),
    ("pid -> tgt.name as n, n.text = escape('zz', 'hex', 'base64');", {}),
    ("pid -> tgt.name as n, n.text = escape('a\"b', 'json');", {"name": [{"text": 'a\\"b'}]}),
    (
        "pid -> tgt.maritalStatus = cc('urn:s', 'c', 'd');",
        {"maritalStatus": {"coding": [{"system": "urn:s", "code": "c", "display": "d"}]}},
    ),
    ("pid -> tgt.maritalStatus = cc('only text');", {"maritalStatus": {"text": "only text"}}),
    (
        "pid -> tgt.maritalStatus = cc('urn:s', 'c') as m, m.text = 't';",
        {"maritalStatus": {"coding": [{"system": "urn:s", "code": "c"}], "text": "t"}},
    ),
    (
        "pid -> tgt.maritalStatus as m, m.coding = c('urn:s', 'c');",
        {"maritalStatus": {"coding": [{"system": "urn:s", "code": "c"}]}},
    ),
    (
        "pid -> tgt.identifier = id('urn:s', 'v', 'MR');",
        {
            "identifier": [
                {
                    "system": "urn:s",
                    "value": "v",
                    "type": {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/v2-0203", "code": "MR"}]},
                }
            ]
        },
    ),
    (
        "pid -> tgt.telecom = cp('a@b.c'), tgt.telecom = cp('phone', '5');",
        {"telecom": [{"system": "email", "value": "a@b.c"}, {"system": "phone", "value": "5"}]},
    ),
    (
        "pid -> tgt.extension as e, e.url = 'u', e.value = qty('5.0', 'mg');",
        {"extension": [{"url": "u", "valueQuantity": {"value": JsonDecimal("5.0"), "unit": "mg"}}]},
    ),
    (
        "pid -> tgt.extension as e, e.url = 'u', e.value = create('Quantity') as q, q.value = '5.50', q.unit = 'mg';",
        {"extension": [{"url": "u", "valueQuantity": {"value": JsonDecimal("5.50"), "unit": "mg"}}]},
    ),
    ("pid -> tgt.managingOrganization = reference(tgt) as r;", {"managingOrganization": {"reference": "*"}}),
    ("pid.PID_31 as x -> tgt.birthDate = x; pid.PID_5 first as x -> tgt.birthDate = x;", {}),
    ("pid -> append('a', 'b') as x, tgt.name as n, n.text = x;", {"name": [{"text": "ab"}]}),
    ("pid -> tgt as t, t.active = true;", {"active": True}),
    ("pid.PID_8 as s -> tgt.name as n, n.text = copy(s);", {"name": [{"text": "M"}]}),
    ("pid -> tgt.name as n, n.text = evaluate(pid, PID_8 & '!');", {"name": [{"text": "M!"}]}),
    (
        "pid.PID_8 as s -> evaluate(s, $this & 'x') as v, tgt.name as n, n.text = append(v, v);",
        {"name": [{"text": "MxMx"}]},
    ),
    ("pid -> tgt.birthDate = @2020-01-02;", {"birthDate": "2020-01-02"}),
    ("pid.PID_29 as d -> tgt.birthDate = dateOp(d, 'date');", {"birthDate": "2020-01-02"}),
    (
        "pid -> tgt.telecom = cp('12 34'), tgt.telecom = cp('http://a');",
        {"telecom": [{"system": "phone", "value": "12 34"}, {"system": "url", "value": "http://a"}]},
    ),
    (
        "pid -> tgt.extension as e, e.url = 'u', e.value = qty('5 mg');",
        {"extension": [{"url": "u", "valueQuantity": {"value": JsonDecimal("5"), "unit": "mg"}}]},
    ),
]

REFUSED = [
    ("pid.PID_7 as d -> tgt.birthdate = d;", "Patient has no element 'birthdate'"),
    ("pid.PID_7 as d -> tgt.birthDate = e;", "unknown variable 'e' (in scope: d, pid, src, tgt)"),
    ("pid.PID_7 as d then Missing(d);", "no group 'Missing'"),
    ("pid.PID_7 as d then main(d);", "takes 2 parameters, not 1"),
    ("pid.PID_29 as d -> tgt.deceased = d;", "'deceased' may be boolean, dateTime: say which"),
    ("pid.PID_5 as d -> tgt.name = d;", "'name' is a HumanName: call a group for it"),
    ("pid -> tgt.name = create('Address');", "'name' cannot be Address: it is HumanName"),
    ("pid -> tgt.gender = translate(pid, 'nowhere', 'code');", "no ConceptMap 'nowhere' is loaded"),
    ("pid -> tgt.birthDate = 'yesterday';", "'yesterday' is no date"),
    ("pid -> tgt.name as n, n.text = truncate(pid);", "truncate takes 2 argument(s), not 1"),
    ("pid -> pid.PID_3 as x;", "'pid' belongs to the source"),
    ("pid -> tgt.name = cc('a', 'b');", "'name' is a HumanName, not a CodeableConcept"),
    ("pid -> tgt.name as n, n.text = cast(pid, 'Thing');", "'Thing' is no primitive type"),
    ("pid -> tgt.deceased as d;", "may have several types"),
    ("pid.PID_8 as x -> tgt.active = dateOp(x, 'year');", "dateOp makes"),
    ("pid.PID_8 as x where (x.noSuchFunction()) -> tgt.active = true;", "there is no function noSuchFunction()"),
]


class RuleTests(TestCase):
    def test_rules(self) -> None:
        for rules, wanted in RULES:
            found = mapped(patient_program(rules), PID)
            if "managingOrganization" in found:
                self.assertEqual(found["managingOrganization"]["reference"], f"Patient/{found.pop('id')}")
                found["managingOrganization"]["reference"] = "*"
            self.assertEqual(found, wanted, rules)
            self.assertEqual(dumps(found), dumps(wanted), rules)

    def test_refused_when_compiled(self) -> None:
        for rules, wanted in REFUSED:
            error = self.assertRaises(FmlError, patient_program, rules)
            self.assertIn(wanted, error.text, rules)
            self.assertTrue(str(error.place).startswith("map0.fml:5:"), error.place)

    def test_values_that_cannot_be_are_left_out_with_a_warning(self) -> None:
        target, state = run(patient_program("pid.PID_5 first as x -> tgt.birthDate = x;"), message(PID))
        self.assertEqual(target, {"resourceType": "Patient"})
        self.assertEqual(state.warnings, ["a value that is no date was omitted"])

    def test_null_is_absent(self) -> None:
        compiled = patient_program("pid.PID_8 as s -> tgt.gender = 'male';")
        self.assertEqual(mapped(compiled, 'PID|1|||||||""'), {})

    def test_failures_name_rule_and_place_and_no_data(self) -> None:
        for rules, text in (
            ("pid.PID_8 as x check (x = 'F') -> tgt.gender = 'male' \"sex\";", "the check of this rule failed"),
            ('pid.PID_5 only_one as x -> tgt.active = true "sex";', "found 2 times where 0..1 is asked for"),
            ('pid.PID_9 1..* as x -> tgt.active = true "sex";', "found 0 times where 1..* is asked for"),
            ('pid.PID_3 as x -> tgt.name as n only_one, n.text = x "sex";', "more than one name where one is allowed"),
        ):
            problem = self.assertRaises(Problem, run, patient_program(rules), message(PID))
            self.assertIs(problem.category, Category.MAPPING)
            self.assertEqual(problem.text, text)
            self.assertIn("map.main.rule 'sex'", str(problem.place))
            if "only_one, " not in rules:
                self.assertIn("' at pid.PID-", str(problem.place))
        failing = patient_program("pid.PID_3 as x -> tgt.name as n, n.text = (x.CX_1.toInteger() + 'a') \"sex\";")
        problem = self.assertRaises(Problem, run, failing, message("PID|1||17"))
        self.assertIn("main.rule 'sex' (urn:test:map, line 5)", str(problem.place))
        self.assertNotIn("17", str(problem))

    def test_log_and_trace(self) -> None:
        compiled = patient_program("pid.PID_8 as x log ('sex is ' & x) -> tgt.gender = 'male' \"sex\";")
        _, state = run(compiled, message(PID), trace=True)
        self.assertEqual(state.logs, ["sex is M"])
        self.assertEqual([(one.rule, one.line) for one in state.steps or ()], [("PID", 4), ("sex", 5)])
        self.assertIsNone(run(compiled, message(PID))[1].steps)

    def test_offset_of_the_library(self) -> None:
        compiled = patient_program("pid.PID_29 as x -> tgt.deceased = dateOp(x, 'dateTime');", offset="+01:00")
        self.assertEqual(mapped(compiled, PID), {"deceasedDateTime": "2020-01-02T03:04:00+01:00"})

    def test_time_zone_with_summer_time(self) -> None:
        vienna = zone_offset("Europe/Vienna")
        for given, expected in [
            ("202001020304", "2020-01-02T03:04:00+01:00"),
            ("20200702030405.5", "2020-07-02T03:04:05.5+02:00"),
            ("202007020304-0500", "2020-07-02T03:04:00-05:00"),
            ("20200702", "2020-07-02"),
            ("2020-07-02T03:04", "2020-07-02T03:04:00+02:00"),
        ]:
            self.assertEqual(date_time(given, vienna), expected)
        self.assertEqual(instant("20200702", vienna), "2020-07-02T00:00:00+02:00")
        self.assertEqual(zone_offset("UTC"), "Z")


GROUPS = (
    V2
    + """
group main(source src : ADT_A01, target tgt : Patient) {
  src.PID as pid then person(pid, tgt, 'usual') { pid.PID_8 -> tgt.active = true; };
}
group base(source pid, target patient : Patient) { pid.PID_7 as d -> patient.birthDate = d; }
group person(source pid : PID, target patient : Patient, source use) extends base {
  pid.PID_5 : XPN -> patient.name;
  pid.PID_5 : XPN as n -> patient.name as h, h.use = use then names(n, h);
}
group names(source n : XPN, target h : HumanName) <<types>> { n.XPN_1 as f -> h.family = f; }
"""
)


class GroupTests(TestCase):
    def test_calls_extends_and_default_groups(self) -> None:
        found = mapped(program(HEAD + GROUPS), "PID|1||||DOE||1980|M")
        name = {"family": "DOE"}
        wanted = {"birthDate": "1980", "name": [name, {"use": "usual", **name}], "active": True}
        self.assertEqual(found, wanted)

    def test_default_groups_are_found_by_the_type_of_the_field(self) -> None:
        text = (
            V2
            + """group main(source src : ADT_A01, target tgt : Patient) {
  src.PID as pid then { pid.PID_5 -> tgt.name; pid.PID_10 -> tgt.maritalStatus; pid.PID_7 -> tgt.birthDate; };
}
group names(source n : XPN, target h : HumanName) <<types>> { n.XPN_1 -> h.family; }
group codes(source c : CE, target h : CodeableConcept) <<types>> { c.CE_2 as t -> h.text = t; }
"""
        )
        wanted = {"name": [{"family": "DOE"}], "maritalStatus": {"text": "t"}, "birthDate": "1980"}
        self.assertEqual(mapped(program(HEAD + text), "PID|1||||DOE||1980|||c^t"), wanted)

    def test_ids_of_a_run_are_stable_and_differ(self) -> None:
        rules = (
            "pid -> uuid() as a, uuid() as b, uuid('n') as c, uuid('n') as d, pointer(tgt) as e, reference(tgt) as f,"
        )
        rules += " tgt.name as n, n.given = a, n.given = b, n.given = c, n.given = d, n.given = e, n.given = f;"
        first, again = (mapped(patient_program(rules), PID)["name"][0]["given"] for _ in range(2))
        self.assertEqual(first, again)
        self.assertEqual((first[2], first[4]), (first[3], first[5]))
        self.assertEqual(len(set(first)), 4)
        for one in first:
            self.assertRegex(
                one.removeprefix("Patient/"), r"^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}$"
            )

    def test_a_group_may_be_the_default_for_its_source_type(self) -> None:
        text = """group main(source src : Patient, target tgt) { src.name -> tgt.called; }
group names(source n : HumanName, target t : HumanName) <<type+>> { n.family as f -> t.is = f; }"""
        text = text.replace("t.is", "t.text")
        made = run(program(HEAD + text), {"name": [{"family": "A"}]})[0]
        self.assertEqual(made, {"called": {"text": "A"}})

    def test_imports(self) -> None:
        main = HEAD + V2 + 'imports "urn:test:lib/*"\n'
        main += "group main(source src : ADT_A01, target t : Patient) { src.PID as p then a(p, t); }"
        first = '/// url = "urn:test:lib/a"\nimports "urn:test:b"\ngroup a(source p, target t) { p then b(p, t); }'
        second = '/// url = "urn:test:b"\ngroup b(source p, target t) { p.PID_7 as d -> t.birthDate = d; }'
        self.assertEqual(mapped(program(main, first, second), "PID|||||||2001"), {"birthDate": "2001"})
        error = self.assertRaises(FmlError, program, main.replace("lib/*", "lib/z"), first, second)
        self.assertEqual(error.text, "no map is installed that 'urn:test:lib/z' matches")

    def test_groups_may_call_themselves(self) -> None:
        rules = "src.name as n -> tgt.name = n; src.child as c -> tgt.child as d then main(c, d);"
        text = f"{HEAD}group main(source src, target tgt) {{ {rules} }}"
        source = {"name": "a", "child": [{"name": "b", "child": [{"name": "c"}]}, {"name": "d"}]}
        wanted = {"name": "a", "child": [{"name": "b", "child": {"name": "c"}}, {"name": "d"}]}
        self.assertEqual(run(program(text), source)[0], wanted)
        circle = (
            HEAD + "group main(source s, target t) extends other {} group other(source s, target t) extends main {}"
        )
        self.assertIn("extends itself", self.assertRaises(FmlError, program, circle).text)

    def test_rules_may_nest_deeper_than_loops_of_python(self) -> None:
        depth = 40
        text = (
            "".join(f"v{n}.a as v{n + 1} then {{ " for n in range(depth))
            + f"v{depth}.x as x -> t.x = x;"
            + "};" * depth
        )
        source: Any = {"x": "deep"}
        for _ in range(depth):
            source = {"a": [source]}
        compiled = program(f"{HEAD}group main(source v0, target t) {{ {text} }}")
        self.assertEqual(run(compiled, source)[0], {"x": "deep"})

    def test_constants_and_local_tables(self) -> None:
        text = (
            HEAD
            + """conceptmap "#sex" { prefix s = "urn:s" prefix t = "urn:t" s:M == t:male s:F == t:female }
let system = 'urn:x' & '/y';
"""
            + V2
            + """group main(source src : ADT_A01, target tgt : Patient) { src.PID as pid then {
  pid.PID_8 as s -> tgt.gender = translate(s, '#sex', 'code');
  pid -> tgt.identifier as i, i.system = system;
}; }"""
        )
        self.assertEqual(
            mapped(program(text), "PID||||||||F"), {"gender": "female", "identifier": [{"system": "urn:x/y"}]}
        )
        target, state = run(program(text), message("PID||||||||X"))
        self.assertNotIn("gender", target)
        self.assertEqual([(one.table, one.code) for one in state.unmapped], [("#sex", "X")])


JSON_MAP = (
    HEAD
    + """
uses "http://hl7.org/fhir/StructureDefinition/Observation" alias Observation as source
uses "http://hl7.org/fhir/StructureDefinition/Patient" alias Patient as target
group main(source src : Observation, target tgt : Patient) {
  src.status as s where (s = 'final') -> tgt.active = true;
  src.value : Quantity as q -> tgt.extension as e, e.url = 'q', e.value = q;
  src.value : string as q -> tgt.extension as e, e.url = 's', e.value = q;
  src.component as c where (code.coding.exists(code = 'x')) -> tgt.name as n then { c.value as v -> n.text = v; };
  src.subject as s -> tgt.generalPractitioner = s;
  src.effective : dateTime as d -> tgt.birthDate = d;
  src.identifier -> tgt.identifier;
}
"""
)


class JsonTests(TestCase):
    def test_fhir_to_fhir(self) -> None:
        source = {
            "resourceType": "Observation",
            "status": "final",
            "identifier": [{"value": "1"}, {"value": "2"}],
            "valueQuantity": {"value": JsonDecimal("1.50")},
            "component": [{"code": {"coding": [{"code": "x"}]}, "valueString": "yes"}, {"valueString": "no"}],
            "subject": {"reference": "Patient/1"},
            "effectiveDateTime": "2020-02-03T04:05:06Z",
        }
        wanted = {
            "resourceType": "Patient",
            "active": True,
            "extension": [{"url": "q", "valueQuantity": {"value": JsonDecimal("1.50")}}],
            "name": [{"text": "yes"}],
            "generalPractitioner": [{"reference": "Patient/1"}],
            "birthDate": "2020-02-03",
            "identifier": [{"value": "1"}, {"value": "2"}],
        }
        target, _ = run(program(JSON_MAP), source)
        self.assertEqual(dumps(target), dumps(wanted))
        self.assertEqual(
            run(program(JSON_MAP), {"valueString": "a"})[0]["extension"], [{"url": "s", "valueString": "a"}]
        )

    def test_primitives_keep_their_extensions(self) -> None:
        text = (
            HEAD
            + """group main(source src : Patient, target tgt : Patient) {
  src.birthDate as d -> tgt.birthDate = d;
  src.gender -> tgt.gender;
  src.name as n where (family = 'Doe') -> tgt.name as m then {
    n.given as g -> m.given = g;
    n.family as f where (f = 'Doe') -> m.family = f, m.text = (f.extension.first().value);
    n.prefix as p -> m.prefix = truncate(p, 1);
  };
  src.deceased as d -> tgt.deceased = cast(d, 'boolean');
  src.language as l then { l.extension as e -> tgt.extension = e; };
}"""
        )
        more = {"extension": [{"url": "urn:e", "valueString": "x"}]}
        name = {"family": "Doe", "_family": more, "given": ["A", None, "B"], "_given": [None, more, more]}
        source = {
            "resourceType": "Patient",
            "birthDate": "2001",
            "_birthDate": more,
            "_gender": more,
            "name": [{**name, "prefix": ["Dr"], "_prefix": [more]}],
            "deceasedBoolean": True,
            "_deceasedBoolean": more,
            "language": "de",
            "_language": more,
        }
        wanted = {
            "resourceType": "Patient",
            "birthDate": "2001",
            "_birthDate": more,
            "_gender": more,
            "name": [{**name, "text": "x", "prefix": ["D"]}],
            "deceasedBoolean": True,
            "extension": more["extension"],
        }
        self.assertEqual(run(program(text), source)[0], wanted)
        untyped = HEAD + "group main(source src, target tgt) { src.a as a -> tgt.a = a; src.b -> tgt.b; }"
        source = {"a": "1", "_a": more, "_b": more}
        self.assertEqual(run(program(untyped), source)[0], source)

    def test_runs_do_not_touch_each_other_or_their_source(self) -> None:
        compiled = program(JSON_MAP)
        source = {"status": "final", "identifier": [{"value": "1"}]}
        before = dumps(source)
        self.assertEqual(run(compiled, source)[0], run(compiled, source)[0])
        self.assertEqual(dumps(source), before)
