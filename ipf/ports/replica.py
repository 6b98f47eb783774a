"""A standby of the FHIR database that answers reads, and how far it is behind.

Source: https://www.postgresql.org/docs/current/hot-standby.html, https://www.postgresql.org/docs/current/datatype-pg-lsn.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

_TEXT = re.compile(r"([1-9][0-9]{0,8}):([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in the write-ahead log.  `lsn`: in bytes.  A failover begins a timeline with a higher number."""

    timeline: int
    lsn: int

    @property
    def text(self) -> str:
        """As it travels in a header: timeline:LSN."""
        return f"{self.timeline}:{self.lsn >> 32:X}/{self.lsn & 0xFFFFFFFF:X}"

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """The position of such a text; None for any other one."""
        found = _TEXT.fullmatch(text.strip())
        return None if found is None else cls(int(found[1]), (int(found[2], 16) << 32) + int(found[3], 16))

    def is_reached_by(self, other: Position) -> bool:
        """Whether a server that has replayed its log until `other` has everything until here.

        What was committed here and survived a failover is before the place where the later timeline begins.
        """
        return self.timeline <= other.timeline and self.lsn <= other.lsn


class Replica(Protocol):
    """The standby, as one process knows it."""

    @property
    def server(self) -> int:
        """A number that changes whenever the answers may come from another server, or from one that started again."""

    @property
    def name(self) -> str:
        """The server, the same for the same host in every process; letters and digits."""

    @property
    def written(self) -> Position | None:
        """A position behind all commits of this process that have returned; None before the first one."""

    def refusal(self, least: Position | None) -> str:
        """Why it may not answer a read that must see everything until `least`; "" when it may.

        `unreachable`, `unrelated` (no standby of the primary, or on another timeline), `stale`, or `session`: `least`
        is not known to be reached.
        """
