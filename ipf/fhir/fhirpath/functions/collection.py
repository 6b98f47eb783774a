"""Functions on whole collections: counting, subsets, combining, walking the tree.

Sources: http://hl7.org/fhirpath/N1/#functions (5.1, 5.3, 5.4, 5.8), https://hl7.org/fhir/R4/fhirpath.html#functions.
"""

from __future__ import annotations

from typing import Any

from ipf.fhir.fhirpath.errors import BudgetError, FhirPathError
from ipf.fhir.fhirpath.evaluation.code import Code, operand_of
from ipf.fhir.fhirpath.evaluation.context import MAX_ITEMS, Context
from ipf.fhir.fhirpath.evaluation.registry import Arguments, Compiling, plain_function, shaped_function
from ipf.fhir.fhirpath.items import operators as op
from ipf.fhir.fhirpath.items.nodes import Items, all_children, is_foreign, plain, type_of
from ipf.fhir.fhirpath.language import ast


@plain_function("count", reads="items")
def count(context: Context, focus: Items) -> Items:
    """The number of items."""
    return [len(focus)]


@plain_function("distinct", reads="nodes")
def distinct(context: Context, focus: Items) -> Items:
    """The items without duplicates."""
    context.spend_on(focus)
    return op.distinct(focus)


@plain_function("isDistinct")
def is_distinct(context: Context, focus: Items) -> Items:
    """Whether there are no duplicates."""
    context.spend_on(focus)
    return [len(op.distinct(focus)) == len(focus)]


def _booleans(focus: Items, name: str) -> list[bool]:
    values = [plain(item) for item in focus]
    if not all(isinstance(value, bool) for value in values):
        raise FhirPathError(f"{name}() needs booleans")
    return values


@plain_function("allTrue")
def all_true(context: Context, focus: Items) -> Items:
    """Whether all booleans are true."""
    return [all(_booleans(focus, "allTrue"))]


@plain_function("anyTrue")
def any_true(context: Context, focus: Items) -> Items:
    """Whether any boolean is true."""
    return [any(_booleans(focus, "anyTrue"))]


@plain_function("allFalse")
def all_false(context: Context, focus: Items) -> Items:
    """Whether all booleans are false."""
    return [not any(_booleans(focus, "allFalse"))]


@plain_function("anyFalse")
def any_false(context: Context, focus: Items) -> Items:
    """Whether any boolean is false."""
    return [not all(_booleans(focus, "anyFalse"))]


def _keys(items: Items) -> set[Any]:
    return {op.key_of(item) for item in items}


@plain_function("subsetOf", 1)
def subset_of(context: Context, focus: Items, other: Items) -> Items:
    """Whether the other collection has every item."""
    context.spend_on(focus, other)
    return [_keys(focus) <= _keys(other)]


@plain_function("supersetOf", 1)
def superset_of(context: Context, focus: Items, other: Items) -> Items:
    """Whether every item of the other collection is here."""
    context.spend_on(focus, other)
    return [_keys(other) <= _keys(focus)]


@plain_function("single", reads="items", keeps=True)
def single(context: Context, focus: Items) -> Items:
    """The one item; more than one is an error."""
    if len(focus) > 1:
        raise FhirPathError(f"single() found {len(focus)} items")
    return focus


_LONG_COPY = 16  # items that are copied in a step


def _part(name: str, part: slice) -> None:
    def build(compiler: Compiling, focus: ast.Node | None, args: Arguments, kind: str | None) -> Code:
        source = operand_of(compiler, focus, kind)
        items_of = source.run

        def run(context: Context, this: Items) -> Items:
            found = items_of(context, this)[part]
            if len(found) > _LONG_COPY:
                context.spend(len(found) // _LONG_COPY)
            return found

        return Code(run, source.kind, pure=source.pure)

    shaped_function(name)(build)


_part("first", slice(1))
_part("last", slice(-1, None))
_part("tail", slice(1, None))


def _number(value: Items, name: str) -> int | None:
    number = op.single(value, name)
    if number is not None and type(number) is not int:
        raise FhirPathError(f"{name} needs an integer")
    return number


@plain_function("skip", 1, reads="items", keeps=True)
def skip(context: Context, focus: Items, number: Items) -> Items:
    """All but the first n."""
    n = _number(number, "skip()")
    return [] if n is None else focus[max(n, 0) :]


@plain_function("take", 1, reads="items", keeps=True)
def take(context: Context, focus: Items, number: Items) -> Items:
    """The first n."""
    n = _number(number, "take()")
    return [] if n is None else focus[: max(n, 0)]


@plain_function("intersect", 1, reads="nodes")
def intersect(context: Context, focus: Items, other: Items) -> Items:
    """The items that are in both, each once."""
    context.spend_on(focus, other)
    keys = _keys(other)
    return op.distinct([item for item in focus if op.key_of(item) in keys])


@plain_function("exclude", 1, reads="nodes")
def exclude(context: Context, focus: Items, other: Items) -> Items:
    """The items that are not in the other collection, with duplicates."""
    context.spend_on(focus, other)
    keys = _keys(other)
    return [item for item in focus if op.key_of(item) not in keys]


@plain_function("union", 1, reads="nodes")
def union(context: Context, focus: Items, other: Items) -> Items:
    """Both collections, without duplicates."""
    context.spend_on(focus, other)
    return op.distinct(combine(context, focus, other))


@plain_function("combine", 1, reads="nodes")
def combine(context: Context, focus: Items, other: Items) -> Items:
    """Both collections, with duplicates."""
    context.spend(len(focus) + len(other))
    if len(focus) + len(other) > MAX_ITEMS:
        raise BudgetError(f"the budget of {MAX_ITEMS} items of a collection is used up")
    return focus + other


@plain_function("children", reads="nodes")
def children(context: Context, focus: Items) -> Items:
    """All direct children."""
    found = all_children(focus, context.model)
    context.spend(len(found))
    return found


@plain_function("descendants", reads="nodes")
def descendants(context: Context, focus: Items) -> Items:
    """All children, their children, and so on."""
    found: Items = []
    level = children(context, focus)
    while level:
        found.extend(level)
        level = children(context, level)
    return found


@plain_function("type", reads="nodes")
def type_function(context: Context, focus: Items) -> Items:
    """The type of each item."""
    return [info for item in focus if not is_foreign(item) and (info := type_of(item, context.model)) is not None]
