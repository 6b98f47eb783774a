"""Checks of fixed[x], pattern[x], maxLength, minLength (an extension), minValue[x] and maxValue[x].

Sources: https://hl7.org/fhir/R4/elementdefinition-definitions.html#ElementDefinition.pattern_x_,
http://hl7.org/fhir/StructureDefinition/minLength
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipf.fhir.profiles.comparing import compare, matches_fixed, matches_pattern
from ipf.fhir.validation.findings import Check, Run
from ipf.fhir.validation.tree import Node

_MIN_LENGTH = "http://hl7.org/fhir/StructureDefinition/minLength"


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
        if compare(value, limit) == sign:
            run.error("value", f"the value must be {words} {shorten(limit)}", location)

    return check
