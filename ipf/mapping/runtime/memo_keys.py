"""Cache keys of pure groups: a function from a frame to the key of the group's result.

The key holds everything that the result depends on: the source text that the group reads, the encoding of the message,
its zone, the content of the targets, and the codes that operators have mapped.  The key is None when one of these is
too long or unknown; the group then runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ipf.hl7.message import Component, Field, Segment, Subcomponent
from ipf.mapping.runtime.run import Frame
from ipf.mapping.runtime.zone import MESSAGE_OFFSET
from ipf.ports import Json

LONGEST_SOURCE = 512

Key = tuple[Any, ...]
_SourceKey = Callable[[Any], Key | None]

_SELF_TYPED = frozenset(("OBX", "NTE"))
"""Segments in which one field decides how another is parsed."""


@dataclass(frozen=True, slots=True)
class SharedTarget:
    """A target to which other groups add as well.

    `slot`: its place in the frame.  `exclusive`: names of elements that must be absent, since the group's effect
    depends on their content.  `lists`: names of lists to which the group appends.
    """

    slot: int
    exclusive: frozenset[str] = frozenset()
    lists: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoPlan:
    """The parameters of a pure group, each by its slot in the frame.

    `sources`: source parameters, each with the numbers of the fields that the group reads when it is a segment (None:
    all fields).  `target`: the element that the caller has just made; 0 = none.  `bundle`: 0 = no Bundle.
    `shared`: the other targets.  `referenced`: resources to which the group makes references.
    """

    sources: tuple[tuple[int, tuple[int, ...] | None], ...]
    target: int
    bundle: int = 0
    shared: tuple[SharedTarget, ...] = ()
    referenced: tuple[int, ...] = ()

    @property
    def targets(self) -> tuple[int, ...]:
        """Slots of all targets but the Bundle."""
        return (*((self.target,) if self.target else ()), *(one.slot for one in self.shared))


def key_function(plan: MemoPlan, group: Hashable) -> Callable[[Frame], Key | None]:
    """The key function of one group.  `group` distinguishes it from all others in the cache."""
    target, referenced = plan.target, plan.referenced
    shared = [(one.slot, one.exclusive, one.lists) for one in plan.shared]
    sources = [(slot, _text_key if fields is None else _segment_key(fields)) for slot, fields in plan.sources]

    def key(frame: Frame) -> Key | None:
        run = frame[0]
        if run.loose_references:
            return None
        parts: list[Any] = [group, None if run.overrides is None else run.overrides.serial, MESSAGE_OFFSET.get()]
        if target:
            content = frame[target]
            text = str(content) if content else ""
            if (
                len(content) > 2 or "{}" in text
            ):  # a replay would replace the empty element, which is removed at the end
                return None
            parts.append(text)
        for slot, exclusive, lists in shared:
            content = frame[slot]
            if not exclusive.isdisjoint(content):
                return None
            for name in lists:
                parts.append(name in content)
        for slot in referenced:
            if not _is_kept(frame[slot]):
                return None
        for slot, source_key in sources:
            found = source_key(frame[slot])
            if found is None:
                return None
            parts.append(found)
        return tuple(parts)

    return key


def _text_key(value: Any) -> Key | None:
    """A text, or a node of a message below a segment."""
    kind = type(value)
    if kind is str:
        return (kind, value) if len(value) <= LONGEST_SOURCE else None
    if kind is Field or kind is Component:
        if value.literal or len(value.raw) > LONGEST_SOURCE:
            return None
    elif kind is not Subcomponent or len(value.raw) > LONGEST_SOURCE:
        return None
    return kind, value.encoding, value.raw


def _segment_key(numbers: tuple[int, ...]) -> _SourceKey:
    """The fields with these numbers (ascending) of a segment; other values as `_text_key`."""
    enough = numbers[-1] + 1 if numbers else 0
    getters: dict[int, Callable[[list[str]], Any]] = {}
    """By the number of fields of a segment; more than `enough` count as `enough`."""

    def source_key(value: Any) -> Key | None:
        if type(value) is not Segment:
            return _text_key(value)
        if value.name in _SELF_TYPED:
            return None
        fields = value.fields
        count = min(len(fields), enough)
        getter = getters.get(count)
        if getter is None:
            getter = getters[count] = _getter([number for number in numbers if number < count])
        read = getter(fields)
        if len(value.raw) > LONGEST_SOURCE and sum(map(len, read)) > LONGEST_SOURCE:
            return None
        return value.name, value.encoding, read

    return source_key


def _getter(numbers: list[int]) -> Callable[[list[str]], Any]:
    """A tuple of the fields with these numbers; `itemgetter` gives no tuple for fewer than two."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return lambda fields: tuple([fields[number] for number in numbers])


def _is_kept(resource: Json) -> bool:
    """Whether a resource certainly has content when the run ends, so that references to it stay."""
    for name, value in resource.items():
        if type(value) is str and name != "resourceType":
            return True
    identifiers = resource.get("identifier")
    return type(identifiers) is list and len(identifiers) > 0 and "value" in identifiers[0]
