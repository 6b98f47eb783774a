"""sum(), min(), max() and avg(): of numbers, quantities, and (min, max) all that has an order.

Source: https://hl7.org/fhirpath/#aggregates (trial use).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Any

from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.evaluation.context import Context
from ipf.fhir.fhirpath.evaluation.registry import plain_function
from ipf.fhir.fhirpath.items import operators as op
from ipf.fhir.fhirpath.items.nodes import Items, plain
from ipf.fhir.fhirpath.items.values import Quantity


def _summands(focus: Items, name: str) -> list[Any]:
    """The values; none if an element has no value, as the sum of it and another is empty."""
    values = [plain(item) for item in focus]
    if None in values:
        return []
    if not (all(op.is_number(value) for value in values) or all(isinstance(value, Quantity) for value in values)):
        raise FhirPathError(f"{name}() needs numbers or quantities")
    return values


def _total(focus: Items, name: str) -> Items:
    found: Items = []
    for value in _summands(focus, name):
        found = op.arithmetic("+", found[0], value) if found else [value]
        if not found:
            return []
    return found


@plain_function("sum")
def sum_of(context: Context, focus: Items) -> Items:
    """The sum; empty when units differ or it leaves the range."""
    return _total(focus, "sum")


@plain_function("avg")
def average(context: Context, focus: Items) -> Items:
    """The sum divided by the number of items."""
    values = _summands(focus, "avg")
    if values and isinstance(values[0], Quantity):
        first = values[0]
        if all((one.unit, one.calendar) == (first.unit, first.calendar) for one in values):
            mean = op.arithmetic("/", sum(one.value for one in values), len(values))  # also of units that have no sum
            return [Quantity(Decimal(number), first.unit, first.calendar) for number in mean]
    total = _total(focus, "avg")
    return op.arithmetic("/", total[0], len(focus)) if total else []


def _extreme(name: str, wanted: int) -> Callable[[Context, Items], Items]:
    def run(context: Context, focus: Items) -> Items:
        def better(a: Items, b: Items) -> Items:
            if not a:
                return []
            order = op.order(b, a, f"{name}()")
            return [] if order is None else b if order == wanted else a

        return reduce(better, [[item] for item in focus]) if focus else []

    return run


plain_function("min", reads="nodes")(_extreme("min", -1))
plain_function("max", reads="nodes")(_extreme("max", 1))
