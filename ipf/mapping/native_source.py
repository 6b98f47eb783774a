"""The same everyday FHIRPath written out as Python expressions, for the functions that `emit` makes.

Each function gives the text of an expression, or None for a tree that is not native.  Meaning is that of `native`,
whose closures are called for whatever is not frequent enough to be written out; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipf.fhir.fhirpath import ast
from ipf.hl7.message import number_of
from ipf.mapping.emit import Writer
from ipf.mapping.kinds import STRING, Kind
from ipf.mapping.native import FOCUS, Names, condition, owner_slot, piece, pieces, string, strings, text
from ipf.mapping.v2 import first_text, is_present, only_text

Reader = Callable[[str], Callable[[Any, Any], Any]]


def condition_source(writer: Writer, node: ast.Node, names: Names, item: Kind, focus: str) -> str | None:
    """A condition: true when the FHIRPath is true.  `focus`: the expression for the item in focus."""
    decide = condition(node, names, item)
    if decide is None:
        return None
    if isinstance(node, ast.Binary) and node.operator in ("and", "or"):
        left = condition_source(writer, node.left, names, item, focus)
        right = condition_source(writer, node.right, names, item, focus)
        return f"({left} {node.operator} {right})"
    written = _test_source(writer, node, names, item, focus)
    return written if written is not None else f"{writer.constant(decide)}(f, {focus})"


def _test_source(writer: Writer, node: ast.Node, names: Names, item: Kind, focus: str) -> str | None:
    """The tests that are most frequent."""
    if isinstance(node, ast.Function) and node.name in ("exists", "empty") and isinstance(node.focus, ast.Member):
        there = _child_source(writer, node.focus, names, item, focus, is_present)
        return there if there is None or node.name == "exists" else f"not {there}"
    if not isinstance(node, ast.Binary) or node.operator not in ("=", "!=", "in"):
        return None
    left = _variable_source(node.left, names, item, focus)
    if left is None and node.operator != "in":
        left = _child_source(writer, node.left, names, item, focus, only_text)
    if left is None:
        return None
    if node.operator == "in":
        literals = strings(node.right)
        return None if literals is None else f"{left} in {writer.constant(frozenset(literals))}"
    literal = string(node.right)
    if literal is None:
        return None
    return f"{left} == {literal!r}" if node.operator == "=" else f"({left} or {literal!r}) != {literal!r}"


def text_source(writer: Writer, node: ast.Node, names: Names, item: Kind, focus: str) -> str | None:
    """A text, or None where it is empty."""
    if text(node, names, item) is None:
        return None
    parts = [_piece_source(writer, one, names, item, focus) for one in pieces(node)]
    if len(parts) == 1:
        return f"({parts[0]} or None)"
    return f"(''.join(({', '.join(parts)})) or None)"


def _piece_source(writer: Writer, node: ast.Node, names: Names, item: Kind, focus: str) -> str:
    literal = string(node)
    if literal is not None:
        return repr(literal)
    written = _variable_source(node, names, item, focus)
    if written is None:
        written = _child_source(writer, node, names, item, focus, first_text)
    if written is None:
        written = f"{writer.constant(piece(node, names, item))}(f, {focus})"
    return f"{written} or ''"


def _variable_source(node: ast.Node, names: Names, item: Kind, focus: str) -> str | None:
    """The text of a variable, or of the item in focus."""
    if not isinstance(node, ast.Variable):
        return None
    variable = names.get(node.name)
    if node.name == FOCUS:
        kind, value = item, focus
    elif variable is not None and variable.is_source:
        kind, value = variable.kind, f"f[{variable.slot}]"
    else:
        return None
    if kind.is_v2:
        return f"{value}.text"
    return value if kind.is_text or kind == STRING else None


def _child_source(
    writer: Writer, node: ast.Node, names: Names, item: Kind, focus: str, reader: Reader
) -> str | None:
    """What a reader says of a child of a variable; it is not asked where the child surely is not there."""
    if not isinstance(node, ast.Member):
        return None
    slot = owner_slot(node.focus, names, item)
    number = number_of(node.name)
    if slot is None or not number:
        return None
    owner = f"f[{slot}]" if slot else focus
    there, raw = writer.is_there(owner, number)
    return f"({there} and {writer.constant(reader(node.name))}({owner}, {raw}))"
