"""Results of pure groups, remembered: wards, doctors, organisations and codes come again and again.

What a pure group (`purity`) makes of the same text is always the same: the content of its target, new entries of the
Bundle, and the references among these.  It is kept as JSON and made anew from them for each message, since results are
changed later (references are rewritten, entries merged).  Everything that differs from message to message (urns) is
given when it is made anew.

Bounded: at most `LIMIT` results for a library, each from at most `LONGEST_SOURCE` characters and of at most
`LONGEST_RESULT` bytes; a few megabytes in all.  The results that were not asked for are forgotten first.  A group whose
results do not come again (names of patients) is run without a look for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from ipf.hl7.message import Component, Field, Segment, Subcomponent
from ipf.mapping.run import Frame, Run
from ipf.mapping.scope import Act
from ipf.ports import Json

LIMIT = 4096
LONGEST_SOURCE = 512
LONGEST_RESULT = 4096

_TRIAL = 1024
_REST = 4096
_NOT_AS_OTHERS = frozenset(("OBX", "NTE"))
"""Segments of which one field says how another is read."""

Link = tuple[tuple[str | int, ...], str, int]
"""A reference: the way to its holder from [target, new entries], its name, and the entry that it points at."""

Kept = tuple[bytes, tuple[Link, ...], tuple[Any, ...] | None]
"""A result as JSON, the references in it, and what was noted: unmapped codes, warnings, logs."""


class Memory:
    """Results by what they were made from; two generations, so that forgetting costs nothing."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._half = max(1, limit // 2)
        self._recent: dict[tuple[Any, ...], Kept] = {}
        self._older: dict[tuple[Any, ...], Kept] = {}

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def get(self, key: tuple[Any, ...]) -> Kept | None:
        """The result, which is then among the last to be forgotten."""
        found = self._recent.get(key)
        if found is None:
            found = self._older.pop(key, None)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: tuple[Any, ...], kept: Kept) -> None:
        """Remember a result."""
        if len(self._recent) >= self._half:
            self._older, self._recent = self._recent, {}
        self._recent[key] = kept


@dataclass(frozen=True, slots=True)
class Plan:
    """Places in the frame of a pure group.

    `sources`: its source arguments, each with the numbers of the fields that matter when it is a segment (None: all).
    `target`, `bundle`: what it writes to; 0 = it has no Bundle.
    """

    sources: tuple[tuple[int, tuple[int, ...] | None], ...]
    target: int
    bundle: int


