"""The resources that refer to a resource: referential integrity reads them before a deletion."""

from __future__ import annotations

from typing import Protocol


class Referrers(Protocol):
    """Looks references up in the search index."""

    async def referrers(self, tenant: str, reference: str, limit: int) -> list[str]:
        """Live resources that refer to `reference` (`Type/id`), as `Type/id`; the resource itself is not counted."""
