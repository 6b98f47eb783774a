"""Functions on numbers, and the boundaries and precision of numbers, quantities, dates and times.

Sources: http://hl7.org/fhirpath/N1/#math, https://hl7.org/fhirpath/#lowboundaryprecision-integer-decimal--date--datetime--time
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal, DecimalException
from typing import Any

from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.evaluation.context import Context as Evaluation
from ipf.fhir.fhirpath.evaluation.registry import plain_function
from ipf.fhir.fhirpath.items import operators as op
from ipf.fhir.fhirpath.items import quantities
from ipf.fhir.fhirpath.items.nodes import Items
from ipf.fhir.fhirpath.items.values import Date, DateTime, Quantity, Time

_ROUGH = Context(prec=24)


def _number(items: Items, name: str) -> Any:
    value = op.single(items, f"{name}()")
    if value is not None and not op.is_number(value):
        raise FhirPathError(f"{name}() needs a number")
    return value


def _on_number(name: str, call: Callable[..., Any], arguments: int = 0) -> None:
    """Register a function of numbers: empty when one is empty, and where there is no real answer."""

    def run(context: Evaluation, focus: Items, *args: Items) -> Items:
        numbers = [_number(items, name) for items in (focus, *args)]
        if any(number is None for number in numbers):
            return []
        try:
            return op.bounded(call(*numbers))
        except (DecimalException, ZeroDivisionError, OverflowError, ValueError):
            return []

    plain_function(name, arguments)(run)


def _power(base: Any, exponent: Any) -> Any:
    if type(base) is int and type(exponent) is int and 0 <= exponent <= 63 and abs(base) < 2**32:
        return base**exponent
    return Decimal(base) ** Decimal(exponent)


def _whole(rounding: str) -> Callable[[Any], int]:
    return lambda value: int(Decimal(value).to_integral_value(rounding=rounding)) if abs(value) < 2**64 else 2**64


_on_number("ceiling", _whole(ROUND_CEILING))
_on_number("floor", _whole(ROUND_FLOOR))
_on_number("truncate", _whole(ROUND_DOWN))
_on_number("exp", lambda value: _ROUGH.plus(Decimal(value).exp()))
_on_number("ln", lambda value: _ROUGH.plus(Decimal(value).ln()))
_on_number("log", lambda value, base: _ROUGH.plus(Decimal(value).ln() / Decimal(base).ln()), 1)
_on_number("power", _power, 1)
_on_number("sqrt", lambda value: Decimal(value).sqrt())


@plain_function("abs")
def absolute(context: Evaluation, focus: Items) -> Items:
    """The absolute value of a number or a quantity."""
    value = op.single(focus, "abs()")
    if isinstance(value, Quantity):
        return [Quantity(abs(value.value), value.unit, value.calendar)]
    number = _number(focus, "abs")
    return [] if number is None else op.bounded(abs(number))


@plain_function("round", 0, 1)
def round_number(context: Evaluation, focus: Items, precision: Items | None = None) -> Items:
    """Rounded half up to so many digits after the point (0 when not said)."""
    value = _number(focus, "round")
    digits = 0 if precision is None else _number(precision, "round")
    if value is None or digits is None:
        return []
    if type(digits) is not int or digits < 0:
        raise FhirPathError("round() needs a precision of 0 or more")
    return [op.round_to(Decimal(value), min(digits, 100))]


# --------------------------------------------------------------------------------------------------------------
# Boundaries and precision

_MOST_DIGITS = 31
_DATE_DIGITS = {4: 1, 6: 2, 8: 3, 10: 4, 12: 5, 14: 6, 17: 6}
_TIME_DIGITS = {2: 1, 4: 2, 6: 3, 9: 3}


@plain_function("lowBoundary", 0, 1)
def low_boundary(context: Evaluation, focus: Items, precision: Items | None = None) -> Items:
    """The lower boundary of a value, by its precision."""
    return _boundary(focus, precision, high=False)


@plain_function("highBoundary", 0, 1)
def high_boundary(context: Evaluation, focus: Items, precision: Items | None = None) -> Items:
    """The upper boundary of a value, by its precision."""
    return _boundary(focus, precision, high=True)


def _boundary(focus: Items, precision: Items | None, high: bool) -> Items:
    value = op.single(focus, "boundary")
    wanted = None if precision is None else _number(precision, "boundary")
    if value is None or (precision is not None and type(wanted) is not int):
        return []
    if isinstance(value, Quantity):
        number = _decimal_boundary(value.value, wanted, high)
        return [] if number is None else [Quantity(number, value.unit, value.calendar)]
    if op.is_number(value):
        number = _decimal_boundary(Decimal(value), wanted, high)
        return [] if number is None else [number]
    if isinstance(value, Time):
        return _time_boundary(value, 9 if wanted is None else wanted, high)
    if isinstance(value, (Date, DateTime)):
        return _date_boundary(value, wanted, high)
    raise FhirPathError("a boundary needs a number, a quantity, a date or a time")


def _decimal_boundary(value: Decimal, wanted: int | None, high: bool) -> Decimal | None:
    digits = 8 if wanted is None else wanted
    if not 0 <= digits <= _MOST_DIGITS:
        return None
    exponent = value.as_tuple().exponent
    half = Decimal(5).scaleb(min(int(exponent), 0) - 1)
    context = Context(prec=60)
    edge = context.add(value, half) if high else context.subtract(value, half)
    outwards = (edge > 0) == high
    try:
        return edge.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP if outwards else ROUND_DOWN, context)
    except DecimalException:
        return None


def _time_boundary(value: Time, wanted: int, high: bool) -> Items:
    size = _TIME_DIGITS.get(wanted)
    if size is None:
        return []
    rest = (23, 59, Decimal("59.999")) if high else (0, 0, Decimal("0.000"))
    parts = (*value.parts, *rest[len(value.parts) :])[:size]
    return [Time(_with_fraction(parts, 2, wanted == 9))]


def _date_boundary(value: Date | DateTime, wanted: int | None, high: bool) -> Items:
    digits = wanted if wanted is not None else (8 if isinstance(value, Date) else 17)
    size = _DATE_DIGITS.get(digits)
    if size is None:
        return []
    parts = list(value.parts)
    if len(parts) < 2:
        parts.append(12 if high else 1)
    if len(parts) < 3:
        parts.append(monthrange(int(parts[0]), int(parts[1]))[1] if high else 1)
    rest = (23, 59, Decimal("59.999")) if high else (0, 0, Decimal("0.000"))
    parts.extend(rest[len(parts) - 3 :])
    kept = _with_fraction(tuple(parts[:size]), 5, digits == 17)
    if size <= 3:
        return [Date(kept)]
    offset = value.offset if isinstance(value, DateTime) else None
    return [DateTime(kept, offset if offset is not None else (-12 * 60 if high else 14 * 60))]


def _with_fraction(parts: tuple[Any, ...], at: int, milliseconds: bool) -> tuple[Any, ...]:
    """Seconds with three digits after the point, or with none."""
    if len(parts) <= at:
        return parts
    digits = Decimal("0.001") if milliseconds else Decimal(1)
    return (*parts[:at], Decimal(parts[at]).quantize(digits, ROUND_DOWN), *parts[at + 1 :])


@plain_function("precision")
def precision_of(context: Evaluation, focus: Items) -> Items:
    """How many digits a number has after the point, or a date or time in all."""
    value = op.single(focus, "precision()")
    if value is None:
        return []
    if isinstance(value, (Date, DateTime, Time)):
        sizes = _TIME_DIGITS if isinstance(value, Time) else _DATE_DIGITS
        at = len(value.parts)
        full = at == (3 if isinstance(value, Time) else 6)
        fraction = full and Decimal(value.parts[-1]).as_tuple().exponent != 0
        found = [digits for digits, size in sizes.items() if size == at]
        return [found[-1] if fraction else found[0]]
    if isinstance(value, Quantity):
        value = value.value
    if not op.is_number(value):
        raise FhirPathError("precision() needs a number, a date or a time")
    return [max(0, -int(Decimal(value).as_tuple().exponent))]


@plain_function("comparable", 1)
def comparable(context: Evaluation, focus: Items, other: Items) -> Items:
    """Whether two quantities (or numbers) can be compared."""
    a, b = op.as_quantity(op.single(focus, "comparable()")), op.as_quantity(op.single(other, "comparable()"))
    return [] if a is None or b is None else [quantities.common(a, b) is not None]
