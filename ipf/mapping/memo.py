"""Results of pure groups, remembered: wards, doctors, organisations and codes come again and again.

What a pure group (`purity`) makes of the same text is always the same: the content of its target, new entries of the
Bundle, and the references among these.  It is kept as bytes and made anew from them for each message, since results are
changed later (references are rewritten, entries merged).  Everything that differs from message to message (urns) is
given when it is made anew.

Bounded: at most `LIMIT` results for a library, each from at most `LONGEST_SOURCE` characters and of at most
`LONGEST_RESULT` bytes; a few megabytes in all.  The results that were not asked for are forgotten first.  A group whose
results do not come again (names of patients) is run without a look for a while.
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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

Kept = tuple[bytes, tuple[Any, ...] | None]
"""A result as bytes, and what was noted: unmapped codes, warnings, logs."""


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
        self._sources = plan.sources
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
        kind = target.get("resourceType")
        if len(target) > (kind is not None) or frame[0].loose_references:
            return None
        key: list[Any] = [self._run, kind]
        for place, numbers in self._sources:
            node = frame[place]
            sort = type(node)
            if sort is Component or sort is Field:
                if node.literal or len(node.raw) > LONGEST_SOURCE:
                    return None
                key += (sort, node.raw, node.encoding)
            elif sort is str or sort is Subcomponent:
                text = node if sort is str else node.raw
                if len(text) > LONGEST_SOURCE:
                    return None
                key += (text,) if sort is str else (sort, text, node.encoding)
            elif sort is Segment and numbers is not None and node.name not in _NOT_AS_OTHERS:
                fields = node.fields
                count = len(fields)
                key.append(node.encoding)
                key += [fields[number] if number < count else "" for number in numbers]
            else:
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
        if not _are_within(linked, added) or len(run.urns) - urns != len({id(one) for _, _, one in linked}):
            return
        try:
            made = marshal.dumps((frame[self._target], added, linked))
        except ValueError:  # a decimal keeps its digits in a class of its own
            return
        if len(made) <= LONGEST_RESULT:
            notes = tuple(run.unmapped[unmapped:]), tuple(run.warnings[warnings:]), tuple(run.logs[logs:])
            self._memory.put(key, (made, notes if any(notes) else None))

    def _make_anew(self, frame: Frame, kept: Kept) -> None:
        run: Run = frame[0]
        target = frame[self._target]
        content, added, linked = marshal.loads(kept[0])
        target.update(content)
        if added:
            frame[self._bundle].setdefault("entry", []).extend(added)
        for holder, name, resource in linked:
            owner = target if holder is content else holder
            owner[name] = run.urn(resource)
            run.references.append((owner, name, resource))
        if kept[1] is not None:
            unmapped, warnings, logs = kept[1]
            run.unmapped += unmapped
            run.warnings += warnings
            run.logs += logs


def _marks(run: Run, bundle: Json) -> tuple[int, ...]:
    """How much there was before a group ran."""
    lists = (run.created, run.references, bundle.get("entry", ()), run.urns, run.unmapped, run.warnings, run.logs)
    return tuple(map(len, lists))


def _is_empty(element: Json) -> bool:
    return len(element) <= ("resourceType" in element)


def _are_within(linked: Sequence[tuple[Json, str, Json]], added: Sequence[Json]) -> bool:
    """Every reference points at a resource that was added with it."""
    own = {id(entry.get("resource")) for entry in added}
    return all(id(resource) in own for _, _, resource in linked)
