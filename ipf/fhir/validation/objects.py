"""The check of one JSON object: its members, how often each stands, its invariants.  The hot path of validation.

An object is described by a `Shape`; `object_check` turns it into one closure that walks the members that are there.

Source: https://hl7.org/fhir/R4/json.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ipf.fhir.validation.findings import Check, Run

DEEPEST = 100


@dataclass(frozen=True, slots=True)
class Member:
    """One JSON member.  `label`: how its place is written (`value.ofType(Quantity)`); `primitive`: `_name` may stand
    beside it; `check` None: looked at by the slicer of its element.
    """

    check: Check | None
    many: bool
    label: str
    primitive: bool


@dataclass(frozen=True, slots=True)
class Item:
    """One value of a sliced element."""

    value: Any
    extra: Any
    place: str
    name: str


Slicer = Callable[[Sequence[Item], str, Run], None]


@dataclass(slots=True)
class Shape:
    """The permitted members of an object of one type, or of one profiled element.

    `members`: by JSON name.  `required`: (JSON names of which one must be there, words, least).  `limited`: (JSON
    names, words, most) where fewer are allowed than the JSON form takes.  `sliced`: (JSON names, slicer).  `checks`: on
    the object itself: value, binding, references, invariants.  `resource`: it has a resourceType.
    """

    title: str
    members: dict[str, Member] = field(default_factory=dict)
    required: list[tuple[tuple[str, ...], str, int]] = field(default_factory=list)
    limited: list[tuple[tuple[str, ...], str, int]] = field(default_factory=list)
    sliced: list[tuple[tuple[str, ...], Slicer]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    resource: bool = False


def object_check(shape: Shape) -> Check:
    """The closure that checks an object of this shape."""
    members = shape.members
    find = members.get
    required, limited, sliced, checks = shape.required, shape.limited, shape.sliced, shape.checks
    unknown = _unknown(shape)

    def check(value: Any, extra: Any, place: str, run: Run) -> None:
        if type(value) is not dict:
            run.error("structure", "a JSON object is expected" if value is not None else "null is no value", place)
            return
        if not value:
            run.error("invariant", "ele-1: an element must have a value or children", place)
            return
        run.depth += 1
        if run.depth > DEEPEST:
            run.error("structure", "nested too deeply", place[:300])
            run.depth -= 1
            return
        for name, item in value.items():
            member = find(name)
            if member is None:
                unknown(name, item, value, place, run)
            elif member.many:
                _many(member, name, item, value, place, run)
            elif type(item) is list:
                run.error("structure", "one value is expected, not a list", f"{place}.{member.label}")
            elif member.check is not None:
                beside = value.get("_" + name) if member.primitive else None
                member.check(item, beside, f"{place}.{member.label}", run)
        for names, words, least in required:
            _require(value, names, words, least, place, run)
        for names, words, most in limited:
            if _count(value, names) > most:
                run.error("structure", f"{words}: at most {most} allowed", place)
        for names, slicer in sliced:
            slicer(_items(value, names, members, place), place, run)
        for one in checks:
            one(value, extra, place, run)
        run.depth -= 1

    return check


def _many(member: Member, name: str, item: Any, value: dict[str, Any], place: str, run: Run) -> None:
    if type(item) is not list:
        run.error("structure", "a list is expected", f"{place}.{member.label}")
        return
    if not item:
        run.error("structure", "an empty list: leave the member out", f"{place}.{member.label}")
        return
    check = member.check
    if check is None:
        return
    beside = value.get("_" + name) if member.primitive else None
    if type(beside) is not list:
        for number, each in enumerate(item):
            check(each, None, f"{place}.{member.label}[{number}]", run)
        return
    if len(beside) != len(item):
        run.error("structure", f"{name} and _{name} must be equally long", f"{place}.{member.label}")
    for number, each in enumerate(item):
        check(each, beside[number] if number < len(beside) else None, f"{place}.{member.label}[{number}]", run)


def _unknown(shape: Shape) -> Callable[[str, Any, dict[str, Any], str, Run], None]:
    members, resource, title = shape.members, shape.resource, shape.title

    def unknown(name: str, item: Any, value: dict[str, Any], place: str, run: Run) -> None:
        if name == "resourceType" and resource:
            return
        member = members.get(name[1:]) if name[:1] == "_" else None
        if member is None or not member.primitive:
            run.error("structure", f"{title} has no element '{name[:60]}'", f"{place}.{name[:60]}")
        elif name[1:] not in value and member.check is not None:
            _only_beside(member, item, place, run)

    return unknown


def _only_beside(member: Member, item: Any, place: str, run: Run) -> None:
    """`_name` without `name`: primitives that have only extensions."""
    check = member.check
    if check is None:
        return
    if not member.many:
        check(None, item, f"{place}.{member.label}", run)
    elif type(item) is list and item:
        for number, each in enumerate(item):
            check(None, each, f"{place}.{member.label}[{number}]", run)
    else:
        run.error("structure", "a list is expected", f"{place}.{member.label}")


def _require(value: dict[str, Any], names: tuple[str, ...], words: str, least: int, place: str, run: Run) -> None:
    if least == 1:
        for name in names:
            if name in value or "_" + name in value:
                return
        run.error("required", f"{words} is required", place)
    elif _count(value, names) < least:
        run.error("required", f"{words}: at least {least} required", place)


def _count(value: dict[str, Any], names: tuple[str, ...]) -> int:
    found = 0
    for name in names:
        item = value.get(name, value.get("_" + name))
        found += len(item) if type(item) is list else item is not None
    return found


def _items(value: dict[str, Any], names: tuple[str, ...], members: dict[str, Member], place: str) -> list[Item]:
    """The values of a sliced element in order."""
    found: list[Item] = []
    for name in names:
        label = members[name].label
        item, beside = value.get(name), value.get("_" + name) if members[name].primitive else None
        if type(item) is list:
            extras = beside if type(beside) is list else []
            for number, each in enumerate(item):
                extra = extras[number] if number < len(extras) else None
                found.append(Item(each, extra, f"{place}.{label}[{number}]", name))
        elif item is not None or beside is not None:
            found.append(Item(item, beside, f"{place}.{label}", name))
    return found
