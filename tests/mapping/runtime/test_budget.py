"""Each interpreter of maps with its worst programs: every one ends within its budget, and the error names it.

Nothing here measures time: the programs end because steps are counted, and one that is not counted does not end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.config.paths import folder
from ipf.errors import Category, Problem
from ipf.hl7.message import Message
from ipf.mapping.compiler.compile import Program
from ipf.mapping.library.maps import Library
from ipf.mapping.runtime import budget
from ipf.mapping.runtime.run import Run
from tests.mapping.support import HEAD, V2, message, program, run
from tests.traffic.messages import adt
from tests.traffic.messages_results import oru

BEGIN = (
    HEAD + V2 + "group main(source src : ADT_A01, target tgt : Patient) { src.PID as pid then g0(pid, tgt) 'go'; }\n"
)
JSON = HEAD + "group main(source src, target tgt) { src then g0(src, tgt) 'go'; }\n"
ONE = message("PID|1||A||A")
MANY = message("PID|1||" + "~".join(f"{number}^^^A" for number in range(2000)))


def chain(length: int, calls: int, last: str, head: str = "source p, target t : Patient") -> str:
    """Groups that each call the next one several times."""
    groups = ""
    for number in range(length):
        called = ", ".join([f"g{number + 1}(p, t)"] * calls)
        groups += f"group g{number}({head}) {{ p then {called} 'again'; }}\n"
    return f"{groups}group g{length}({head}) {{ {last} }}\n"


def repeated(rule: str, source: str) -> str:
    """A rule that runs for each element, each time for each element, and so on, four deep."""
    for number in range(4):
        rule = f"{source} as x{number} then {{ {rule} }} 'deep{number}';"
    return rule


def v2_programs() -> Iterator[tuple[str, str, Message]]:
    """Name, map and message."""
    yield "27 groups that call the next one three times", BEGIN + chain(27, 3, "p.PID_5 as v -> t.id = v;"), ONE
    yield "40 groups that call the next one twice", BEGIN + chain(40, 2, "p.PID_3 as v -> t.name as n;"), ONE
    yield "a group that calls itself", BEGIN + chain(0, 0, "p then g0(p, t) 'self';"), ONE
    yield "a group that calls itself twice", BEGIN + chain(0, 0, "p then g0(p, t), g0(p, t) 'self';"), ONE
    yield (
        "two groups that call each other for each repetition",
        BEGIN + chain(1, 1, "p.PID_3 as x then g0(p, t) 'back';"),
        MANY,
    )
    new = "t.contact as c"
    yield "nested loops", BEGIN + chain(0, 0, repeated(f"p -> {new};", "p.PID_3")), MANY
    yield (
        "nested loops that find nothing",
        BEGIN + chain(0, 0, repeated("p.PID_3.CX_9 as v -> t.id = v;", "p.PID_3")),
        MANY,
    )
    none = "p.PID_3 as y where (CX_1 = 'none') -> t.id = y;"
    yield "nested loops whose condition is false", BEGIN + chain(0, 0, repeated(none, "p.PID_3")), MANY
    counted = "p where (p.PID_3.CX_9.exists()) -> t.id = 'x';"
    yield "a condition that reads each repetition", BEGIN + chain(0, 0, repeated(counted, "p.PID_3")), MANY
    yield (
        "sources that multiply",
        BEGIN + chain(0, 0, "p.PID_3 as a, p.PID_3 as b, p.PID_3 as c -> t.contact as x;"),
        MANY,
    )
    text = "source p, target t : Patient, source v : string"
    for name, doubled in (
        ("append", "append(v, v)"),
        ("evaluate", "evaluate(v, v & v)"),
        ("evaluate by the general engine", "evaluate(p, %v + %v)"),
        ("escape to hex", "escape(v, 'hex')"),
    ):
        groups = "group g0(source p, target t : Patient) { p.PID_5 as v then g1(p, t, v) 'start'; }\n"
        groups += f"group g1({text}) {{ p -> {doubled} as w then g1(p, t, w) 'double'; }}\n"
        yield f"a text that doubles by {name}", BEGIN + groups, ONE
    slow = "p where (p.PID_5.matches('^(a|b|ab)*(c?d?){200}$')) -> t.id = 'x';"
    long = message("PID|1||" + "~".join(["1"] * 100) + "||" + "ab" * 20_000)
    yield "regular expressions of a long text", BEGIN + chain(0, 0, repeated(slow, "p.PID_3")), long
    copied = "p.PID_5 as v -> t.contact as c, c.id = v, t.language = v;"
    yield "copies of a long text", BEGIN + chain(0, 0, repeated(copied, "p.PID_3")), long
    first = repeated("p -> t.contact as c, t.contact as d first;", "p.PID_3")
    yield "items before all others", BEGIN + chain(0, 0, first), MANY


def json_programs() -> Iterator[tuple[str, str, Any]]:
    """Name, map and JSON source."""
    head = "source p, target t"
    items = [{"code": f"c{number}", "value": {"text": "x"}} for number in range(1000)]
    source = {"item": items, "text": "x" * 40_000}
    for name, rule in (
        ("where chains", "p where (item.where(code != 'x').where(%p.item.code.exists()).count() = 5) -> t.a = 'x';"),
        ("a path that finds nothing", "p.item.none.none as v -> t.a = v;"),
        ("copies of the source", "p.item as i -> t.a = i;"),
        ("a list that grows by combine", "p -> t.a = (item.aggregate($total.combine($total).combine($this)).count());"),
        ("a list that grows by repeat", "p -> t.a = ('a'.repeat(($this & 'a') | ($this & 'b')).count());"),
        ("pairs of items", "p -> t.a = (item.select(%p.item.code).count());"),
        ("pairs of items that a test reads", "p -> t.a = (item.where(%p.item.value.text.empty()).count());"),
        ("a text that doubles", "p -> t.a = (item.aggregate($total & $total & 'ab', '').length());"),
        ("regular expressions", "p -> t.a = (item.where(%p.text.matches('^(x|xx)*(y?z?){200}$')).count());"),
        ("references in a Bundle", "p -> t.a = (item.select(('Patient/' & code).resolve()).count());"),
    ):
        yield name, JSON + chain(0, 0, repeated(rule, "p.item"), head), source
    yield "27 groups", JSON + chain(27, 3, "p.item as v -> t.a = v;", head), source
    grow = "p -> t.a as b then g0(p, b), g0(p, b) 'grow';"
    yield "elements inside elements", JSON + chain(0, 0, grow, head), source


class BudgetTests(TestCase):
    """The budgets of these tests are small, so that each program ends soon; where they end is what counts."""

    def setUp(self) -> None:
        self.patch(budget, "STEPS", 50_000)
        self.patch(budget, "STEPS_OF_A_CHARACTER", 0)

    def assert_refused(self, name: str, compiled: Program, source: Any, *, trace: bool = False) -> None:
        with self.assertRaises(Problem, msg=name) as caught:
            run(compiled, source, trace=trace)
        problem = caught.exception
        self.assertIs(problem.category, Category.COSTLY, (name, str(problem)))
        self.assertTrue(problem.is_permanent)
        self.assertIn("budget", problem.text, name)
        self.assertRegex(str(problem.place), r"^(g\d+|main).*urn:test:map, line \d+", name)

    def test_messages(self) -> None:
        for name, text, source in v2_programs():
            with self.subTest(name):
                self.assert_refused(name, program(text), source)

    def test_json(self) -> None:
        for name, text, source in json_programs():
            with self.subTest(name):
                self.assert_refused(name, program(text), source)

    def test_traces(self) -> None:
        for name, text, source in list(v2_programs())[:4]:
            with self.subTest(name):
                self.assert_refused(name, program(text), source, trace=True)

    def test_the_rule_is_named(self) -> None:
        """Also where a text, not a loop, uses up the budget."""
        text = BEGIN + chain(0, 0, "p.PID_3 as x then {\n p.PID_5 as v -> t.language = v 'long'; } 'each';")
        source = message("PID|1||" + "~".join(["1"] * 2000) + "||" + "x" * 3000)
        with self.assertRaises(Problem) as caught:
            run(program(text), source)
        self.assertEqual(caught.exception.place, "g0.rule 'long' (urn:test:map, line 5)")

    def test_the_result_is_bounded(self) -> None:
        """What a program makes until it is refused: each element takes a step, each text takes steps for its length."""
        made: list[Run] = []
        whole = Program._new_run
        self.patch(Program, "_new_run", lambda *given: made.append(whole(*given)) or made[-1])
        for name, text, source in [*v2_programs(), *json_programs()]:
            with self.subTest(name):
                made.clear()
                self.assertRaises(Problem, run, program(text), source)
                self.assertLessEqual(sum(len(one.created) for one in made), 2 * 50_000)

    def test_steps_do_not_depend_on_the_cache(self) -> None:
        """The fourth message finds its results in the cache; it counts the same steps."""
        library = Library.load(folder("maps"), compiled=False)
        program_of = library.program_for("ORU_R01")
        content = oru(5, "C1", "P1").strip(b"\x0b\x1c\r")
        taken = []
        for _ in range(4):
            _, done = program_of.run(Message.parse(content), b"key")
            taken.append(done.limit - done.steps_left)
        self.assertEqual(len(set(taken)), 1, taken)


class OrdinaryTests(TestCase):
    def test_ordinary_messages_take_few_steps(self) -> None:
        """A quarter of the budget at most: for a small message, and for what a large one adds."""
        library = Library.load(folder("maps"), compiled=False)
        for content in (adt("C1", "P1"), oru(30, "C1", "P1"), oru(600, "C1", "P1")):
            raw = content.strip(b"\x0b\x1c\r")
            message = Message.parse(raw)
            _, done = library.program_for(message.message_type).run(message, b"key")
            self.assertLess(done.limit - done.steps_left, budget.STEPS_OF_A_CHARACTER * len(raw) // 4)

    def test_the_budget_grows_with_the_source(self) -> None:
        self.assertEqual(budget.steps_for(0), budget.STEPS)
        self.assertEqual(budget.steps_for(1000), budget.STEPS + 1000 * budget.STEPS_OF_A_CHARACTER)

    def test_a_group_that_calls_itself_for_nested_items(self) -> None:
        """A questionnaire of fifty levels is within the budget."""
        text = HEAD + "group main(source src, target tgt) { src then g(src, tgt) 'go'; }\n"
        text += "group g(source p, target t) { p.item as i -> t.item as j then g(i, j) 'inner'; p.text -> t.text; }"
        source: dict[str, Any] = {"text": "x"}
        for _ in range(50):
            source = {"item": [source], "text": "x"}
        target, _ = run(program(text), source)
        for _ in range(50):
            target = target["item"]
        self.assertEqual(target["text"], "x")
