"""`toX()` and `convertsToX()`, and `now()`, `today()`, `timeOfDay()`.

Sources: http://hl7.org/fhirpath/N1/#conversion, #utility-functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.evaluation.context import Context
from ipf.fhir.fhirpath.evaluation.registry import plain_function
from ipf.fhir.fhirpath.items import operators as op
from ipf.fhir.fhirpath.items import quantities
from ipf.fhir.fhirpath.items.nodes import Items, is_foreign, plain, to_decimal
from ipf.fhir.fhirpath.items.values import (
    CALENDAR_UNITS,
    Date,
    DateTime,
    Parts,
    Quantity,
    Time,
    parse_date,
    parse_datetime,
    parse_time,
)
from ipf.fhir.ucum import is_unit

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?\d+(?:\.\d+)?", re.ASCII)
_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*(?:'([^']+)'|([A-Za-z]+))?", re.ASCII)
_TRUE = frozenset(("true", "t", "yes", "y", "1", "1.0"))
_FALSE = frozenset(("false", "f", "no", "n", "0", "0.0"))
_MAX_DIGITS = 1000


def to_boolean(value: Any) -> bool | None:
    """true/false and their usual spellings, 1 and 0."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.lower()
        return True if word in _TRUE else False if word in _FALSE else None
    if op.is_number(value) and value in (0, 1):
        return bool(value == 1)
    return None


def to_integer(value: Any) -> int | None:
    """Integers, their texts, and booleans."""
    if isinstance(value, bool) or type(value) is int:
        return int(value)
    return int(value) if isinstance(value, str) and _INTEGER.fullmatch(value) else None


def to_number(value: Any) -> Decimal | None:
    """Numbers, their texts, and booleans."""
    if isinstance(value, bool) or op.is_number(value):
        return Decimal(value)
    if isinstance(value, str) and len(value) < _MAX_DIGITS and _DECIMAL.fullmatch(value):
        return to_decimal(value)
    return None


def to_text(value: Any) -> str | None:
    """Any value that is no structure."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return f"{value:f}" if abs(value.adjusted()) < _MAX_DIGITS else str(value)
    return str(value) if isinstance(value, (int, Date, DateTime, Time, Quantity)) else None


def to_date(value: Any) -> Date | None:
    """Dates, the date of a dateTime, and their texts."""
    if isinstance(value, str):
        value = parse_date(value) or parse_datetime(value)
    if isinstance(value, DateTime):
        return Date(value.parts[:3])
    return value if isinstance(value, Date) else None


def to_datetime(value: Any) -> DateTime | None:
    """dateTimes, dates, and their texts."""
    if isinstance(value, str):
        return parse_datetime(value)
    if isinstance(value, Date):
        return DateTime(value.parts)
    return value if isinstance(value, DateTime) else None


def to_time(value: Any) -> Time | None:
    """Times and their texts."""
    if isinstance(value, str):
        return parse_time(value)
    return value if isinstance(value, Time) else None


def to_quantity(value: Any) -> Quantity | None:
    """Quantities, numbers, booleans, and texts such as `4 days` or `10 'mg'`."""
    if isinstance(value, bool):
        return Quantity(Decimal("1.0") if value else Decimal("0.0"))
    if not isinstance(value, str):
        return op.as_quantity(value)
    match = _QUANTITY.fullmatch(value) if len(value) < _MAX_DIGITS else None
    if match is None:
        return None
    number = Decimal(match[1])
    if match[3]:
        unit = CALENDAR_UNITS.get(match[3])
        return Quantity(number, unit, calendar=True) if unit else None
    unit = match[2] or "1"
    return Quantity(number, unit) if is_unit(unit) else None


def _convert(items: Items, call: Callable[[Any], Any], name: str) -> Items:
    if not items:
        return []
    if len(items) > 1 and not is_foreign(items[0]):
        raise FhirPathError(f"{name}() needs one item, got {len(items)}")
    found = call(plain(items[0]))
    return [] if found is None else [found]


def _register(name: str, call: Callable[[Any], Any]) -> None:
    def convert(context: Context, focus: Items) -> Items:
        return _convert(focus, call, f"to{name}")

    def converts(context: Context, focus: Items) -> Items:
        return [bool(_convert(focus, call, f"convertsTo{name}"))] if focus else []

    plain_function(f"to{name}")(convert)
    plain_function(f"convertsTo{name}")(converts)


for _name, _call in (
    ("Boolean", to_boolean),
    ("Integer", to_integer),
    ("Long", to_integer),
    ("Decimal", to_number),
    ("String", to_text),
    ("Date", to_date),
    ("DateTime", to_datetime),
    ("Time", to_time),
):
    _register(_name, _call)


@plain_function("toQuantity", 0, 1)
def quantity_function(context: Context, focus: Items, unit: Items | None = None) -> Items:
    """As a quantity, in the given unit."""
    found = _convert(focus, to_quantity, "toQuantity")
    if not found or unit is None:
        return found
    wanted = op.single(unit, "toQuantity()")
    if not isinstance(wanted, str):
        return []
    converted = quantities.to_unit(found[0], wanted)
    return [] if converted is None else [converted]


@plain_function("convertsToQuantity", 0, 1)
def converts_to_quantity(context: Context, focus: Items, unit: Items | None = None) -> Items:
    """Whether toQuantity() has an answer."""
    return [bool(quantity_function(context, focus, unit))] if focus else []


def _clock(moment: datetime) -> Parts:
    second = Decimal(moment.second) + Decimal(moment.microsecond // 1000).scaleb(-3)
    return (moment.hour, moment.minute, second.quantize(Decimal("0.001")))


@plain_function("now")
def now(context: Context, focus: Items) -> Items:
    """The moment of this evaluation, to the millisecond, with its zone."""
    moment = context.now()
    offset = moment.utcoffset()
    minutes = 0 if offset is None else int(offset.total_seconds()) // 60
    return [DateTime((moment.year, moment.month, moment.day, *_clock(moment)), minutes)]


@plain_function("today")
def today(context: Context, focus: Items) -> Items:
    """The date of this evaluation."""
    moment = context.now()
    return [Date((moment.year, moment.month, moment.day))]


@plain_function("timeOfDay")
def time_of_day(context: Context, focus: Items) -> Items:
    """The time of day of this evaluation."""
    return [Time(_clock(context.now()))]
