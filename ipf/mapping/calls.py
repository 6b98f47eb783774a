"""Sequences of actions, and calls of compiled groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ipf.mapping.run import Frame
from ipf.mapping.scope import Act, Value


@dataclass(slots=True)
class Code:
    """A compiled group.  `rules` is filled last, since groups may call each other in a circle."""

    name: str
    rules: tuple[Act, ...] = ()
    size: int = 1


def sequence(actions: Iterable[Act]) -> Act:
    """One function for several, without a loop where there are few."""
    every = tuple(actions)
    if len(every) == 1:
        return every[0]
    if len(every) == 2:
        return _pair(*every)
    if len(every) == 3:
        return _triple(*every)

    def run(frame: Frame) -> None:
        for action in every:
            action(frame)

    return run


def _pair(first: Act, second: Act) -> Act:
    def run(frame: Frame) -> None:
        first(frame)
        second(frame)

    return run


def _triple(first: Act, second: Act, third: Act) -> Act:
    def run(frame: Frame) -> None:
        first(frame)
        second(frame)
        third(frame)

    return run


def invocation(code: Code, values: list[Value]) -> Act:
    """A call of a compiled group with these arguments: a new frame, and its rules on it."""
    if all(value.slot >= 0 for value in values):
        slots = [value.slot for value in values]
        return _call_with_two(code, *slots) if len(slots) == 2 else _call_with_slots(code, slots)
    gets = [value.get for value in values]

    def call(frame: Frame) -> None:
        callee = [None] * code.size
        callee[0] = frame[0]
        for place, get in enumerate(gets, start=1):
            callee[place] = get(frame)
        for rule in code.rules:
            rule(callee)

    return call


def _call_with_two(code: Code, first: int, second: int) -> Act:
    def call(frame: Frame) -> None:
        callee = [None] * code.size
        callee[0] = frame[0]
        callee[1] = frame[first]
        callee[2] = frame[second]
        for rule in code.rules:
            rule(callee)

    return call


def _call_with_slots(code: Code, slots: list[int]) -> Act:
    places = list(enumerate(slots, start=1))

    def call(frame: Frame) -> None:
        callee = [None] * code.size
        callee[0] = frame[0]
        for place, slot in places:
            callee[place] = frame[slot]
        for rule in code.rules:
            rule(callee)

    return call
