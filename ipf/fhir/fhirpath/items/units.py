"""Units of FHIRPath quantities: UCUM codes, and the words of calendar durations.

UCUM itself is in `ipf/fhir/ucum`.  A calendar year or month is no definite duration: it is comparable with its own kind
only.
Source: http://hl7.org/fhirpath/N1/#time-valued-quantities, #quantity
"""

from __future__ import annotations

from fractions import Fraction

from ipf.fhir import ucum
from ipf.fhir.fhirpath.items.values import Quantity
from ipf.fhir.ucum import Dimensions as Dimensions
from ipf.fhir.ucum.measure import exact
from ipf.fhir.ucum.measure import product as measured_product

_DEFINITE = {"week": "wk", "day": "d", "hour": "h", "minute": "min", "second": "s", "millisecond": "ms"}
CALENDAR_OF = {"wk": "week", "d": "day", "h": "hour", "min": "minute", "s": "second", "ms": "millisecond"}


def canonical(quantity: Quantity) -> tuple[Fraction, Dimensions] | None:
    """The value in base units; None for an unknown unit.  Calendar years and months are no definite durations."""
    if quantity.calendar and quantity.unit not in _DEFINITE:
        number = exact(quantity.value)
        return None if number is None else (number * (12 if quantity.unit == "year" else 1), (("calendar month", 1),))
    found = ucum.measure(_code(quantity))
    value = None if found is None else found.to_base(quantity.value)
    return None if found is None or value is None else (value, found.dimensions)


def convert(quantity: Quantity, unit: str) -> Quantity | None:
    """The same quantity in another UCUM unit; None when the dimensions differ."""
    if quantity.calendar and quantity.unit not in _DEFINITE:
        return None
    value = ucum.convert(quantity.value, _code(quantity), unit)
    return None if value is None else Quantity(value, unit)


def comparable(left: Quantity, right: Quantity) -> bool:
    """Whether the two have the same dimensions."""
    a, b = canonical(left), canonical(right)
    if a is None or b is None:
        return left.unit == right.unit and left.calendar == right.calendar
    return a[1] == b[1]


def is_special(quantity: Quantity) -> bool:
    """Whether the unit is a scale that a function converts, such as a temperature in degrees Celsius."""
    found = None if quantity.calendar else ucum.measure(quantity.unit)
    return found is not None and found.function is not None


def product(left: Quantity, right: Quantity, sign: int) -> Quantity | None:
    """The product (sign 1) or quotient (sign -1) of two quantities, with the combined unit."""
    a, b = _code(left), _code(right)
    first, second = ucum.measure(a), ucum.measure(b)
    if first is None or second is None:
        return None
    value = left.value * right.value if sign > 0 else left.value / right.value
    if b == "1":
        return Quantity(value, a)
    both = measured_product(first, second, sign)
    if both is None:
        return None
    if not both.dimensions:
        return Quantity(value * both.factor.numerator / both.factor.denominator, "1")
    mark = "." if sign > 0 else "/"
    return Quantity(value, f"{_bracketed(a)}{mark}{_bracketed(b)}" if a != "1" or sign < 0 else b)


def _code(quantity: Quantity) -> str:
    return _DEFINITE.get(quantity.unit, quantity.unit) if quantity.calendar else quantity.unit


def _bracketed(code: str) -> str:
    return f"({code})" if "." in code or "/" in code else code
