"""The resources that refer to a resource, for referential integrity of deletions and for merges of Patients."""

from __future__ import annotations

from typing import Protocol

from ipf.ports.fhir.resources import Version


class Referrers(Protocol):
    """Looks up references in the search index."""

    async def referring(self, tenant: str, reference: str, after: int, limit: int) -> list[Version]:
        """The current versions of live resources that refer to `reference`, itself included, by ascending rid.

        The next page begins `after` the last rid; an empty page is the end.
        """
