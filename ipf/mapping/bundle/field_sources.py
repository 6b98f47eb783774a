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
from ipf.ports.queries.field_sources import FieldSources, SegmentSet, StatedFields, parts_of

TOLD_AS_A_WHOLE = frozenset(("Observation", "DiagnosticReport"))

EVERY_EVENT = "*"
"""In a declaration of deletions: whatever the event is."""

Known = Mapping[str, Mapping[str, frozenset[str]]]
"""By resource type and element the fields that the maps make it of."""


@dataclass(frozen=True, slots=True)
class Update:
    """What a message states, for updates.  `deleted`: fields that its event deletes, where the segment has no value.

    `is_snapshot`: its sender always sends all it knows.  `sender`: MSH-3.  `scope`: the account (PID-18), else the
    visit (PV1-19), of which a message about accounts and charges states its insurances; empty: it states them of none.
    """

    statement: Statement
    known: Known
    deleted: str = ""
    is_snapshot: bool = False
    sender: str = ""
    scope: str = ""

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
    return Update(Statement(message), known, deleted, is_snapshot, message.header.source_system, _scope(message))


_MENTIONING = frozenset(
    ("ORU", "OUL", "ORM", "OMG", "OML", "OMP", "RDE", "RDS", "RGV", "RAS", "MDM", "SIU", "PPR", "REF", "VXU")
)
"""Messages (MSH-9.1) that say which insurance they use."""


def _scope(message: Message) -> str:
    """The account or the visit of the message; empty when there are several, or none."""
    if message.header.message_type[:3] in _MENTIONING or not message.segments("IN1"):
        return ""
    for kind, segment, number in (("account", "PID", 18), ("visit", "PV1", 19)):
        held = [one for found in message.segments(segment) for one in found.children(str(number))]
        if len(held) == 1 and held[0].text:
            return f"{kind} {held[0].text} {held[0].parts[3] if len(held[0].parts) > 3 else ''}".strip()
    return ""


def attach(entries: Sequence[Entry], numbers: Mapping[int, int], run: Run, update: Update) -> None:
    """Give each entry that updates a resource its sources.  `numbers`: the entry by id() of each of its resources."""
    found: dict[int, _Elements] = {}
    owners: dict[int, tuple[_Elements, Json, str]] = {}
    for owner, number in numbers.items():
        entry = entries[number]
        resource = entry.resource
        if resource is None or not _is_update(entry):
            continue
        elements = found.get(number)
        if elements is None:
            elements = found[number] = _Elements()
            parts = [(name, one) for name, one in resource.items() if type(one) is dict]
            owners |= {id(one): (elements, one, f"{name}.") for name, one in parts}
        owners[owner] = elements, resource, ""
        elements.nodes.append(run.made_from.get(owner, ()))
    for holder, name, value, fields in run.sources:
        place = owners.get(id(holder))
        if place is not None:
            place[0].add(place[1], place[2], name, value, fields)
    for number, elements in found.items():
        entry = entries[number]
        stated, known = update.about(elements.nodes), update.known.get(entry.resource_type, {})
        entry.sources = FieldSources(elements.all, stated, frozenset(elements.initial), known, update.is_snapshot)


def _is_update(entry: Entry) -> bool:
    is_told = entry.method is Method.UPDATE and entry.identity is not None
    return is_told and entry.resource_type not in TOLD_AS_A_WHOLE


def updates_of(entries: Sequence[Entry]) -> list[Json]:
    """What an update by these entries does, for people: the fields of each element, the elements that the message
    leaves out, which an update keeps, and the sets of segments that it states.
    """
    return [_update_json(one, entries) for one in entries if one.sources is not None or one.sets]


def _update_json(entry: Entry, entries: Sequence[Entry]) -> Json:
    sources = entry.sources
    return {
        "place": entry.place,
        "resource_type": entry.resource_type,
        "sources": {} if sources is None else sources.elements,
        "retained": sorted(_left_out(entry.resource or {}, sources)) if sources and not sources.is_snapshot else [],
        "sets": [_set_json(one, entries) for one in entry.sets],
    }


def _set_json(told: SegmentSet, entries: Sequence[Entry]) -> Json:
    members = [entries[number].place for number in told.members]
    scope = {"scope": told.scope} if told.scope else {}
    return {"segment": told.segment, "sender": told.sender, "members": members, "is_whole": told.is_whole, **scope}


def _left_out(resource: Json, sources: FieldSources) -> Iterator[str]:
    for path, fields in sources.known.items():
        owner, _, inner = path.partition(".")
        held = resource.get(owner)
        is_there = inner in held if type(held) is dict and inner else held is not None
        if not is_there and not sources.stated.states(" ".join(fields)):
            yield path


class _Elements:
    """Collects the fields of one resource's elements; the last record of an element counts.

    `initial`: elements whose values do not replace what other fields have said.  `nodes`: what the resource is made
    from.
    """

    def __init__(self) -> None:
        self.initial: set[str] = set()
        self.nodes: list[Sequence[object]] = []
        self._single: dict[str, str] = {}
        self._lists: dict[str, list[str]] = {}
        self._places: dict[str, dict[Any, int]] = {}

    @property
    def all(self) -> dict[str, str | list[str]]:
        """Single elements and lists."""
        return {**self._single, **self._lists}

    def add(self, owner: Json, prefix: str, name: str, value: Any, fields: str) -> None:
        """One recorded value, if it is in the result."""
        held, path = owner.get(name), prefix + name
        if type(held) is list:
            place = self._place(path, held, value)
            if place is not None:
                self._lists[path][place] = fields.removeprefix(INITIAL).strip()
        elif held is value or held == value:
            if fields[0] == INITIAL:
                self.initial.add(path)
                fields = fields[1:].strip()
            elif self.initial:
                self.initial.discard(path)
            self._single[path] = fields

    def _place(self, path: str, held: list[Any], value: Any) -> int | None:
        """The place of an item in its list."""
        places = self._places.get(path)
        if places is None:
            self._lists[path] = [""] * len(held)
            places = self._places[path] = {_name(item): place for place, item in enumerate(held)}
        return places.get(_name(value))


def _name(item: Any) -> Any:
    """What tells an item from others of its list: an object by itself, a plain value by its text."""
    return id(item) if type(item) in (dict, list) else str(item)
