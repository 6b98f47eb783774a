"""What a pure group did, written down so that it can be done again for another message.

Written down are, as JSON, what came into each of its targets and the new entries of the Bundle; with it the references
between these, and what was noted.  Doing it again makes everything anew: no object belongs to two messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from ipf.mapping.runtime.memo_keys import Plan
from ipf.mapping.runtime.run import Frame, Run
from ipf.mapping.runtime.scope import Act
from ipf.ports import Json

LONGEST_RESULT = 4096

Link = tuple[tuple[str | int, ...], str, int]
"""A reference: the way to its holder, its name, and what it points at: the number of a new entry, or -1 - the number of
a target.  Ways begin in [what came into each target ..., new entries, each target ...]."""


@dataclass(slots=True)
class Kept:
    """A result as JSON, the references in it, and what was noted: unmapped codes, warnings, logs.

    `found`: how often it was found.  `again`: does it again, once it was found often (`memo_code`).
    """

    text: bytes
    links: tuple[Link, ...] = ()
    notes: tuple[tuple[Any, ...], ...] | None = None
    found: int = 0
    again: Act | None = None


class Recorder:
    """Runs a group and writes down what it does."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __call__(self, frame: Frame, act: Act) -> Kept | None:
        """None: what it did cannot be written down; it is done all the same."""
        run: Run = frame[0]
        targets: list[Json] = [frame[place] for place in self._plan.targets]
        bundle: Json = frame[self._plan.bundle] if self._plan.bundle else {}
        shared = targets[-len(self._plan.shared) :] if self._plan.shared else []
        before = [{name: _count(value) for name, value in one.items()} for one in shared]
        lists = (run.created, run.references, bundle.get("entry", ()), run.urns, run.unmapped, run.warnings, run.logs)
        created, references, entries, urns, *notes = map(len, lists)
        run.is_remembering = True
        act(frame)
        run.is_remembering = False
        run.prune(created, (*targets, bundle))
        added: list[Json] = bundle.get("entry", [])[entries:]
        if run.loose_references or not all(len(one.get("resource", ())) > 1 for one in added):
            return None
        own = targets[: len(targets) - len(shared)]
        made = [*own, *map(_news, shared, before, (one.lists for one in self._plan.shared))]
        links = _links(run.references[references:], [*made, added], targets, islice(run.urns, urns, None))
        text = _as_json([*made, added])
        if links is None or text is None:
            return None
        noted: tuple[list[Any], ...] = (run.unmapped, run.warnings, run.logs)
        said = tuple(tuple(one[count:]) for one, count in zip(noted, notes, strict=True))
        return Kept(text, links, said if any(said) else None)


def _count(value: Any) -> int:
    return len(value) if type(value) is list else 0


def _news(target: Json, before: dict[str, int], lists: Sequence[str]) -> Json:
    """What came into a target: new names, and the new items of lists."""
    news: Json = {}
    for name, value in target.items():
        if name not in before:
            news[name] = value
        elif name in lists and len(value) > before[name]:
            news[name] = value[before[name] :]
    return news


def _as_json(content: list[Any]) -> bytes | None:
    try:
        text = bytes(memoryview(orjson.dumps(content)))  # a copy: what orjson gives holds 4 kB however short it is
    except TypeError:  # such as a decimal, which keeps its digits in a class of its own
        return None
    return text if len(text) <= LONGEST_RESULT else None


def _links(
    references: Sequence[tuple[Json, str, Json]], content: list[Any], targets: list[Json], urns: Iterator[int]
) -> tuple[Link, ...] | None:
    """The references; None when one of them, or a new urn, has to do with something else."""
    if not references:
        return None if any(True for _ in urns) else ()
    ways = dict(_ways(content, ()))
    ways |= {id(one): (len(content) + number,) for number, one in enumerate(targets)}
    numbers = {id(entry["resource"]): number for number, entry in enumerate(content[-1])}
    numbers |= {id(one): -1 - number for number, one in enumerate(targets)}
    if not all(id(holder) in ways and id(resource) in numbers for holder, _, resource in references):
        return None
    if not {id(resource) for _, _, resource in references}.issuperset(urns):
        return None
    return tuple((ways[id(holder)], name, numbers[id(resource)]) for holder, name, resource in references)


def _ways(value: Any, way: tuple[str | int, ...]) -> Iterator[tuple[int, tuple[str | int, ...]]]:
    """Every object in a value by its id(), and the way to it."""
    if type(value) is dict:
        yield id(value), way
    steps = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    for step, one in steps:
        yield from _ways(one, (*way, step))


class Replay:
    """Does for another message what was written down."""

    def __init__(self, plan: Plan) -> None:
        self._target = plan.target
        self._bundle = plan.bundle
        self._targets = plan.targets
        first = 1 if plan.target else 0
        self._shared = [(number, one.place) for number, one in enumerate(plan.shared, first)]

    def __call__(self, frame: Frame, kept: Kept) -> None:
        links, notes = kept.links, kept.notes
        content = orjson.loads(kept.text)
        if self._target:
            target: Json = frame[self._target]
            if target:
                target.clear()
            target.update(content[0])
        for number, place in self._shared:
            _add(frame[place], content[number])
        added = content[-1]
        if added:
            frame[self._bundle].setdefault("entry", []).extend(added)
        if links:
            targets = [frame[place] for place in self._targets]
            content += targets
            _link(frame[0], content, links, targets, added)
        if notes is not None:
            run: Run = frame[0]
            unmapped, warnings, logs = notes
            run.unmapped += unmapped
            run.warnings += warnings
            run.logs += logs


def _add(target: Json, news: Json) -> None:
    """New names, and new items of lists that are there."""
    for name, value in news.items():
        if name in target:
            target[name] += value
        else:
            target[name] = value


def _link(run: Run, content: list[Any], links: Sequence[Link], targets: list[Json], added: list[Json]) -> None:
    """Give the references in a result that was made anew, in the order in which they were made first."""
    references = run.references
    for way, name, number in links:
        owner: Any = content
        for step in way:
            owner = owner[step]
        resource = added[number]["resource"] if number >= 0 else targets[-1 - number]
        owner[name] = run.urn(resource)
        references.append((owner, name, resource))
