"""Bits of the fields of a segment: which of them have a value, and which a map has read (`Segment.reads`).  The parts
of a field that have a value.

A field has a value when it holds more than separators, spaces and null values (`""`).  Fields from number 1024 on are
not told apart and never listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import compress
from types import MappingProxyType
from typing import Final

from ipf.hl7.escape import NULL, Separators
from ipf.hl7.message import Segment

ALL_FIELDS: Final = -1
"""In `Segment.reads`: every field."""
_MOST_FIELDS: Final = 1024
_BITS = (0, *(1 << number for number in range(1, _MOST_FIELDS)))
"""Bit of each field; none for the segment's name."""
_HEADERS = ("MSH", "BHS", "FHS")


def field_bit(number: int) -> int:
    """The bit of a field; 0 beyond the fields that are told apart."""
    return _BITS[number] if 0 < number < _MOST_FIELDS else 0


@lru_cache(maxsize=4096)
def numbers_in(bits: int) -> tuple[int, ...]:
    """The numbers of fields, ascending."""
    return tuple(number for number in range(1, bits.bit_length()) if bits >> number & 1)


def fields_of(segment: Segment) -> tuple[int, int]:
    """The fields with a value: those that were not read, and those that were."""
    sent = sum(compress(_BITS, segment.fields))
    unread = sent & ~segment.reads
    read = sent & segment.reads
    return (_with_value(segment, unread) if unread else 0), read


def read_fields(segment: Segment) -> tuple[int, ...]:
    """The numbers of the fields with a value that were read."""
    return numbers_in(_with_value(segment, fields_of(segment)[1]))


def _with_value(segment: Segment, bits: int) -> int:
    fields = segment.fields
    for number in numbers_in(bits):
        if not fields[number].isalnum() and not _has_value(segment, number):
            bits &= ~_BITS[number]
    return bits


def _has_value(segment: Segment, number: int) -> bool:
    raw = segment.fields[number]
    if number <= 2 and segment.name in _HEADERS:
        return bool(raw)
    marks = segment.encoding.separators
    return bool(raw.replace(NULL, "").strip(f"{marks.repetition}{marks.component}{marks.subcomponent} "))


REPETITIONS: Final = -2
"""In place of the number of a component: the repetitions of a field after the first."""
EVERY_COMPONENT: Final = -1
"""In place of the numbers of components: all of them."""


def unread_parts(
    segment: Segment,
    number: int,
    read: frozenset[int],
    compared: Mapping[int, frozenset[str]] = MappingProxyType({}),
    coded: frozenset[int] = frozenset(),
    *,
    every: bool,
) -> list[int]:
    """The components with a value that are not among `read`, then REPETITIONS when only one of several is read.

    `compared`: values that count as read; with one of the first component those of `coded` do too.

    Fields of free text (ST and the like in OBX-5, NTE-3) have no components.
    """
    raw = segment.fields[number]
    if number <= 2 and segment.name in _HEADERS:
        return []
    marks = segment.encoding.separators
    if segment.is_literal(number):
        return []
    repetitions = raw.split(marks.repetition) if marks.repetition and marks.repetition in raw else [raw]
    found: set[int] = set()
    if EVERY_COMPONENT not in read:
        for one in repetitions if every else repetitions[:1]:
            parts = one.split(marks.component)
            known = read | coded if compared and _is_among(parts[0], compared.get(1), marks) else read
            for place, part in enumerate(parts, 1):
                is_known = place in known or (compared and _is_among(part, compared.get(place), marks))
                if part and not is_known and _is_value(part, marks):
                    found.add(place)
    if not every and sum(_is_value(one, marks) for one in repetitions) > 1:
        return [*sorted(found), REPETITIONS]
    return sorted(found)


def _is_among(part: str, texts: frozenset[str] | None, marks: Separators) -> bool:
    return texts is not None and not texts.isdisjoint(part.split(marks.subcomponent) if marks.subcomponent else (part,))


def _is_value(raw: str, marks: Separators) -> bool:
    if raw.isalnum():
        return True
    return bool(raw.replace(NULL, "").strip(f"{marks.component}{marks.subcomponent} "))
