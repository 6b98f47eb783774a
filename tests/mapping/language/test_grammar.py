"""The mapping language: what is read, what is refused and how the refusal reads, and that printing is stable."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.mapping.language.grammar import parse
from ipf.mapping.language.lexer import FmlError, quote, unescape
from ipf.mapping.language.model import Parameter, Rule, StructureMap
from ipf.mapping.language.printer import print_map
from ipf.mapping.language.structuremap import from_json, to_json
from tests.mapping.support import FML, HEAD, cross_version_maps, program
from tests.reference import needs_reference


def rule(text: str) -> Rule:
    """The only rule of a map."""
    return parse(f"{HEAD}group g(source src, target tgt) {{ {text} }}").groups[0].rules[0]


SOURCES = [
    ("src.a;", {"context": "src", "element": "a"}),
    ("src as s;", {"context": "src", "element": "", "variable": "s"}),
    ("src.a.b.c as d;", {"element": "a.b.c", "variable": "d"}),
    ("src.a : Quantity as q;", {"type": "Quantity", "variable": "q"}),
    ("src.a 0..1;", {"minimum": 0, "maximum": "1"}),
    ("src.a 1..* as x;", {"minimum": 1, "maximum": "*"}),
    ('src.a default "x";', {"default": Parameter("string", "x")}),
    ("src.a default -5;", {"default": Parameter("integer", -5)}),
    ("src.a default (1 + 1);", {"default_expression": "1 + 1"}),
    ("src.a only_one as x;", {"list_mode": "only_one"}),
    ("src.a not_first as x;", {"list_mode": "not_first"}),
    ("src.a where (b = 'x');", {"condition": "b = 'x'"}),
    ("src.a where a.length() > 3 -> tgt.b = 'c';", {"condition": "a.length() > 3"}),
    ("src.a where (b) or (c);", {"condition": "(b) or (c)"}),
    ("src.a as x check x.exists() log ('found ' & x);", {"check": "x.exists()", "log_message": "'found ' & x"}),
    ("src.a : T 0..* default 'd' last as x where (y) check (z) log ('w');", {"list_mode": "last", "type": "T"}),
    ("src.`odd name`;", {"element": "odd name"}),
]

TARGETS = [
    ("tgt", {"context": "tgt", "element": "", "transform": ""}),
    ("tgt.b as c", {"element": "b", "variable": "c", "transform": ""}),
    ("tgt.b = x", {"transform": "copy", "parameters": (Parameter("id", "x"),)}),
    ("tgt.b = 'x'", {"transform": "copy", "parameters": (Parameter("string", "x"),)}),
    ("tgt.b = true", {"parameters": (Parameter("boolean", True),)}),
    ("tgt.b = create('Quantity') as q", {"transform": "create", "variable": "q"}),
    ("tgt.b = truncate(x, 20)", {"parameters": (Parameter("id", "x"), Parameter("integer", 20))}),
    ("tgt.b = (x.y + 'z')", {"transform": "evaluate", "parameters": (Parameter("string", "x.y + 'z'"),)}),
    ("tgt.b = (x.y) as z", {"variable": "z", "parameters": (Parameter("string", "x.y"),)}),
    ("tgt.b = evaluate(x, y.first())", {"parameters": (Parameter("id", "x"), Parameter("string", "y.first()"))}),
    ("tgt.b = x.y", {"transform": "evaluate", "parameters": (Parameter("string", "x.y"),)}),
    ("tgt.b as c share d", {"list_modes": ("share",), "list_rule_id": "d"}),
    ("tgt.b as c first", {"list_modes": ("first",)}),
    ("tgt.b as c single", {"list_modes": ("single",)}),
    ("uuid() as u", {"context": "", "transform": "uuid", "variable": "u"}),
    ("tgt.b = @2024-05-01", {"parameters": (Parameter("date", "2024-05-01"),)}),
]

ERRORS = [
    ("", "1:1", "the url of this map"),
    ("/// url = 'u'\nuses", "2:5", "the quoted url of a structure"),
    ("/// url = 'u'\nuses 'a' alias B as input", "2:21", "'source', 'queried', 'target' or 'produced'"),
    ("/// url = 'u'\nfoo", "2:1", "'uses', 'imports', 'conceptmap', 'let', 'group'"),
    ("/// url = 'u'\ngroup g(src) {}", "2:9", "'source' or 'target'"),
    ("/// url = 'u'\ngroup g(source src, target tgt) {\n  src.a -> tgt.b\n}", "4:1", "';'"),
    ("/// url = 'u'\ngroup g(source src, target tgt) { src.a -> ; }", "2:44", "a target such as 'tgt.element'"),
    ("/// url = 'u'\ngroup g(source src, target tgt) { src.a -> tgt.b = foo(x); }", "2:52", "a transform (append"),
    ("/// url = 'u'\ngroup g(source src, target tgt) { src.a where (b = ; }", "2:52", "in a FHIRPath expression"),
    ("/// url = 'u'\ngroup g(source src, target tgt) { src.a -> tgt.b.c = 'x'; }", "2:44", "has one element"),
    ("/// url = 'u'\ngroup g(source src, target tgt) { src.a 1.. as b; }", "2:45", "a number or '*'"),
    ("/// url = 'u'\ngroup g(source src, target tgt) <<typ>> {}", "2:35", "'types' or 'type+'"),
    ("/// url = 'u'\ngroup g(source src, target tgt) { src.a 'no end; }", "2:41", "unexpected"),
    (
        "/// url = 'u'\ngroup g(source src, target tgt) { src -> tgt.a = " + "9" * 5_000 + "; }",
        "2:50",
        "100 characters",
    ),
    ("/// url = 'u'\ngroup g(source src, target tgt) { src -> tgt.a = '\\ud800'; }", "2:50", "not valid Unicode"),
    ("/// url = 'u'\n" + " " * 2_000_000, "1:1", "more than 2000000 characters"),
    ("/// url = 'u'\n" + "/* " * 100_000, "2:1", "a comment is not terminated"),
    ("/// url = 'u'\ngroup g(source src, target tgt) { /* no end }", "2:35", "a comment is not terminated"),
    ("/// url = 'u'\nconceptmap '#c' { prefix s = 'x' t:a == s:b }", "2:34", "one of the prefixes declared above"),
    ("/// url = 'u'\nlet a = ;", "2:9", "in a FHIRPath expression"),
]

END_TO_END = """
map "http://example.org/m" = "m"

