"""Frequent FHIRPath as source text of Python expressions, for generated functions (`emit`).

Each function returns an expression, or None for a tree that `native` does not compile.  The meaning is that of
`native`; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ipf.fhir.fhirpath.language import ast
from ipf.hl7.message import number_of
from ipf.mapping.compiler.emit import FRAME, Writer, var
from ipf.mapping.compiler.expressions.native import (
    FOCUS,
    Names,
    condition,
    owner_slot,
    string,
    strings,
)
from ipf.mapping.compiler.expressions.native_text import piece, pieces, text
from ipf.mapping.compiler.kinds import STRING, Kind
from ipf.mapping.compiler.v2 import first_text, is_present, only_text
from ipf.mapping.runtime.budget import LONG
from ipf.mapping.runtime.run import counted, matched

Reader = Callable[[str, str], Callable[[Any, Any], Any]]


def condition_source(
    writer: Writer, node: ast.Node, names: Names, item: Kind, focus: str, *, wanted: bool = True
) -> str | None:
    """An expression that is true when the FHIRPath gives `wanted`, and false when it is empty.

    `focus`: the expression for the item in focus.
    """
    decide = condition(node, names, item)
    if decide is None:
        return None
    if isinstance(node, ast.Function) and node.name == "not" and node.focus is not None:
        return condition_source(writer, node.focus, names, item, focus, wanted=not wanted)
    if isinstance(node, ast.Binary) and node.operator in ("and", "or"):
        left = condition_source(writer, node.left, names, item, focus, wanted=wanted)
        right = condition_source(writer, node.right, names, item, focus, wanted=wanted)
        return f"({left} {node.operator if wanted else _DUAL[node.operator]} {right})"
    test = _Test(writer, names, item, focus)
    written = test.presence(node, wanted) or test.comparison(node, wanted) or test.of_text(node, wanted)
    return written or f"({writer.constant(decide)}({FRAME}, {focus}) is {wanted})"


_DUAL = {"and": "or", "or": "and"}
_METHODS = {"startsWith": "startswith", "endsWith": "endswith", "contains": "__contains__"}


@dataclass(frozen=True, slots=True)
class _Test:
    """Writes the most frequent tests; each method returns None for other trees."""

    writer: Writer
    names: Names
    item: Kind
    focus: str

    def presence(self, node: ast.Node, wanted: bool) -> str | None:
        """`x.exists()`, `x.empty()`"""
        if not isinstance(node, ast.Function) or node.name not in ("exists", "empty") or node.focus is None:
            return None
        there = _child_source(self.writer, node.focus, self.names, self.item, self.focus, is_present)
        return there if there is None or (node.name == "exists") is wanted else f"(not {there})"

    def comparison(self, node: ast.Node, wanted: bool) -> str | None:
        """`x = 'a'`, `x != 'a'`, `x in ('a' | 'b')`"""
        if not isinstance(node, ast.Binary) or node.operator not in ("=", "!=", "in"):
            return None
        literals = strings(node.right)
        if literals is None or (node.operator != "in" and len(literals) > 1):
            return None
        reader = first_text if node.operator == "in" else only_text
        left = _variable_source(node.left, self.names, self.item, self.focus)
        left = left or _child_source(self.writer, node.left, self.names, self.item, self.focus, reader)
        if left is None:
            return None
        if node.operator == "in":
            members = self.writer.constant(frozenset(literals))
            return f"({left} in {members})" if wanted else f"((w := {left}) and w not in {members})"
        literal = repr(literals[0])
        return f"({left} == {literal})" if (node.operator == "=") is wanted else f"(({left} or {literal}) != {literal})"

    def of_text(self, node: ast.Node, wanted: bool) -> str | None:
        """`x.startsWith('a')` and similar, of a variable."""
        if not isinstance(node, ast.Function) or node.focus is None or len(node.args) != 1:
            return None
        literal, subject = string(node.args[0]), _variable_source(node.focus, self.names, self.item, self.focus)
        if literal is None or subject is None:
            return None
        sign = "" if wanted else "not "
        if node.name == "matches":
            return f"((w := {subject}) and {sign}{self.writer.constant(matched)}(r, w, {literal!r}))"
        method = _METHODS.get(node.name)
        return method and f"((w := {subject}) and {sign}w.{method}({literal!r}))"


def text_source(writer: Writer, node: ast.Node, names: Names, item: Kind, focus: str) -> str | None:
    """A text, or None where it is empty."""
    if text(node, names, item) is None:
        return None
    parts = [_piece_source(writer, one, names, item, focus) for one in pieces(node)]
    if len(parts) == 1:
        return f"({parts[0]} or None)"
    joined = f"(w := ''.join(({', '.join(parts)})))"
    return f"((w if len({joined}) < {LONG} else {writer.constant(counted)}(r, w)) or None)"


def _piece_source(writer: Writer, node: ast.Node, names: Names, item: Kind, focus: str) -> str:
    literal = string(node)
    if literal is not None:
        return repr(literal)
    written = _variable_source(node, names, item, focus)
    if written is None:
        written = _child_source(writer, node, names, item, focus, first_text)
    if written is None:
        written = f"{writer.constant(piece(node, names, item))}({FRAME}, {focus})"
    return f"{written} or ''"


def _variable_source(node: ast.Node, names: Names, item: Kind, focus: str) -> str | None:
    """The text of a variable, or of the item in focus."""
    if not isinstance(node, ast.Variable):
        return None
    variable = names.get(node.name)
    if node.name == FOCUS:
        kind, value = item, focus
    elif variable is not None and variable.is_source and not variable.is_json:
        kind, value = variable.kind, f"{var(variable.slot)}"
    else:
        return None
    if kind.is_v2:
        return f"{value}.text"
    return value if kind.is_text or kind == STRING else None


def _child_source(writer: Writer, node: ast.Node, names: Names, item: Kind, focus: str, reader: Reader) -> str | None:
    """The result of a reader for a child of a variable, or for a child of that child; skipped when it is certainly
    absent.
    """
    if not isinstance(node, ast.Member):
        return None
    inner = ""
    if isinstance(node.focus, ast.Member) and number_of(node.name):
        node, inner = node.focus, node.name
    slot = owner_slot(node.focus, names, item)
    number = number_of(node.name)
    if slot is None or not number:
        return None
    owner = f"{var(slot)}" if slot else focus
    there, raw = writer.has_child(owner, number)
    return f"({there} and {writer.constant(reader(node.name, inner))}({owner}, {raw}))"
