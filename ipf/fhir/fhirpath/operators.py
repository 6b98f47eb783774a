"""Equality, equivalence, order, arithmetic and logic, on items.

Three-valued: None (or an empty list) is an empty result.  Source: http://hl7.org/fhirpath/N1/#operations.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, DecimalException
from typing import Any

from ipf.fhir.fhirpath import units, values
from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.nodes import FhirNode, Items, is_foreign, plain
from ipf.fhir.fhirpath.values import Date, DateTime, Quantity, Time, parse_date, parse_datetime, parse_time

MAX_TEXT = 10_000_000
_MAX_INTEGER = 2**63
Number = int | Decimal


def is_number(value: Any) -> bool:
    """Whether a value is an int or a Decimal, not a bool."""
    kind = type(value)
    return kind is int or (kind is not bool and isinstance(value, (int, Decimal)))


def single(items: Items, what: str) -> Any:
    """The one value of a collection, None when it has none; more than one is an error.

    Of a repeated HL7 v2 field the first repetition counts, also where the standard allows one, so that the message can
    be converted.
    """
    if len(items) != 1:
        if not items:
            return None
        if is_foreign(items[0]):
            return plain(items[0])
        raise FhirPathError(f"{what} needs one item, got {len(items)}")
    return plain(items[0])


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


def _quantities(a: Any, b: Any) -> tuple[Quantity | None, Quantity | None]:
    return as_quantity(a), as_quantity(b)


def _equal_quantities(a: Any, b: Any) -> bool | None:
    left, right = _quantities(a, b)
    if left is None or right is None:
        return False
    if left.unit == right.unit and left.calendar == right.calendar:
        return left.value == right.value
    x, y = units.canonical(left), units.canonical(right)
    if x is None or y is None:
        return False
    if x[1] == y[1]:
        return x[0] == y[0]
    return None if _calendar_against_definite(x[1], y[1]) else False


def _calendar_against_definite(a: units.Dimensions, b: units.Dimensions) -> bool:
    return {a, b} == {(("calendar month", 1),), (("s", 1),)}


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
        base = units.canonical(value)
        return ("quantity", value.value, value.unit) if base is None else ("quantity", *base)
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
# Equivalence


def equivalent(left: Items, right: Items) -> bool:
    """`left ~ right`: any order, texts without case and white space, numbers to the coarser precision."""
    if len(left) != len(right):
        return False
    if len(left) == 1:
        return _equivalent_items(plain(left[0]), plain(right[0]))
    if sorted(map(repr, map(_loose_key, left))) == sorted(map(repr, map(_loose_key, right))):
        return True
    if len(left) > 1000:
        return False
    rest = [plain(item) for item in right]
    for item in left:
        value = plain(item)
        found = next((i for i, other in enumerate(rest) if _equivalent_items(value, other)), None)
        if found is None:
            return False
        del rest[found]
    return True


def _equivalent_items(a: Any, b: Any) -> bool:
    if is_number(a) and is_number(b):
        return _equivalent_numbers(Decimal(a), Decimal(b))
    if isinstance(a, Quantity) and isinstance(b, Quantity):
        return _equivalent_quantities(a, b)
    if isinstance(a, (Date, DateTime)) and isinstance(b, (Date, DateTime)):
        return values.compare(a, b) == 0
    return bool(_loose_key(a) == _loose_key(b))


def _equivalent_numbers(a: Decimal, b: Decimal) -> bool:
    digits = min(_fraction_digits(a), _fraction_digits(b))
    return round_to(a, digits) == round_to(b, digits)


def _equivalent_quantities(a: Quantity, b: Quantity) -> bool:
    if a.unit == b.unit:
        return _equivalent_numbers(a.value, b.value)
    x, y = _definite(a), _definite(b)
    inside = units.convert(y, x.unit)
    if inside is None:
        return False
    digits = min(_fraction_digits(x.value), _fraction_digits(inside.value.normalize()))
    return round_to(x.value, digits) == round_to(inside.value, digits)


def _definite(quantity: Quantity) -> Quantity:
    """For equivalence a calendar year is 1 'a', a month 1 'mo'."""
    if not quantity.calendar:
        return quantity
    codes = {"year": "a", "month": "mo", **{word: code for code, word in units.CALENDAR_OF.items()}}
    return Quantity(quantity.value, codes[quantity.unit])


def _fraction_digits(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def round_to(value: Decimal, digits: int) -> Decimal:
    """Rounded half up to so many digits after the point; unchanged when it has too many digits for that."""
    try:
        return value.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)
    except DecimalException:
        return value


def _loose_key(item: Any) -> Any:
    value = plain(item)
    if type(value) is str:
        return " ".join(value.lower().split())
    if type(value) is FhirNode:
        return _loose_json(value.value)
    return key_of(value)


def _loose_json(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted((name, _loose_json(child)) for name, child in value.items() if name != "id"))
    if isinstance(value, list):
        return tuple(sorted((_loose_json(child) for child in value), key=repr))
    return " ".join(value.lower().split()) if isinstance(value, str) else key_of(value)


# --------------------------------------------------------------------------------------------------------------
# Order and arithmetic


def order(left: Items, right: Items, operator: str) -> int | None:
    """-1, 0 or 1 for `<`, `<=`, `>`, `>=`; None when undecided; an error for types without a common order."""
    a, b = single(left, operator), single(right, operator)
    if a is None or b is None:
        return None
    if (type(a) is str and type(b) is str) or (is_number(a) and is_number(b)):
        return int(a > b) - int(a < b)
    if isinstance(a, Quantity) or isinstance(b, Quantity):
        return _order_quantities(a, b, operator)
    a, b = _both_temporal(left[0], a, right[0], b)
    if a is None or b is None or isinstance(a, Time) != isinstance(b, Time):
        raise FhirPathError(f"'{operator}' cannot compare these types")
    return values.compare(a, b)


def _order_quantities(a: Any, b: Any, operator: str) -> int | None:
    left, right = _quantities(a, b)
    if left is None or right is None:
        raise FhirPathError(f"'{operator}' cannot compare a quantity with this type")
    if left.unit == right.unit and left.calendar == right.calendar:
        return (left.value > right.value) - (left.value < right.value)
    x, y = units.canonical(left), units.canonical(right)
    return None if x is None or y is None or x[1] != y[1] else (x[0] > y[0]) - (x[0] < y[0])


def arithmetic(operator: str, a: Any, b: Any) -> Items:
    """`+ - * / div mod` on two values; empty on overflow and division by zero."""
    try:
        if is_number(a) and is_number(b):
            return bounded(_NUMERIC[operator](a, b))
        if type(a) is str and type(b) is str and operator == "+":
            return text(a + b)
        if isinstance(a, (Date, DateTime, Time)) and isinstance(b, Quantity) and operator in "+-":
            return _shift(a, b, operator)
        left, right = _quantities(a, b)
        if left is not None and right is not None:
            return _on_quantities(operator, left, right)
    except (DecimalException, ZeroDivisionError, OverflowError):
        return []
    raise FhirPathError(f"'{operator}' cannot be applied to these types")


def bounded(value: Number) -> Items:
    """A number as a result; empty beyond 64 bits for integers, beyond the range of the context for decimals."""
    if isinstance(value, int):
        return [value] if -_MAX_INTEGER <= value < _MAX_INTEGER else []
    return [value] if value.is_finite() else []


def text(value: str) -> Items:
    """A text as a result, of bounded length."""
    if len(value) > MAX_TEXT:
        raise FhirPathError(f"a text of more than {MAX_TEXT} characters")
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
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "div": _whole_division,
    "mod": _remainder,
}


def _shift(moment: values.Temporal, quantity: Quantity, operator: str) -> Items:
    unit = quantity.unit if quantity.calendar else units.CALENDAR_OF.get(quantity.unit)
    if unit is None and quantity.unit.removesuffix("s") in ("year", "month", *units.CALENDAR_OF.values()):
        unit = quantity.unit.removesuffix("s")
    if unit is None:
        raise FhirPathError(f"'{quantity.unit}' is not a duration that can be added to a date")
    moved = values.add(moment, quantity.value if operator == "+" else -quantity.value, unit)
    return [] if moved is None else [moved]


def _on_quantities(operator: str, left: Quantity, right: Quantity) -> Items:
    if operator in "*/":
        result = units.product(left, right, 1 if operator == "*" else -1)
        return [] if result is None else [result]
    if operator not in "+-":
        raise FhirPathError(f"'{operator}' cannot be applied to quantities")
    other: Quantity | None = right
    if left.unit != right.unit or left.calendar != right.calendar:
        other = units.convert(right, left.unit) if not left.calendar else None
    if other is None:
        return []
    value = left.value + other.value if operator == "+" else left.value - other.value
    return [Quantity(value, left.unit, left.calendar)]
