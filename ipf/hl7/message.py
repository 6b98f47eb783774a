"""An HL7 v2 message as a tree, parsed on demand.

`Message.raw` are the original bytes.  Parsing reads MSH, decodes the text once, and splits it into segments.  Fields
and components are split on first access, and segments are put into groups (`structure.py`) on first access to a group.

All levels have `children(name)`, `text`, `is_null(name)`, `kind`, `name`, `raw`.  In names of fields and components
only the number after the last `_` or `.` counts, so `PID_3`, `PID.3` and `CX_1` all work, also beyond the fields of the
standard.  An absent child and the HL7 null value (`""`, "delete this value") give an empty list; `is_null` tells them
apart.

Source: HL7 v2.9 sections 2.5 (message construction), 2.5.3.1 (null), 2.6.2 (segments), 2.7 (escapes).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from ipf.hl7.arrange import arrange
from ipf.hl7.charset import decode, decode_with, sniff
from ipf.hl7.escape import NULL, Encoding, Separators, encoding_of
from ipf.hl7.header import Header, scan_header
from ipf.hl7.segments import split_segments
from ipf.hl7.structure import (
    Group,
    Structure,
    all_segment_names,
    is_site_segment,
    structure,
    structure_name,
    structure_with,
)

_LITERAL_VALUES = frozenset(("ST", "TX", "FT", "NM", "DT", "DTM", "TM", "ID", "IS", "SI"))
_HEADERS = ("MSH", "BHS", "FHS")


class Node(Protocol):
    """A node for maps and FHIRPath."""

    @property
    def kind(self) -> str:
        """`message`, `group`, `segment`, `field`, `component` or `subcomponent`."""

    @property
    def name(self) -> str:
        """`ADT_A01`, `INSURANCE`, `PID`, `PID_3`, `PID_3.4`, `PID_3.4.2`."""

    @property
    def text(self) -> str | None:
        """The value, escapes resolved; of a composite its first primitive; None when empty or null."""

    def children(self, name: str) -> list[Any]:
        """Nodes of this name, in order; none = empty list."""

    def is_null(self, name: str) -> bool:
        """The child of this name is HL7's null."""


@lru_cache(maxsize=8192)
def number_of(name: str) -> int:
    """Number in a name such as `PID_3`, `PID.3`, `CX_1` or `3`; 0 = none."""
    digits = name[max(name.rfind("_"), name.rfind(".")) + 1 :]
    return int(digits) if digits.isdecimal() and len(digits) < 6 else 0


class Subcomponent:
    """The smallest part."""

    __slots__ = ("_number", "_parent", "encoding", "raw")
    kind = "subcomponent"

    def __init__(self, raw: str, encoding: Encoding, parent: Component, number: int) -> None:
        self.raw = raw
        self.encoding = encoding
        self._parent = parent
        self._number = number

    @property
    def name(self) -> str:
        """Such as `PID_3.4.2`."""
        return f"{self._parent.name}.{self._number}"

    @property
    def text(self) -> str | None:
        """The value."""
        return self.encoding.value(self.raw)

    def children(self, name: str) -> list[Subcomponent]:
        """The subcomponent itself, for data types nested deeper than the encoding allows."""
        return [self] if number_of(name) == 1 else []

    def is_null(self, name: str) -> bool:
        """Whether the value is null."""
        return number_of(name) == 1 and self.raw == NULL


class Component:
    """One component; its subcomponents are split on first access."""

    __slots__ = ("_number", "_parent", "_parts", "encoding", "raw")
    kind = "component"

    def __init__(self, raw: str, encoding: Encoding, parent: Field, number: int) -> None:
        self.raw = raw
        self.encoding = encoding
        self._parent = parent
        self._number = number
        self._parts: list[str] | None = None

    @property
    def name(self) -> str:
        """Such as `PID_3.4`."""
        return f"{self._parent.name}.{self._number}"

    @property
    def literal(self) -> bool:
        """Whether it is the whole of a primitive field."""
        return self._parent.literal

    @property
    def parts(self) -> list[str]:
        """Subcomponents as sent."""
        if self._parts is None:
            separator = self.encoding.separators.subcomponent
            literal = self._parent.literal or separator not in self.raw
            self._parts = [self.raw] if literal else self.raw.split(separator)
        return self._parts

    @property
    def text(self) -> str | None:
        """Value of the first subcomponent."""
        if self.raw.isalnum():
            return self.raw
        return self.encoding.value(self.parts[0])

    def children(self, name: str) -> list[Subcomponent]:
        """The subcomponent with this number."""
        number = number_of(name)
        parts = self.parts
        raw = parts[number - 1] if 0 < number <= len(parts) else ""
        return [Subcomponent(raw, self.encoding, self, number)] if raw and raw != NULL else []

    def is_null(self, name: str) -> bool:
        """Whether that subcomponent is null."""
        number = number_of(name)
        return 0 < number <= len(self.parts) and self.parts[number - 1] == NULL


