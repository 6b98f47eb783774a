"""The loops of rules: a source of a rule becomes a function that runs the rule's body once for each item.

Nearly all rules of a message map read one numbered child of an HL7 v2 node that is mostly not there.  Those loops are
written out, so that an absent field costs one look at a list; every other source goes through `Fetch` closures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipf.errors import Category, Problem
from ipf.hl7.message import Field, Segment, number_of
from ipf.mapping.conversions import as_text
from ipf.mapping.run import Frame
from ipf.mapping.scope import Act
from ipf.mapping.sources import LIST_MODES, Fetch, Items, Walk

Test = Callable[[Frame, Any], bool | None]


def each(fetch: Fetch, slot: int, body: Act) -> Act:
    """`body` for every item that is fetched."""

    def run(frame: Frame) -> None:
        for item in fetch(frame):
            frame[slot] = item
            body(frame)

    return run


def each_that(fetch: Fetch, test: Test, slot: int, body: Act) -> Act:
    """`body` for every item that passes the test."""

    def run(frame: Frame) -> None:
        for item in fetch(frame):
            if test(frame, item):
                frame[slot] = item
                body(frame)

    return run


def provided(context: int, test: Test, body: Act) -> Act:
    """`src where (...)`: once, or not at all."""

    def run(frame: Frame) -> None:
        if test(frame, frame[context]):
            body(frame)

    return run


def each_child(context: int, name: str, test: Test | None, slot: int, body: Act) -> Act:
    """`body` for every child of an HL7 v2 node."""
    number = number_of(name)
    if not number:
        return _each_named(context, name, test, slot, body)
    return _each_numbered(context, name, number, slot, body if test is None else _tested(test, slot, body))


def _tested(test: Test, slot: int, body: Act) -> Act:
    def run(frame: Frame) -> None:
        if test(frame, frame[slot]):
            body(frame)

    return run


def _each_named(context: int, name: str, test: Test | None, slot: int, body: Act) -> Act:
    """Segments and groups."""

    def fetch(frame: Frame) -> Items:
        items: Items = frame[context].children(name)
        return items

    return each(fetch, slot, body) if test is None else each_that(fetch, test, slot, body)


def _each_numbered(context: int, name: str, number: int, slot: int, body: Act) -> Act:
    """Fields and their parts."""
    before = number - 1

    def run(frame: Frame) -> None:
        node = frame[context]
        kind = type(node)
        if kind is Field:
            parts = node.parts
            if number > len(parts) or not parts[before]:
                return
        elif kind is Segment:
            fields = node.fields
            if number >= len(fields) or not fields[number]:
                return
        for item in node.children(name):
            frame[slot] = item
            body(frame)

    return run


def items_of(walk: Walk, slot: int) -> Fetch:
    """Items that are reached from the variable at `slot`."""

    def fetch(frame: Frame) -> Items:
        return walk(frame[slot])

    return fetch


def context_as_items(slot: int) -> Fetch:
    """The variable itself, as the only item."""
    return lambda frame: (frame[slot],)


def with_default(fetch: Fetch, value: Any) -> Fetch:
    """`default 'x'`"""
    default = (value,)
    return lambda frame: fetch(frame) or default


def with_computed_default(fetch: Fetch, first: Callable[[Frame, Any], Any]) -> Fetch:
    """`default (expression)`"""

    def run(frame: Frame) -> Items:
        found = fetch(frame)
        if found:
            return found
        value = first(frame, None)
        return () if value is None else (value,)

    return run


def counted(fetch: Fetch, least: int, most: int | None, place: str) -> Fetch:
    """`min..max`, `only_one`"""
    wanted = f"{least}..{'*' if most is None else most}"

    def run(frame: Frame) -> Items:
        found = fetch(frame)
        if len(found) < least or (most is not None and len(found) > most):
            raise Problem(Category.MAPPING, f"found {len(found)} times where {wanted} is asked for", place)
        return found

    return run


def filtered(fetch: Fetch, test: Test) -> Fetch:
    """`where`"""
    return lambda frame: [item for item in fetch(frame) if test(frame, item)]


def checked(fetch: Fetch, test: Test, place: str) -> Fetch:
    """`check`"""

    def run(frame: Frame) -> Items:
        found = fetch(frame)
        if not all(test(frame, item) for item in found):
            raise Problem(Category.MAPPING, "the check of this rule failed", place)
        return found

    return run


def logged(fetch: Fetch, text: Callable[[Frame, Any], Any]) -> Fetch:
    """`log`"""

    def run(frame: Frame) -> Items:
        found = fetch(frame)
        frame[0].logs += [said for item in found if (said := as_text(text(frame, item)))]
        return found

    return run


def picked(fetch: Fetch, mode: str) -> Fetch:
    """`first`, `last`, `not_first`, `not_last`"""
    pick = LIST_MODES[mode]
    return lambda frame: pick(fetch(frame))
