"""Slicing: which slice a value belongs to, how many each slice has, what no slice wants.

A discriminator is turned into a test of a value: the value at its path against the fixed or pattern value (or required
binding) of the slice's element there, whether something is there, its type, or the profile it conforms to.

Source: https://hl7.org/fhir/R4/profiling.html#slicing
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ipf.fhir.fhirpath import FhirPathError, Host, compile
from ipf.fhir.validation.findings import Check, Json, Run
from ipf.fhir.validation.objects import Item, Slicer

Matches = Callable[[Item, Run], bool | None]  # None: cannot be known


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice: its name, how often it may stand, when a value belongs to it, and what then holds of the value."""

    name: str
    least: int
    most: float
    matches: Matches
    check: Check


def slicer(slices: Sequence[Slice], other: Check, rules: str, ordered: bool, words: str) -> Slicer:
    """The check of all values of a sliced element; `other` holds for those that are in no slice."""

    def run_slices(items: Sequence[Item], place: str, run: Run) -> None:
        counts = [0] * len(slices)
        latest, unmatched_at = -1, -1
        unknown = False
        for item in items:
            number, unsure = _slice_of(item, slices, run)
            unknown = unknown or unsure
            if number is None:
                other(item.value, item.extra, item.place, run)
                if rules == "closed" and not unsure:
                    run.error(
                        "structure",
                        f"{words}: the value is in none of the slices, and no others are allowed",
                        item.place,
                    )
                unmatched_at = 1
                continue
            counts[number] += 1
            if ordered and number < latest:
                run.error("structure", f"{words}: slice {slices[number].name} is out of order", item.place)
            if rules == "openAtEnd" and unmatched_at > 0:
                run.error("structure", f"{words}: slice {slices[number].name} after values of no slice", item.place)
            latest = max(latest, number)
            slices[number].check(item.value, item.extra, item.place, run)
        _check_counts(slices, counts, unknown, words, place, run)

    return run_slices


def _slice_of(item: Item, slices: Sequence[Slice], run: Run) -> tuple[int | None, bool]:
    unsure = False
    for number, one in enumerate(slices):
        answer = one.matches(item, run)
        if answer:
            return number, False
        unsure = unsure or answer is None
    return None, unsure


def _check_counts(
    slices: Sequence[Slice], counts: Sequence[int], unknown: bool, words: str, place: str, run: Run
) -> None:
    for one, count in zip(slices, counts, strict=True):
        if count < one.least and not unknown:
            run.error("required", f"{words}: slice {one.name} is required {one.least} time(s), found {count}", place)
        elif count < one.least:
            run.note("not-supported", f"{words}: slice {one.name} cannot be told apart here", place)
        if count > one.most:
            run.error("structure", f"{words}: slice {one.name} is allowed {one.most:.0f} time(s), found {count}", place)


def every(tests: Sequence[Matches]) -> Matches:
    """A value matches when it matches all discriminators."""
    if len(tests) == 1:
        return tests[0]

    def matches(item: Item, run: Run) -> bool | None:
        answers = [test(item, run) for test in tests]
        return False if False in answers else None if None in answers else True

    return matches


def at_path(path: str, kind: str | None) -> Callable[[Item, Run], list[Any]]:
    """The values at a discriminator's path: `$this`, names, `resolve()`, `extension('url')`, `ofType(X)`."""
    if path == "$this":
        return lambda item, run: [item.value]
    parts = path.split(".")
    if all(part.isidentifier() for part in parts):
        return _plain(parts, path, kind)
    return _by_expression(path, kind)


def _plain(parts: list[str], path: str, kind: str | None) -> Callable[[Item, Run], list[Any]]:
    by_expression = _by_expression(path, kind)

    def values(item: Item, run: Run) -> list[Any]:
        found = [item.value]
        for part in parts:
            deeper: list[Any] = []
            for each in found:
                if type(each) is not dict:
                    continue
                if part not in each and any(name.startswith(part) for name in each):
                    return by_expression(item, run)  # a choice
                step = each.get(part)
                deeper += step if type(step) is list else [] if step is None else [step]
            found = deeper
        return found

    return values


def _by_expression(path: str, kind: str | None) -> Callable[[Item, Run], list[Any]]:
    expression = compile(path, base_type=kind)

    def values(item: Item, run: Run) -> list[Any]:
        variables = {"resource": run.scope.resource, "rootResource": run.scope.root}
        try:
            return expression.evaluate(item.value, variables, host=Host(resolve=run.scope.resolve))
        except FhirPathError:
            return []

    return values


def has_value(values: Callable[[Item, Run], list[Any]], test: Callable[[Any], bool | None]) -> Matches:
    """Whether one of the values at the path passes the test."""

    def matches(item: Item, run: Run) -> bool | None:
        answers = [test(each) for each in values(item, run)]
        return True if True in answers else None if None in answers else False

    return matches


def exists(values: Callable[[Item, Run], list[Any]], wanted: bool) -> Matches:
    """Whether there is something at the path."""
    return lambda item, run: bool(values(item, run)) is wanted


def resource_is(values: Callable[[Item, Run], list[Any]], kinds: frozenset[str]) -> Matches:
    """Whether a resource at the path is of one of the types; None when a reference there cannot be resolved."""

    def matches(item: Item, run: Run) -> bool | None:
        found = values(item, run)
        if not found:
            return None if "reference" in _members(item.value) else False
        return any(str(_members(each).get("resourceType")) in kinds for each in found)

    return matches


def _members(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
