"""Saved views on PostgreSQL (the inbox database).  Each call is one committed transaction."""

from __future__ import annotations

from collections.abc import Sequence

from ipf.errors import Category, Problem
from ipf.ports.messages.saved_views import MOST_VIEWS, SavedView, SavedViews
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import Statement

OF = Statement(
    "views_of", "text, text",
    "SELECT area, name, query, id FROM saved_views WHERE person = $1 AND area = $2 ORDER BY lower(name), id",
)  # fmt: skip
# A person who saves twice at once may get one more than MOST_VIEWS.
SAVE = Statement(
    "views_save",
    "text, text, text, text",
    f"""
INSERT INTO saved_views (person, area, name, query)
SELECT $1, $2, $3, $4 WHERE {MOST_VIEWS} > (
    SELECT count(*) FROM saved_views WHERE person = $1 AND (area, name) <> ($2, $3))
ON CONFLICT (person, area, name) DO UPDATE SET query = excluded.query
RETURNING area, name, query, id""",
)
REMOVE = Statement("views_remove", "text, bigint", "DELETE FROM saved_views WHERE person = $1 AND id = $2 RETURNING id")
STATEMENTS = (OF, SAVE, REMOVE)


class PostgresSavedViews:
    """`ports.messages.saved_views.SavedViews` on a Database that was opened with the inbox's statements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, person: str, area: str) -> Sequence[SavedView]:
        """See `SavedViews.of`."""
        return [SavedView(*row) for row in await self._database.many(OF.call(person, area))]

    async def save(self, person: str, view: SavedView) -> SavedView:
        """See `SavedViews.save`."""
        row = await self._database.maybe(SAVE.call(person, view.area, view.name, view.query))
        if row is None:
            raise Problem(Category.CONFLICT, f"a person has at most {MOST_VIEWS} saved views: remove one first")
        return SavedView(*row)

    async def remove(self, person: str, number: int) -> None:
        """See `SavedViews.remove`."""
        if await self._database.maybe(REMOVE.call(person, number)) is None:
            raise Problem(Category.NOT_FOUND, f"there is no saved view with id {number}")


_: type[SavedViews] = PostgresSavedViews
