"""Compiled groups, and calls of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ipf.mapping.compiler.emit import Block, Writer, value_source
from ipf.mapping.runtime.run import Frame
from ipf.mapping.runtime.scope import Act, Value


@dataclass(slots=True)
class Code:
    """A compiled group.  `run` is there last, since groups may call each other in a circle."""

    name: str
    run: Act | None = None

    def call(self, frame: Frame) -> None:
        """Run it on a frame that holds the Run and the arguments."""
        if self.run is not None:
            self.run(frame)


def invocation(code: Code, values: Sequence[Value], remembered: Callable[[Act], Act] | None = None) -> Block:
    """A call of a compiled group with these arguments: its function, on a new frame.

    `remembered`: makes of the function one that remembers its results.
    """

    def write(writer: Writer) -> None:
        frame = ["r", *(value_source(writer, value) for value in values)]
        if code.run is None:  # still being compiled: it calls itself
            writer.line(f"{writer.constant(code)}.call([{', '.join(frame)}])")
            return
        run = code.run if remembered is None else remembered(code.run)
        writer.line(f"{writer.constant(run)}([{', '.join(frame)}])")

    return write
