"""The resources that refer to a resource, for referential integrity of deletions."""

from __future__ import annotations

from typing import Protocol


class Referrers(Protocol):
    """Looks up references in the search index."""

    async def referrers(self, tenant: str, reference: str, limit: int) -> list[str]:
        """Live resources that refer to `reference` (`Type/id`), as `Type/id`, without the resource itself."""
