"""Compiles syntax trees into closures: the general engine, for every expression and every kind of data.

Each node becomes one function `run(context) -> items`.  `fast.py` compiles frequent expressions on JSON of a known
type; this module defines their results.
"""

from __future__ import annotations

from collections.abc import Callable

import ipf.fhir.fhirpath.aggregate_functions
import ipf.fhir.fhirpath.collection_functions
import ipf.fhir.fhirpath.conversion_functions
import ipf.fhir.fhirpath.date_functions
import ipf.fhir.fhirpath.fhir_functions
import ipf.fhir.fhirpath.item_functions
import ipf.fhir.fhirpath.number_functions
import ipf.fhir.fhirpath.text_functions  # noqa: F401  (these fill the table of functions)
from ipf.fhir.fhirpath import ast
from ipf.fhir.fhirpath import operators as op
from ipf.fhir.fhirpath.context import Context
from ipf.fhir.fhirpath.equivalence import equivalent
from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.item_functions import type_filter, type_test
from ipf.fhir.fhirpath.model import Model
from ipf.fhir.fhirpath.nodes import FhirNode, Items, is_foreign, member
from ipf.fhir.fhirpath.registry import FUNCTIONS, Plain, Run
from ipf.fhir.fhirpath.values import Quantity


class Compiler:
    """Compiles trees against one model.  `strict`: names that the types do not have are errors."""

    def __init__(self, model: Model, strict: bool = False) -> None:
        self.model = model
        self.strict = strict

    def compile(self, node: ast.Node) -> Run:
        """The closure of a tree."""
        match node:
            case ast.Literal(value):
                return _literal(value)
            case ast.Variable(name):
                return lambda context: context.variable(name)
            case ast.This(name):
                return _this(name)
            case ast.Member(None, name):
                return self._first_name(name)
            case ast.Member(focus, name) if focus is not None:
                return self._member(self.compile(focus), name)
            case ast.Function(focus, name, args):
                return self._function(focus, name, args)
            case ast.Index(focus, index):
                return _index(self.compile(focus), self.compile(index))
            case ast.Unary(operator, operand):
                return _sign(operator, self.compile(operand))
            case ast.TypeTest(operator, operand, type_name):
                build = type_test if operator == "is" else type_filter
                return build(self, self.compile(operand), type_name)
            case ast.Binary("|"):
                return _union([self.compile(part) for part in _alternatives(node)])
            case ast.Binary(operator, left, right):
                return _binary(operator, self.compile(left), self.compile(right))
        raise FhirPathError(f"no such syntax: {type(node).__name__}", kind="syntax")

    def _first_name(self, name: str) -> Run:
        """The first name of a path: the type of the focus, or an element of the focus."""
        model = self.model
        if not (name[:1].isupper() and model.is_known(name)):
            return lambda context: member(context.this, name, model)

        def run(context: Context) -> Items:
            found: Items = []
            for item in context.this:
                if type(item) is FhirNode and item.type is not None:
                    if model.is_a(item.type, name):
                        found.append(item)
                elif type(item) is FhirNode or is_foreign(item):
                    found.extend(member([item], name, model))
            return found

        return run

    def _member(self, source: Run, name: str) -> Run:
        model = self.model
        return lambda context: member(source(context), name, model)

    def _function(self, focus: ast.Node | None, name: str, args: tuple[ast.Node, ...]) -> Run:
        function = FUNCTIONS.get(name)
        if function is None:
            raise FhirPathError(f"there is no function {name}()", kind="semantic")
        if not function.least <= len(args) <= function.most:
            wanted = f"{function.least}" if function.least == function.most else f"{function.least} to {function.most}"
            raise FhirPathError(f"{name}() takes {wanted} arguments, got {len(args)}", kind="semantic")
        source: Run = _this("this") if focus is None else self.compile(focus)
        if isinstance(function, Plain):
            return _call(function, source, [self.compile(arg) for arg in args])
        return function.build(self, source, args)


def _call(function: Plain, source: Run, args: list[Run]) -> Run:
    call = function.call
    if not args:
        return lambda context: call(context, source(context))
    if len(args) == 1:
        only = args[0]
        return lambda context: call(context, source(context), only(context))
    return lambda context: call(context, source(context), *[arg(context) for arg in args])


def _literal(value: object) -> Run:
    items = [] if value is None else [value]
    return lambda context: items


