"""The check of one JSON object: its members, their cardinality, its invariants.  The hot path of validation.

An `ObjectSchema` describes an object; `object_check` compiles it into one closure that walks the members of the object.

Source: https://hl7.org/fhir/R4/json.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ipf.fhir.validation.findings import Check, Run
from ipf.fhir.validation.proposals import nearest

MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Member:
    """One JSON member.  `label`: its name in locations (`value.ofType(Quantity)`).  `primitive`: the sibling property
    `_name` is allowed.  `check` None: the slicer of the element checks the values.
    """

    check: Check | None
    many: bool
    label: str
    primitive: bool


@dataclass(frozen=True, slots=True)
class SlicedValue:
    """One value of a sliced element."""

    value: Any
    extra: Any
    location: str
    name: str


Slicer = Callable[[Sequence[SlicedValue], str, Run], None]


@dataclass(slots=True)
class ObjectSchema:
    """The permitted members of an object of one type, or of one profiled element.

    `members`: by JSON name.  `required`: (JSON names, element path, min): at least min values in all.  `limited`: (JSON
    names, element path, max): the profile allows fewer values than the type.  `sliced`: (JSON names, slicer).
    `checks`: checks of the object itself (value, binding, references, invariants).  `resource`: has a resourceType.
    """

    title: str
    members: dict[str, Member] = field(default_factory=dict)
    required: list[tuple[tuple[str, ...], str, int]] = field(default_factory=list)
    limited: list[tuple[tuple[str, ...], str, int]] = field(default_factory=list)
    sliced: list[tuple[tuple[str, ...], Slicer]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    resource: bool = False


def object_check(schema: ObjectSchema) -> Check:
    """The closure that checks an object of this schema."""
    members = schema.members
    find = members.get
    required, limited, sliced, checks = schema.required, schema.limited, schema.sliced, schema.checks
    unknown = _unknown_member(schema)

    def check(value: Any, extra: Any, location: str, run: Run) -> None:
        if type(value) is not dict:
            run.error(
                "structure", "a JSON object is expected" if value is not None else "null is not allowed", location
            )
            return
        if not value:
            run.error("invariant", "ele-1: an element must have a value or children", location)
            return
        run.depth += 1
        if run.depth > MAX_DEPTH:
            run.error("structure", "nested too deeply", location[:300])
            run.depth -= 1
            return
        for name, item in value.items():
            member = find(name)
            if member is None:
                unknown(name, item, value, location, run)
            elif member.many:
                _check_list(member, name, item, value, location, run)
            elif type(item) is list:
                run.error("structure", "one value is expected, not a list", f"{location}.{member.label}")
            elif member.check is not None:
                sibling = value.get("_" + name) if member.primitive else None
                member.check(item, sibling, f"{location}.{member.label}", run)
        for names, element, least in required:
            _check_required(value, names, element, least, location, run)
        for names, element, most in limited:
            if _count_values(value, names) > most:
                run.error("structure", f"{element}: at most {most} values allowed", location)
        for names, slicer in sliced:
            slicer(_sliced_values(value, names, members, location), location, run)
        for one in checks:
            one(value, extra, location, run)
        run.depth -= 1

    return check


def _check_list(member: Member, name: str, item: Any, value: dict[str, Any], location: str, run: Run) -> None:
    if type(item) is not list:
        run.error("structure", "a list is expected", f"{location}.{member.label}")
        return
    if not item:
        run.error("structure", "an empty list is not allowed: omit the member", f"{location}.{member.label}")
        return
    check = member.check
    if check is None:
        return
    sibling = value.get("_" + name) if member.primitive else None
    if type(sibling) is not list:
        for number, each in enumerate(item):
            check(each, None, f"{location}.{member.label}[{number}]", run)
        return
    if len(sibling) != len(item):
        run.error("structure", f"{name} and _{name} must have the same number of items", f"{location}.{member.label}")
    for number, each in enumerate(item):
        check(each, sibling[number] if number < len(sibling) else None, f"{location}.{member.label}[{number}]", run)


def _unknown_member(schema: ObjectSchema) -> Callable[[str, Any, dict[str, Any], str, Run], None]:
    members, resource, title = schema.members, schema.resource, schema.title

    def unknown(name: str, item: Any, value: dict[str, Any], location: str, run: Run) -> None:
        if name == "resourceType" and resource:
            return
        member = members.get(name[1:]) if name[:1] == "_" else None
        if member is None or not member.primitive:
            known = [f"_{one}" for one in members] if name[:1] == "_" else list(members)
            text = f"{title} has no element '{name[:60]}'"
            run.error("structure", text, f"{location}.{name[:60]}", lambda: nearest(name, known))
        elif name[1:] not in value and member.check is not None:
            _check_sibling_only(member, item, location, run)

    return unknown


def _check_sibling_only(member: Member, item: Any, location: str, run: Run) -> None:
    """Check `_name` without `name`: primitives that have only extensions."""
    check = member.check
    if check is None:
        return
    if not member.many:
        check(None, item, f"{location}.{member.label}", run)
    elif type(item) is list and item:
        for number, each in enumerate(item):
            check(None, each, f"{location}.{member.label}[{number}]", run)
    else:
        run.error("structure", "a list is expected", f"{location}.{member.label}")


def _check_required(
    value: dict[str, Any], names: tuple[str, ...], element: str, least: int, location: str, run: Run
) -> None:
    if least == 1:
        for name in names:
            if name in value or "_" + name in value:
                return
        run.error("required", f"{element} is required", location)
    elif _count_values(value, names) < least:
        run.error("required", f"{element}: at least {least} required", location)


def _count_values(value: dict[str, Any], names: tuple[str, ...]) -> int:
    found = 0
    for name in names:
        item = value.get(name, value.get("_" + name))
        found += len(item) if type(item) is list else item is not None
    return found


def _sliced_values(
    value: dict[str, Any], names: tuple[str, ...], members: dict[str, Member], location: str
) -> list[SlicedValue]:
    """The values of a sliced element in order."""
    found: list[SlicedValue] = []
    for name in names:
        label = members[name].label
        item, sibling = value.get(name), value.get("_" + name) if members[name].primitive else None
        if type(item) is list:
            extras = sibling if type(sibling) is list else []
            for number, each in enumerate(item):
                extra = extras[number] if number < len(extras) else None
                found.append(SlicedValue(each, extra, f"{location}.{label}[{number}]", name))
        elif item is not None or sibling is not None:
            found.append(SlicedValue(item, sibling, f"{location}.{label}", name))
    return found
