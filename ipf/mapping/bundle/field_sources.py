"""The fields of the message that the elements of each entry come from, for updates (`rest.identity.omitted`).

What arrives: the entries of a message, and what the compiled map recorded of each value that it wrote into a resource.
What leaves: `Entry.sources`.  A result is told as a whole each time, so what a corrected one leaves out is gone: its
types have none.

Source: HL7 v2.9 sections 2.5.3 and 7.1.2 (a result is replaced as a whole)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ipf.hl7.message import Message
from ipf.hl7.stated import Statement
from ipf.mapping.compiler.fields import INITIAL
from ipf.mapping.runtime.run import Run
from ipf.ports import Json
from ipf.ports.queries.entries import Entry, Method
from ipf.ports.queries.field_sources import FieldSources, StatedFields, parts_of

TOLD_AS_A_WHOLE = frozenset(("Observation", "DiagnosticReport"))

EVERY_EVENT = "*"
"""In a declaration of deletions: whatever the event is."""

Known = Mapping[str, Mapping[str, frozenset[str]]]
"""By resource type and element the fields that the maps make it of."""
Note = tuple[str, Any, str]
"""Name, value or item, fields."""


@dataclass(frozen=True, slots=True)
class Update:
    """What a message states, for updates.  `deleted`: fields that its event deletes, where the segment has no value.

    `is_snapshot`: its sender always sends all it knows.
    """

    statement: Statement
    known: Known
    deleted: str = ""
    is_snapshot: bool = False

    def about(self, resources: Iterable[Sequence[object]]) -> StatedFields:
        """What is stated about a resource; see `Statement.about`."""
        stated = self.statement.about(resources)
        deleted = [(name, bit) for name, bit in parts_of(self.deleted) if not stated.fields.get(name, bit) & bit]
        if not deleted:
            return stated
        fields, nulls = dict(stated.fields), dict(stated.nulls)
        for name, bit in deleted:
            fields[name] |= bit
            nulls[name] = nulls.get(name, 0) | bit
        return replace(stated, fields=fields, nulls=nulls)


def update_of(message: Message, known: Known, deletions: Mapping[str, str], *, is_snapshot: bool) -> Update:
    """What a message states; `deletions`: the fields that each event deletes."""
    deleted = f"{deletions.get(message.header.trigger, '')} {deletions.get(EVERY_EVENT, '')}".strip()
    return Update(Statement(message), known, deleted, is_snapshot)


def attach(entries: Iterable[Entry], numbers: Mapping[int, int], run: Run, update: Update) -> None:
    """Give each entry that updates a resource its sources.  `numbers`: the entry by id() of each of its resources."""
    by_owner: dict[int, list[Note]] = {}
    for owner, name, value, fields in run.sources:
        by_owner.setdefault(id(owner), []).append((name, value, fields))
    owners: dict[int, list[int]] = {}
    for owner_id, number in numbers.items():
        owners.setdefault(number, []).append(owner_id)
    for number, entry in enumerate(entries):
        is_update = entry.method is Method.UPDATE and entry.identity is not None
        if is_update and entry.resource is not None and entry.resource_type not in TOLD_AS_A_WHOLE:
            of_entry = owners.get(number, [])
            stated = update.about([run.made_from.get(one, ()) for one in of_entry])
            elements, initial = _elements(entry.resource, of_entry, by_owner)
            known = update.known.get(entry.resource_type, {})
            entry.sources = FieldSources(elements, stated, initial, known, update.is_snapshot)


def updates_of(entries: Iterable[Entry]) -> list[Json]:
    """What an update by these entries does, for people: the fields of each element, and the elements that the message
    leaves out, which an update keeps.
    """
    return [
        {
            "place": entry.place,
            "resource_type": entry.resource_type,
            "sources": entry.sources.elements,
            "retained": [] if entry.sources.is_snapshot else sorted(_left_out(entry.resource or {}, entry.sources)),
        }
        for entry in entries
        if entry.sources is not None
    ]


def _left_out(resource: Json, sources: FieldSources) -> Iterator[str]:
    for path, fields in sources.known.items():
        owner, _, inner = path.partition(".")
        held = resource.get(owner)
        is_there = inner in held if type(held) is dict and inner else held is not None
        if not is_there and not sources.stated.states(" ".join(fields)):
            yield path


def _elements(
    resource: Json, owners: Sequence[int], by_owner: Mapping[int, list[Note]]
) -> tuple[Mapping[str, str | list[str]], frozenset[str]]:
    """The fields of each element, and the elements whose values only a new resource takes."""
    found = _Elements()
    for owner in owners:
        for note in by_owner.get(owner, ()):
            found.add("", resource, note)
    for name, value in resource.items():
        if type(value) is dict:
            for note in by_owner.get(id(value), ()):
                found.add(f"{name}.", value, note)
    return {**found.single, **found.lists}, frozenset(found.initial)


class _Elements:
    """Collects the fields of one resource's elements; the last record of an element counts."""

    def __init__(self) -> None:
        self.single: dict[str, str] = {}
        self.lists: dict[str, list[str]] = {}
        self.initial: set[str] = set()
        self._places: dict[str, dict[Any, int]] = {}

    def add(self, prefix: str, owner: Json, note: Note) -> None:
        """One recorded value, if it is in the result."""
        name, value, fields = note
        held, path = owner.get(name), prefix + name
        plain = fields.removeprefix(INITIAL).strip()
        if type(held) is list:
            place = self._place(path, held, value)
            if place is not None:
                self.lists[path][place] = plain
        elif held is not None and (held is value or held == value):
            self.single[path] = plain
            (self.initial.add if fields != plain else self.initial.discard)(path)

    def _place(self, path: str, held: list[Any], value: Any) -> int | None:
        """The place of an item in its list."""
        places = self._places.get(path)
        if places is None:
            self.lists[path] = [""] * len(held)
            places = self._places[path] = {_name(item): place for place, item in enumerate(held)}
        return places.get(_name(value))


def _name(item: Any) -> Any:
    """What tells an item from others of its list: an object by itself, a plain value by its text."""
    return id(item) if type(item) in (dict, list) else str(item)
