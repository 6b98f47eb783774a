"""Equality, order, arithmetic and logic, on items.

Three-valued: None (or an empty list) is an empty result.  Source: http://hl7.org/fhirpath/N1/#operations.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, DecimalException
from operator import add, mul, sub
from typing import Any

from ipf.fhir.fhirpath.errors import BudgetError, FhirPathError
from ipf.fhir.fhirpath.items import quantities, values
from ipf.fhir.fhirpath.items.nodes import NUMBERS, SCALARS, FhirNode, Items, is_foreign, plain
from ipf.fhir.fhirpath.items.values import Date, DateTime, Quantity, Time, parse_date, parse_datetime, parse_time

MAX_TEXT = 10_000_000
_MAX_INTEGER = 2**63
Number = int | Decimal


def is_number(value: Any) -> bool:
    """Whether a value is an int or a Decimal, not a bool."""
    return type(value) in NUMBERS


def single(items: Items, what: str) -> Any:
    """The one value of a collection, None when it has none; more than one is an error.

    Of a repeated HL7 v2 field the first repetition counts, also where the standard allows one, so that the message can
    be converted.
    """
    if len(items) == 1:
        item = items[0]
        return item if type(item) in SCALARS else plain(item)
    if items and is_foreign(items[0]):
        return plain(items[0])
    if not items:
        return None
    raise FhirPathError(f"{what} needs one item, got {len(items)}")


def truth(items: Items) -> bool | None:
    """A collection as a boolean: empty is None, one item that is no boolean counts as true."""
    if not items:
        return None
    if len(items) > 1:
        raise FhirPathError(f"a boolean is needed, got {len(items)} items")
    value = plain(items[0])
    return value if isinstance(value, bool) else True


def equal(left: Items, right: Items) -> bool | None:
    """`left = right`."""
    if not left or not right:
        return None
    if len(left) != len(right):
        return False
    answer: bool | None = True
    for a, b in zip(left, right, strict=True):
        same = equal_items(a, b)
        if same is False:
            return False
        answer = answer and same
    return answer


def equal_items(left: Any, right: Any) -> bool | None:
    """Equality of two items; None when precision or units do not decide it."""
    a, b = plain(left), plain(right)
    if type(a) is str and type(b) is str:
        return bool(a == b)
    if is_number(a) and is_number(b):
        return bool(a == b)
    if isinstance(a, Quantity) or isinstance(b, Quantity):
        return _equal_quantities(a, b)
    if isinstance(a, (Date, DateTime, Time)) or isinstance(b, (Date, DateTime, Time)):
        a, b = _both_temporal(left, a, right, b)
        if a is None or b is None or isinstance(a, Time) != isinstance(b, Time):
            return False
        order = values.compare(a, b)
        return None if order is None else bool(order == 0)
    return _same_structure(a, b)


def _same_structure(a: Any, b: Any) -> bool:
    if type(a) is FhirNode and type(b) is FhirNode:
        return bool(key_of(a) == key_of(b))
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _both_temporal(left: Any, a: Any, right: Any, b: Any) -> tuple[Any, Any]:
    """Text of data of unknown type is read as a date when the other side is one."""
    return _temporal(left, a, b), _temporal(right, b, a)


def _temporal(item: Any, value: Any, other: Any) -> Any:
    if isinstance(value, (Date, DateTime, Time)):
        return value
    if type(value) is str and type(item) is FhirNode and item.type is None:
        return parse_time(value) if isinstance(other, Time) else parse_date(value) or parse_datetime(value)
    return None


def as_quantity(value: Any) -> Quantity | None:
    """A quantity, or a number as a quantity of unit `1`."""
    if isinstance(value, Quantity):
        return value
    return Quantity(Decimal(value)) if is_number(value) else None


def _equal_quantities(a: Any, b: Any) -> bool | None:
    left, right = as_quantity(a), as_quantity(b)
    return False if left is None or right is None else quantities.equal(left, right)


def key_of(item: Any) -> Any:
    """A hashable that is the same for items that are equal: for distinct, union and the like."""
    value = plain(item)
    if type(value) is str:
        return value
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, (Date, DateTime, Time)):
        return _temporal_key(value)
    if isinstance(value, Quantity):
        return ("quantity", quantities.key(value))
    if type(value) is FhirNode:
        return json_key(value.value) if value.extra is None else (json_key(value.value), json_key(value.extra))
    return value


def distinct(items: Items) -> Items:
    """The items without those equal to an earlier one."""
    if len(items) < 2:
        return items
    seen: dict[Any, Any] = {}
    for item in items:
        seen.setdefault(key_of(item), item)
    return list(seen.values())


def _temporal_key(value: values.Temporal) -> Any:
    offset = value.offset if isinstance(value, DateTime) else None
    kind = "time" if isinstance(value, Time) else "date"
    if offset:
        value = values.add(value, Decimal(-offset), "minute") or value
    return (kind, value.parts, offset is not None)


def json_key(value: Any) -> Any:
    """A hashable that is the same for equal JSON."""
    if isinstance(value, dict):
        return frozenset((name, json_key(child)) for name, child in value.items())
    if isinstance(value, list):
        return tuple(json_key(child) for child in value)
    return ("boolean", value) if isinstance(value, bool) else value


# --------------------------------------------------------------------------------------------------------------
# Order and arithmetic


def order(left: Items, right: Items, operator: str) -> int | None:
    """-1, 0 or 1 for `<`, `<=`, `>`, `>=`; None when undecided; an error for types without a common order."""
    a, b = single(left, operator), single(right, operator)
    if a is None or b is None:
        return None
    if (type(a) in NUMBERS and type(b) in NUMBERS) or (type(a) is str and type(b) is str):
        found: int = (a > b) - (a < b)
        return found
    if isinstance(a, Quantity) or isinstance(b, Quantity):
        return _order_quantities(a, b, operator)
    a, b = _both_temporal(left[0], a, right[0], b)
    if a is None or b is None or isinstance(a, Time) != isinstance(b, Time):
        raise FhirPathError(f"'{operator}' cannot compare these types")
    return values.compare(a, b)


def _order_quantities(a: Any, b: Any, operator: str) -> int | None:
    left, right = as_quantity(a), as_quantity(b)
    if left is None or right is None:
        raise FhirPathError(f"'{operator}' cannot compare a quantity with this type")
    found = quantities.common(left, right)
    return None if found is None else (found[0] > found[1]) - (found[0] < found[1])


def arithmetic(operator: str, a: Any, b: Any) -> Items:
    """`+ - * / div mod` on two values; empty on overflow and division by zero."""
    try:
        if type(a) in NUMBERS and type(b) in NUMBERS:
            return bounded(_NUMERIC[operator](a, b))
        if type(a) is str and type(b) is str and operator == "+":
            return text(a + b)
        if isinstance(a, (Date, DateTime, Time)) and isinstance(b, Quantity) and operator in "+-":
            return _shift(a, b, operator)
        left, right = as_quantity(a), as_quantity(b)
        if left is not None and right is not None:
            result = quantities.arithmetic(operator, left, right)
            return [] if result is None else [result]
    except (DecimalException, ZeroDivisionError, OverflowError):
        return []
    raise FhirPathError(f"'{operator}' cannot be applied to these types")


def round_to(value: Decimal, digits: int) -> Decimal:
    """Rounded half up to so many digits after the point; unchanged when it has too many digits for that."""
    try:
        return value.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)
    except DecimalException:
        return value


def bounded(value: Number) -> Items:
    """A number as a result; empty beyond 64 bits for integers, beyond the range of the context for decimals."""
    if isinstance(value, int):
        return [value] if -_MAX_INTEGER <= value < _MAX_INTEGER else []
    return [value] if value.is_finite() else []


def text(value: str) -> Items:
    """A text as a result, of bounded length."""
    if len(value) > MAX_TEXT:
        raise BudgetError(f"the budget of {MAX_TEXT} characters of a text is used up")
    return [value]


def _divide(a: Number, b: Number) -> Decimal:
    return Decimal(a) / Decimal(b)


def _whole_division(a: Number, b: Number) -> int:
    return int(Decimal(a) // Decimal(b)) if isinstance(a, Decimal) or isinstance(b, Decimal) else _truncated(a, b)


def _truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: Number, b: Number) -> Number:
    if isinstance(a, Decimal) or isinstance(b, Decimal):
        return Decimal(a) % Decimal(b)
    return a - b * _truncated(a, b)


_NUMERIC: dict[str, Callable[[Any, Any], Number]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "/": _divide,
    "div": _whole_division,
    "mod": _remainder,
}


def _shift(moment: values.Temporal, quantity: Quantity, operator: str) -> Items:
    unit = quantities.duration_unit(quantity)
    if isinstance(moment, Time) and unit in ("year", "month", "week", "day"):
        raise FhirPathError(f"a {unit} cannot be added to a time of day")
    moved = values.add(moment, quantity.value if operator == "+" else -quantity.value, unit)
    return [] if moved is None else [moved]
