"""Source fields in a manifest: for the sender of a message, and for the audit trail.

A field is `SEG-n` or `SEG-n.c`; the first repetition counts.  The audit trail may hold identifiers, locations and
administrative data of a message, but no names, addresses or results.  So only the segments and fields below are
allowed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ipf.hl7.header import Header
from ipf.hl7.message import Message

LISTENER = "listener"
RESOLVERS = (LISTENER, "msh-3", "msh-4", "msh-5", "msh-6")

_RESOLVER = re.compile(r"MSH[-._]?([3-6])(?:\.1)?", re.IGNORECASE)
_FIELD = re.compile(r"([A-Z][A-Z0-9]{2})-([1-9][0-9]?)(?:\.([1-9][0-9]?))?")
_SEGMENTS = frozenset(("MSH", "SFT", "EVN", "PV1", "ORC", "OBR", "TXA", "SCH", "RXA", "RXE", "FT1"))
_FIELDS = frozenset((("PID", 2), ("PID", 3), ("PID", 4), ("PID", 18), ("MRG", 1), ("PV2", 23)))


@dataclass(frozen=True, slots=True)
class SourceField:
    """A field of the first segment of its name; `component` 0: the first."""

    segment: str
    field: int
    component: int = 0

    def read(self, message: Message) -> str:
        """Its text; empty when it is absent or null."""
        for segment in message.segments(self.segment):
            for found in segment.children(f"{self.segment}_{self.field}"):
                if not self.component:
                    return found.text or ""
                parts = found.children(str(self.component))
                return (parts[0].text or "") if parts else ""
        return ""


def resolver_of(text: str) -> str | None:
    """`msh-4` for every notation of it; None for an unknown resolver."""
    if text.strip().lower() == LISTENER:
        return LISTENER
    found = _RESOLVER.fullmatch(text.strip())
    return f"msh-{found[1]}" if found is not None else None


def resolved(resolver: str, header: Header, listener: str) -> str:
    """The facility of a message: the first component of the field, or the name of the listener."""
    return listener if resolver == LISTENER else header.first(int(resolver[-1]))


def source_field(text: str) -> SourceField | None:
    """The field of a text such as `PV1-3.4`; None when it is invalid."""
    found = _FIELD.fullmatch(text.strip().upper())
    return SourceField(found[1], int(found[2]), int(found[3] or 0)) if found is not None else None


def may_be_audited(field: SourceField) -> bool:
    """Whether the audit trail may hold it."""
    return field.segment in _SEGMENTS or (field.segment, field.field) in _FIELDS
