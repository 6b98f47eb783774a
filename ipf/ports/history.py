"""The history of many resources: of one type, or of all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.resources import Version


@dataclass(frozen=True, slots=True, order=True)
class HistoryMark:
    """The place of a version in the history: newer ones compare greater."""

    last_updated: datetime
    rid: int
    version_id: int

    @staticmethod
    def of(version: Version) -> HistoryMark:
        """The place of this version."""
        return HistoryMark(version.last_updated, version.rid, version.version_id)


class Histories(Protocol):
    """Versions of many resources, deletions among them, newest first."""

    async def page(
        self,
        tenant: str,
        resource_type: str | None,
        limit: int,
        since: datetime | None = None,
        before: HistoryMark | None = None,
    ) -> list[Version]:
        """At most `limit` versions of a type (None: of all types), not older than `since`, older than `before`."""
