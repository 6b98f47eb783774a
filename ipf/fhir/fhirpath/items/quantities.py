"""Quantities: comparison, conversion and arithmetic in UCUM units and in calendar durations.

Calendar durations convert among themselves: a year is 12 months or 365 days, a month 30 days.  From weeks down they are
the definite durations of UCUM.  A calendar year or month has no definite length: it is neither equal to `1 'a'` and
`1 'mo'` nor comparable with them, only equivalent.

Sources: http://hl7.org/fhirpath/N1/#time-valued-quantities, https://hl7.org/fhirpath/#fn-toquantity-conversion-factors.
"""

from __future__ import annotations

from collections.abc import Hashable
from decimal import Decimal
from fractions import Fraction

from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.items import units
from ipf.fhir.fhirpath.items.values import CALENDAR_UNITS, Quantity

_MONTHS = {"year": 12, "month": 1}
_DAY = 86_400
_SECONDS = {
    "year": Decimal(365 * _DAY),
    "month": Decimal(30 * _DAY),
    "week": Decimal(7 * _DAY),
    "day": Decimal(_DAY),
    "hour": Decimal(3600),
    "minute": Decimal(60),
    "second": Decimal(1),
    "millisecond": Decimal("0.001"),
}
_CODES = {"year": "a", "month": "mo", **{word: code for code, word in units.CALENDAR_OF.items()}}
_WORDS = {code: word for word, code in _CODES.items()}


def common(left: Quantity, right: Quantity) -> tuple[Decimal, Decimal] | tuple[Fraction, Fraction] | None:
    """The two values in one unit; None when they cannot be compared."""
    if left.unit == right.unit and left.calendar == right.calendar:
        return left.value, right.value
    if left.calendar and right.calendar:
        factors = _calendar_factors(left.unit, right.unit)
        return left.value * factors[0], right.value * factors[1]
    if _is_indefinite(left) or _is_indefinite(right):
        return None
    a, b = units.canonical(left), units.canonical(right)
    return None if a is None or b is None or a[1] != b[1] else (a[0], b[0])


def equal(left: Quantity, right: Quantity) -> bool | None:
    """`left = right`: None for a calendar year or month against a definite duration, False for other dimensions."""
    found = common(left, right)
    if found is not None:
        return found[0] == found[1]
    return None if _is_duration(left) and _is_duration(right) else False


def nearest(left: Quantity, right: Quantity) -> tuple[Decimal, Decimal] | None:
    """The two values in the coarser of their units, for equivalence; None when they have different dimensions."""
    if not (left.calendar and right.calendar):
        left, right = _definite(left), _definite(right)
    sizes = common(_one(left), _one(right))
    if sizes is None:
        return None
    if sizes[0] >= sizes[1]:
        other = convert(right, left.unit, left.calendar)
        return None if other is None else (left.value, other)
    other = convert(left, right.unit, right.calendar)
    return None if other is None else (other, right.value)


def _one(quantity: Quantity) -> Quantity:
    return Quantity(Decimal(1), quantity.unit, quantity.calendar)


def convert(quantity: Quantity, unit: str, calendar: bool) -> Decimal | None:
    """The value in another unit; None when there is no conversion."""
    if quantity.unit == unit and quantity.calendar == calendar:
        return quantity.value
    if quantity.calendar and calendar:
        factors = _calendar_factors(quantity.unit, unit)
        return quantity.value * factors[0] / factors[1]
    if _is_indefinite(quantity) or (calendar and unit in _MONTHS):
        return None
    found = units.convert(_definite(quantity), _CODES[unit] if calendar else unit)
    return None if found is None else found.value


