"""The cost of a run grows with its input and no faster, shown by counting calls, not by a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.hl7.message import Message
from ipf.mapping.compiler.compile import Program
from tests.corpus import samples
from tests.mapping.support import HEAD, message, patient_program, program, run
from tests.traffic.messages_results import oru_orders

LISTS = (
    HEAD
    + """group main(source src, target tgt) {
  src.item as i where (i.code != 'z') -> tgt.entry as e, e.code = (i.code) then {
    i.part as p -> e.part as q then { p.x -> q.x; }; };
  src.item as i -> tgt.empty as e then { i.none -> e.none; };
  src.item as i -> tgt.first as f share s, f.code = i first;
}"""
)


def calls(compiled: Program, source: Any) -> int:
    """How many Python functions are called in a run."""
    return counted(lambda: run(compiled, source))


def counted(work: Callable[..., object], *arguments: Any) -> int:
    """How many Python functions are called meanwhile."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work(*arguments)
    finally:
        sys.setprofile(None)
    return count


class CostTests(TestCase):
    def assert_linear(self, compiled: Program, small: Any, large: Any, factor: int) -> None:
        run(compiled, small)
        first, second = calls(compiled, small), calls(compiled, large)
        self.assertLess(second, first * factor * 1.05)

    def test_json_lists(self) -> None:
        def source(size: int) -> dict[str, Any]:
            return {"item": [{"code": f"c{number}", "part": [{"x": 1}]} for number in range(size)]}

        self.assert_linear(program(LISTS), source(100), source(1000), 10)

    def test_repetitions_of_a_message(self) -> None:
        compiled = patient_program(
            "pid.PID_3 as c where (CX_5 != 'X') -> tgt.identifier as i then {"
            "c.CX_1 as v -> i.value = v; c.CX_9 as v -> i.type as t; };"
        )
        small, large = (message("PID|1||" + "~".join(["1^^^A^MR"] * size)) for size in (100, 1000))
        self.assert_linear(compiled, small, large, 10)

    def test_references_in_a_bundle(self) -> None:
        """Each `resolve()` is one lookup, not a search of the Bundle."""
        text = """group main(source src : Bundle, target tgt : Bundle) {
  src.entry as e then { e.resource : Observation as o then {
    o.subject as s where (resolve().active = true) -> tgt.entry as t, t.fullUrl = (s.resolve().id); }; };
}"""

        def source(size: int) -> dict[str, Any]:
            patients = [{"resourceType": "Patient", "id": f"p{number}", "active": True} for number in range(size)]
            subjects = [{"reference": f"Patient/{one['id']}"} for one in patients]
            results = [{"resourceType": "Observation", "subject": one} for one in subjects]
            return {"resourceType": "Bundle", "entry": [{"resource": one} for one in (*patients, *results)]}

        compiled = program(HEAD + text)
        self.assertEqual(len(run(compiled, source(3))[0]["entry"]), 3)
        self.assert_linear(compiled, source(100), source(1000), 10)

    def test_results_of_a_message(self) -> None:
        """An ORU^R01 through the maps of the project, to its transaction Bundle."""
        library = samples.library()

        def count(orders: int, results: int) -> int:
            raw = oru_orders(orders, results, "C", "P").strip(b"\x0b\x1c\r")
            return counted(lambda: library.transform_message(Message.parse(raw)))

        count(2, 2)
        self.assertLess(count(1, 300), count(1, 30) * 10 * 1.05)
        self.assertLess(count(60, 5), count(6, 5) * 10 * 1.05)
