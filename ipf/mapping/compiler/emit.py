"""Code generation: the blocks of a group become one Python function.

A block writes Python statements.  Variables have slots in the frame (slot 0 is the Run) and become local variables.
Frequent constructs are written as statements, rare ones as calls of closures.  So a group of twenty rules is one
function, and an absent field costs two list accesses.

No text of a map becomes code: element names and literals enter as `repr` or as constants of the function, variables as
slots.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

from ipf.mapping.compiler.v2 import raw_parts
from ipf.mapping.runtime.budget import LONG_FIELD
from ipf.mapping.runtime.run import Act
from ipf.mapping.runtime.trace import RulePosition

Block = Callable[["Writer"], None]

FRAME = "\0f\0"
"""The frame, within a line."""


def var(slot: int) -> str:
    """The variable in a slot, within a line."""
    return f"\0{slot}\0"


_VARIABLE = re.compile("\0(\\d+)\0")

MAX_DEPTH = 12
"""Python limits nested loops to 20; deeper blocks become functions."""


MAX_LOCALS = 200
"""A function with more variables has a frame: each call of a closure names all locals, which is quadratic."""


FILE, PLACES = "<map>", "places"


def place_of_failure(error: BaseException) -> RulePosition | None:
    """The rule in which an error was raised, from the lines of the compiled functions in its traceback."""
    found: RulePosition | None = None
    for frame, line in walk_tb(error.__traceback__):
        if frame.f_code.co_filename == FILE:
            found = next((at for start, at in reversed(frame.f_globals[PLACES]) if start < line), found)
    return found


class Writer:
    """Lines of one function, its constants, and the nodes with raw parts at hand."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {"raw_parts": raw_parts}
        self._lines: list[str] = []
        self._names: dict[int, str] = {}
        self._depth = 1
        self._inspected: list[dict[str, int]] = [{}]
        self._count = 0
        self._last = 0
        self._places: list[tuple[int, RulePosition]] = []

    @property
    def last(self) -> int:
        """The highest slot so far."""
        return max([self._last, *map(int, _VARIABLE.findall("\n".join(self._lines)))])

    def line(self, text: str) -> None:
        """One statement."""
        self._lines.append("    " * self._depth + text)

    def place(self, at: RulePosition) -> None:
        """The lines from here on belong to this rule."""
        self._places.append((len(self._lines), at))

    def constant(self, value: Any) -> str:
        """An expression for a value: a literal where that is short, else a name."""
        if value is None or type(value) in (bool, int) or (type(value) is str and len(value) < 200):
            return repr(value)
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"c{len(self._names)}"
            self.constants[name] = value
        return name

    @contextmanager
    def inside(self, head: str) -> Iterator[None]:
        """Lines under a `for` or `if`."""
        self.line(f"{head}:")
        before = len(self._lines)
        self._depth += 1
        self._inspected.append({})
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._inspected.pop()
        self._depth -= 1

    def body(self, block: Block) -> None:
        """A block inside a loop; a call of its own function where Python limits the nesting."""
        if self._depth > MAX_DEPTH:
            writer = Writer()
            block(writer)
            self.line(f"{self.constant(writer.function())}({FRAME})")
            self._last = max(self._last, writer.last)
        else:
            block(self)

    def has_child(self, node: str, number: int) -> tuple[str, str]:
        """A condition that is false when a node certainly has no child of this number, and an expression for the raw
        child.  The condition counts the reading of a long one, which may have many repetitions.

        `node`: an expression for the same node throughout the block.
        """
        known = next((one[node] for one in self._inspected if node in one), None)
        if known is None:
            self._count += 1
            known = self._inspected[-1][node] = self._count
            self.line(f"p{known}, k{known} = raw_parts({node})")
            self.line(f"n{known} = len(p{known})")
        raw = f"p{known}[{number} + k{known}]"
        is_counted = f"(len({raw}) <= {LONG_FIELD} or r.reads(len({raw})))"
        return f"n{known} > {number} + k{known} and {raw} and {is_counted}", raw

    def function(self, arguments: int = 0) -> Act:
        """The compiled function; `arguments` as in `function`."""
        body = "\n".join(self._lines) + "\n"
        if not arguments:
            source = _with_frame(body)
        elif self.last > MAX_LOCALS:
            source = _with_own_frame(body, arguments, self.last)
        else:
            source = _with_locals(body, arguments, self.last)
        before = source.count("\n") - len(self._lines)
        self.constants[PLACES] = [(before + line, at) for line, at in self._places]
        exec(compile(source, FILE, "exec"), self.constants)
        made: Act = self.constants["run"]
        return made


def _with_frame(body: str) -> str:
    """Variables are slots of the frame of the caller."""
    return "def run(f):\n    r = f[0]\n" + _VARIABLE.sub(r"f[\1]", body).replace(FRAME, "f")


def _with_own_frame(body: str, arguments: int, last: int) -> str:
    """Variables are slots of a frame of its own, which closures share."""
    head = f"def run(f):\n    f = [*f, *[None] * {max(last - arguments, 0)}]\n    r = f[0]\n"
    return head + _VARIABLE.sub(r"f[\1]", body).replace(FRAME, "f")


def _with_locals(body: str, arguments: int, last: int) -> str:
    """Variables are local; a closure gets a new frame."""
    last = max(arguments, last)
    names = [f"v{slot}" for slot in range(1, last + 1)]
    head = f"def run(f):\n    r, {', '.join(names[:arguments])} = f\n"
    if last > arguments:
        head += f"    {' = '.join(names[arguments:])} = None\n"
    return head + _VARIABLE.sub(r"v\1", body).replace(FRAME, f"[r, {', '.join(names)}]")


def function(block: Block, arguments: int = 0) -> Act:
    """The function of one block.

    `arguments`: number of arguments of a group function, with its own variables; 0: the function works on the frame of
    its caller.
    """
    writer = Writer()
    block(writer)
    return writer.function(arguments)


def act(closure: Act) -> Block:
    """A block that calls a closure."""
    return lambda writer: writer.line(f"{writer.constant(closure)}({FRAME})")


def sequence(blocks: Iterable[Block]) -> Block:
    """One block for several."""
    every = tuple(blocks)

    def write(writer: Writer) -> None:
        for block in every:
            block(writer)

    return write


def nothing(writer: Writer) -> None:
    """A block without statements."""
