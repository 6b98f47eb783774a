"""Which fields a message states: those with a value, and those with the null value (`""`), which deletes.

What arrives: a parsed message.  What leaves: fields by segment, as bits (`reads.field_bit`).  A field that is left out
is in neither; its stored value stays.

Source: HL7 v2.9 sections 2.5.3 (null and left out), 2.A.14 (CX)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress

from ipf.hl7.escape import NULL, Separators
from ipf.hl7.message import Message, Segment
from ipf.hl7.reads import field_bit, numbers_in
from ipf.hl7.structure import Group
from ipf.ports.queries.field_sources import NullNumber, StatedFields

_NUMBERS = (2, 3, 4, 18)
"""Fields of PID with numbers of persons (CX)."""
_BITS = tuple(map(field_bit, range(1024)))


Found = tuple[int, int, int]
"""Of segments of one name: their number, the fields that all of them state, and those that are null in all of them."""


class Statement:
    """What a message states, as a whole and about single resources.

    Of several segments of one name what all of them state, where it is not known which of them is meant.
    """

    def __init__(self, message: Message) -> None:
        self._all: dict[str, Found] = {}
        for segment in message.all_segments:
            _add(self._all, segment.name, _found(segment))
        self._has_several = any(found[0] > 1 for found in self._all.values())
        self._groups: dict[int, dict[str, Found]] = {}
        has_null = NULL.encode() in message.raw
        numbers = tuple(_null_numbers(message.segments("PID"))) if has_null else ()
        self.whole = _fields(self._all, numbers)

    def about(self, resources: Iterable[Sequence[object]]) -> StatedFields:
        """What is stated about a resource.  `resources`: the segments and groups that it, and each resource that became
        one with it, is made from, the nearest last.
        """
        if not self._has_several:
            return self.whole
        own: dict[str, Found] = {}
        for nodes in resources:
            for name, found in self._near(nodes).items():
                _add(own, name, found)
        return _fields({**self._all, **own}, self.whole.numbers) if own else self.whole

    def _near(self, nodes: Sequence[object]) -> dict[str, Found]:
        """Of each name of which the message has several segments, the nearest ones."""
        near: dict[str, Found] = {}
        for node in nodes:
            found = self._of_group(node) if type(node) is Group else {}
            if type(node) is Segment:
                found = {node.name: _found(node)}
            for name, one in found.items():
                if one[0] < self._all[name][0] and one[0] <= near.get(name, one)[0]:
                    near[name] = one
        return near

    def _of_group(self, group: Group) -> dict[str, Found]:
        """What the segments of a group state, those of its groups included; each is computed once."""
        found = self._groups.get(id(group))
        if found is None:
            found = self._groups[id(group)] = {}
            for node in group.nodes:
                inner = self._of_group(node) if type(node) is Group else {node.name: _found(node)}
                for name, one in inner.items():
                    _add(found, name, one)
        return found


def _add(found: dict[str, Found], name: str, more: Found) -> None:
    known = found.get(name)
    found[name] = more if known is None else (known[0] + more[0], known[1] & more[1], known[2] & more[2])


def _found(segment: Segment) -> Found:
    return 1, _stated(segment), _null(segment) if NULL in segment.raw else 0


def _fields(found: Mapping[str, Found], numbers: tuple[NullNumber, ...]) -> StatedFields:
    fields = {name: stated for name, (_, stated, _) in found.items()}
    return StatedFields(fields, {name: null for name, (_, _, null) in found.items() if null}, numbers)


def _stated(segment: Segment) -> int:
    return sum(compress(_BITS, segment.fields))


def _null(segment: Segment) -> int:
    fields, separators = segment.fields, segment.encoding.separators
    return sum(field_bit(number) for number in numbers_in(_stated(segment)) if _is_null(fields[number], separators))


def _is_null(field: str, separators: Separators) -> bool:
    """Whether a field, or each of its repetitions, is null."""
    if field == NULL:
        return True
    return NULL in field and all(one in ("", NULL) for one in field.split(separators.repetition))


def _null_numbers(persons: Sequence[Segment]) -> Iterator[NullNumber]:
    """Repetitions `""^^^GOV^NI`: the number of this authority and type is deleted."""
    for segment in persons if len(persons) == 1 else ():
        for number in _NUMBERS:
            for repetition in segment.children(f"PID_{number}"):
                parts = [*repetition.parts, "", "", "", "", ""]
                if parts[0] == NULL and (parts[3] or parts[4]):
                    yield _null_number(parts[3], parts[4], segment.encoding.separators)


def _null_number(authority: str, type_code: str, separators: Separators) -> NullNumber:
    namespace, universal, *_ = [*authority.split(separators.subcomponent), ""]
    return NullNumber("" if universal else namespace, universal, type_code)
