"""Frequent FHIRPath on HL7 v2 nodes as Python closures.

Conditions such as `XPN_7.empty() or XPN_7 != 'S'` and texts such as `site & '/' & pl.PL_1` are nearly all FHIRPath of
message maps.  Each function returns None for any other tree; the caller then uses the general engine, which defines the
meaning.  A test compares the two.

Logic is three-valued as in FHIRPath (True, False, None = empty).  Source: http://hl7.org/fhirpath/N1/.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from ipf.fhir.fhirpath.items.nodes import FhirNode
from ipf.fhir.fhirpath.language import ast
from ipf.fhir.model.definitions import definitions
from ipf.hl7.structure import Group as HL7Group
from ipf.mapping.compiler.kinds import STRING, Kind
from ipf.mapping.compiler.scope import Variable
from ipf.mapping.compiler.v2 import children
from ipf.mapping.runtime.budget import FEW
from ipf.mapping.runtime.run import Frame, matched

FOCUS = "context"
_TEXTS = frozenset(("code", "id", "string", "uri"))

Decide = Callable[[Frame, Any], bool | None]
Nodes = Callable[[Frame, Any], Any]
Names = Mapping[str, Variable]


def parts(node: ast.Node) -> Iterator[ast.Node]:
    """The direct parts of a node."""
    for one in fields(node):
        value = getattr(node, one.name)
        if isinstance(value, ast.Node):
            yield value
        elif isinstance(value, tuple):
            yield from value


def condition(node: ast.Node, names: Names, item: Kind) -> Decide | None:
    """A condition; None for other trees."""
    if isinstance(node, ast.Literal) and isinstance(node.value, bool):
        value = node.value
        return lambda frame, item: value
    if isinstance(node, ast.Binary):
        return _binary(node, names, item)
    if isinstance(node, ast.Function) and node.focus is not None:
        return _function(node, names, item)
    if isinstance(node, ast.Function) and node.name == "iif" and len(node.args) == 3:
        return _choice([condition(one, names, item) for one in node.args])
    return None


def _choice(parts: list[Decide | None]) -> Decide | None:
    """`iif(test, one, other)`: the other one also when the test is empty."""
    test, one, other = parts
    if test is None or one is None or other is None:
        return None
    return lambda frame, item: one(frame, item) if test(frame, item) else other(frame, item)


def _binary(node: ast.Binary, names: Names, item: Kind) -> Decide | None:
    if node.operator in ("and", "or"):
        left, right = condition(node.left, names, item), condition(node.right, names, item)
        if left is None or right is None:
            return None
        return _and(left, right) if node.operator == "and" else _or(left, right)
    by_count = _count_of(node, names, item) if node.operator in _COMPARISONS else None
    if by_count is not None:
        return by_count
    if node.operator in ("=", "!="):
        return _equality(node, names, item)
    if node.operator == "in":
        return _membership(node, names, item)
    return None


def _and(left: Decide, right: Decide) -> Decide:
    def decide(frame: Frame, item: Any) -> bool | None:
        first = left(frame, item)
        if first is False:
            return False
        second = right(frame, item)
        if second is False:
            return False
        return True if first and second else None

    return decide


def _or(left: Decide, right: Decide) -> Decide:
    def decide(frame: Frame, item: Any) -> bool | None:
        first = left(frame, item)
        if first:
            return True
        second = right(frame, item)
        if second:
            return True
        return None if first is None or second is None else False

    return decide


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def _count_of(node: ast.Binary, names: Names, item: Kind) -> Decide | None:
    """`path.count() = 1`"""
    left, right = node.left, node.right
    if not isinstance(left, ast.Function) or left.name != "count" or left.args or left.focus is None:
        return None
    if _is_json(left.focus, names):
        return None
    nodes = nodes_of(left.focus, names, item)
    if nodes is None or not isinstance(right, ast.Literal) or type(right.value) is not int:
        return None
    number, compare = right.value, _COMPARISONS[node.operator]
    owner = owner_slot(left.focus.focus, names, item) if isinstance(left.focus, ast.Member) else None
    if owner is None or not isinstance(left.focus, ast.Member):
        return lambda frame, item: compare(len(nodes(frame, item)), number)
    slot, find = owner, children(left.focus.name)
    return lambda frame, item: compare(len(_held(frame, frame[slot] if slot else item, find)), number)


def _equality(node: ast.Binary, names: Names, item: Kind) -> Decide | None:
    wanted = node.operator == "="
    literal = string(node.right)
    if literal is None:
        return _equality_of_paths(node, names, item)
    nodes = nodes_of(node.left, names, item)
    if nodes is None:
        return None

    def decide(frame: Frame, item: Any) -> bool | None:
        found = nodes(frame, item)
        if not found:
            return None
        if len(found) > 1:
            return not wanted
        text = text_of(found[0])
        return None if text is None else (text == literal) is wanted

    return decide


def _equality_of_paths(node: ast.Binary, names: Names, item: Kind) -> Decide | None:
    wanted = node.operator == "="
    left, right = nodes_of(node.left, names, item), nodes_of(node.right, names, item)
    if left is None or right is None:
        return None

    def decide(frame: Frame, item: Any) -> bool | None:
        first = [text_of(one) for one in left(frame, item)]
        second = [text_of(one) for one in right(frame, item)]
        if not first or not second or None in first or None in second:
            return None
        return (first == second) is wanted

    return decide


def _membership(node: ast.Binary, names: Names, item: Kind) -> Decide | None:
    literals = strings(node.right)
    nodes = nodes_of(node.left, names, item)
    if literals is None or nodes is None:
        return None
    wanted = frozenset(literals)

    def decide(frame: Frame, item: Any) -> bool | None:
        found = nodes(frame, item)
        if not found:
            return None
        return text_of(found[0]) in wanted  # of several repetitions the first counts

    return decide


def string(node: ast.Node) -> str | None:
    """The text of a literal."""
    return node.value if isinstance(node, ast.Literal) and isinstance(node.value, str) else None


def strings(node: ast.Node) -> list[str] | None:
    """The members of `('A' | 'B')`."""
    if isinstance(node, ast.Binary) and node.operator == "|":
        left, right = strings(node.left), strings(node.right)
        return None if left is None or right is None else left + right
    literal = string(node)
    return None if literal is None else [literal]


def _function(node: ast.Function, names: Names, item: Kind) -> Decide | None:
    if node.focus is None:
        return None
    if node.name == "not" and not node.args:
        inner = condition(node.focus, names, item)
        return None if inner is None else _not(inner)
    if node.name in ("exists", "empty") and not node.args:
        return _presence(node.focus, names, item, wanted=node.name == "exists")
    nodes = nodes_of(node.focus, names, item)
    if nodes is None:
        return None
    literal = string(node.args[0]) if len(node.args) == 1 else None
    if node.name == "matches" and literal is not None:
        return _on_text(nodes, lambda frame, text: matched(frame[0], text, literal))
    test = _text_test(node.name, literal) if literal is not None else None
    return None if test is None else _on_text(nodes, lambda frame, text: test(text))


def _presence(focus: ast.Node, names: Names, item: Kind, *, wanted: bool) -> Decide | None:
    """`path.exists()`, `path.empty()`; without node objects for a path of one step."""
    if isinstance(focus, ast.Member):
        owner = owner_slot(focus.focus, names, item)
        if owner is not None:
            return _present_child(owner, children(focus.name), wanted=wanted)
        target = _target_member(focus, names)
        if target is not None:
            slot, keys = target, (focus.name, f"_{focus.name}")
            return lambda frame, item: any(one in frame[slot] for one in keys) is wanted
    if _is_json(focus, names):
        return None
    nodes = nodes_of(focus, names, item)
    return None if nodes is None else lambda frame, item: bool(nodes(frame, item)) is wanted


def owner_slot(owner: ast.Node | None, names: Names, item: Kind) -> int | None:
    """Slot of the node from which a step starts; 0 = the item in focus."""
    if owner is None or owner == ast.Variable(FOCUS):
        return 0 if item.is_v2 else None
    variable = names.get(owner.name) if isinstance(owner, ast.Variable) else None
    return variable.slot if variable is not None and variable.kind.is_v2 else None


def _present_child(slot: int, find: Callable[[Any], Sequence[Any]], *, wanted: bool) -> Decide:
    """Whether there is a child that is neither empty nor null."""
    if slot:
        return lambda frame, item: bool(_held(frame, frame[slot], find)) is wanted
    return lambda frame, item: bool(_held(frame, item, find)) is wanted


def _held(frame: Frame, node: Any, find: Callable[[Any], Sequence[Any]]) -> Sequence[Any]:
    """Children that are not read: those of a group are there, those of a field are made, which takes steps."""
    return find(node) if type(node) is HL7Group else _counted(frame, find(node))


def _is_json(node: ast.Node, names: Names) -> bool:
    """Whether a variable may be a primitive of a JSON source that has extensions alone: there, but without a value."""
    variable = names.get(node.name) if isinstance(node, ast.Variable) else None
    return variable is not None and variable.is_json


def _target_member(node: ast.Member, names: Names) -> int | None:
    """Slot of the object of a single text of a target (`coding.system`)."""
    variable = names.get(node.focus.name) if isinstance(node.focus, ast.Variable) else None
    if variable is None or variable.is_source or variable.kind.model != "fhir":
        return None
    element = definitions().element(variable.kind.name, node.name)
    if element is None or element.many or element.choice or not set(element.types) <= _TEXTS:
        return None
    return variable.slot


def _not(inner: Decide) -> Decide:
    def decide(frame: Frame, item: Any) -> bool | None:
        value = inner(frame, item)
        return None if value is None else not value

    return decide


def _text_test(name: str, literal: str) -> Callable[[str], bool] | None:
    if name == "startsWith":
        return lambda text: text.startswith(literal)
    if name == "endsWith":
        return lambda text: text.endswith(literal)
    if name == "contains":
        return lambda text: literal in text
    return None


def _on_text(nodes: Nodes, test: Callable[[Frame, str], bool]) -> Decide:
    def decide(frame: Frame, item: Any) -> bool | None:
        found = nodes(frame, item)
        if not found:
            return None
        text = text_of(found[0])  # of several repetitions the first counts
        return None if text is None else test(frame, text)

    return decide


def text_of(value: Any) -> str | None:
    """The text of a node, or a text itself."""
    if type(value) is str:
        return value
    text: str | None = value.text
    return text


def nodes_of(node: ast.Node, names: Names, item: Kind) -> Nodes | None:
    """A path through HL7 v2 nodes and texts."""
    if isinstance(node, ast.Variable):
        return _variable(node.name, names, item)
    if isinstance(node, ast.This) and node.name == "this" and item.is_text:
        return lambda frame, item: (item,)
    if isinstance(node, ast.Function) and node.focus is not None and node.name == "first" and not node.args:
        inner = nodes_of(node.focus, names, item)
        return None if inner is None else lambda frame, item: inner(frame, item)[:1]
    if isinstance(node, ast.Function) and node.name == "trim" and isinstance(node.focus, ast.Variable):
        return _trimmed(_variable(node.focus.name, names, item))
    if isinstance(node, ast.Member):
        return _member(node, names, item)
    return None


def _trimmed(inner: Nodes | None) -> Nodes | None:
    """`text.trim()` of a variable."""
    if inner is None:
        return None

    def nodes(frame: Frame, item: Any) -> Any:
        texts = [text_of(one) for one in inner(frame, item)]
        return [one.strip() for one in texts if one is not None]

    return nodes


def _variable(name: str, names: Names, item: Kind) -> Nodes | None:
    if name == FOCUS and item.is_text:
        return lambda frame, item: () if item is None else (item,)
    variable = names.get(name)
    if variable is None or not (variable.kind.is_text or variable.kind == STRING) or not variable.is_source:
        return None
    slot = variable.slot
    if variable.is_json:
        return (lambda frame, item: _plain(frame[slot])) if variable.kind == STRING else None

    def nodes(frame: Frame, item: Any) -> Any:
        value = frame[slot]
        return () if value is None else (value,)

    return nodes


def _plain(value: Any) -> tuple[str, ...]:
    """The text of a string of a JSON source, or of a literal that a rule passes."""
    if type(value) is FhirNode:
        value = value.value
    return (value,) if type(value) is str else ()


def _member(node: ast.Member, names: Names, item: Kind) -> Nodes | None:
    name = node.name
    if node.focus is None:
        find = children(name)
        return (lambda frame, item: _counted(frame, find(item))) if item.is_v2 else None
    if isinstance(node.focus, ast.Variable):
        return _member_of_variable(node.focus.name, name, names, item)
    inner = nodes_of(node.focus, names, item)
    if inner is None:
        return None
    find = children(name)
    return lambda frame, item: [child for one in inner(frame, item) for child in find(one)]  # `inner` counts them


def _member_of_variable(variable_name: str, name: str, names: Names, item: Kind) -> Nodes | None:
    find = children(name)
    if variable_name == FOCUS:
        return (lambda frame, item: _counted(frame, find(item))) if item.is_v2 else None
    variable = names.get(variable_name)
    if variable is None:
        return None
    slot = variable.slot
    if not variable.kind.is_v2:
        is_text = _target_member(ast.Member(ast.Variable(variable_name), name), names) is not None
        return (lambda frame, item: _plain(frame[slot].get(name))) if is_text else None
    return lambda frame, item: _counted(frame, find(frame[slot]))


def _counted(frame: Frame, found: Sequence[Any]) -> Sequence[Any]:
    """The nodes of a field; many repetitions count as steps of the run."""
    if len(found) > FEW:
        frame[0].spend(len(found))
    return found
