"""Counts of unread fields on PostgreSQL (the inbox database).  Each call is one committed transaction.

Every process adds its counts every few seconds.  They are sorted by their key, so two processes lock rows in the same
order and cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from ipf.errors import Category, Problem
from ipf.ports.messages.unread_fields import MOST_PATHS, OTHER_PATHS, UnreadCount, UnreadFields, UnreadFilter, UnreadRow
from ipf.store.inbox.admin import is_of
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import Statement, joined, literal, printable

_LONGEST = 200  # characters kept of a name or path
_LONGEST_REASON = 1000

_COLUMNS = ("tenant", "source_system", "message_type", "kind", "path", "reason", "occurrences", "message_id")
_SEPARATOR = r"\x1f"
_KEY = attrgetter("tenant", "source_system", "message_type", "path", "kind")

ADD = Statement(
    "unread_add",
    ", ".join(["text"] * len(_COLUMNS)),
    rf"""
WITH given AS MATERIALIZED (
    SELECT g.*, u.id IS NOT NULL AS known FROM (
        SELECT {", ".join(f"coalesce({name}, '') AS {name}" for name in _COLUMNS[:6])}, occurrences, message_id
        FROM unnest({", ".join(f"string_to_array(${number}, E'{_SEPARATOR}')" for number in range(1, 7))},
            string_to_array($7, E'{_SEPARATOR}')::bigint[], string_to_array($8, E'{_SEPARATOR}')::bigint[])
            AS g({", ".join(_COLUMNS)})
    ) g LEFT JOIN unread_fields u USING (tenant, source_system, message_type, path, kind)
), held AS MATERIALIZED (
    SELECT tenant, source_system, count(*) AS count FROM unread_fields
    WHERE (tenant, source_system) IN (SELECT tenant, source_system FROM given WHERE NOT known) GROUP BY 1, 2
), placed AS (
    SELECT g.*, known OR coalesce(h.count, 0) + row_number() OVER (
        PARTITION BY tenant, source_system, known ORDER BY message_type, path, kind) <= {MOST_PATHS} AS fits
    FROM given g LEFT JOIN held h USING (tenant, source_system)
)
INSERT INTO unread_fields AS u
    (tenant, source_system, message_type, path, kind, reason, occurrences, message_id, first_seen, last_seen)
SELECT tenant, source_system, CASE WHEN fits THEN message_type ELSE '{OTHER_PATHS}' END AS type,
    CASE WHEN fits THEN path ELSE '{OTHER_PATHS}' END AS place, kind,
    max(CASE WHEN fits THEN reason ELSE '' END), sum(occurrences), max(message_id), now(), now()
FROM placed GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (tenant, source_system, message_type, path, kind) DO UPDATE
SET occurrences = u.occurrences + excluded.occurrences, message_id = excluded.message_id, reason = excluded.reason,
    last_seen = now()""",
)
FORGET = Statement("unread_forget", "bigint", "DELETE FROM unread_fields WHERE id = $1 RETURNING id")
STATEMENTS = (ADD, FORGET)

_ROWS = """SELECT u.id, u.tenant, u.source_system, u.message_type, u.kind, u.path, u.reason, u.occurrences, b.id,
    u.first_seen, u.last_seen
FROM unread_fields u LEFT JOIN message_bodies b ON b.id = u.message_id"""


class PostgresUnreadFields:
    """`ports.UnreadFields` on a Database that was opened with the inbox's statements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, counts: Sequence[UnreadCount]) -> None:
        """See `ports.UnreadFields.add`."""
        if not counts:
            return
        rows = sorted(map(_storable, counts), key=_KEY)
        await self._database.many(ADD.call(*(joined(map(attrgetter(name), rows)) for name in _COLUMNS)))

    async def fields(self, wanted: UnreadFilter, limit: int, offset: int) -> tuple[int, Sequence[UnreadRow]]:
        """See `ports.UnreadFields.fields`."""
        where = _where(wanted)
        total = await self._database.one(f"SELECT count(*) FROM unread_fields u WHERE {where}")
        order = "u.kind = 'declared', u.occurrences DESC, u.source_system, u.message_type, u.path, u.kind, u.id"
        page = f"LIMIT {int(limit)} OFFSET {int(offset)}"
        rows = await self._database.many(f"{_ROWS} WHERE {where} ORDER BY {order} {page}")
        return int(total[0]), [UnreadRow(*row) for row in rows]

    async def forget(self, number: int) -> None:
        """See `ports.UnreadFields.forget`."""
        if await self._database.maybe(FORGET.call(number)) is None:
            raise Problem(Category.NOT_FOUND, f"there is no unread field with id {number}")

    async def forget_all(self, wanted: UnreadFilter) -> int:
        """See `ports.UnreadFields.forget_all`."""
        return len(await self._database.many(f"DELETE FROM unread_fields u WHERE {_where(wanted)} RETURNING u.id"))


def _storable(one: UnreadCount) -> UnreadCount:
    """Names of a message may hold any character."""
    sender, type_, path = (printable(text, _LONGEST) or "" for text in (one.source_system, one.message_type, one.path))
    reason = printable(one.reason, _LONGEST_REASON) or ""
    return UnreadCount(one.tenant, sender, type_, one.kind, path, reason, one.occurrences, one.message_id)


def _where(wanted: UnreadFilter) -> str:
    names = ("source_system", "message_type", "kind", "path")
    given = ((name, getattr(wanted, name)) for name in names)
    exact = (f"u.{name} = {literal(value)}" for name, value in given if value is not None)
    return " AND ".join((is_of(wanted.tenant, "u.tenant"), *exact))


_: type[UnreadFields] = PostgresUnreadFields
