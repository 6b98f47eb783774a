"""Comparison of JSON values by the rules of ElementDefinition: fixed[x], pattern[x], minValue[x] and maxValue[x].

Source: https://hl7.org/fhir/R4/elementdefinition-definitions.html#ElementDefinition.pattern_x_
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from ipf.fhir import ucum
from ipf.fhir.model.dates import date_range


def matches_fixed(value: Any, fixed: Any) -> bool:
    """Whether a value equals the fixed value, member by member."""
    if isinstance(fixed, dict):
        return (
            isinstance(value, dict)
            and value.keys() == fixed.keys()
            and all(matches_fixed(value[k], fixed[k]) for k in fixed)
        )
    if isinstance(fixed, list):
        return isinstance(value, list) and len(value) == len(fixed) and all(map(matches_fixed, value, fixed))
    return equal_primitives(value, fixed)


def matches_pattern(value: Any, pattern: Any) -> bool:
    """Whether a value has every member of the pattern, and in its lists every item of the pattern's lists."""
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(
            name in value and matches_pattern(value[name], pattern[name]) for name in pattern
        )
    if isinstance(pattern, list):
        return isinstance(value, list) and all(
            any(matches_pattern(each, wanted) for each in value) for wanted in pattern
        )
    return equal_primitives(value, pattern)


def equal_primitives(value: Any, other: Any) -> bool:
    """Whether two primitives are equal.  Numbers compare by value; a boolean never equals a number."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, (int, float, Decimal)) and isinstance(other, (int, float, Decimal)):
        return Decimal(str(value)) == Decimal(str(other))
    return bool(value == other)


def compare(value: Any, limit: Any) -> int:
    """-1, 0 or 1; 0 also for values that cannot be compared."""
    if isinstance(value, dict) and isinstance(limit, dict):
        return compare(_in_unit_of(limit, value), limit.get("value"))
    if isinstance(value, str) and isinstance(limit, str):
        return _compare_texts(value, limit)
    if isinstance(value, (int, float, Decimal)) and isinstance(limit, (int, float, Decimal)):
        a, b = Decimal(str(value)), Decimal(str(limit))
        return (a > b) - (a < b)
    return 0


def _in_unit_of(limit: dict[str, Any], quantity: dict[str, Any]) -> Any:
    """The number of a quantity in the unit of the limit; None if there is no conversion."""
    number, code, wanted = quantity.get("value"), quantity.get("code"), limit.get("code")
    if code == wanted:
        return number
    is_ucum = quantity.get("system") == ucum.SYSTEM == limit.get("system")
    if not is_ucum or type(code) is not str or type(wanted) is not str or type(number) not in (int, float, Decimal):
        return None
    return ucum.convert(Decimal(str(number)), code, wanted)


def _compare_texts(value: str, limit: str) -> int:
    if value[:4].isdigit() and limit[:4].isdigit():
        a, b = date_range(value), date_range(limit)
        if a is not None and b is not None:
            return 1 if a[0] >= b[1] else -1 if a[1] <= b[0] else 0
    return (value > limit) - (value < limit)