class Field:
    """One repetition of a field; its components are split on first access."""

    __slots__ = ("_number", "_parts", "_segment", "encoding", "literal", "raw")
    kind = "field"

    def __init__(self, raw: str, encoding: Encoding, segment: str, number: int, literal: bool = False) -> None:
        self.raw = raw
        self.literal = literal  # a primitive: separators in it are text that the sender did not escape
        self.encoding = encoding
        self._segment = segment
        self._number = number
        self._parts: list[str] | None = None

    @property
    def name(self) -> str:
        """Such as `PID_3`."""
        return f"{self._segment}_{self._number}"

    @property
    def parts(self) -> list[str]:
        """Components as sent."""
        if self._parts is None:
            self._parts = [self.raw] if self.literal else self.raw.split(self.encoding.separators.component)
        return self._parts

    @property
    def text(self) -> str | None:
        """Value of the first subcomponent of the first component."""
        if self.raw.isalnum():  # no separators
            return self.raw
        first = self.parts[0]
        if not self.literal:
            separator = self.encoding.separators.subcomponent
            if separator and separator in first:
                first = first.partition(separator)[0]
        return self.encoding.value(first)

    def children(self, name: str) -> list[Component]:
        """The component with this number."""
        number = number_of(name)
        parts = self.parts
        raw = parts[number - 1] if 0 < number <= len(parts) else ""
        return [Component(raw, self.encoding, self, number)] if raw and raw != NULL else []

    def is_null(self, name: str) -> bool:
        """Whether that component is null."""
        number = number_of(name)
        return 0 < number <= len(self.parts) and self.parts[number - 1] == NULL


class Segment:
    """One segment; its fields are split on first access.

    `reads`: a bit for each field that a map has read (`reads.py`).
    """

    __slots__ = ("_fields", "encoding", "name", "raw", "reads")
    kind = "segment"

    def __init__(self, raw: str, name: str, encoding: Encoding) -> None:
        self.raw = raw
        self.name = name
        self.encoding = encoding
        self.reads = 0
        self._fields: list[str] | None = None

    @property
    def fields(self) -> list[str]:
        """Fields as sent, by number; `fields[0]` is the segment's name."""
        if self._fields is None:
            separator = self.encoding.separators.field
            self._fields = self.raw.split(separator)
            if self.name in _HEADERS:
                self._fields.insert(1, separator)
        return self._fields

    @property
    def text(self) -> str | None:
        """A segment has no text of its own."""
        return None

    def children(self, name: str) -> list[Field]:
        """Repetitions of the field with this number, without empty ones."""
        number = number_of(name)
        fields = self.fields
        raw = fields[number] if 0 < number < len(fields) else ""
        if not raw or raw == NULL:
            return []
        if number <= 2 and self.name in _HEADERS:
            return [Field(raw, encoding_of(_NO_SEPARATORS, "utf-8"), self.name, number, True)]
        literal = self.is_literal(number)
        separator = self.encoding.separators.repetition
        repetitions = raw.split(separator) if separator and separator in raw else (raw,)
        return [Field(one, self.encoding, self.name, number, literal) for one in repetitions if one and one != NULL]

    def is_null(self, name: str) -> bool:
        """Whether that field is null."""
        number = number_of(name)
        return 0 < number < len(self.fields) and self.fields[number] == NULL

    def is_literal(self, number: int) -> bool:
        """OBX-5 of a primitive type, and NTE-3: free text, in which senders often do not escape `^` and `&`."""
        if number == 5 and self.name == "OBX":
            return self.fields[2] in _LITERAL_VALUES
        return number == 3 and self.name == "NTE"


_NO_SEPARATORS = Separators("", "", "", "", "")


