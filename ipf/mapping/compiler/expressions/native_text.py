"""Texts in FHIRPath as Python closures: paths, literals, and both joined by `&`.  See `native`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipf.fhir.fhirpath.functions import patterns
from ipf.fhir.fhirpath.language import ast
from ipf.mapping.compiler.expressions.native import Names, nodes_of, string, text_of
from ipf.mapping.compiler.kinds import Kind
from ipf.mapping.runtime.run import Frame, counted

Text = Callable[[Frame, Any], str | None]


def text(node: ast.Node, names: Names, item: Kind) -> Text | None:
    """A text: a path, a literal, or texts joined by `&`."""
    compiled = [piece(one, names, item) for one in pieces(node)]
    known = [one for one in compiled if one is not None]
    if len(known) < len(compiled):
        return None
    if len(known) == 1:
        return known[0]
    return lambda frame, item: counted(frame[0], "".join([one(frame, item) or "" for one in known]))


def pieces(node: ast.Node) -> list[ast.Node]:
    """The operands of `&`."""
    if isinstance(node, ast.Binary) and node.operator == "&":
        return [*pieces(node.left), *pieces(node.right)]
    return [node]


def piece(node: ast.Node, names: Names, item: Kind) -> Text | None:
    """A path or a literal as text."""
    literal = string(node)
    if literal is not None:
        return lambda frame, item: literal
    if isinstance(node, ast.Function) and node.name == "replaceMatches" and node.focus is not None:
        return _replaced(node.focus, [string(one) for one in node.args], names, item)
    if isinstance(node, ast.Function) and node.name == "substring" and isinstance(node.focus, ast.Variable):
        return _rest(node, names, item)
    nodes = nodes_of(node, names, item)
    if nodes is None:
        return None

    def text_of_path(frame: Frame, item: Any) -> str | None:
        found = nodes(frame, item)
        return text_of(found[0]) if found else None

    return text_of_path


def _rest(node: ast.Function, names: Names, item: Kind) -> Text | None:
    """`text.substring(3)` of a variable."""
    inner = text(node.focus, names, item) if node.focus is not None else None
    start = node.args[0].value if len(node.args) == 1 and isinstance(node.args[0], ast.Literal) else None
    if inner is None or type(start) is not int or start < 0:
        return None
    return lambda frame, item: (inner(frame, item) or "")[start:] or None


def _replaced(focus: ast.Node, literals: list[str | None], names: Names, item: Kind) -> Text | None:
    """`text.replaceMatches('pattern', 'new')`."""
    whole = text(focus, names, item)
    pattern, new = literals if len(literals) == 2 else (None, None)
    if whole is None or pattern is None or new is None:
        return None

    def replaced(frame: Frame, item: Any) -> str | None:
        value = whole(frame, item)
        if value is None:
            return None
        frame[0].spend(patterns.steps(value, pattern))
        return counted(frame[0], patterns.replace(value, pattern, new))

    return replaced
