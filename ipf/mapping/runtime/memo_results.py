"""Results of pure groups, recorded as JSON and replayed for other messages.

A recording holds what the group put into each of its targets, the new entries of the Bundle, the references among
these, and the notes of the run.  A replay decodes the JSON anew, so no object belongs to two messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from ipf.hl7.message import Segment
from ipf.mapping.runtime.memo_keys import MemoPlan
from ipf.mapping.runtime.run import Act, Frame, Run
from ipf.ports import Json

LONGEST_RESULT = 4096

Link = tuple[tuple[str | int, ...], str, int]
"""A reference: path to its holder, name, and the resource: the number of a new entry, or -1 - the number of a target.
Paths begin in [addition to each target ..., new entries, each target ...]."""

Source = tuple[tuple[str | int, ...], str, tuple[str | int, ...] | None, Any, str]
"""The HL7 v2 fields of a value: path to its owner, name, path to the value (None: it is a plain one), value, fields."""


@dataclass(frozen=True, slots=True)
class Result:
    """Content as JSON, the references in it, notes (unmapped codes, warnings, logs, dropped values), the bits of the
    fields that the group read, by the slot of the segment, the fields that elements of resources come from, for each
    new entry the slots of the segments that it is made from, and the steps that the group took: a replay counts the
    same ones, so whether a message exceeds the budget does not depend on the cache.
    """

    text: bytes
    links: tuple[Link, ...] = ()
    notes: tuple[tuple[Any, ...], ...] | None = None
    reads: tuple[tuple[int, int], ...] = ()
    sources: tuple[Source, ...] = ()
    made_from: tuple[tuple[int, ...], ...] = ()
    steps: int = 0


class Recorder:
    """Runs a group and records its effects."""

    def __init__(self, plan: MemoPlan) -> None:
        self._plan = plan

    def __call__(self, frame: Frame, act: Act) -> Result | None:
        """Run the group; None when its effects cannot be recorded."""
        run: Run = frame[0]
        targets: list[Json] = [frame[slot] for slot in self._plan.targets]
        bundle: Json = frame[self._plan.bundle] if self._plan.bundle else {}
        shared = targets[-len(self._plan.shared) :] if self._plan.shared else []
        before = [{name: _count(value) for name, value in one.items()} for one in shared]
        lists = (run.references, bundle.get("entry", ()), run.urns, run.sources,
                 run.unmapped, run.warnings, run.logs, run.dropped)  # fmt: skip
        references, entries, urns, sources, *notes = map(len, lists)
        mark = run.mark()
        steps = run.steps_left
        run.is_recording = True
        reads = self._act(frame, act)
        run.is_recording = False
        steps -= run.steps_left
        run.tidy(mark, (*targets, bundle))
        run.complete(mark.checked)
        entries_added: list[Json] = bundle.get("entry", [])[entries:]
        if run.loose_references or not all(len(one.get("resource", ())) > 1 for one in entries_added):
            return None
        own = targets[: len(targets) - len(shared)]
        additions = [*own, *map(_additions, shared, before, (one.lists for one in self._plan.shared))]
        content = [*additions, entries_added]
        links = _links(run.references[references:], content, targets, islice(run.urns, urns, None))
        text = _as_json(content)
        if links is None or text is None:
            return None
        noted: tuple[list[Any], ...] = (run.unmapped, run.warnings, run.logs, run.dropped)
        new_notes = tuple(tuple(one[count:]) for one, count in zip(noted, notes, strict=True))
        known = _sources(run.sources[sources:], content, targets)
        made_from = tuple(self._made_from(frame, one["resource"]) for one in entries_added)
        return Result(text, links, new_notes if any(new_notes) else None, reads, known, made_from, steps)

    def _made_from(self, frame: Frame, resource: Json) -> tuple[int, ...]:
        nodes = {id(one) for one in frame[0].made_from.get(id(resource), ())}
        return tuple(slot for slot, _ in self._plan.sources if id(frame[slot]) in nodes)

    def _act(self, frame: Frame, act: Act) -> tuple[tuple[int, int], ...]:
        """Run the group; returns the fields that it read of each segment."""
        segments = [(slot, frame[slot]) for slot, _ in self._plan.sources if type(frame[slot]) is Segment]
        before = [segment.reads for _, segment in segments]
        for _, segment in segments:
            segment.reads = 0
        act(frame)
        reads = tuple([(slot, segment.reads) for slot, segment in segments if segment.reads])
        for (_, segment), bits in zip(segments, before, strict=True):
            segment.reads |= bits
        return reads


def _count(value: Any) -> int:
    return len(value) if type(value) is list else 0


def _additions(target: Json, before: dict[str, int], lists: Sequence[str]) -> Json:
    """New elements of a target, and new items of its lists."""
    added: Json = {}
    for name, value in target.items():
        if name not in before:
            added[name] = value
        elif name in lists and len(value) > before[name]:
            added[name] = value[before[name] :]
    return added


def _as_json(content: list[Any]) -> bytes | None:
    try:
        text = bytes(memoryview(orjson.dumps(content)))  # orjson allocates 4 kB for a shorter text
    except TypeError:  # a decimal, which is no JSON type of orjson
        return None
    return text if len(text) <= LONGEST_RESULT else None


def _links(
    references: Sequence[tuple[Json, str, Json]], content: list[Any], targets: list[Json], urns: Iterator[int]
) -> tuple[Link, ...] | None:
    """The references; None when one of them, or a new urn, concerns an object outside the content and the targets."""
    if not references:
        return None if any(True for _ in urns) else ()
    paths = dict(_paths(content, ()))
    paths |= {id(one): (len(content) + number,) for number, one in enumerate(targets)}
    numbers = {id(entry["resource"]): number for number, entry in enumerate(content[-1])}
    numbers |= {id(one): -1 - number for number, one in enumerate(targets)}
    if not all(id(holder) in paths and id(resource) in numbers for holder, _, resource in references):
        return None
    if not {id(resource) for _, _, resource in references}.issuperset(urns):
        return None
    return tuple((paths[id(holder)], name, numbers[id(resource)]) for holder, name, resource in references)


def _sources(
    found: Sequence[tuple[Json, str, Any, str]], content: list[Any], targets: list[Json]
) -> tuple[Source, ...]:
    """The fields of what the group wrote.  An element that was removed, because it is empty, has none."""
    if not found:
        return ()
    paths = dict(_paths(content, ()))
    owners = paths | {id(one): (len(content) + number,) for number, one in enumerate(targets)}
    return tuple(
        (owners[id(owner)], name, paths.get(id(value)), None if type(value) is dict else value, fields)
        for owner, name, value, fields in found
        if id(owner) in owners and (type(value) is not dict or id(value) in paths)
    )


def _paths(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[int, tuple[str | int, ...]]]:
    """The id() and the path of every object in a value."""
    if type(value) is dict:
        yield id(value), path
    steps = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    for step, one in steps:
        yield from _paths(one, (*path, step))


class Replay:
    """Applies a recorded result to the frame of another message."""

    def __init__(self, plan: MemoPlan) -> None:
        self._target = plan.target
        self._bundle = plan.bundle
        self._targets = plan.targets
        first = 1 if plan.target else 0
        self._shared = [(number, one.slot) for number, one in enumerate(plan.shared, first)]

    def __call__(self, frame: Frame, result: Result) -> None:
        links, notes, sources = result.links, result.notes, result.sources
        frame[0].steps_left -= result.steps
        for slot, bits in result.reads:
            frame[slot].reads |= bits
        content = orjson.loads(result.text)
        if self._target:
            target: Json = frame[self._target]
            if target:
                target.clear()
            target.update(content[0])
        for number, slot in self._shared:
            _add(frame[slot], content[number])
        entries = content[-1]
        if entries:
            frame[self._bundle].setdefault("entry", []).extend(entries)
            made_from = frame[0].made_from
            for entry, slots in zip(entries, result.made_from, strict=True):
                made_from[id(entry["resource"])] = tuple([frame[slot] for slot in slots])
        if links or sources:
            targets = [frame[slot] for slot in self._targets]
            content += targets
            _link(frame[0], content, links, targets, entries)
            _note_sources(frame[0], content, sources)
        if notes is not None:
            run: Run = frame[0]
            unmapped, warnings, logs, dropped = notes
            run.unmapped += unmapped
            run.warnings += warnings
            run.logs += logs
            run.dropped += dropped


def _add(target: Json, additions: Json) -> None:
    """Add new elements, and new items of lists."""
    for name, value in additions.items():
        if name in target:
            target[name] += value
        else:
            target[name] = value


def _link(run: Run, content: list[Any], links: Sequence[Link], targets: list[Json], entries: list[Json]) -> None:
    """Fill in the references, in the order of the recording."""
    references = run.references
    for path, name, number in links:
        owner = _at(content, path)
        resource = entries[number]["resource"] if number >= 0 else targets[-1 - number]
        owner[name] = run.reference(resource)
        references.append((owner, name, resource))


def _note_sources(run: Run, content: list[Any], sources: Sequence[Source]) -> None:
    for path, name, item, value, fields in sources:
        run.sources.append((_at(content, path), name, value if item is None else _at(content, item), fields))


def _at(content: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        content = content[step]
    return content
