"""Cases beyond the HL7 suite: variables, hosts, HL7 v2 nodes, untyped JSON, errors, embedded expressions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from twisted.trial import unittest

from ipf.fhir.fhirpath import FhirPathError, Host, compile
from ipf.fhir.fhirpath.items.values import Date, Quantity
from ipf.fhir.fhirpath.language import ast
from ipf.fhir.fhirpath.language.parser import parse, parse_prefix

PATIENT = {
    "resourceType": "Patient",
    "id": "p",
    "birthDate": "1974-12-25",
    "name": [{"use": "official", "family": "Müller", "given": ["Anna", "Bea"]}],
    "contained": [{"resourceType": "Organization", "id": "o", "name": "Clinic"}],
    "managingOrganization": {"reference": "#o"},
    "generalPractitioner": [{"reference": "Practitioner/1"}],
}


@dataclass
class V2Node:
    """A node like those of HL7 v2 messages."""

    text: str | None = None
    parts: dict[str, list[V2Node]] = field(default_factory=dict)

    def children(self, name: str) -> list[V2Node]:
        """By name; absent is empty."""
        return self.parts.get(name, [])


class AnswerTest(unittest.TestCase):
    """Tables of expression and result."""

    def answers(self, focus: Any, table: dict[str, list[Any]], **options: Any) -> None:
        for text, wanted in table.items():
            self.assertEqual(wanted, compile(text).evaluate(focus, **options), text)

    def test_variables(self) -> None:
        table = {
            "%x.given": ["Anna", "Bea"],
            "%n + 1": [3],
            "%list.count()": [2],
            "name.where(family = %name).use": ["official"],
            "%resource.id": ["p"],
            "%`ext-birthPlace`": ["http://hl7.org/fhir/StructureDefinition/birthPlace"],
        }
        variables = {"x": PATIENT["name"], "n": 2, "list": ["a", "b"], "name": "Müller"}
        self.answers(PATIENT, table, variables=variables)
        self.assertRaises(FhirPathError, compile("%unknown").evaluate, PATIENT)

    def test_references(self) -> None:
        found = {"Practitioner/1": {"resourceType": "Practitioner", "id": "1"}}
        table = {
            "managingOrganization.resolve().name": ["Clinic"],
            "generalPractitioner.resolve().id": ["1"],
            "generalPractitioner.where(resolve() is Practitioner).reference": ["Practitioner/1"],
        }
        self.answers(PATIENT, table, resolve=found.get)
        bundle = {"resourceType": "Bundle", "entry": [{"fullUrl": "urn:uuid:1", "resource": PATIENT}]}
        self.answers(bundle, {"'urn:uuid:1'.resolve().id": ["p"], "Bundle.entry.resource.name.family": ["Müller"]})

    def test_hostile_texts(self) -> None:
        """Each is a syntax error with its place, however long the text is."""
        for text, reason in (
            ("9" * 5_000 + " > 0", "more than 1000 characters"),
            ("1 < 1." + "3" * 20_000, "more than 1000 characters"),
            ("'\\ud800'", "not valid Unicode"),
            ("(" * 10_000, "levels of nesting"),
            ("1" + "+1" * 10_000, "more than 10000 words and symbols"),
            ("name" + ".where(true)" * 5_000, "more than 10000 words and symbols"),
            ("/* " * 10_000, "a comment is not terminated"),
        ):
            error = self.assertRaises(FhirPathError, compile, text)
            self.assertEqual((error.kind, reason in str(error)), ("syntax", True), (text[:20], str(error)))
        self.answers(PATIENT, {"'\\ud83d\\ude00'": ["\N{GRINNING FACE}"]})

    def test_host(self) -> None:
        seen: list[Any] = []
        host = Host(
            member_of=lambda value, url: (value, url) == ("official", "http://v"),
            conforms_to=lambda value, url: url == "http://p",
            subsumes=lambda a, b: True,
            trace=lambda name, values: seen.append((name, values)),
            clock=lambda: datetime(2026, 1, 2, 3, 4, 5, 678000, UTC),
        )
        table = {
            "name.use.memberOf('http://v')": [True],
            "conformsTo('http://p')": [True],
            "name.given.trace('t').count()": [2],
            "now().toString()": ["2026-01-02T03:04:05.678Z"],
            "today()": [Date((2026, 1, 2))],
            "timeOfDay().toString()": ["03:04:05.678"],
            "'a'.subsumes('b')": [True],
        }
        self.answers(PATIENT, table, host=host)
        self.assertEqual([("t", ["Anna", "Bea"])], seen)
        self.assertRaises(FhirPathError, compile("name.use.memberOf('http://v')").evaluate, PATIENT)

    def test_hl7_v2_nodes(self) -> None:
        cx = V2Node("123", {"CX_1": [V2Node("123")], "CX_4": [V2Node("LAB")]})
        pid = V2Node(None, {"PID_3": [cx, V2Node("9")], "PID_8": [V2Node("F")]})
        table = {
            "PID_3.CX_1 = '123'": [True],
            "PID_3.where(CX_4 = 'LAB').CX_1.exists()": [True],
            "PID_8 = 'F'": [True],
            "PID_8 & '-' & PID_3.first()": ["F-123"],
            "PID_7.exists()": [False],
            "PID_3.count()": [2],
            "PID_8.lower()": ["f"],
        }
        self.answers(pid, table)
        self.assertEqual([cx], compile("PID_3[0]").evaluate(pid))
        self.assertEqual(["F"], compile("%pid.PID_8.toString()").evaluate({}, {"pid": pid}))

    def test_json_of_unknown_type(self) -> None:
        thing = {"a": [{"b": 1}, {"b": 2}], "valueString": "x", "on": "2020-01-01"}
        self.answers(thing, {"a.b": [1, 2], "value": ["x"], "on < @2021-01-01": [True], "a.where(b = 2).b": [2]})
        self.answers({"family": "F", "given": ["G"]}, {"given.first() & family": ["GF"]})
        self.assertEqual([True], compile("$this is HumanName", base_type="HumanName").evaluate({"family": "F"}))
        self.assertEqual([True], compile("$this > @2020", base_type="date").evaluate("2021-05-01"))

    def test_units(self) -> None:
        table = {
            "1 'kg' = 1000 'g'": [True],
            "37 'Cel' = 310.15 'K'": [True],
            "37 'Cel' = 98.6 '[degF]'": [True],
            "(37 'Cel').toQuantity('[degF]')": [Quantity(Decimal("98.6"), "[degF]")],
            "98.6 '[degF]' ~ 37.0 'Cel'": [True],
            "39 'Cel' > 100 '[degF]'": [True],
            "1 '[in_i]' = 2.54 'cm'": [True],
            "(1 '[in_i]' * 3 'cm') = 7.62 'cm2'": [True],
            "70 'dB' = 7 'B'": [True],
            "(7 '[pH]').toQuantity('mol/L')": [Quantity(Decimal("1E-7"), "mol/L")],
            "'5 \\'mmHg\\''.convertsToQuantity()": [False],
            "'5 \\'mm[Hg]\\''.convertsToQuantity()": [True],
            "5 'mmHg' = 5 'mmHg'": [True],
            "5 'mmHg' > 4 'kPa'": [],
            "1 'mmol/L' > 900 'umol/L'": [True],
            "1 'mg' = 1 'mL'": [False],
            "1 '[iU]' < 1 'mg'": [],
            "(1 'm').toQuantity('cm')": [Quantity(Decimal(100), "cm")],
            "1 year = 12 months": [True],
            "1 year ~ 1 'a'": [True],
            "5 'mg' + 1 'g'": [Quantity(Decimal(1005), "mg")],
        }
        self.answers({}, table)

    def test_narrative_and_modifiers(self) -> None:
        div = "<div xmlns='http://www.w3.org/1999/xhtml'>{}</div>"
        table = {"<p>a</p>": True, "<script>a</script>": False, "": False, "<p onclick='x'>a</p>": False}
        for inside, wanted in table.items():
            data = {"text": {"status": "generated", "div": div.format(inside)}}
            self.answers(data, {"text.div.htmlChecks()": [wanted], "text.`div`.htmlChecks()": [wanted]})
        patient = {**PATIENT, "modifierExtension": [{"url": "http://m"}]}
        self.answers(patient, {"checkModifiers('http://m').id": ["p"]})
        self.assertRaises(FhirPathError, compile("checkModifiers().id").evaluate, patient)

    def test_patterns(self) -> None:
        table = {
            "'2015-02'.matches('^[0-9]{4}(-[0-9]{2})*$')": [True],
            "'a b c'.matchesFull('[^ ]+( [^ ]+)*')": [True],
            "'John Smith'.replaceMatches('(\\\\w+) (\\\\w+)', '$2 $1')": ["Smith John"],
        }
        self.answers({}, table)
        self.answers({"text": "a\nb"}, {"text.matches('a.b')": [True]})  # single-line mode: the dot matches line ends
        for text in ("'a'.matches('(')", "'a'.matchesFull('(?=a)a')", "'aa'.replaceMatches('(a)\\\\1', '')"):
            error = self.assertRaises(FhirPathError, compile(text).evaluate, {})
            self.assertIn("regular expression is not valid", str(error))
        for new in ("$2", "${2}", "${b}"):
            error = self.assertRaises(FhirPathError, compile(f"'a'.replaceMatches('(?<a>a)', '{new}')").evaluate, {})
            self.assertIn(new, str(error))
        self.answers({}, {"'ab'.replaceMatches('(?<x>a)(c)?', '[$0$1$2${x}]')": ["[aaa]b"]})

    def test_test(self) -> None:
        self.assertTrue(compile("name.exists()").test(PATIENT))
        self.assertFalse(compile("name.period.start > @2020").test(PATIENT))


class PrefixTest(unittest.TestCase):
    """Expressions within other languages: (text, start, remaining text)."""

    def test_prefixes(self) -> None:
        table = [
            ("src.name as n where (given.exists()) -> tgt", 22, ") -> tgt"),
            ("a.b = 'x' -> c", 0, " -> c"),
            ("a.b('x', 1) , 2", 0, " , 2"),
            ("x and y then foo()", 0, " then foo()"),
            ("1 + 2 ; rest", 0, " ; rest"),
            ("a # b", 0, " # b"),
        ]
        for text, start, rest in table:
            _, end = parse_prefix(text, start)
            self.assertEqual(rest, text[end:], text)

    def test_errors_name_line_and_column(self) -> None:
        table = {
            "name.": (1, 6, "expected a name, found the end"),
            "name\n  .where(": (2, 10, "expected an expression, found the end"),
            "a = 'b": (1, 5, "the text that starts with ' is not terminated"),
            "@2015-13": (1, 1, "2015-13 is not a valid date"),
            "a b": (1, 3, "expected the end of the expression or an operator, found 'b'"),
        }
        for text, (line, column, message) in table.items():
            error = self.assertRaises(FhirPathError, parse, text)
            self.assertEqual((line, column, message), (error.line, error.column, error.text), text)

    def test_unknown_names_are_refused_when_compiled(self) -> None:
        for text in ("a.nothing()", "a is Nothing", "a.substring()", "a.ofType(1)"):
            self.assertEqual("semantic", self.assertRaises(FhirPathError, compile, text).kind, text)

    def test_tree(self) -> None:
        wanted = ast.Binary("=", ast.Member(ast.Member(None, "a"), "b"), ast.Literal("x"))
        self.assertEqual(wanted, parse("a.b = 'x'"))
