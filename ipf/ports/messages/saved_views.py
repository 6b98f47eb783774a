"""Saved views: names that people give to the filters and columns of a list of the console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

MOST_VIEWS, LONGEST_NAME, LONGEST_QUERY = 50, 80, 2000
"""Views of a person; characters of a name, and of a query."""


class SavedView(NamedTuple):
    """One view of the list `area`.  `query`: of its URL.  `id` 0: not stored yet."""

    area: str
    name: str
    query: str
    id: int = 0


class SavedViews(Protocol):
    """The views of all people.  `person`: as the audit trail names him."""

    async def of(self, person: str, area: str) -> Sequence[SavedView]:
        """The views of a person of one list, by name."""

    async def save(self, person: str, view: SavedView) -> SavedView:
        """Store a view in place of the one with the same list and name.  Problem CONFLICT: MOST_VIEWS."""

    async def remove(self, person: str, number: int) -> None:
        """Remove a view of this person.  Problem NOT_FOUND."""
