"""The history of one resource type or of all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.fhir.resources import FhirTransaction, Version
from ipf.ports.queries.history_filter import EVERY_VERSION, HistoryFilter


@dataclass(frozen=True, slots=True, order=True)
class HistoryCursor:
    """The position of a version in the history.  Newer versions compare greater."""

    last_updated: datetime
    rid: int
    version_id: int

    @staticmethod
    def of(version: Version) -> HistoryCursor:
        """The position of this version."""
        return HistoryCursor(version.last_updated, version.rid, version.version_id)


class Histories(Protocol):
    """Versions of many resources, including deletions."""

    def within(self, transaction: FhirTransaction) -> Histories:
        """As a transaction of the store sees them; see `FhirStore.within`."""

    async def page(
        self,
        tenant: str,
        resource_type: str | None,
        limit: int,
        wanted: HistoryFilter = EVERY_VERSION,
        start: HistoryCursor | None = None,
    ) -> list[Version]:
        """At most `limit` versions of a type (None: of all types), after `start` in the order of `wanted`."""

    async def count(self, tenant: str, resource_type: str, id: str) -> int:
        """How many versions of one resource there are: retention and `$expunge` remove some."""
