"""By what a remembered result is found: a function, written for each group, that takes a frame and gives a key.

The key holds all that the result depends on: the source texts that the group reads, how the message is written, what is
in the targets already, and answers of operators.  None: that is too much, or not known, so the group is run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from types import CodeType
from typing import Any

from ipf.hl7.message import Component, Field, Segment, Subcomponent
from ipf.mapping.runtime.run import Frame
from ipf.ports import Json

LONGEST_SOURCE = 512

Key = Callable[[Frame], tuple[Any, ...] | None]

_NOT_AS_OTHERS = frozenset(("OBX", "NTE"))
"""Segments of which one field says how another is read."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A target that the group adds to, with others.  `place`: where it is in the frame.

    `alone`: names that must not be there yet, since what the group does with them depends on what is there.  `lists`:
    lists that it appends to.
    """

    place: int
    alone: frozenset[str] = frozenset()
    lists: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Places in the frame of a pure group.

    `sources`: its source arguments, each with the numbers of the fields that matter when it is a segment (None: all).
    `target`: what its caller has just made for it to fill; 0 = nothing.  `bundle`: 0 = it has no Bundle.  `shared`: its
    other targets.  `referred`: places of resources that it makes references to.
    """

    sources: tuple[tuple[int, tuple[int, ...] | None], ...]
    target: int
    bundle: int = 0
    shared: tuple[Shared, ...] = ()
    referred: tuple[int, ...] = ()

    @property
    def targets(self) -> tuple[int, ...]:
        """Places of all targets but the Bundle."""
        return (*((self.target,) if self.target else ()), *(one.place for one in self.shared))


def key_of(plan: Plan, group: Hashable) -> Key:
    """The function for one group; `group` tells it from all others."""
    names: dict[str, Any] = {
        "group": group, "Field": Field, "Component": Component, "Subcomponent": Subcomponent, "Segment": Segment,
        "stands": stands, "odd": _NOT_AS_OTHERS, "texts": _texts,
    }  # fmt: skip
    lines = ["r = f[0]", "if r.loose_references: return None"]
    parts = ["group", "None if r.overrides is None else r.overrides.serial"]
    if plan.target:
        lines += _TARGET.format(place=plan.target).splitlines()
        parts.append("t")
    for one in plan.shared:
        names[f"alone{one.place}"] = one.alone
        lines += [f"t{one.place} = f[{one.place}]", f"if not alone{one.place}.isdisjoint(t{one.place}): return None"]
        parts += [f"{name!r} in t{one.place}" for name in one.lists]
    lines += [f"if not stands(f[{place}]): return None" for place in plan.referred]
    for place, numbers in plan.sources:
        enough = 0
        if numbers is not None:
            enough = numbers[-1] + 1 if numbers else 0
            known: dict[int, Callable[[list[str]], Any]] = {}
            names[f"known{place}"] = known
            names[f"fields{place}"] = _getter(numbers, known, enough)
        segment = _ALL_FIELDS if numbers is None else _SOME_FIELDS
        lines += (_SOURCE + segment).format(place=place, longest=LONGEST_SOURCE, enough=enough).splitlines()
        parts += [f"s{place}", f"e{place}", f"k{place}"]
    body = "\n    ".join([*lines, f"return ({', '.join(parts)},)"])
    exec(_compiled(f"def key(f):\n    {body}\n"), names)
    made: Key = names["key"]
    return made


@lru_cache(maxsize=4096)
def _compiled(source: str) -> CodeType:
    """Groups of one shape share their code; what is particular to each are the names that it runs with."""
    return compile(source, "<key>", "exec")


_TARGET = """t = f[{place}]
if len(t) > 2: return None
t = t['resourceType'] if len(t) == 1 and 'resourceType' in t else str(t) if t else ''"""

_SOURCE = """v = f[{place}]
s{place} = type(v)
if s{place} is str:
    e{place}, k{place} = None, v
    if len(v) > {longest}: return None
elif s{place} is Field or s{place} is Component or s{place} is Subcomponent:
    e{place}, k{place} = v.encoding, v.raw
    if len(k{place}) > {longest} or s{place} is not Subcomponent and v.literal: return None
"""
_ALL_FIELDS = "else: return None"
_SOME_FIELDS = """elif s{place} is Segment and (s{place} := v.name) not in odd:
    p = v._fields or v.fields
    n = len(p)
    g = known{place}.get(n if n < {enough} else {enough})
    e{place}, k{place} = v.encoding, g(p) if g is not None else fields{place}(p)
    if len(v.raw) > {longest} and texts(k{place}) > {longest}: return None
else: return None"""


def stands(resource: Json) -> bool:
    """Whether a resource surely does not turn out empty, so that references to it stay."""
    for name, value in resource.items():
        if type(value) is str and name != "resourceType":
            return True
    identifiers = resource.get("identifier")
    return type(identifiers) is list and len(identifiers) > 0 and "value" in identifiers[0]


def _texts(values: tuple[str, ...]) -> int:
    return sum(map(len, values))


def _getter(
    numbers: tuple[int, ...], known: dict[int, Callable[[list[str]], Any]], enough: int
) -> Callable[[list[str]], Any]:
    """The fields with these numbers, of which the last may not be there.

    `known`: by the number of fields that a segment has, what gives them; filled here.  `enough`: more do not matter.
    """

    def get(fields: list[str]) -> Any:
        count = min(len(fields), enough)
        there = tuple(number for number in numbers if number < count)
        found = known[count] = itemgetter(*there) if len(there) > 1 else _few(there)
        return found(fields)

    return get


def _few(numbers: tuple[int, ...]) -> Callable[[list[str]], tuple[str, ...]]:
    """The same of one number, or of none: `itemgetter` gives no tuple then."""
    return lambda fields: tuple([fields[number] for number in numbers])
