"""Checks of fixed[x], pattern[x], maxLength, minLength (an extension), minValue[x] and maxValue[x].

Sources: https://hl7.org/fhir/R4/elementdefinition-definitions.html#ElementDefinition.pattern_x_,
http://hl7.org/fhir/StructureDefinition/minLength
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from ipf.fhir import ucum
from ipf.fhir.model.dates import date_range
from ipf.fhir.validation.findings import Check, Run
from ipf.fhir.validation.tree import Node

_MIN_LENGTH = "http://hl7.org/fhir/StructureDefinition/minLength"


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


def value_test(node: Node) -> Callable[[Any], bool] | None:
    """The test for the node's fixed or pattern value; None when the node has neither."""
    fixed = node.value("fixed")
    if fixed is not None:
        wanted = fixed[1]
        return lambda value: matches_fixed(value, wanted)
    pattern = node.value("pattern")
    if pattern is not None:
        part = pattern[1]
        return lambda value: matches_pattern(value, part)
    return None


def value_checks(node: Node) -> list[Check]:
    """The checks of a node's own value."""
    checks: list[Check] = []
    test = value_test(node)
    if test is not None:
        fixed = node.value("fixed")
        checks.append(_equal(test, fixed or node.value("pattern") or ("", None), fixed is not None))
    longest = node.element.get("maxLength")
    if longest is not None:
        checks.append(_length(int(longest)))
    for one in node.element.get("extension", ()):
        if one.get("url") == _MIN_LENGTH and isinstance(one.get("valueInteger"), int):
            checks.append(_least_length(one["valueInteger"]))
    for start, sign in (("minValue", -1), ("maxValue", 1)):
        limit = node.value(start)
        if limit is not None:
            checks.append(_limit(limit[1], sign))
    return checks


def _equal(test: Callable[[Any], bool], wanted: tuple[str, Any], fixed: bool) -> Check:
    shown = shorten(wanted[1])
    text = f"the value must be {shown}" if fixed else f"the value must have {shown}"

    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        if value is not None and not test(value):
            run.error("value", text, location)

    return check


def shorten(value: Any) -> str:
    """A value of a definition as text for a message."""
    if isinstance(value, dict):
        codings = value.get("coding", [value])
        parts = [
            f"{one.get('system', '')}|{one.get('code', '')}"
            for one in codings
            if isinstance(one, dict) and "code" in one
        ]
        return " and ".join(parts) or ", ".join(f"{name} {shorten(item)}" for name, item in value.items())
    if isinstance(value, list):
        return " and ".join(shorten(each) for each in value)
    return f"'{value}'"


def _length(longest: int) -> Check:
    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        if type(value) is str and len(value) > longest:
            run.error("too-long", f"the text has more than {longest} characters", location)

    return check


def _least_length(shortest: int) -> Check:
    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        if type(value) is str and len(value) < shortest:
            run.error("value", f"the text has less than {shortest} characters", location)

    return check


def _limit(limit: Any, sign: int) -> Check:
    words = "at most" if sign > 0 else "at least"

    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        if _compare(value, limit) == sign:
            run.error("value", f"the value must be {words} {shorten(limit)}", location)

    return check


def _compare(value: Any, limit: Any) -> int:
    """-1, 0 or 1; 0 also for values that cannot be compared."""
    if isinstance(value, dict) and isinstance(limit, dict):
        return _compare(_in_unit_of(limit, value), limit.get("value"))
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
