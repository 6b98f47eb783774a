"""Counts of the fields that conversions did not take over, by sender, message type and path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.base import DEFAULT_TENANT

OTHER_PATHS = "(other)"
"""The path for all further paths of a sender that has `MOST_PATHS` rows: fields of a random or hostile sender."""
MOST_PATHS = 2000


@dataclass(frozen=True, slots=True)
class UnreadCount:
    """How many conversions had a field since the last report, and the id of one message.  See `UnreadField`."""

    tenant: str
    source_system: str
    message_type: str
    kind: str
    path: str
    reason: str
    occurrences: int
    message_id: int


@dataclass(frozen=True, slots=True)
class UnreadRow:
    """One field of one sender.  `message_id`: the last message that had it; None when retention has removed it."""

    id: int
    tenant: str
    source_system: str
    message_type: str
    kind: str
    path: str
    reason: str
    occurrences: int
    message_id: int | None
    first_seen: datetime
    last_seen: datetime


@dataclass(frozen=True, slots=True)
class UnreadFilter:
    """Exact filters; None = not filtered, EVERY_TENANT = of all tenants."""

    source_system: str | None = None
    message_type: str | None = None
    kind: str | None = None
    path: str | None = None
    tenant: str = DEFAULT_TENANT


class UnreadFields(Protocol):
    """The counts.  Problem NOT_FOUND when there is no such row."""

    async def add(self, counts: Sequence[UnreadCount]) -> None:
        """Add counts.  A sender that has `MOST_PATHS` rows gets no more: further paths count as OTHER_PATHS."""

    async def fields(self, wanted: UnreadFilter, limit: int, offset: int) -> tuple[int, Sequence[UnreadRow]]:
        """Number of all rows, and one page: declared ones last, then the most frequent first."""

    async def forget(self, number: int) -> None:
        """Remove a row: it comes back when a conversion has the field again."""

    async def forget_all(self, wanted: UnreadFilter) -> int:
        """Remove these rows; returns their number."""
