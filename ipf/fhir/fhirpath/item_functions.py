"""Functions that evaluate an argument once per item, or read it as a type.

Sources: http://hl7.org/fhirpath/N1/#functions (5.1, 5.2, 5.9), #types (6.3), #aggregates (7).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from typing import Any

from ipf.fhir.fhirpath import ast
from ipf.fhir.fhirpath import operators as op
from ipf.fhir.fhirpath.context import MAX_ITEMS, Context
from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.model import SYSTEM_TYPES, Model
from ipf.fhir.fhirpath.nodes import Items, is_type, plain, unwrap
from ipf.fhir.fhirpath.registry import Compiling, Run, shaped_function

Arguments = tuple[ast.Node, ...]


def per_item(context: Context, items: Items, run: Run) -> list[Items]:
    """The answer of `run` for each item as `$this`."""
    this, index = context.this, context.index
    answers: list[Items] = []
    context.spend(len(items))
    for i, item in enumerate(items):
        context.this = [item]
        context.index = i
        answers.append(run(context))
    context.this, context.index = this, index
    return answers


@shaped_function("where", 1)
def where(compiler: Compiling, source: Run, args: Arguments) -> Run:
    """The items for which the criterion is true."""
    criterion = compiler.compile(args[0])

    def run(context: Context) -> Items:
        items = source(context)
        answers = per_item(context, items, criterion)
        return [item for item, answer in zip(items, answers, strict=True) if context.truth(answer)]

    return run


@shaped_function("exists", 0, 1)
def exists(compiler: Compiling, source: Run, args: Arguments) -> Run:
    """Whether there is any item, or any for which the criterion is true."""
    if args:
        source = where(compiler, source, args)
    return lambda context: [bool(source(context))]


@shaped_function("all", 1)
def all_items(compiler: Compiling, source: Run, args: Arguments) -> Run:
    """Whether the criterion is true for every item."""
    criterion = compiler.compile(args[0])
    return lambda context: [all(context.truth(answer) for answer in per_item(context, source(context), criterion))]


@shaped_function("select", 1)
def select(compiler: Compiling, source: Run, args: Arguments) -> Run:
    """The answers of all items in one collection."""
    projection = compiler.compile(args[0])

    def run(context: Context) -> Items:
        found = [item for answer in per_item(context, source(context), projection) for item in answer]
        context.spend(len(found))
        return found

    return run


@shaped_function("repeat", 1)
def repeat(compiler: Compiling, source: Run, args: Arguments) -> Run:
    """The answers, their answers, and so on, each once."""
    projection = compiler.compile(args[0])

    def run(context: Context) -> Items:
        found: dict[Any, Any] = {}
        latest = source(context)
        while latest:
            fresh: Items = []
            for answer in per_item(context, latest, projection):
                for item in answer:
                    key = op.key_of(item)
                    if key not in found:
                        found[key] = item
                        fresh.append(item)
                        context.spend(len(item) // 16 if type(item) is str else 0)
            if len(found) > MAX_ITEMS // 10:
                raise FhirPathError("repeat() does not come to an end")
            latest = fresh
        return list(found.values())

    return run


@shaped_function("repeatAll", 1)
def repeat_all(compiler: Compiling, source: Run, args: Arguments) -> Run:
    """The answers, their answers, and so on, with duplicates."""
    projection = compiler.compile(args[0])

    def run(context: Context) -> Items:
        found: Items = []
        latest = source(context)
        while latest:
            latest = [item for answer in per_item(context, latest, projection) for item in answer]
            found.extend(latest)
            if len(found) > MAX_ITEMS // 10:
                raise FhirPathError("repeatAll() does not come to an end")
        return found

    return run


@shaped_function("aggregate", 1, 2)
def aggregate(compiler: Compiling, source: Run, args: Arguments) -> Run:
    """`$total` after all items."""
    aggregator = compiler.compile(args[0])
    start = compiler.compile(args[1]) if len(args) > 1 else None

    def run(context: Context) -> Items:
        outer = context.this, context.index, context.total
        items = source(context)
        context.total = start(context) if start else []
        context.spend(len(items))
        for i, item in enumerate(items):
            context.this, context.index = [item], i
            context.total = aggregator(context)
            if len(context.total) > MAX_ITEMS:
                raise FhirPathError(f"a collection of more than {MAX_ITEMS} items")
        total = context.total
        context.this, context.index, context.total = outer
        return total

    return run


@shaped_function("iif", 2, 3)
def iif(compiler: Compiling, source: Run, args: Arguments) -> Run:
    """The second argument when the first is true, else the third; only the chosen one is evaluated."""
    criterion, chosen, *rest = [compiler.compile(arg) for arg in args]
    otherwise: Run = rest[0] if rest else lambda context: []

    def run(context: Context) -> Items:
        focus = source(context)
        if len(focus) > 1:
            raise FhirPathError(f"iif() needs at most one item, got {len(focus)}")
        this = context.this
        context.this = focus
        answer = op.single(criterion(context), "iif()")
        if answer is not None and not isinstance(answer, bool):
            raise FhirPathError("the criterion of iif() is no boolean")
        found = (chosen if answer else otherwise)(context)
        context.this = this
        return found

    return run


@shaped_function("trace", 1, 2)
def trace(compiler: Compiling, source: Run, args: Arguments) -> Run:
    """The focus, unchanged; the host gets it, or the projection when there is one."""
    name = compiler.compile(args[0])
    projection = compiler.compile(args[1]) if len(args) > 1 else None

    def run(context: Context) -> Items:
        items = source(context)
        if context.host.trace is not None:
            shown = items
            if projection is not None:
                shown = [item for answer in per_item(context, items, projection) for item in answer]
            context.host.trace(str(op.single(name(context), "trace()")), unwrap(shown))
        return items

    return run


@shaped_function("defineVariable", 1, 2)
def define_variable(compiler: Compiling, source: Run, args: Arguments) -> Run:
    """The focus, unchanged; `%name` has a value in what follows."""
    name = compiler.compile(args[0])
    value = compiler.compile(args[1]) if len(args) > 1 else None

    def run(context: Context) -> Items:
        items = source(context)
        this = context.this
        context.this = items
        defined = value(context) if value else items
        context.this = this
        context.variables[str(op.single(name(context), "defineVariable()"))] = defined
        return items

    return run


@shaped_function("sort", 0, 10)
def sort(compiler: Compiling, source: Run, args: Arguments) -> Run:
    """The items in order of the keys; `-key` is descending; what has no value comes first either way."""
    keys: list[tuple[Run, int]] = []
    for arg in args or (ast.This("this"),):
        descending = isinstance(arg, ast.Unary) and arg.operator == "-"
        keys.append((compiler.compile(arg.operand if isinstance(arg, ast.Unary) else arg), -1 if descending else 1))

    def run(context: Context) -> Items:
        items = source(context)
        columns = [per_item(context, items, key) for key, _ in keys]

        def compare(a: int, b: int) -> int:
            for column, (_, direction) in zip(columns, keys, strict=True):
                order = _order_of_keys(column[a], column[b], direction)
                if order:
                    return order
            return 0

        return [items[i] for i in sorted(range(len(items)), key=cmp_to_key(compare))]

    return run


def _order_of_keys(a: Items, b: Items, direction: int) -> int:
    if not a or not b:
        return bool(a) - bool(b)
    return (op.order(a, b, "sort()") or 0) * direction


# --------------------------------------------------------------------------------------------------------------
# Types


def type_of_syntax(node: ast.Node) -> str:
    """`Patient` or `FHIR.Patient`, written as an argument."""
    if isinstance(node, ast.Member):
        return node.name if node.focus is None else f"{type_of_syntax(node.focus)}.{node.name}"
    if isinstance(node, ast.Literal) and isinstance(node.value, str):
        return node.value
    raise FhirPathError("a type name is needed", kind="semantic")


def read_type(model: Model, written: str) -> tuple[str, str]:
    """(namespace or "", name); a type that neither FHIR nor System has is an error."""
    namespace, mark, name = written.rpartition(".")
    if mark and namespace not in ("FHIR", "System"):
        return "", written
    known = model.is_known(name) or (name in SYSTEM_TYPES and namespace != "FHIR")
    if not known and namespace != "System":
        raise FhirPathError(f"unknown type '{written}'", kind="semantic")
    return namespace, name


def type_test(compiler: Compiling, source: Run, written: str) -> Run:
    """`is`."""
    model = compiler.model
    namespace, name = read_type(model, written)

    def run(context: Context) -> Items:
        items = source(context)
        if len(items) > 1:
            raise FhirPathError(f"'is' needs one item, got {len(items)}")
        return [is_type(items[0], namespace, name, model)] if items else []

    return run


def type_filter(compiler: Compiling, source: Run, written: str) -> Run:
    """`as`: like ofType(), but more than one item is an error in strict mode.

    R4's own search parameters use `as` on collections, so it is not refused otherwise.
    """
    chosen = _of_type(compiler, source, written)
    if not compiler.strict:
        return chosen

    def run(context: Context) -> Items:
        items = source(context)
        if len(items) > 1:
            raise FhirPathError(f"'as' needs one item, got {len(items)}")
        return chosen(context)

    return run


def _of_type(compiler: Compiling, source: Run, written: str) -> Run:
    model = compiler.model
    namespace, name = read_type(model, written)
    return lambda context: [
        item for item in source(context) if is_type(item, namespace, name, model, exact_primitive=True)
    ]


def _type_function(build: Callable[[Compiling, Run, str], Run]) -> Callable[[Compiling, Run, Arguments], Run]:
    return lambda compiler, source, args: build(compiler, source, type_of_syntax(args[0]))


shaped_function("is", 1)(_type_function(type_test))
shaped_function("as", 1)(_type_function(type_filter))
shaped_function("ofType", 1)(_type_function(_of_type))


@shaped_function("coalesce", 1, 50)
def coalesce(compiler: Compiling, source: Run, args: Arguments) -> Run:
    """The first argument that is not empty."""
    choices = [compiler.compile(arg) for arg in args]

    def run(context: Context) -> Items:
        for choice in choices:
            items = choice(context)
            if items and any(plain(item) is not None for item in items):
                return items
        return []

    return run
