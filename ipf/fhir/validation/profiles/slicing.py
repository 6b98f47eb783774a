"""The check of slicing: the slice of each value, the cardinality of each slice, values in no slice.

A discriminator becomes a test of a value: the value at its path against the fixed value, pattern or required binding of
the slice, its existence, its type, or its conformance to a profile.

Source: https://hl7.org/fhir/R4/profiling.html#slicing
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ipf.fhir.fhirpath import FhirNode, FhirPathError, Host, compile
from ipf.fhir.validation.findings import Check, Json, Run
from ipf.fhir.validation.profiles.objects import SlicedValue, Slicer
from ipf.fhir.validation.tree import Node, type_name

Matches = Callable[[SlicedValue, Run], bool | None]  # None: cannot be decided


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice: its name, its cardinality, the test that a value belongs to it, and the check of its values.

    `inner`: the check of all its values, where it is divided into slices itself.
    """

    name: str
    least: int
    most: float
    matches: Matches
    check: Check
    inner: Slicer | None = None


def slicer(slices: Sequence[Slice], other: Check, rules: str, ordered: bool, element_path: str) -> Slicer:
    """The check of all values of a sliced element.  `other`: the check of values in no slice."""

    def run_slices(items: Sequence[SlicedValue], location: str, run: Run) -> None:
        counts = [0] * len(slices)
        members: list[list[SlicedValue]] = [[] for _ in slices]
        latest, unmatched_at = -1, -1
        unknown = False
        for item in items:
            number, unsure = _slice_of(item, slices, run)
            unknown = unknown or unsure
            if number is None:
                other(item.value, item.extra, item.location, run)
                if rules == "closed" and not unsure:
                    run.error(
                        "structure",
                        f"{element_path}: the value is in no slice, and the slicing is closed",
                        item.location,
                    )
                unmatched_at = 1
                continue
            counts[number] += 1
            members[number].append(item)
            if ordered and number < latest:
                run.error("structure", f"{element_path}: slice {slices[number].name} is out of order", item.location)
            if rules == "openAtEnd" and unmatched_at > 0:
                run.error(
                    "structure", f"{element_path}: slice {slices[number].name} after values of no slice", item.location
                )
            latest = max(latest, number)
            slices[number].check(item.value, item.extra, item.location, run)
        _check_counts(slices, counts, unknown, element_path, location, run)
        for one, inside in zip(slices, members, strict=True):
            if one.inner is not None:
                one.inner(inside, location, run)

    return run_slices


def _slice_of(item: SlicedValue, slices: Sequence[Slice], run: Run) -> tuple[int | None, bool]:
    unsure = False
    for number, one in enumerate(slices):
        result = one.matches(item, run)
        if result:
            return number, False
        unsure = unsure or result is None
    return None, unsure


def _check_counts(
    slices: Sequence[Slice], counts: Sequence[int], unknown: bool, element_path: str, location: str, run: Run
) -> None:
    for one, count in zip(slices, counts, strict=True):
        if count < one.least and not unknown:
            run.error(
                "required", f"{element_path}: slice {one.name} is required {one.least} time(s), found {count}", location
            )
        elif count < one.least:
            run.note("not-supported", f"{element_path}: membership of slice {one.name} cannot be decided", location)
        if count > one.most:
            run.error(
                "structure",
                f"{element_path}: slice {one.name} is allowed {one.most:.0f} time(s), found {count}",
                location,
            )


def is_in_slice(item: Any, slices: Sequence[tuple[Node, Matches]], run: Run) -> bool | None:
    """Whether an item of FHIRPath belongs to one of the slices of its type; None: it cannot be decided."""
    if not isinstance(item, FhirNode) or item.type is None:
        return False
    results = []
    for node, matches in slices:
        if item.type in {node.element["path"], *(type_name(one, node) for one in node.types)}:
            name = node.name.removesuffix("[x]")
            if name != node.name:
                name += item.type[0].upper() + item.type[1:]
            results.append(matches(SlicedValue(item.value, item.extra, "", name), run))
    return True if True in results else None if None in results else False


def every(tests: Sequence[Matches]) -> Matches:
    """The test that a value passes all of these tests."""
    if len(tests) == 1:
        return tests[0]

    def matches(item: SlicedValue, run: Run) -> bool | None:
        results = [test(item, run) for test in tests]
        return False if False in results else None if None in results else True

    return matches


def at_path(path: str, kind: str | None) -> Callable[[SlicedValue, Run], list[Any]]:
    """The values at a discriminator's path: `$this`, names, `resolve()`, `extension('url')`, `ofType(X)`."""
    if path == "$this":
        return lambda item, run: [item.value]
    parts = path.split(".")
    if all(part.isidentifier() for part in parts):
        return _plain(parts, path, kind)
    return _by_expression(path, kind)


def _plain(parts: list[str], path: str, kind: str | None) -> Callable[[SlicedValue, Run], list[Any]]:
    by_expression = _by_expression(path, kind)

    def values(item: SlicedValue, run: Run) -> list[Any]:
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


def _by_expression(path: str, kind: str | None) -> Callable[[SlicedValue, Run], list[Any]]:
    expression = compile(path, base_type=kind)

    def values(item: SlicedValue, run: Run) -> list[Any]:
        variables = {"resource": run.scope.resource, "rootResource": run.scope.root}
        try:
            return run.evaluate(expression, item.value, variables, Host(resolve=run.scope.resolve), run.scope.location)
        except FhirPathError:
            return []

    return values


def has_value(values: Callable[[SlicedValue, Run], list[Any]], test: Callable[[Any], bool | None]) -> Matches:
    """The test that a value at the path passes `test`."""

    def matches(item: SlicedValue, run: Run) -> bool | None:
        results = [test(each) for each in values(item, run)]
        return True if True in results else None if None in results else False

    return matches


def exists(values: Callable[[SlicedValue, Run], list[Any]], wanted: bool) -> Matches:
    """The test that the path has a value, or that it has none."""
    return lambda item, run: bool(values(item, run)) is wanted


def resource_is(values: Callable[[SlicedValue, Run], list[Any]], kinds: frozenset[str]) -> Matches:
    """The test that a resource at the path is of one of the types; None when a reference cannot be resolved."""

    def matches(item: SlicedValue, run: Run) -> bool | None:
        found = values(item, run)
        if not found:
            return None if "reference" in _members(item.value) else False
        return any(str(_members(each).get("resourceType")) in kinds for each in found)

    return matches


def _members(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
