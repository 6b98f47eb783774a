"""Functions that evaluate an argument once per item, or only some of their arguments.

Sources: http://hl7.org/fhirpath/N1/#functions (5.1, 5.2, 5.9), #aggregates (7).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cmp_to_key
from typing import Any

from ipf.fhir.fhirpath.errors import BudgetError, FhirPathError
from ipf.fhir.fhirpath.evaluation.code import Code, joined, nothing, operand_of, tested
from ipf.fhir.fhirpath.evaluation.context import MAX_ITEMS, Context
from ipf.fhir.fhirpath.evaluation.registry import Arguments, Compiling, shaped_function
from ipf.fhir.fhirpath.items import operators as op
from ipf.fhir.fhirpath.items.nodes import Items, plain, unwrap, wrapped
from ipf.fhir.fhirpath.language import ast


def _numbered(context: Context, items: Items) -> Iterable[Items]:
    """Each item as `$this` for an expression, with its `$index`."""
    outer = context.index
    context.spend(len(items))
    for context.index, item in enumerate(items):
        yield [item]
    context.index = outer


@shaped_function("where", 1)
def where(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """The items for which the criterion is true."""
    source = operand_of(compiler, focus, kind)
    items_of, criterion = source.run, compiler.per_item(args[0], source.kind).truth()

    def run(context: Context, this: Items) -> Items:
        found, outer, items = [], context.index, items_of(context, this)
        context.spend(len(items))
        for context.index, item in enumerate(items):
            if criterion(context, [item]):
                found.append(item)
        context.index = outer
        return found

    return Code(run, source.kind)


@shaped_function("exists", 0, 1)
def exists(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """Whether there is any item, or any for which the criterion is true."""
    source = where(compiler, focus, args, kind) if args else operand_of(compiler, focus, kind)
    items_of = source.run
    return tested(lambda context, this: bool(items_of(context, this)), source.pure)


@shaped_function("empty")
def empty(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """Whether the collection is empty."""
    source = operand_of(compiler, focus, kind)
    items_of = source.run
    return tested(lambda context, this: not items_of(context, this), source.pure)


@shaped_function("not")
def negation(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """The opposite of a boolean."""
    truth = operand_of(compiler, focus, kind).truth()
    return tested(lambda context, this: None if (answer := truth(context, this)) is None else not answer)


@shaped_function("all", 1)
def all_items(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """Whether the criterion is true for every item."""
    source = operand_of(compiler, focus, kind)
    items_of, criterion = source.run, compiler.per_item(args[0], source.kind).truth()

    def test(context: Context, this: Items) -> bool:
        holds, outer, items = True, context.index, items_of(context, this)
        context.spend(len(items))
        for context.index, item in enumerate(items):
            if criterion(context, [item]) is not True:
                holds = False
        context.index = outer
        return holds

    return tested(test)


@shaped_function("select", 1)
def select(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """The answers of all items in one collection."""
    source = operand_of(compiler, focus, kind)
    items_of, projection = source.run, compiler.per_item(args[0], source.kind)
    answer = projection.run

    def run(context: Context, this: Items) -> Items:
        found: Items = []
        outer, items = context.index, items_of(context, this)
        context.spend(len(items))
        for context.index, item in enumerate(items):
            more = answer(context, [item])
            context.steps -= len(more)
            found += more
        context.index = outer
        context.spend(0)
        return found

    return Code(run, projection.kind)


def _to_the_end(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> tuple[Code, Code]:
    """The source and the projection of `repeat`, whose answers are of the type that it applies to."""
    source = operand_of(compiler, focus, kind)
    first = compiler.per_item(args[0], source.kind)
    again = compiler.per_item(args[0], first.kind)
    if first.kind is not None and first.kind == again.kind == source.kind:
        return source, first
    return Code(source.nodes()), Code(compiler.per_item(args[0], None).nodes())


@shaped_function("repeat", 1)
def repeat(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """The answers, their answers, and so on, each once."""
    source, projection = _to_the_end(compiler, focus, args, kind)

    def run(context: Context, this: Items) -> Items:
        found: dict[Any, Any] = {}
        latest = source.run(context, this)
        while latest:
            fresh: Items = []
            for one in _numbered(context, latest):
                for item in context.spend_on_items(projection.run(context, one)):
                    context.spend_on([item])
                    key = op.key_of(item)
                    if key not in found:
                        found[key] = item
                        fresh.append(item)
                        context.spend(len(item) // 16 if type(item) is str else 0)
            if len(found) > MAX_ITEMS // 10:
                raise BudgetError(
                    f"the budget of {MAX_ITEMS // 10} items of repeat() is used up: it does not come to an end"
                )
            latest = fresh
        return list(found.values())

    return Code(run, source.kind)


@shaped_function("repeatAll", 1)
def repeat_all(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """The answers, their answers, and so on, with duplicates."""
    source, projection = _to_the_end(compiler, focus, args, kind)

    def run(context: Context, this: Items) -> Items:
        found: Items = []
        latest = source.run(context, this)
        while latest:
            below: Items = []
            for one in _numbered(context, latest):
                more = projection.run(context, one)
                context.spend(len(more))
                below += more
            latest = below
            found += latest
            if len(found) > MAX_ITEMS // 10:
                raise BudgetError(
                    f"the budget of {MAX_ITEMS // 10} items of repeatAll() is used up: it does not come to an end"
                )
        return found

    return Code(run, source.kind)


@shaped_function("aggregate", 1, 2)
def aggregate(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """`$total` after all items."""
    source = operand_of(compiler, focus, kind)
    items_of, aggregator = source.run, compiler.per_item(args[0], source.kind).nodes()
    start = compiler.compile(args[1], kind).nodes() if len(args) > 1 else nothing

    def run(context: Context, this: Items) -> Items:
        outer, items = context.total, items_of(context, this)
        context.total = start(context, this)
        for one in _numbered(context, items):
            context.total = aggregator(context, one)
            if len(context.total) > MAX_ITEMS:
                raise BudgetError(f"the budget of {MAX_ITEMS} items of a collection is used up")
        total, context.total = context.total, outer
        return total

    return Code(run)


@shaped_function("iif", 2, 3)
def iif(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """The second argument when the first is true, else the third; only the chosen one is evaluated."""
    source = operand_of(compiler, focus, kind)
    items_of, parts = source.run, [compiler.compile(arg, source.kind) for arg in args]
    criterion = parts[0].values()
    (chosen, *rest), result = joined(parts[1:])
    otherwise = rest[0] if rest else nothing

    def run(context: Context, this: Items) -> Items:
        items = items_of(context, this)
        if len(items) > 1:
            raise FhirPathError(f"iif() needs at most one item, got {len(items)}")
        answer = op.single(criterion(context, items), "iif()")
        if answer is not None and not isinstance(answer, bool):
            raise FhirPathError("the criterion of iif() is no boolean")
        return (chosen if answer else otherwise)(context, items)

    return Code(run, result)


@shaped_function("trace", 1, 2)
def trace(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """The focus, unchanged; the host gets it, or the projection when there is one."""
    source = operand_of(compiler, focus, kind)
    name = compiler.compile(args[0], kind).values()
    projection = compiler.per_item(args[1], source.kind).nodes() if len(args) > 1 else None

    def run(context: Context, this: Items) -> Items:
        items = source.run(context, this)
        if context.host.trace is not None:
            shown = items
            if projection is not None:
                shown = [item for one in _numbered(context, items) for item in projection(context, one)]
            context.host.trace(str(op.single(name(context, this), "trace()")), unwrap(shown))
        return items

    return Code(run, source.kind)


@shaped_function("defineVariable", 1, 2)
def define_variable(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """The focus, unchanged; `%name` has a value in what follows."""
    source = operand_of(compiler, focus, kind)
    name = compiler.compile(args[0], kind).values()
    value = compiler.compile(args[1], source.kind).nodes() if len(args) > 1 else None

    def run(context: Context, this: Items) -> Items:
        items = source.run(context, this)
        defined = value(context, items) if value else wrapped(items, source.kind)
        context.spend(1 + len(context.variables) + len(items))
        context.variables = {**context.variables, str(op.single(name(context, this), "defineVariable()")): defined}
        return items

    return Code(run, source.kind)


@shaped_function("sort", 0, 10)
def sort(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """The items in order of the keys; `-key` is descending; what has no value comes first either way."""
    source = operand_of(compiler, focus, kind)
    keys = []
    for arg in args or (ast.This("this"),):
        descending = isinstance(arg, ast.Unary) and arg.operator == "-"
        read = compiler.per_item(arg.operand if isinstance(arg, ast.Unary) else arg, source.kind).values()
        keys.append((read, -1 if descending else 1))

    def run(context: Context, this: Items) -> Items:
        items = source.run(context, this)
        context.spend(len(items) * len(items).bit_length() * len(keys))
        columns = [[key(context, one) for one in _numbered(context, items)] for key, _ in keys]

        def compare(a: int, b: int) -> int:
            for column, (_, direction) in zip(columns, keys, strict=True):
                order = _order_of_keys(column[a], column[b], direction)
                if order:
                    return order
            return 0

        return [items[i] for i in sorted(range(len(items)), key=cmp_to_key(compare))]

    return Code(run, source.kind)


def _order_of_keys(a: Items, b: Items, direction: int) -> int:
    if not a or not b:
        return bool(a) - bool(b)
    return (op.order(a, b, "sort()") or 0) * direction


@shaped_function("coalesce", 1, 50)
def coalesce(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
    """The first argument that is not empty."""
    choices, result = joined([compiler.compile(arg, kind) for arg in args])

    def run(context: Context, this: Items) -> Items:
        for choice in choices:
            items = choice(context, this)
            if items and any(plain(item) is not None for item in items):
                return items
        return []

    return Code(run, result)
