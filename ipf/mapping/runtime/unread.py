"""The fields of a message that no rule read, and the components and repetitions of those that were read.

What arrives: a message after the run of a map, whose segments carry marks (`Segment.reads`, set by compiled rules),
which components the rules of the map read (`compiler.components`), and what the maps ignore on purpose.  What leaves:
each segment's fields that have a value and no mark (`PID-24`), of the marked fields each component with a value that
no rule of the map reads (`OBX-3.1`), and `PID-5[2]` where no rule reads more than one of several repetitions.  A
segment of which no field was read is listed as a whole, unless all of it is ignored on purpose.

Marks of fields are those of the run.  Components are those that any rule of the map reads, whether it fired or not; one
that conditions compare with some values is read if it has one of them.

Empty fields, null values (`""`) and separators without content are no values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from ipf.hl7.message import Message, Segment
from ipf.hl7.reads import EVERY_COMPONENT, REPETITIONS, field_bit, fields_of, numbers_in, unread_parts
from ipf.mapping.language.model import Ignored
from ipf.ports import Json, UnreadField
from ipf.ports.messages.mapping import DECLARED, DROPPED, UNREAD

WHOLE = 0
"""Number for a whole segment."""

Reasons = Mapping[str, Mapping[int, str]]
"""Why fields are ignored on purpose: by segment and number; components by field (`PID-3`) or data type (`CX`) and
number, repetitions by field and REPETITIONS.
"""


class ReadPart(NamedTuple):
    """What the rules of a map read of a field: `components`, and whether a rule reads every repetition.

    `types`: the data types of the field, the newest first; empty when a segment says it (OBX-5).  `compared`: the
    values of further components that conditions ask for; `coded`: what counts as read when the first component has one.
    """

    components: frozenset[int]
    every: bool
    types: tuple[str, ...] = ()
    compared: Mapping[int, frozenset[str]] = MappingProxyType({})
    coded: frozenset[int] = frozenset()


ReadParts = Mapping[str, Mapping[int, ReadPart]]
"""By segment and number of the field."""


class Finding(NamedTuple):
    """A field of one segment, and the segment's number among those of its name (from 1)."""

    field: UnreadField
    segment: str
    number: int


def reasons(maps: Iterable[Ignored]) -> Reasons:
    """Declarations by segment and number; the first of several counts."""
    found: dict[str, dict[int, str]] = {}
    for one in maps:
        where = f" ({one.file}:{one.place.line})" if one.file else ""
        owner = f"{one.segment}-{one.number}" if one.part and one.number else one.segment
        number = one.part or one.number
        found.setdefault(owner, {}).setdefault(number, one.reason + where)
    return found


