"""Random programs of store calls, run on the stores in memory and on PostgreSQL: every result and state is compared.

A program is drawn from a seed.  A step is the name of a method of a world and a seed from which the method draws its
arguments; what it can name (claims, messages, leases) it takes from what the world has seen, so a program without some
of its steps is a program as well.  Time moves only by the step `wait`.  A program that fails is made as short as
possible, and printed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from random import Random
from typing import Any

from ipf.errors import Problem
from tests.contracts.clock import CLOCK

Step = tuple[str, int]
IDS = frozenset({"id", "message_id", "original_id", "head_id", "rid", "subscription_rid"})
_SHRINKINGS = 60


class World:
    """The stores of one side.  `seen`: their row numbers in order of appearance, which stand for them when compared."""

    steps: Sequence[str] = ()
    """Names of the methods that are steps; a name that is there twice is drawn twice as often."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}

    async def visible(self) -> Any:
        """All that callers can see."""
        raise NotImplementedError

    async def close(self) -> None:
        """Forget it."""

    async def visible_plain(self) -> Any:
        """The same, to be compared."""
        return self.plain(await self.visible())

    async def do(self, step: Step) -> Any:
        """The result of a step, or the kind of its Problem."""
        name, seed = step
        try:
            return self.plain(await getattr(self, name)(Random(seed)))
        except Problem as problem:
            return f"{type(problem).__name__} {problem.category.name}"
        except Exception as error:  # also a difference, unless both sides raise it
            return f"{type(error).__name__} {getattr(error, 'status', '')}"

    def number(self, id: int) -> str:
        """What stands for a row."""
        return f"#{self.seen.setdefault(id, len(self.seen) + 1)}"

    def plain(self, value: Any, name: str = "") -> Any:
        """A result that can be compared and printed."""
        if name in IDS and isinstance(value, int):
            return self.number(value)
        if is_dataclass(value) and not isinstance(value, type):
            return {one.name: self.plain(getattr(value, one.name), one.name) for one in fields(value)}
        if isinstance(value, dict):
            return {str(key): self.plain(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(one) for one in value]
        if isinstance(value, datetime):
            return round((value - CLOCK()).total_seconds(), 3)
        return value.value if isinstance(value, Enum) else value


Worlds = Callable[[], Awaitable[tuple[World, World]]]


def program(names: Sequence[str], seed: int, length: int) -> list[Step]:
    """The program of a seed."""
    draw = Random(seed)
    return [(draw.choice([*names, "wait"]), draw.getrandbits(32)) for _ in range(length)]


async def difference(steps: Sequence[Step], worlds: Worlds) -> str:
    """The first difference between both sides; empty if they agree."""
    memory, real = await worlds()
    try:
        for number, step in enumerate(steps, 1):
            CLOCK.advance(0.001)  # what happens later has a later time
            if step[0] == "wait":
                CLOCK.advance(Random(step[1]).choice((0.5, 1, 10, 59, 61, 3600)))
                results = [["waited", await one.visible_plain()] for one in (memory, real)]
            else:
                results = [[await one.do(step), await one.visible_plain()] for one in (memory, real)]
            if results[0] != results[1]:
                return f"step {number}, {step}:\n" + "\n".join(_unlike(*results))
        return ""
    finally:
        await memory.close()
        await real.close()


def _unlike(memory: Any, real: Any, path: str = "") -> list[str]:
    """The places where two results differ."""
    if type(memory) is type(real) and isinstance(memory, dict) and memory.keys() == real.keys():
        return [line for key in memory for line in _unlike(memory[key], real[key], f"{path}.{key}")]
    if type(memory) is type(real) and isinstance(memory, list) and len(memory) == len(real):
        return [
            line for n, pair in enumerate(zip(memory, real, strict=True)) for line in _unlike(*pair, f"{path}[{n}]")
        ]
    return [] if memory == real else [f"  {path}: in memory {memory!r}, on PostgreSQL {real!r}"]


async def shortest(steps: list[Step], worlds: Worlds) -> list[Step]:
    """The program with as many steps removed as possible while it still differs."""
    size, tries = len(steps) // 2, 0
    while size and tries < _SHRINKINGS:
        for start in range(len(steps) - size, -1, -size):
            shorter, tries = steps[:start] + steps[start + size :], tries + 1
            if tries < _SHRINKINGS and await difference(shorter, worlds):
                steps = shorter
        size //= 2
    return steps
