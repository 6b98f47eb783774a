"""Which fields a rule reads: marks on the segments of a message, for `runtime.unread`.

A rule reads a field when it fires and (1) the field is its source, (2) one of its targets evaluates the field, or (3)
its condition compares the field with a value and holds, so that the rule itself stands for the value.  A condition that
fails reads nothing; neither does one that only asks whether a field is there.

A body (a group, or what a rule does for each item) writes its marks at its beginning, in one statement for each
segment.  A rule without a condition fires whenever its field has a value, so its mark moves to the body around it: a
group of twenty such rules marks twenty fields at once, and a mark on an empty field changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ipf.fhir.fhirpath.language import ast
from ipf.hl7.message import Segment, number_of
from ipf.hl7.reads import ALL_FIELDS, field_bit
from ipf.mapping.compiler.emit import FRAME, Writer, var
from ipf.mapping.compiler.expressions.expression import FOCUS
from ipf.mapping.compiler.expressions.native import parts
from ipf.mapping.compiler.v2 import is_data_type
from ipf.mapping.runtime.run import Frame

Owner = ast.Node | None
"""The expression of a segment; None = the item in focus."""
Read = tuple[Owner, int]
"""A segment and the number of its field; 0 = every field."""
Find = Callable[[Frame], Iterable[Any]]

_ON_ITEMS = frozenset(("where", "select", "all", "exists", "repeat"))
"""Functions whose arguments are about the items of their focus."""
_CRITERIA = frozenset(("where", "all", "exists"))
_WITHOUT_VALUE = frozenset(("exists", "empty", "count", "hasValue"))
_COMPARING = frozenset(("startsWith", "endsWith", "contains", "matches"))
_EVERY = frozenset(("children", "descendants"))
_FOCUS = ast.Variable(FOCUS)


@dataclass(slots=True)
class Marks:
    """The marks at the beginning of one body.  `limit`: slots below it are set when the body begins."""

    limit: int
    fields: dict[int, int] = field(default_factory=dict)
    others: list[tuple[Find, int]] = field(default_factory=list)

    def add(self, slot: int, name: str) -> None:
        """Mark the field `name` (`PID_3`) of the segment in a slot."""
        if not is_data_type(name):
            self._add(slot, field_bit(number_of(name)))

    def add_number(self, slot: int, number: int) -> None:
        """The same by number; 0 = every field."""
        self._add(slot, field_bit(number) if number else ALL_FIELDS)

    def _add(self, slot: int, bits: int) -> None:
        self.fields[slot] = self.fields.get(slot, 0) | bits

    def add_found(self, find: Find, number: int) -> None:
        """Mark a field of all segments that `find` gives."""
        self.others.append((find, field_bit(number) if number else ALL_FIELDS))

    def write(self, writer: Writer) -> None:
        """The statements, as a block of the body."""
        for slot, bits in self.fields.items():
            with writer.inside(f"if type({var(slot)}) is {writer.constant(Segment)}"):
                writer.line(f"{var(slot)}.reads |= {bits}")
        for find, bits in self.others:
            writer.line(f"{writer.constant(_mark)}({writer.constant(find)}({FRAME}), {bits})")


def _mark(nodes: Iterable[Any], bits: int) -> None:
    for node in nodes:
        if type(node) is Segment:
            node.reads |= bits


def held(node: ast.Node, *, wanted: bool = True) -> frozenset[Read]:
    """The fields that a condition has compared when it gives `wanted`; of alternatives what all of them compare."""
    if isinstance(node, ast.Binary) and node.operator in ("and", "or"):
        left, right = held(node.left, wanted=wanted), held(node.right, wanted=wanted)
        return left | right if (node.operator == "and") is wanted else left & right
    if isinstance(node, ast.Binary) and node.operator in ("=", "~", "in", "!=", "!~"):
        return frozenset(_values(node, None)) if (node.operator[0] != "!") is wanted else frozenset()
    if isinstance(node, ast.Function) and node.focus is not None:
        if node.name == "not":
            return held(node.focus, wanted=not wanted)
        if node.name in _COMPARING and wanted:
            return frozenset(_values(node.focus, None))
    return frozenset()


def evaluated(node: ast.Node) -> frozenset[Read]:
    """The fields that the value of an expression is made of."""
    return frozenset(_values(node, None, is_value=True))


def _values(node: ast.Node, focus: Owner, *, is_value: bool = False) -> Iterator[Read]:
    if isinstance(node, ast.Member):
        owner = _resolved(node.focus, focus)
        number = number_of(node.name)
        if number and not _is_field(owner) and not is_data_type(node.name):
            yield owner, number
    if isinstance(node, ast.Function):
        if node.name in _WITHOUT_VALUE and not is_value:
            return
        owner = _resolved(node.focus, focus)
        if node.name in _EVERY and not _is_field(owner):
            yield owner, 0
        if node.focus is not None:
            yield from _values(node.focus, focus, is_value=is_value)
        inner = owner if node.name in _ON_ITEMS else focus
        if node.name not in _CRITERIA:
            for one in node.args:
                yield from _values(one, inner, is_value=is_value)
        return
    for one in parts(node):
        yield from _values(one, focus, is_value=is_value)


def _resolved(node: Owner, focus: Owner) -> Owner:
    """An expression inside the arguments of a function, as one outside of it."""
    if node is None:
        return focus
    if isinstance(node, ast.This):
        return focus if focus is not None else _FOCUS
    if isinstance(node, (ast.Member, ast.Function, ast.Index)):
        inner = _resolved(node.focus, focus)
        return replace(node, focus=_FOCUS if inner is None else inner)
    return node


def _is_field(node: Owner) -> bool:
    """Whether an expression gives fields, or what is in them."""
    while isinstance(node, (ast.Member, ast.Function, ast.Index)):
        if isinstance(node, ast.Member) and number_of(node.name):
            return True
        node = node.focus
    return False


def variables(node: Owner) -> Iterator[str]:
    """The variables of an expression; FOCUS for the item in focus."""
    if node is None:
        yield FOCUS
    elif isinstance(node, ast.Variable):
        yield node.name
    elif isinstance(node, ast.Function) and node.focus is not None:
        yield from variables(node.focus)
        for one in node.args:
            yield from (name for name in _named(one))
    elif isinstance(node, (ast.Member, ast.Function)):
        yield from variables(node.focus)
    else:
        for one in parts(node):
            yield from variables(one)


def _named(node: ast.Node) -> Iterator[str]:
    """Variables in the arguments of a function, where a bare name is an element of its items."""
    if isinstance(node, ast.Variable):
        yield node.name
    for one in parts(node):
        yield from _named(one)
