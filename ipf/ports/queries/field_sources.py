"""Which fields of an HL7 v2 message say what of a resource.  `mapping` records it, `rest` keeps what is left out.

Source: HL7 v2.9 section 2.5.3
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class NullNumber:
    """A repetition of a number (CX) with the null value: the universal ID of its authority, else the namespace, and the
    type code.  Each may be empty.
    """

    namespace: str
    universal: str
    type: str


@dataclass(frozen=True, slots=True)
class StatedFields:
    """The fields that a message states, by segment, as a sum of 1 << number.

    `fields`: with a value, or null.  `nulls`: null.  `numbers`: repetitions of numbers of the patient that are null.
    """

    fields: Mapping[str, int]
    nulls: Mapping[str, int] = field(default_factory=dict)
    numbers: tuple[NullNumber, ...] = ()

    def states(self, source: str) -> bool:
        """Whether the message states all of these fields (`PID-35 PID-36`), or deletes one."""
        return all(self.fields.get(segment, 0) & bit for segment, bit in parts_of(source)) or self.is_null(source)

    def states_any(self, source: str) -> bool:
        """Whether the message states one of these fields."""
        return any(self.fields.get(segment, 0) & bit for segment, bit in parts_of(source))

    def is_null(self, source: str) -> bool:
        """Whether one of these fields has the null value."""
        return any(self.nulls.get(segment, 0) & bit for segment, bit in parts_of(source)) if self.nulls else False


@dataclass(frozen=True, slots=True)
class SegmentSet:
    """Segments of one name that a message states of a Patient or an Encounter, as their resources.

    `members`: the numbers of their entries, of type `resource_type`.  `is_whole`: they replace the set that the sender
    stated before; else they are added to it.  `scope`: the account or visit that they are stated of; empty: all.
    """

    segment: str
    sender: str
    resource_type: str
    members: tuple[int, ...] = ()
    is_whole: bool = True
    scope: str = ""


@dataclass(frozen=True, slots=True)
class SetMove:
    """The sets of another Patient that an entry takes over, after a merge.  `is_undone`: it gives them back."""

    patient_id: str
    is_undone: bool = False


@lru_cache(maxsize=8192)
def parts_of(source: str) -> tuple[tuple[str, int], ...]:
    """Segment and bit of each field."""
    found = (one.rpartition("-") for one in source.split())
    return tuple((segment, 1 << int(number)) for segment, _, number in found if segment)


@dataclass(frozen=True, slots=True)
class FieldSources:
    """The fields that the elements of one resource come from, and what the message states.

    `elements`: fields (`PID-13`; several with blanks between them; "" = not known) by element (`birthDate`,
    `hospitalization.admitSource`), of a list those of each item.  `initial`: elements whose values do not replace what
    other fields have said.  `known`: for each element of the type the fields that the maps make it of.  `is_snapshot`:
    what the message leaves out is deleted.
    """

    elements: Mapping[str, str | list[str]]
    stated: StatedFields
    initial: frozenset[str] = frozenset()
    known: Mapping[str, frozenset[str]] = field(default_factory=dict)
    is_snapshot: bool = False


UNKNOWN_SOURCES = FieldSources({}, StatedFields({}))
"""Of a resource of a message of which nothing was recorded: what it lacks was left out, what it has was said."""
