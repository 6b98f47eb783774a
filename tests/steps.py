"""Counts the steps that a piece of work takes: byte codes of Python, the same on every machine and under every load.

A step takes 20 to 50 ns on a machine of 2024, so that MOST_STEPS are less than 20 ms.  Work inside of C (a regular
expression, a join) is one step however long it is: a test that counts steps also looks at the size of the result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

MOST_STEPS = 300_000
"""Of what the reactor does for one request after its answer."""


def steps_of(work: Callable[[], object]) -> int:
    """The number of byte codes that `work` executes in this thread."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
