"""Values from messages to FHIR, ConceptMaps, and that the short ways give the answers of the general engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.fhir.fhirpath import compile
from ipf.fhir.fhirpath.items.nodes import FhirNode
from ipf.hl7.message import Message
from ipf.mapping.compiler.conversions import as_text, conversions, date_time, instant
from ipf.mapping.compiler.emit import Writer
from ipf.mapping.compiler.expressions.expression import Expression
from ipf.mapping.compiler.expressions.native import condition
from ipf.mapping.compiler.expressions.native_source import condition_source
from ipf.mapping.compiler.expressions.native_text import text
from ipf.mapping.compiler.kinds import STRING, UNKNOWN, V2, fhir
from ipf.mapping.compiler.scope import Layout, Scope
from ipf.mapping.compiler.v2 import children, first_text, is_present, raw_parts, text_reader
from ipf.mapping.language.concepts import ConceptTables, Table, load_tables
from ipf.mapping.runtime.run import Run
from tests.mapping.support import message

CONVERSIONS: list[tuple[str, str, Any]] = [
    ("date", "1980", "1980"),
    ("date", "198001", "1980-01"),
    ("date", "19800102", "1980-01-02"),
    ("date", "19800102030405+0100", "1980-01-02"),
    ("date", "1980-01-02", "1980-01-02"),
    ("date", "19800230", None),
    ("date", "19801302", None),
    ("date", "0000", None),
    ("date", "20000229", "2000-02-29"),
    ("date", "19000229", None),
    ("date", "soon", None),
    ("dateTime", "1980", "1980"),
    ("dateTime", "19800102", "1980-01-02"),
    ("dateTime", "1980010203", "1980-01-02T03:00:00Z"),
    ("dateTime", "198001020304", "1980-01-02T03:04:00Z"),
    ("dateTime", "19800102030405", "1980-01-02T03:04:05Z"),
    ("dateTime", "19800102030405.1234-0500", "1980-01-02T03:04:05.1234-05:00"),
    ("dateTime", "198001020304+0000", "1980-01-02T03:04:00Z"),
    ("dateTime", "1980-01-02T03:04:05+02:00", "1980-01-02T03:04:05+02:00"),
    ("dateTime", "1980-01-02T03:04", "1980-01-02T03:04:00Z"),
    ("dateTime", "198001022404", None),
    ("dateTime", "198001020360", None),
    ("instant", "19800102030405", "1980-01-02T03:04:05Z"),
    ("instant", "19800102", "1980-01-02T00:00:00Z"),
    ("instant", "1980", None),
    ("time", "0304", "03:04:00"),
    ("time", "030405.5", "03:04:05.5"),
    ("time", "19800102030405", "03:04:05"),
    ("time", "03:04", "03:04:00"),
    ("time", "2504", None),
    ("integer", "+5", 5),
    ("integer", "5.0", 5),
    ("integer", "5.5", None),
    ("positiveInt", "0", None),
    ("unsignedInt", "0", 0),
    ("decimal", "1.50", "1.50"),
    ("decimal", "+.5", "0.5"),
    ("decimal", "-007.10", "-7.10"),
    ("decimal", "5.", "5"),
    ("decimal", "1e3", "1e3"),
    ("decimal", "<5", None),
    ("decimal", "", None),
    ("boolean", "Y", True),
    ("boolean", "n", False),
    ("boolean", "U", None),
    ("string", " ", None),
    ("string", " a ", " a "),
    ("code", "  a   b ", "a b"),
    ("uri", "a b", None),
    ("id", "a_b", None),
    ("id", "a-b", "a-b"),
    ("base64Binary", "QU\nJD", "QUJD"),
]

EXPRESSIONS = [
    "PID_8 = 'M'",
    "PID_8 != 'M'",
    "PID_9 = 'M'",
    "(PID_9 = 'M').not()",
    "PID_9 != 'M' or PID_8 = 'M'",
    "PID_9 = 'M' and PID_8 = 'M'",
    "PID_9 = 'M' or PID_8 = 'F'",
    "PID_3.exists() and PID_9.empty()",
    "pid.PID_3.CX_5.exists()",
    "pid.PID_3.CX_9.exists()",
    "PID_3 = 'A1'",
    "PID_3.first() = 'A1'",
    "PID_3.first().CX_5 in ('MR' | 'PI')",
    "PID_8 in ('X' | 'Y')",
    "(PID_8 in ('X' | 'Y')).not()",
    "(PID_8 in ('M' | 'Y')).not()",
    "(PID_9 in ('M' | 'Y')).not()",
    "PID_9 in ('M' | 'Y')",
    "(PID_8 = 'M' and PID_9 = 'X').not()",
    "(PID_8 = 'M' or PID_9 = 'X').not()",
    "(literal = 'X' or PID_3.empty()).not()",
    "literal.matches('^[A-Z]$').not()",
    "literal.startsWith('X').not()",
    "literal.contains('M')",
    "PID_3 != 'A1'",
    "PID_3.count() = 2",
    "PID_9.count() != 0",
    "PID_8.startsWith('M')",
    "PID_7.matches('^[0-9]{8}')",
    "PID_7.matches('[a-z]+')",
    "PID_5.XPN_1.endsWith('E')",
    "PID_5.XPN_1.contains('O')",
    "PID_8 = literal",
    "literal = 'M'",
    "pid.PID_8 = PID_8",
    "PID_40.exists()",
    "true",
    "iif(PID_8.exists(), PID_8 = 'M', PID_9 = 'X')",
    "iif(PID_9.exists(), PID_8 = 'M', PID_9 = 'X')",
    "iif(PID_9 = 'X', true, PID_8 != 'M')",
    "name.startsWith('http')",
    "name.startsWith('x').not()",
    "name != ''",
    "name = 'http://x'",
    "coding.system.empty()",
    "coding.system.exists()",
    "coding.display.exists()",
    "coding.version.empty()",
    "coding.code != literal.trim()",
    "coding.code = literal.trim()",
    "coding.display != literal.trim()",
    "coding.code != name",
]
TEXTS = [
    "PID_8",
    "PID_3.first().CX_1 & '/' & PID_8 & PID_9",
    "'a' & literal",
    "PID_9",
    "PID_5.XPN_1.replaceMatches('O.*', 'x')",
    "PID_8.replaceMatches('M', '')",
    "PID_9.replaceMatches('M', '')",
    "literal.replaceMatches('(M)', '$1$1') & PID_8",
    "'v2-' & name.substring(3)",
    "literal.substring(1) & 'x'",
    "'a' & literal.substring(5)",
]


_NAMES = re.compile(r"\b(pid|literal|name|coding)\b")


class ConversionTests(TestCase):
    def test_conversions(self) -> None:
        table = conversions("Z")
        for name, given, wanted in CONVERSIONS:
            found = table[name](given)
            self.assertEqual(found.literal if name == "decimal" and found is not None else found, wanted, (name, given))

    def test_another_zone(self) -> None:
        self.assertEqual(date_time("198001020304", "+01:00"), "1980-01-02T03:04:00+01:00")
        self.assertEqual(conversions("+01:00")["instant"]("19800102"), instant("19800102", "+01:00"))

    def test_text(self) -> None:
        node = message("PID|1").segments("PID")[0].children("PID_1")[0]
        for given, wanted in ((node, "1"), (True, "true"), (5, "5"), ({}, None), (None, None), ("a", "a")):
            self.assertEqual(as_text(given), wanted)


class NativeTests(TestCase):
    """The everyday subset is the same language as the general engine."""

    def setUp(self) -> None:
        self.pid = message("PID|1||A1^^^X^MR~B2||DOE^J||19800102|M").segments("PID")[0]
        self.scope = Scope(Layout())
        self.scope.bind("pid", 1, V2, is_source=True)
        self.scope.bind("literal", 2, STRING, is_source=True)
        self.scope.bind("name", 3, STRING, is_source=True, is_json=True)
        self.scope.bind("coding", 4, fhir("Coding"), is_source=False)
        self.coding = {"code": "M", "display": " ", "_version": {"extension": [{"url": "x", "valueString": "1"}]}}
        self.frame = [Run(b"k"), self.pid, "M", "http://x", self.coding]
        self.variables = {
            "pid": self.pid,
            "literal": "M",
            "name": "http://x",
            "coding": FhirNode(self.coding, "Coding"),
        }

    def read(self, expression: str) -> Expression:
        return Expression.read(expression, self.scope, V2, "", ValueError)

    def test_conditions(self) -> None:
        for one in EXPRESSIONS:
            found = condition(self.read(one).node, self.scope.names, V2)
            self.assertIsNotNone(found, one)
            general = compile(_NAMES.sub(r"%\1", one)).evaluate(self.pid, self.variables)
            self.assertEqual(found and found(self.frame, self.pid), general[0] if general else None, one)
            for wanted in (True, False):
                self.assertEqual(self.written(one, wanted), bool(general) and general[0] is wanted, (one, wanted))

    def written(self, expression: str, wanted: bool) -> bool:
        """The condition as it is written into functions."""
        writer = Writer()
        node = self.read(expression).node
        source = condition_source(writer, node, self.scope.names, V2, "f[1]", wanted=wanted)
        writer.line(f"f.append(bool({source}))")
        frame = list(self.frame)
        writer.function()(frame)
        return bool(frame[-1])

    def test_texts(self) -> None:
        for one in TEXTS:
            found = text(self.read(one).node, self.scope.names, V2)
            general = compile(_NAMES.sub(r"%\1", one)).evaluate(self.pid, self.variables)
            wanted = (as_text(general[0]) if general else None) or None
            self.assertEqual(found and found(self.frame, self.pid), wanted, one)
            writer = Writer()
            writer.line(f"f.append({self.read(one).text_source(writer, 'f[1]')})")
            frame = list(self.frame)
            writer.function()(frame)
            self.assertEqual(frame[-1], wanted, one)

    def test_what_is_not_native_is_left_to_the_engine(self) -> None:
        for one in (
            "PID_8 > 'A'",
            "PID_8.iif(true, 'a')",
            "PID_3.where(CX_1 = 'A1').exists()",
            "PID_8.matches(PID_9)",
            "name.exists()",
            "name.count() = 1",
            "coding.extension.exists()",
            "coding.userSelected.exists()",
        ):
            self.assertIsNone(condition(self.read(one).node, self.scope.names, V2), one)
        self.assertIsNone(condition(self.read("PID_8 = 'M'").node, self.scope.names, UNKNOWN))
        self.assertTrue(self.read("PID_3.where(CX_1 = 'A1').exists()").test()(self.frame, self.pid))

    def test_quick_reading_is_that_of_the_nodes(self) -> None:
        raw = (
            'MSH|^~\\&|A|B|C|D|2026||ADT^A01|1|P|2.5\rPID|""||~A^^""&x^&~|^|a||\\T\\^b\\S\\&c\rZXX|1\r'
            "OBX|1|ST|||a^b&c\rNTE|1||a^b\rOBX|1|CE|||a^b&c~d"
        )
        for segment in Message.parse(raw.encode()).all_segments:
            for number in range(1, 9):
                self.compare(segment, f"X_{number}")
                for field in segment.children(f"X_{number}"):
                    for part in range(1, 7):
                        self.compare(field, f"Y_{part}")
                        for one in field.children(f"Y_{part}"):
                            self.compare(one, "Z_1")
                            self.compare(one, "Z_2")

    def compare(self, node: Any, name: str) -> None:
        """One child of one node, read in every way."""
        wanted = node.children(name)
        found = children(name)(node)
        self.assertEqual(
            [(one.kind, one.name, one.text) for one in found], [(one.kind, one.name, one.text) for one in wanted]
        )
        parts, shift = raw_parts(node)
        place = int(name.partition("_")[2]) + shift
        if len(parts) <= place or place < 0 or not parts[place]:
            self.assertEqual(wanted, [])
            return
        self.assertEqual(is_present(name)(node, parts[place]), bool(wanted), (node.raw, name))
        texts = [one.text for one in wanted]
        self.assertEqual(list(text_reader(name)(node, parts[place])), texts, (node.raw, name))
        self.assertEqual(first_text(name)(node, parts[place]), texts[0] if texts else None)


CONCEPTS = {
    "resourceType": "ConceptMap",
    "id": "sex",
    "url": "urn:c:sex",
    "name": "Sex",
    "group": [
        {
            "target": "urn:t",
            "element": [
                {"code": "M", "target": [{"code": "male", "display": "Male", "equivalence": "equal"}]},
                {"code": "X", "target": [{"code": "y", "equivalence": "unmatched"}]},
                {"code": "W", "target": [{"equivalence": "unmatched"}, {"code": "z", "equivalence": "wider"}]},
                {"code": "N"},
            ],
            "unmapped": {"mode": "fixed", "code": "unknown"},
        }
    ],
}


class ConceptTests(TestCase):
    def test_lookup(self) -> None:
        tables = ConceptTables([CONCEPTS])
        for name in ("urn:c:sex", "urn:c:sex|2", "sex", "Sex"):
            self.assertIsNotNone(tables.find(name), name)
        self.assertIsNone(tables.find("other"))
        table = tables.find("sex")
        assert table is not None
        self.assertEqual(table.results("code"), {"M": "male", "W": "z"})
        self.assertEqual(table.results("display"), {"M": "Male"})
        self.assertEqual(table.results("Coding")["M"], {"system": "urn:t", "code": "male", "display": "Male"})
        self.assertEqual(
            (table.without_row("Q", "code"), table.without_row("Q", "Coding")),
            ("unknown", {"system": "urn:t", "code": "unknown"}),
        )
        provided = Table({"group": [{"target": "urn:t", "unmapped": {"mode": "provided"}}]})
        self.assertEqual(provided.without_row("Q", "Coding"), {"system": "urn:t", "code": "Q"})
        self.assertEqual([provided.without_row("Q", one) for one in ("system", "display")], ["urn:t", None])
        self.assertIsNone(Table({}).without_row("Q", "code"))

    def test_files(self) -> None:
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "a.json").write_text(
            '{"resourceType": "Bundle", "entry": [{"resource": {"resourceType": "ConceptMap", "url": "u"}}]}'
        )
        self.assertIsNotNone(load_tables(folder).find("u"))
        for content, wanted in (("{", "not JSON"), ("[]", "holds no ConceptMap")):
            (folder / "b.json").write_text(content)
            problem = self.assertRaises(Problem, load_tables, folder)
            self.assertIs(problem.category, Category.MAPPING)
            self.assertIn(wanted, problem.text)
            self.assertTrue(str(problem.place).endswith("b.json"))