def to_unit(quantity: Quantity, written: str) -> Quantity | None:
    """`toQuantity(unit)`: a number takes the unit; a duration is converted in its own system, then renamed."""
    word = CALENDAR_UNITS.get(written)
    unit, calendar = (word, True) if word else (written, False)
    if quantity.unit == "1" and not quantity.calendar:
        return Quantity(quantity.value, unit, calendar)
    if quantity.calendar and not calendar and written in _WORDS:
        value = convert(quantity, _WORDS[written], True)
    elif calendar and not quantity.calendar:
        value = convert(quantity, _CODES[unit], False)
    else:
        value = convert(quantity, unit, calendar)
    return None if value is None else Quantity(value, unit, calendar)


def arithmetic(operator: str, left: Quantity, right: Quantity) -> Quantity | None:
    """`+ - * /`; None when the units do not allow it.  A sum or difference has the finer unit of the two.

    A special unit of UCUM (`Cel`, `[pH]`, `B`) is a scale: twice 20 degrees are not 40 degrees.
    Sources: https://ucum.org/ucum#section-Special-Units-on-non-ratio-Scales,
    http://hl7.org/fhirpath/N1/#addition ("the most granular unit of either input").
    """
    if units.is_special(left) or units.is_special(right):
        return None
    if operator in "*/":
        return _product(operator, left, right)
    if operator not in "+-":
        raise FhirPathError(f"'{operator}' cannot be applied to quantities")
    unit, calendar = _finer(left, right)
    a, b = convert(left, unit, calendar), convert(right, unit, calendar)
    if a is None or b is None:
        return None
    return Quantity(a + b if operator == "+" else a - b, unit, calendar)


def _finer(left: Quantity, right: Quantity) -> tuple[str, bool]:
    """The unit of the two of which one is less, and whether it is of the calendar; that of the left one if equal."""
    sizes = common(_one(left), _one(right))
    finer = right if sizes is not None and sizes[1] < sizes[0] else left
    return finer.unit, finer.calendar


def _product(operator: str, left: Quantity, right: Quantity) -> Quantity | None:
    if right.unit == "1":
        value = left.value * right.value if operator == "*" else left.value / right.value
        return Quantity(value, left.unit, left.calendar)
    if left.unit == "1" and operator == "*":
        return Quantity(left.value * right.value, right.unit, right.calendar)
    if operator == "/" and left.calendar and right.calendar:
        a, b = _calendar_factors(left.unit, right.unit)
        return Quantity(left.value * a / (right.value * b))
    if _is_indefinite(left) or _is_indefinite(right):
        return None
    return units.product(left, right, 1 if operator == "*" else -1)


def key(quantity: Quantity) -> Hashable:
    """The same for quantities that are equal."""
    base = units.canonical(quantity)
    return (quantity.value, quantity.unit) if base is None else base


def duration_unit(quantity: Quantity) -> str:
    """The calendar unit that a quantity adds to a date; FhirPathError for `'a'`, `'mo'` and what is no duration."""
    if quantity.calendar:
        return quantity.unit
    unit = units.CALENDAR_OF.get(quantity.unit) or CALENDAR_UNITS.get(quantity.unit)
    if unit is None:
        raise FhirPathError(f"'{quantity.unit}' is not a duration that can be added to a date")
    return unit


def _calendar_factors(a: str, b: str) -> tuple[Decimal, Decimal]:
    """Two calendar units in months when both are years or months, else in seconds."""
    if a in _MONTHS and b in _MONTHS:
        return Decimal(_MONTHS[a]), Decimal(_MONTHS[b])
    return _SECONDS[a], _SECONDS[b]


def _is_indefinite(quantity: Quantity) -> bool:
    return quantity.calendar and quantity.unit in _MONTHS


def _is_duration(quantity: Quantity) -> bool:
    base = units.canonical(_definite(quantity))
    return base is not None and base[1] == (("s", 1),)


def _definite(quantity: Quantity) -> Quantity:
    """A calendar duration as the UCUM unit that it is equivalent to."""
    return Quantity(quantity.value, _CODES[quantity.unit]) if quantity.calendar else quantity