class Message:
    """One message.  `parse` makes it; `raw` are the original bytes."""

    __slots__ = ("_by_name", "_lines", "_structure", "_tree", "_warnings", "encoding", "header", "raw")
    kind = "message"

    def __init__(self, raw: bytes, header: Header, encoding: Encoding, lines: list[str], warnings: list[str]) -> None:
        self.raw = raw
        self.header = header
        self.encoding = encoding
        self._lines: list[str] | list[Segment] = lines
        self._warnings = warnings
        self._by_name: dict[str, list[Segment]] | None = None
        self._tree: Group | None = None
        self._structure: Structure | None = None

    @classmethod
    def parse(cls, raw: bytes, charset: str | None = None) -> Message:
        """Parse a message.  `charset`: Python codec chosen on receipt; None = by MSH-18.

        Problem MALFORMED when it does not begin with a valid MSH.  Invalid bytes become U+FFFD, with an entry in
        `warnings`.
        """
        header = scan_header(raw)
        wide = sniff(raw) if raw[:3] != b"MSH" else None
        codec = wide or charset
        decoded = decode_with(raw, codec) if codec else decode(raw, header.charset_names)
        text = decoded.text if raw[:3] == b"MSH" else decoded.text.lstrip("\ufeff \t\r\n\x00")
        lines = split_segments(text, header.separators.field)
        warnings = [decoded.warning] if decoded.warning else []
        return cls(raw, header, encoding_of(header.separators, decoded.codec), lines, warnings)

    @property
    def message_type(self) -> str:
        """`ADT_A01`."""
        return self.header.message_type

    @property
    def structure(self) -> str:
        """Name of the message structure, by MSH-9.3 or table 0354."""
        return structure_name(self.header.message_code, self.header.trigger, self.header.structure)

    @property
    def name(self) -> str:
        """The same as `structure`."""
        return self.structure

    @property
    def version(self) -> str:
        """MSH-12.1."""
        return self.header.version

    @property
    def control_id(self) -> str:
        """MSH-10."""
        return self.header.source_id

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about characters and, after access to groups, about misplaced segments."""
        return tuple(self._warnings)

    @property
    def text(self) -> str | None:
        """A message has no text of its own."""
        return None

    @property
    def all_segments(self) -> Sequence[Segment]:
        """Every segment, in order of arrival."""
        return self._segments()

    def segments(self, name: str) -> list[Segment]:
        """All segments of this name, at any depth, in order of arrival."""
        return list(self._named(name))

    def _named(self, name: str) -> list[Segment]:
        return (self._by_name or self._index()).get(name, [])

    def _index(self) -> dict[str, list[Segment]]:
        by_name: dict[str, list[Segment]] = {}
        self._by_name = by_name
        for segment in self._segments():
            by_name.setdefault(segment.name, []).append(segment)
        return by_name

    def arranged_as(self, structure_name: str, warning: str) -> Message:
        """The same segments as a message of another structure, with a warning that says why."""
        made = Message(self.raw, self.header, self.encoding, [], [*self._warnings, warning])
        made._lines, made._structure = self._segments(), structure(structure_name, self.version)
        return made

    def children(self, name: str) -> list[Any]:
        """Groups or segments directly below the message.

        Z segments are found at any depth.  In a message of unknown structure all segments are direct children.
        """
        defined = self._structure or self.definition
        by_name = self._by_name or self._index()
        if defined is None or name in defined.only_at_root or is_site_segment(defined, name):
            return by_name.get(name, [])
        tree = self._tree or self.tree()
        if name not in by_name and name not in (self._structure or defined).group_names:
            return []  # the usual case
        return tree.children(name)

    def is_null(self, name: str) -> bool:
        """Always false: only fields and their parts can be null."""
        return False

    def tree(self) -> Group:
        """The message as groups; a message of unknown structure is one flat group."""
        if self._tree is None:
            defined = self.definition
            if defined is None:
                self._tree = Group(self.structure)
                for segment in self._segments():
                    self._tree.add(segment)
            else:
                self._structure, self._tree, warnings = arrange(defined, self._segments())
                self._warnings += warnings
        return self._tree

    @property
    def definition(self) -> Structure | None:
        """The structure by which the message is arranged; None when the standard has none of this name."""
        if self._structure is None:
            stated = structure(self.structure, self.version)
            if stated is not None and not stated.all_names.issuperset(self._by_name or self._index()):
                stated = self._with_more_segments(stated)
            self._structure = stated
        return self._structure

    def _with_more_segments(self, stated: Structure) -> Structure:
        """The structure of a newer version when it has a place for more segments of this message."""
        names = frozenset(name for name in self._by_name or () if name in all_segment_names())
        found = structure_with(self.structure, self.version, names) or stated
        if found is not stated:
            more = ", ".join(sorted((names & found.all_names) - stated.all_names))
            self._warnings.append(f"{more}: not in {stated.name} of v{stated.version}, read as in v{found.version}")
        return found

    def _segments(self) -> list[Segment]:
        lines: list[Any] = self._lines
        if lines and isinstance(lines[0], str):
            encoding = self.encoding
            separator = encoding.separators.field
            lines = [
                Segment(line, line[:3] if line[3:4] == separator else line.partition(separator)[0], encoding)
                for line in lines
            ]
            self._lines = lines
        return lines