def _this(name: str) -> Run:
    if name == "this":
        return lambda context: context.this
    if name == "total":
        return lambda context: context.total
    return lambda context: [] if context.index is None else [context.index]


def _index(source: Run, index: Run) -> Run:
    def run(context: Context) -> Items:
        items, at = source(context), op.single(index(context), "[]")
        if at is None:
            return []
        if type(at) is not int:
            raise FhirPathError("an index is an integer")
        return [items[at]] if 0 <= at < len(items) else []

    return run


def _sign(operator: str, operand: Run) -> Run:
    def run(context: Context) -> Items:
        value = op.single(operand(context), operator)
        if value is None:
            return []
        if isinstance(value, Quantity):
            return [value if operator == "+" else Quantity(-value.value, value.unit, value.calendar)]
        if not op.is_number(value):
            raise FhirPathError(f"'{operator}' needs a number")
        return [value if operator == "+" else -value]

    return run


def _alternatives(node: ast.Node) -> list[ast.Node]:
    """The parts of `a | b | c`, in order."""
    parts: list[ast.Node] = []
    while isinstance(node, ast.Binary) and node.operator == "|":
        parts.append(node.right)
        node = node.left
    return [node, *reversed(parts)]


def _union(parts: list[Run]) -> Run:
    def run(context: Context) -> Items:
        items = [item for part in parts for item in part(context)]
        context.spend(len(items))
        return op.distinct(items)

    return run


def _binary(operator: str, left: Run, right: Run) -> Run:
    if operator in _LOGIC:
        return _logic(operator, left, right)
    if operator in ("=", "!="):
        wanted = operator == "="
        return lambda context: _boolean(op.equal(left(context), right(context)), wanted)
    if operator in ("~", "!~"):
        wanted = operator == "~"
        return lambda context: [equivalent(left(context), right(context)) is wanted]
    if operator in _ORDERED:
        return _ordered(operator, left, right)
    if operator == "in":
        return lambda context: _contained(left(context), right(context), operator)
    if operator == "contains":
        return lambda context: _contained(right(context), left(context), operator)
    return _concatenation(left, right) if operator == "&" else _arithmetic(operator, left, right)


def _boolean(value: bool | None, wanted: bool = True) -> Items:
    return [] if value is None else [value is wanted]


_ORDERED: dict[str, Callable[[int], bool]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def _ordered(operator: str, left: Run, right: Run) -> Run:
    holds = _ORDERED[operator]

    def run(context: Context) -> Items:
        order = op.order(left(context), right(context), operator)
        return [] if order is None else [holds(order)]

    return run


def _contained(item: Items, items: Items, operator: str) -> Items:
    if not item:
        return []
    if len(item) > 1:
        raise FhirPathError(f"'{operator}' needs one item to look for, got {len(item)}")
    return [any(op.equal_items(item[0], other) for other in items)]


def _concatenation(left: Run, right: Run) -> Run:
    def run(context: Context) -> Items:
        a, b = op.single(left(context), "&"), op.single(right(context), "&")
        return op.text(_as_text(a) + _as_text(b))

    return run


def _as_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, FhirNode):
        raise FhirPathError("'&' cannot join a structure")
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _arithmetic(operator: str, left: Run, right: Run) -> Run:
    def run(context: Context) -> Items:
        a, b = op.single(left(context), operator), op.single(right(context), operator)
        return [] if a is None or b is None else op.arithmetic(operator, a, b)

    return run


def _and(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _or(a: bool | None, b: bool | None) -> bool | None:
    if a or b:
        return True
    return None if a is None or b is None else False


def _xor(a: bool | None, b: bool | None) -> bool | None:
    return None if a is None or b is None else a is not b


def _implies(a: bool | None, b: bool | None) -> bool | None:
    return _or(None if a is None else not a, b)


_LOGIC = {"and": _and, "or": _or, "xor": _xor, "implies": _implies}
_DECIDED = {"and": False, "or": True, "implies": False}


def _logic(operator: str, left: Run, right: Run) -> Run:
    combine, decided = _LOGIC[operator], _DECIDED.get(operator)

    def run(context: Context) -> Items:
        a = context.truth(left(context))
        if a is not None and a is decided:
            return [operator != "and"]
        return _boolean(combine(a, context.truth(right(context))))

    return run
