"""Whatever arrives, maps, StructureMaps and messages: an answer or the room's own error, at a cost that is linear."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.hl7.message import Message
from ipf.mapping.compiler.compile import Compiler, Program
from ipf.mapping.compiler.groups import Environment
from ipf.mapping.language.grammar import parse
from ipf.mapping.language.lexer import FmlError
from ipf.mapping.language.printer import print_map
from ipf.mapping.language.structuremap import from_json, to_json
from tests.corpus.samples import library
from tests.mapping.compiler.test_cost import counted
from tests.mapping.support import HEAD, KEY, V2, message
from tests.traffic.messages import adt

LIMITS = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))

_WORDS = """group main other ( ) { } { } source target src tgt : ADT_A01 Patient Bundle , ; ; ; -> -> . . = as then
where check log default first last not_first only_one share collate single extends <<types>> <<type+>> uses imports
alias let conceptmap prefix unmapped for provided 'text' "name" 1 1.5 0..1 1..* * true @2020-01-01 `odd` // /* */ /// '
create('Patient') copy(x) truncate(x,2) append(x,'a') translate(x,'#c','code') reference(tgt) uuid() evaluate(x,y)
cc('a','b') qty(x) id('a',x) cp(x) dateOp(x,'date') cast(x,'string') escape(x,'xml') name birthDate identifier PID PID_3
PID_5.XPN_1 x y (x.exists()) (PID_3=1) (1+'a') é \\ %"""
WORDS = _WORDS.split()
_NAMES = "url name group rule source target context element input mode parameter"

RULES = st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)

_PARTS = """PID PV1 OBX NK1 ZZZ MSH | | | ^ ~ & \\ \\F\\ \\X0D\\ "" A 1980 20200101 M é I E ADT^A01 2.5.1"""
PARTS = st.sampled_from([*_PARTS.split(), "\r", "\r", "\n", "\x00", "\ufeff", " "])


class MapTests(TestCase):
    @LIMITS
    @given(RULES)
    def test_any_words_as_rules(self, rules: str) -> None:
        text = f"{HEAD}{V2}group main(source src : ADT_A01, target tgt : Patient) {{ {rules} }}"
        try:
            content = parse(text, "map.fml")
            self.assertEqual(parse(print_map(content)), content)
            self.assertEqual(from_json(to_json(content)), content)
            compiled = Program(Compiler([content], Environment()), content)
        except FmlError as error:
            self.assertTrue(str(error.place).startswith("map.fml:"), error.place)
            return
        try:
            compiled.run(message("PID|1||A^^^B~C||D^E||1980|M"), KEY)
        except Problem:
            pass

    @LIMITS
    @given(RULES)
    def test_any_words_as_a_map(self, text: str) -> None:
        try:
            parse(HEAD + text, "map.fml")
        except FmlError as error:
            self.assertGreater(error.line, 0)

    @LIMITS
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=4),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(_NAMES.split()),
                    inner,
                    max_size=5,
                )
            ),
            max_leaves=15,
        )
    )
    def test_any_structure_map(self, content: Any) -> None:
        more = content if isinstance(content, dict) else {"group": content}
        try:
            made = from_json({"url": "u", "name": "n", **more, "resourceType": "StructureMap"}, "a.json")
            print_map(made)
            Program(Compiler([made], Environment()), made)
        except Problem as problem:
            self.assertTrue(problem.text)

    def test_depth_is_bounded(self) -> None:
        deep = 5_000
        for rules in (
            "src then {" * deep,
            "src.a where " + "(" * deep + "1",
            "src.a -> tgt.b = " + "(" * deep,
            "src.a -> tgt.b = (" + "-" * deep + "1)",
            "src.a where (" + ".".join(["a"] * deep) + ");",
            "src.a default (" + "iif(a," * deep,
        ):
            text = f"{HEAD}group main(source src, target tgt) {{ {rules} }}"
            self.assertRaises(FmlError, parse, text)
        rule: Any = {"name": "r", "source": [{"context": "src"}]}
        for _ in range(5000):
            rule = {"name": "r", "source": [{"context": "src"}], "rule": [rule]}
        group = {"name": "g", "input": [{"name": "src", "mode": "source"}], "rule": [rule]}
        resource = {"resourceType": "StructureMap", "url": "u", "name": "n", "group": [group]}
        self.assertIn("nest", self.assertRaises(Problem, from_json, resource).text)
        long_path = f"{HEAD}group main(source src, target tgt) {{ src.{'.'.join(['a'] * 3000)} as x -> tgt.b = x; }}"
        content = parse(long_path)
        try:
            Program(Compiler([content], Environment()), content).run({"a": 1}, KEY)
        except Problem as problem:
            self.assertTrue(problem.text)

    def test_reading_is_linear(self) -> None:
        def text(size: int) -> str:
            rule = "src.a as x where (b = 'c') -> tgt.d as e, e.f = append(x, 'g') then { x.h -> e.i; };\n"
            return f"{HEAD}group main(source src, target tgt) {{\n{rule * size}}}"

        for step in (parse, lambda text: print_map(parse(text)), lambda text: from_json(to_json(parse(text)))):
            step(text(10))
            first, second = counted(step, text(20)), counted(step, text(200))
            self.assertLess(second, first * 10.5)


class MessageTests(TestCase):
    def mapped(self, raw: bytes) -> None:
        try:
            library().run(Message.parse(raw))
        except Problem as problem:
            self.assertTrue(problem.text)

    @LIMITS
    @given(st.binary(max_size=120))
    def test_any_bytes(self, raw: bytes) -> None:
        self.mapped(raw)
        self.mapped(b"MSH|^~\\&|" + raw)

    @LIMITS
    @given(st.lists(PARTS, max_size=60).map("".join))
    def test_any_segments(self, text: str) -> None:
        head = "MSH|^~\\&|A|F|R|F|20260101||ADT^A01^ADT_A01|1|P|2.5.1\rEVN|A01\r"
        self.mapped((head + text).encode())

    @LIMITS
    @given(st.integers(0, 1200), st.integers(0, 40), st.text(alphabet='|^~&\\\r"A1', max_size=6))
    def test_broken_messages(self, start: int, length: int, other: str) -> None:
        raw = adt("C1", "P1").strip(b"\x0b\x1c\r")
        self.mapped(raw[:start] + other.encode() + raw[start + length :])

    def test_a_message_costs_what_it_is_long(self) -> None:
        def source(size: int) -> Message:
            raw = adt("C1", "P1").strip(b"\x0b\x1c\r").replace(b"^^^GENERAL^MR", b"^^^GENERAL^MR" + b"~X^^^F^MR" * size)
            return Message.parse(raw + b"AL1|1|DA|70618^Penicillin\r" * size)

        def run(message: Message) -> Any:
            return library().run(message)

        run(source(5))
        small, large = counted(run, source(50)), counted(run, source(500))
        self.assertLess(large, small * 10.5)