/// status = draft
/// types = "ADT_A01 ADT_A04"
/// experimental = true

conceptmap "#c" {
  prefix s = "http://s"
  prefix t = "http://t"
  unmapped for s = provided
  s:one == t:"1"
  s:"not done" - t:not-done
  s:three != t:three
}

uses "http://s/A" alias A as source
uses "http://t/B" as target
imports "http://example.org/*"
let system = 'http://x';

// About the group.
group main(source src : A, target tgt : B) extends base <<types>> {
  // before
  src.a -> tgt.b; // behind
  src.a as x, src.b as y where (x = y) -> tgt.c as c, c.d = append(x, ' ', y)
    then other(x, c, 'k'), third(y, c) { x.z -> c.z; } "both";
}
group base(source src, target tgt) { src -> tgt.e = (src.f.first()) "e"; }
"""


class ReadTests(TestCase):
    def test_sources(self) -> None:
        for text, wanted in SOURCES:
            source = rule(text).sources[0]
            self.assertEqual({name: getattr(source, name) for name in wanted}, wanted, text)

    def test_targets(self) -> None:
        for text, wanted in TARGETS:
            target = rule(f"src.a as x -> {text};").targets[0]
            self.assertEqual({name: getattr(target, name) for name in wanted}, wanted, text)

    def test_simple_rules_get_the_automatic_variable(self) -> None:
        made = rule("src.a -> tgt.b;")
        self.assertTrue(made.is_simple)
        self.assertEqual((made.sources[0].variable, made.targets[0].variable), ("vvv", "vvv"))
        self.assertEqual((made.name, made.targets[0].transform), ("a", "create"))

    def test_whole_map(self) -> None:
        made = parse(END_TO_END)
        self.assertEqual((made.url, made.name, made.status), ("http://example.org/m", "m", "draft"))
        self.assertEqual(made.meta("types"), "ADT_A01 ADT_A04")
        self.assertEqual(made.meta("experimental"), "true")
        self.assertEqual(made.imports, ("http://example.org/*",))
        self.assertEqual([one.name for one in made.groups], ["main", "base"])
        group = made.groups[0]
        self.assertEqual((group.extends, group.type_mode, group.documentation), ("base", "types", "About the group."))
        self.assertEqual(group.rules[0].documentation, "before\nbehind")
        self.assertEqual(group.rules[1].documentation, "")
        both = group.rules[1]
        self.assertEqual(both.name, "both")
        self.assertEqual([one.name for one in both.dependents], ["other", "third"])
        self.assertEqual(both.dependents[0].parameters[2], Parameter("string", "k"))
        self.assertEqual(len(both.rules), 1)
        self.assertEqual(
            made.concept_tables[0].rows[1].target and made.concept_tables[0].rows[1].target.code, "not-done"
        )

    def test_errors_name_file_line_column_and_what_was_expected(self) -> None:
        for text, place, wanted in ERRORS:
            error = self.assertRaises(FmlError, parse, text, "m.fml")
            self.assertEqual(error.place, f"m.fml:{place}", text)
            self.assertIn(wanted, error.text, text)
            self.assertIs(error.category, Category.MAPPING)

    def test_nesting_is_bounded(self) -> None:
        depth = 2000
        text = HEAD + "group g(source src, target tgt) {" + "src then {" * depth + "};" * depth + "}"
        self.assertIn("nest", self.assertRaises(FmlError, parse, text).text)

    def test_strings(self) -> None:
        for written, meant in ((r"a\'b", "a'b"), (r"\d+", r"\d+"), (r"\\d+", r"\d+"), (r"A\n", "A\n"), (r"é", "é")):
            self.assertEqual(unescape(written), meant)
            self.assertEqual(parse(f"/// url = {quote(meant)}\ngroup g(source a, target b) {{}}").url, meant)

    @settings(max_examples=150, deadline=None)
    @given(st.text(alphabet="groupsrctgt.:->={}()'\"\\/#@ \n;,1%", max_size=120))
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        try:
            parse(HEAD + text)
        except FmlError as error:
            self.assertGreater(error.line, 0)


class RoundTripTests(TestCase):
    def check(self, made: StructureMap, name: str) -> None:
        printed = print_map(made)
        again = parse(printed, name)
        self.assertEqual(again, made, name)
        self.assertEqual(print_map(again), printed)
        self.assertEqual(from_json(loads(dumps(to_json(made)))), made, name)

    def test_comments_of_structures_and_metadata_of_resources_are_printed(self) -> None:
        resource = to_json(parse(END_TO_END))
        resource |= {"version": "1.2", "publisher": 'A "B"', "date": "2026-01-01", "copyright": "line\nline"}
        resource["structure"][0]["documentation"] = "The sender's\nstructure."
        read = from_json(resource)
        text = print_map(read)
        for line in (
            '/// version = "1.2"',
            '// The sender\'s\n// structure.\nuses "http://s/A"',
            "// About the group.",
        ):
            self.assertIn(line, text)
        self.assertEqual(parse(text), read)
        self.assertEqual(print_map(parse(text)), text)
        self.assertEqual(from_json(to_json(read)), read)

    def test_written_maps(self) -> None:
        self.check(parse(END_TO_END), "whole")
        for text, _ in SOURCES:
            self.check(parse(f"{HEAD}group g(source src, target tgt) {{ {text} }}"), text)
        for text, _ in TARGETS:
            self.check(parse(f"{HEAD}group g(source src, target tgt) {{ src.a as x -> {text}; }}"), text)

    @needs_reference
    def test_cross_version_maps(self) -> None:
        names = []
        for number, (name, text) in enumerate(cross_version_maps()):
            made = parse(text, name)
            names.append(name)
            if number % 5 == 0:
                self.check(made, name)
        self.assertEqual(len(names), 340)

    @needs_reference
    def test_tutorial_maps_are_the_structure_maps_beside_them(self) -> None:
        for path in sorted((FML / "tutorial").glob("*/map/*.map")):
            beside = path.with_suffix(".json")
            made = parse(path.read_text(), path.name)
            self.check(made, path.name)
            if beside.exists() and path.stem != "step1b":  # its JSON is of an older text, with one group
                self.assertEqual(_compared(to_json(made)), _compared(json.loads(beside.read_text())), path.name)

    def test_no_structure_map(self) -> None:
        for more in ({"resourceType": "Patient"}, {}, {"url": 1}, {"url": "u", "name": "n", "group": 5}):
            resource = {"resourceType": "StructureMap", **more}
            self.assertIs(self.assertRaises(Problem, from_json, resource).category, Category.MAPPING)

    def test_r5_resource(self) -> None:
        made = parse(
            HEAD + "let x = 'y';\ngroup g(source src, target tgt) { src.a as s -> tgt.b = s then h(s, 'k'); }\n"
            "group h(source s, source k) {}"
        )
        resource = to_json(made)
        resource["const"] = [{"name": "x", "value": "'y'"}]
        del resource["extension"]
        self.assertEqual(from_json(resource), replace(made))


def _compared(resource: dict) -> list:
    """Group, rule, source and target, without the conditions: those of the published files are out of date."""
    for group in resource["group"]:
        for one in group["rule"]:
            one.pop("documentation", None)
            for source in one["source"]:
                source.pop("condition", None)
                source.pop("check", None)
    return resource["group"]


class TutorialTests(TestCase):
    @needs_reference
    def test_the_published_results_come_out(self) -> None:
        cases = json.loads((FML / "cases.json").read_text())["cases"]
        done = 0
        for case in cases:
            if not case["source"].endswith(".json"):
                continue  # the JSON twin of each XML case is among the cases
            logical = [json.loads((FML / one).with_suffix(".json").read_text()) for one in case["logicals"]]
            compiled = program(*[(FML / one).read_text() for one in case["maps"]], logical=logical)
            result, _ = compiled.run(json.loads((FML / case["source"]).read_text()), b"key")
            self.assertEqual(result, json.loads((FML / case["expect_file"]).read_text()), case["id"])
            done += 1
        self.assertEqual((len(cases), done), (47, 26))
