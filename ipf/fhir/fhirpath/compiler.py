"""Compiles syntax trees into closures, with the type of `$this` where it is known.

Source: http://hl7.org/fhirpath/N1/
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipf.fhir.fhirpath.functions.aggregate
import ipf.fhir.fhirpath.functions.collection
import ipf.fhir.fhirpath.functions.conversion
import ipf.fhir.fhirpath.functions.date
import ipf.fhir.fhirpath.functions.fhir
import ipf.fhir.fhirpath.functions.item
import ipf.fhir.fhirpath.functions.number
import ipf.fhir.fhirpath.functions.profiles
import ipf.fhir.fhirpath.functions.text
import ipf.fhir.fhirpath.functions.type  # noqa: F401  (these fill the table of functions)
from ipf.fhir.fhirpath.binary import binary
from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.evaluation.code import Code, Run, Test, itself, joined, nothing
from ipf.fhir.fhirpath.evaluation.context import FEW, Context
from ipf.fhir.fhirpath.evaluation.reading import path
from ipf.fhir.fhirpath.evaluation.registry import FUNCTIONS, Plain
from ipf.fhir.fhirpath.functions.type import type_filter, type_test
from ipf.fhir.fhirpath.items import operators as op
from ipf.fhir.fhirpath.items.model import RESOURCE_ROOTS, Model
from ipf.fhir.fhirpath.items.nodes import FhirNode, Items, is_foreign, member, resource_type, value_reader, wrapped
from ipf.fhir.fhirpath.items.values import Quantity
from ipf.fhir.fhirpath.language import ast


class Compiler:
    """Compiles trees against one model.  `strict`: names that the types do not have are errors."""

    def __init__(self, model: Model, strict: bool = False) -> None:
        self.model = model
        self.strict = strict

    def compile(self, node: ast.Node, kind: str | None) -> Code:
        """The code of a tree; `kind` is the type of `$this`, None when not known."""
        match node:
            case ast.Literal(value):
                return _literal(value)
            case ast.Variable(name):
                return Code(lambda context, this: context.variable(name))
            case ast.This(name):
                return _this(name, kind)
            case ast.Member():
                return self._path(node, kind)
            case ast.Function(focus, name, args):
                return self._function(focus, name, args, kind)
            case ast.Index(focus, index):
                return _index(self.compile(focus, kind), self.compile(index, kind))
            case ast.Unary(operator, operand):
                return _sign(operator, self.compile(operand, kind))
            case ast.TypeTest(operator, operand, type_name):
                build = type_test if operator == "is" else type_filter
                return build(self, operand, type_name, kind)
            case ast.Binary("|"):
                return _union([self.compile(part, kind) for part in _alternatives(node)])
            case ast.Binary(operator, left, right):
                return binary(operator, self.compile(left, kind), self.compile(right, kind))
        raise FhirPathError(f"no such syntax: {type(node).__name__}", kind="syntax")

    def per_item(self, node: ast.Node, kind: str | None) -> Code:
        """The code of a tree that runs on one item at a time: on resources of any type, for each type on its own."""
        if kind not in RESOURCE_ROOTS:
            return self.compile(node, kind)
        general = self.compile(node, None)
        items, truth = general.nodes(), general.truth()
        whatever: tuple[Run, Test] = (
            lambda context, this: items(context, wrapped(this, kind)),
            lambda context, this: truth(context, wrapped(this, kind)),
        )
        known: dict[Any, tuple[Run, Test]] = {}

        def of(name: Any) -> tuple[Run, Test]:
            if type(name) is not str or not self.model.is_resource(name):
                return whatever
            code = self.compile(node, name)
            found = known[name] = code.nodes(), code.truth()
            return found

        def run(context: Context, this: Items) -> Items:
            name = this[0].get("resourceType")
            return ((type(name) is str and known.get(name)) or of(name))[0](context, this)

        def test(context: Context, this: Items) -> bool | None:
            name = this[0].get("resourceType")
            return ((type(name) is str and known.get(name)) or of(name))[1](context, this)

        return Code(run, None, test)

    def _path(self, node: ast.Member, kind: str | None) -> Code:
        names = [node.name]
        start = node.focus
        while isinstance(start, ast.Member):
            names.append(start.name)
            start = start.focus
        names.reverse()
        if start is not None:
            return path(self.compile(start, kind), tuple(names), self.model)
        if names[0][:1].isupper() and self.model.is_known(names[0]):
            return path(self._type_name(names[0], kind), tuple(names[1:]), self.model)
        if names[0][:1].isupper() and kind is None:
            return path(_unknown_type(names[0], self.model), tuple(names[1:]), self.model)
        return path(Code(itself, kind, pure=True), tuple(names), self.model)

    def _type_name(self, name: str, kind: str | None) -> Code:
        """A type as the first name of a path: the focus, when it has this type."""
        model = self.model
        if kind is None:
            return Code(lambda context, this: _of_this_type(this, name, model))
        if kind not in RESOURCE_ROOTS:
            return Code(itself if model.is_a(kind, name) else nothing, kind, pure=True)

        def run(context: Context, this: Items) -> Items:
            return [one for one in this if type(one) is dict and model.is_a(resource_type(one) or kind, name)]

        return Code(run, name if model.is_resource(name) else kind)

    def _function(self, focus: ast.Node | None, name: str, args: tuple[ast.Node, ...], kind: str | None) -> Code:
        function = FUNCTIONS.get(name)
        if function is None:
            raise FhirPathError(f"there is no function {name}()", kind="semantic")
        if not function.least <= len(args) <= function.most:
            wanted = f"{function.least}" if function.least == function.most else f"{function.least} to {function.most}"
            raise FhirPathError(f"{name}() takes {wanted} arguments, got {len(args)}", kind="semantic")
        if not isinstance(function, Plain):
            return function.build(self, focus, args, kind)
        source = Code(itself, kind) if focus is None else self.compile(focus, kind)
        return _call(function, source, [self.compile(arg, kind) for arg in args])


def _of_this_type(items: Items, name: str, model: Model) -> Items:
    """The items of a type; of those without a type, the element of this name."""
    found: Items = []
    for item in items:
        if type(item) is FhirNode and item.type is not None:
            if model.is_a(item.type, name):
                found.append(item)
        elif type(item) is FhirNode or is_foreign(item):
            found.extend(member([item], name, model))
    return found


def _unknown_type(name: str, model: Model) -> Code:
    """A first name that is no type of R4: data of a logical model whose `resourceType` it is, or an element."""

    def run(context: Context, this: Items) -> Items:
        named = [
            one
            for one in this
            if type(one) is FhirNode and type(one.value) is dict and one.value.get("resourceType") == name
        ]
        return context.spend_on_items(named or member(this, name, model))

    return Code(run)


_READ: dict[str, Callable[[Code], Run]] = {
    "nodes": Code.nodes,
    "values": Code.values,
    "texts": Code.texts,
    "items": Code.values,
}


def _call(function: Plain, source: Code, args: list[Code]) -> Code:
    call = function.call
    focus = source.run if function.reads == "items" else _READ[function.reads](source)
    keeps = source.kind if function.keeps else None
    if not args:
        return Code(_of_focus(call, focus), keeps)
    read = [_READ[function.reads](arg) for arg in args]
    if len(read) == 1:
        return Code(_of_argument(call, focus, read[0]), keeps)
    return Code(lambda context, this: call(context, focus(context, this), *[arg(context, this) for arg in read]), keeps)


def _of_focus(call: Callable[..., Items], focus: Run) -> Run:
    """A call without arguments.  Many items count as steps, whatever the function does with them."""

    def run(context: Context, this: Items) -> Items:
        items = focus(context, this)
        if len(items) > FEW:
            context.spend(len(items))
        return call(context, items)

    return run


def _of_argument(call: Callable[..., Items], focus: Run, argument: Run) -> Run:
    """A call with one argument."""

    def run(context: Context, this: Items) -> Items:
        items, given = focus(context, this), argument(context, this)
        if len(items) + len(given) > FEW:
            context.spend(len(items) + len(given))
        return call(context, items, given)

    return run


def _literal(value: object) -> Code:
    if value is None:
        return Code(nothing)
    return Code(lambda context, this: [value], constant=value, pure=True)


def _this(name: str, kind: str | None) -> Code:
    if name == "this":
        return Code(itself, kind, pure=True)
    if name == "total":
        return Code(lambda context, this: context.spend_on_items(context.total))
    return Code(lambda context, this: [] if context.index is None else [context.index])


def _index(source: Code, index: Code) -> Code:
    items_of, at_of = source.run, index.values()

    def run(context: Context, this: Items) -> Items:
        items, at = items_of(context, this), op.single(at_of(context, this), "[]")
        if at is None:
            return []
        if type(at) is not int:
            raise FhirPathError("an index is an integer")
        return [items[at]] if 0 <= at < len(items) else []

    return Code(run, source.kind)


def _sign(operator: str, operand: Code) -> Code:
    values = operand.values()

    def run(context: Context, this: Items) -> Items:
        value = op.single(values(context, this), operator)
        if value is None:
            return []
        if isinstance(value, Quantity):
            return [value if operator == "+" else Quantity(-value.value, value.unit, value.calendar)]
        if not op.is_number(value):
            raise FhirPathError(f"'{operator}' needs a number")
        return [value if operator == "+" else -value]

    return Code(run)


def _alternatives(node: ast.Node) -> list[ast.Node]:
    """The parts of `a | b | c`, in order."""
    parts: list[ast.Node] = []
    while isinstance(node, ast.Binary) and node.operator == "|":
        parts.append(node.right)
        node = node.left
    return [node, *reversed(parts)]


def _union(parts: list[Code]) -> Code:
    runs, kind = joined(parts)
    if value_reader(kind) is not None:
        runs, kind = [part.nodes() for part in parts], None

    def run(context: Context, this: Items) -> Items:
        items: Items = []
        for part in runs:
            found = part(context, this)
            context.spend(len(found))
            items += found
        context.spend_on(items)
        return op.distinct(items)

    return Code(run, kind)