class UnreadFields:
    """Finds the fields of mapped messages that no rule read.  `ignored`: why fields are ignored on purpose.

    `parts`: computes which components the map reads, once.

    Messages of one sender leave the same fields unread again and again, so the findings of a segment are kept by its
    name and the bits of its fields: at most `_MOST_KEPT` of them.
    """

    def __init__(self, ignored: Reasons, parts: Callable[[], ReadParts] = dict) -> None:
        self._ignored = ignored
        self._parts = parts
        self._checked: dict[str, tuple[int, dict[int, ReadPart]]] | None = None
        self._kept: dict[tuple[str, int, bool], tuple[UnreadField, ...]] = {}

    def reason(self, path: str) -> str | None:
        """Why a value of this element is replaced on purpose; None = it is not."""
        return self._ignored.get(path, _NOTHING).get(WHOLE)

    def of(self, message: Message) -> tuple[UnreadField, ...]:
        """Each path once."""
        found: list[UnreadField] = []
        for segment in message.all_segments:
            found += self._of_segment(segment)
        return tuple(dict.fromkeys(found))

    def findings(self, message: Message) -> Iterator[Finding]:
        """The same for each segment by itself."""
        counts: dict[str, int] = {}
        for segment in message.all_segments:
            name = segment.name
            number = counts[name] = counts.get(name, 0) + 1
            for one in self._of_segment(segment):
                yield Finding(one, name, number)

    def _of_segment(self, segment: Segment) -> Sequence[UnreadField]:
        unread, read = fields_of(segment)
        parts = self._parts_of(segment, read) if read else ()
        if not unread:
            return parts
        key = segment.name, unread, bool(read)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            found = self._kept[key] = tuple(self._judged(*key))
        return (*found, *parts) if parts else found

    def _parts_of(self, segment: Segment, read: int) -> Sequence[UnreadField]:
        """The components and repetitions of read fields that no rule of the map reads."""
        if self._checked is None:
            self._checked = {name: _to_check(fields) for name, fields in self._parts().items()}
        bits, known = self._checked.get(segment.name, _UNCHECKED)
        found: list[UnreadField] = []
        for number in numbers_in(read & bits):
            read_part = known[number]
            if segment.fields[number].isalnum() and 1 in read_part.components:  # the usual case
                continue
            parts = unread_parts(segment, number, read_part.components, read_part.compared, read_part.coded,
                                 every=read_part.every)  # fmt: skip
            found += [self._part(segment, number, one, read_part.types) for one in parts]
        return found

    def _part(self, segment: Segment, number: int, part: int, types: Sequence[str]) -> UnreadField:
        field = f"{segment.name}-{number}"
        path = f"{field}[2]" if part == REPETITIONS else f"{field}.{part}"
        reason = self._ignored.get(segment.name, _NOTHING).get(number) or self._ignored.get(field, _NOTHING).get(part)
        if reason is None and part != REPETITIONS:
            for kind in types or segment.fields[2:3]:
                reason = reason or self._ignored.get(kind, _NOTHING).get(part)
        return UnreadField(UNREAD, path) if reason is None else UnreadField(DECLARED, path, reason)

    def _judged(self, segment: str, unread: int, is_read: bool) -> Iterator[UnreadField]:
        """The findings of a segment; `unread`: bits of its fields, `is_read`: whether others were read."""
        declared = self._ignored.get(segment, _NOTHING)
        whole = declared.get(WHOLE)
        numbers = numbers_in(unread)
        if not is_read and whole is not None:
            yield UnreadField(DECLARED, segment, whole)
        elif not is_read and not all(number in declared for number in numbers):
            yield UnreadField(UNREAD, segment)
        else:
            for number in numbers:
                reason = declared.get(number, whole)
                path = f"{segment}-{number}"
                yield UnreadField(UNREAD, path) if reason is None else UnreadField(DECLARED, path, reason)


def _to_check(fields: Mapping[int, ReadPart]) -> tuple[int, dict[int, ReadPart]]:
    """The fields of which a part may be unread: their bits, and what is read of them."""
    known = {number: one for number, one in fields.items() if EVERY_COMPONENT not in one.components or not one.every}
    return sum(map(field_bit, known)), known


_UNCHECKED: tuple[int, dict[int, ReadPart]] = (0, {})
_NOTHING: Mapping[int, str] = {}
_MOST_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of one mapped message, computed when they are asked for."""

    message: Message
    unread: UnreadFields
    dropped: Sequence[str] = ()

    def paths(self) -> tuple[UnreadField, ...]:
        """Each path once."""
        return (*self.unread.of(self.message), *self._dropped())

    def _dropped(self) -> Iterator[UnreadField]:
        for path in dict.fromkeys(self.dropped):
            reason = self.unread.reason(path)
            yield UnreadField(DROPPED, path) if reason is None else UnreadField(DECLARED, path, reason)

    def by_segment(self) -> tuple[Finding, ...]:
        """For each segment by itself."""
        return tuple(self.unread.findings(self.message))

    def as_json(self) -> list[Json]:
        """The same for operators.  `segment`: `OBX[2]` for the second of several, as in a trace."""
        found = self.by_segment()
        counts = Counter(segment.name for segment in self.message.all_segments)
        return [
            {
                "kind": one.field.kind,
                "path": one.field.path,
                "segment": one.segment if counts[one.segment] == 1 else f"{one.segment}[{one.number}]",
                "reason": one.field.reason or None,
            }
            for one in found
        ] + [{"kind": one.kind, "path": one.path, "segment": None, "reason": None} for one in self._dropped()]
