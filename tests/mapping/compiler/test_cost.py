"""The cost of a run grows with its input and no faster, shown by counting calls, not by a clock."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.mapping.compiler.compile import Program
from tests.mapping.support import HEAD, message, patient_program, program, run

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
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        run(compiled, source)
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
