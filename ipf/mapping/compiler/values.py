"""Values of a map at compile time: the closure that computes a value, its kind, and its source text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ipf.mapping.compiler.emit import FRAME, Writer, var
from ipf.mapping.compiler.kinds import STRING, UNKNOWN, Kind
from ipf.mapping.runtime.run import Frame, Get

NOTHING: Any = object()
"""Stands for "no constant"."""


@dataclass(frozen=True, slots=True)
class Value:
    """A compiled expression.  `constant`: its value when that is known at compile time, else NOTHING.

    `slot`: slot of the variable, or of the referenced resource; else -1.  `is_source`: that variable belongs to the
    source side.  `is_variable`: the value is that variable, unchanged.  `write`: writes an expression that is faster
    than a call of `get`.  `given`: of a cast, the value before it.
    """

    get: Get
    kind: Kind = UNKNOWN
    constant: Any = NOTHING
    slot: int = -1
    is_source: bool = False
    is_variable: bool = False
    write: Callable[[Writer], str] | None = None
    given: Value | None = None


def constant(value: Any, kind: Kind) -> Value:
    """A value known at compile time."""
    return Value(lambda frame: value, kind, value)


def value_source(writer: Writer, value: Value) -> str:
    """An expression for a compiled value."""
    if value.write is not None:
        return value.write(writer)
    if value.constant is not NOTHING:
        return writer.constant(value.constant)
    if value.is_variable:
        return f"{var(value.slot)}"
    return f"{writer.constant(value.get)}({FRAME})"


def text_source(writer: Writer, value: Value, text: Callable[[Frame], str | None]) -> str:
    """An expression for the text of a value; `text` computes it in general."""
    if value.write is not None and value.kind == STRING:
        return value.write(writer)
    if value.kind.is_text and value.is_variable:
        return f"{var(value.slot)}.text" if value.kind.is_v2 else f"{var(value.slot)}"
    return f"{writer.constant(text)}({FRAME})"
