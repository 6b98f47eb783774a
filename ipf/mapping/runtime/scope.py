"""Names of a map while it is compiled: each becomes a place in the frame, so that nothing is looked up at run time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ipf.mapping.compiler.kinds import UNKNOWN, Kind
from ipf.mapping.runtime.run import Frame

if TYPE_CHECKING:
    from ipf.mapping.compiler.emit import Writer

Get = Callable[[Frame], Any]
Act = Callable[[Frame], None]

NOTHING: Any = object()
"""Stands for "no constant"."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A name in scope: its place in the frame, what is known of it, and whether it belongs to the source side.

    `is_json`: an item of a JSON source, which may be a primitive with extensions (`FhirNode`).
    """

    slot: int
    kind: Kind
    is_source: bool
    is_json: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """A compiled expression.  `constant` is its value when that is known already, else NOTHING.

    `slot`: the frame's place of the variable that it is, or (a reference) that it is made from; else -1.  `is_source`:
    that variable belongs to the source side.  `is_variable`: the value is that variable, unchanged.  `write`: how it is
    written out, where that is better than a call of `get`.
    """

    get: Get
    kind: Kind = UNKNOWN
    constant: Any = NOTHING
    slot: int = -1
    is_source: bool = False
    is_variable: bool = False
    write: Callable[[Writer], str] | None = None


@dataclass(slots=True)
class Layout:
    """Places in the frame of one group.  Place 0 is the Run."""

    size: int = 1

    def place(self) -> int:
        """A new place."""
        self.size += 1
        return self.size - 1


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that a rule sees, and how its map names itself in errors."""

    layout: Layout
    names: dict[str, Variable] = field(default_factory=dict)

    def child(self) -> Scope:
        """A scope for a rule: what it adds is not seen outside."""
        return Scope(self.layout, dict(self.names))

    def declare(self, name: str, kind: Kind, *, is_source: bool, is_json: bool = False) -> Variable:
        """A new variable; an older one of the same name is hidden."""
        return self.bind(name, self.layout.place(), kind, is_source=is_source, is_json=is_json)

    def bind(self, name: str, slot: int, kind: Kind, *, is_source: bool, is_json: bool = False) -> Variable:
        """A name for a place that is there already.  Without a name it can only be used by its place."""
        variable = Variable(slot, kind, is_source, is_json)
        if name:
            self.names[name] = variable
        return variable


def constant(value: Any, kind: Kind) -> Value:
    """A value known when the map is compiled."""
    return Value(lambda frame: value, kind, value)