class Remembered:
    """A group that remembers.  Called as the group's function is, with a frame."""

    def __init__(self, run: Act, memory: Memory, plan: Plan) -> None:
        self._run = run
        self._memory = memory
        self._sources = [(place, None if numbers is None else _getter(numbers)) for place, numbers in plan.sources]
        self._target = plan.target
        self._bundle = plan.bundle
        self._asked = 0
        self._found = 0
        self._rest = 0

    def __call__(self, frame: Frame) -> None:
        if self._rest or frame[0].is_remembering:
            self._rest -= self._rest > 0
            return self._run(frame)
        key = self._key(frame)
        if key is None:
            return self._run(frame)
        kept = self._memory.get(key)
        self._asked += 1
        if kept is None:
            self._run_and_keep(frame, key)
            if self._asked >= _TRIAL:
                self._judge()
            return None
        self._found += 1
        return self._make_anew(frame, kept)

    def _judge(self) -> None:
        """Is it worth the trouble?"""
        if self._found * 4 < self._asked:
            self._rest = _REST
        self._asked = self._found = 0

    def _key(self, frame: Frame) -> tuple[Any, ...] | None:
        """All that the result depends on; None when that is too much, or not known."""
        target = frame[self._target]
        if frame[0].loose_references or len(target) > 2:
            return None
        key: list[Any] = [self._run, str(target) if target else ""]
        overrides = frame[0].overrides
        if overrides is not None:
            key.append(overrides.serial)
        for place, fields in self._sources:
            node = frame[place]
            sort = type(node)
            if sort is str:
                key.append(node)
            elif sort is Field or sort is Component:
                if node.literal:
                    return None
                key += (node.encoding, sort, node.raw)
                node = node.raw
            elif sort is Subcomponent:
                key += (node.encoding, sort, node.raw)
                node = node.raw
            elif sort is Segment and fields is not None and node.name not in _NOT_AS_OTHERS:
                read = fields(node.fields)
                key += (node.encoding, node.name, read)
                node = "".join(read)
            else:
                return None
            if len(node) > LONGEST_SOURCE:
                return None
        return tuple(key)

    def _run_and_keep(self, frame: Frame, key: tuple[Any, ...]) -> None:
        run: Run = frame[0]
        bundle = frame[self._bundle] if self._bundle else {}
        before = _marks(run, bundle)
        run.is_remembering = True
        self._run(frame)
        run.is_remembering = False
        created, references, entries, urns, unmapped, warnings, logs = before
        if run.loose_references or any(_is_empty(one) for _, _, one in run.created[created:]):
            return
        added = bundle.get("entry", [])[entries:]
        linked = run.references[references:]
        if len(run.urns) - urns != len({id(one) for _, _, one in linked}):
            return
        content = [frame[self._target], added]
        links = tuple(_links(linked, content))
        try:
            made = bytes(memoryview(orjson.dumps(content)))  # a copy: what orjson gives holds 4 kB however short it is
        except TypeError:  # such as a decimal, which keeps its digits in a class of its own
            return
        if len(links) == len(linked) and len(made) <= LONGEST_RESULT:
            notes = tuple(run.unmapped[unmapped:]), tuple(run.warnings[warnings:]), tuple(run.logs[logs:])
            self._memory.put(key, (made, links, notes if any(notes) else None))

    def _make_anew(self, frame: Frame, kept: Kept) -> None:
        made, links, notes = kept
        content = orjson.loads(made)
        target: Json = frame[self._target]
        if target:
            target.clear()
        target.update(content[0])
        added = content[1]
        if added:
            frame[self._bundle].setdefault("entry", []).extend(added)
        if links:
            content[0] = target
            _link(frame[0], content, links)
        if notes is not None:
            run: Run = frame[0]
            unmapped, warnings, logs = notes
            run.unmapped += unmapped
            run.warnings += warnings
            run.logs += logs


def _link(run: Run, content: list[Any], links: Sequence[Link]) -> None:
    """Give the references in a result that was made anew, in the order in which they were made first."""
    for way, name, number in links:
        owner: Any = content
        for step in way:
            owner = owner[step]
        resource = content[1][number]["resource"]
        owner[name] = run.urn(resource)
        run.references.append((owner, name, resource))


def _links(references: Sequence[tuple[Json, str, Json]], content: list[Any]) -> Iterator[Link]:
    """The references whose holder and resource are both in a result."""
    if references:
        ways = dict(_ways(content, ()))
        numbers = {id(entry.get("resource")): number for number, entry in enumerate(content[1])}
        for holder, name, resource in references:
            if id(holder) in ways and id(resource) in numbers:
                yield ways[id(holder)], name, numbers[id(resource)]


def _ways(value: Any, way: tuple[str | int, ...]) -> Iterator[tuple[int, tuple[str | int, ...]]]:
    """Every object in a value by its id(), and the way to it."""
    if type(value) is dict:
        yield id(value), way
    steps = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    for step, one in steps:
        yield from _ways(one, (*way, step))


def _getter(numbers: tuple[int, ...]) -> Callable[[list[str]], tuple[str, ...]]:
    """The fields with these numbers, of which the last may not be there."""

    def get(fields: list[str]) -> tuple[str, ...]:
        count = len(fields)
        return tuple([fields[number] for number in numbers if number < count])

    return get


def _marks(run: Run, bundle: Json) -> tuple[int, ...]:
    """How much there was before a group ran."""
    lists = (run.created, run.references, bundle.get("entry", ()), run.urns, run.unmapped, run.warnings, run.logs)
    return tuple(map(len, lists))


def _is_empty(element: Json) -> bool:
    return len(element) <= ("resourceType" in element)
