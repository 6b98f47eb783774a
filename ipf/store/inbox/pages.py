"""Pages of the admin list, newest first, and their totals.

A query has a literal condition for each filter that is set, so PostgreSQL plans each combination separately.  A page is
fast on millions of rows, because:

* Totals are sums over `message_totals` plus a count of the few unindexed messages.  The number of delivered messages is
  the total minus the few in other states.
* The full-text index finds words, patients, and rare senders and types.  Few matches are looked up by id; for many, the
  list is read from the newest message on and each row tested until the page is full.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from ipf.ports import MessageFilter, MessagePage, MessageRow, Status
from ipf.store.inbox.admin import LIST, message
from ipf.store.inbox.text_index import indexed_to
from ipf.store.inbox.text_search import TAIL, Matches, of_tenant, search
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import bigints, literal

_FEW = 2_000  # matches that are looked up by id
_MANY = 20_000  # rows that are tested one by one
_UNDELIVERED = tuple(status for status in Status if status is not Status.DELIVERED)
_FIELDS = ("source_system", "message_type")
_EXACT = ("source_id", *_FIELDS, "correlation_id")
_FROM = "FROM message_bodies b JOIN message_states s ON s.id = b.id AND s.original_id IS NULL"


async def page(database: Database, wanted: MessageFilter, limit: int, offset: int) -> MessagePage:
    """One page, newest first.  A correlation id that is not a UUID matches nothing.  Problem VALUE: invalid text."""
    if wanted.correlation_id is not None and not _is_uuid(wanted.correlation_id):
        return MessagePage(0, ())
    if wanted.text or wanted.patient:
        found = await search(database, wanted)
        answer = await _searched(database, wanted, found, limit, offset)
        return answer if found.lag <= TAIL else replace(answer, is_exact=False)
    total = await _total(database, wanted)
    if _has_fields(wanted) and not _is_selective(wanted) and total <= _FEW:
        found = await search(database, wanted)
        ids = await found.ids(database, _FEW) if found.lag <= TAIL else None
        if ids is not None:
            return replace(await _of_ids(database, wanted, ids, limit, offset), total=total)
    return MessagePage(total, await _rows(database, wanted, limit, offset))


async def _searched(database: Database, wanted: MessageFilter, found: Matches, limit: int, offset: int) -> MessagePage:
    ids = await found.ids(database, _FEW)
    if ids is not None:
        return replace(await _of_ids(database, wanted, ids, limit, offset), index_lag=found.lag)
    if _is_selective(wanted):
        ids, is_exact = await _selected(database, wanted, found)
        answer = await _of_ids(database, wanted, ids, limit, offset)
        return replace(answer, is_exact=is_exact, index_lag=found.lag)
    total = await found.count(database)
    if not await _are_frequent(database, wanted, total, offset + limit):
        ids = await found.ids(database, total + _MANY)
        if ids is not None:
            return replace(await _of_ids(database, wanted, ids, limit, offset), index_lag=found.lag)
    rows = await _newest(database, wanted, found, limit, offset)
    if wanted.status is None:
        return MessagePage(total, rows, True, found.lag)
    undelivered = await _undelivered_among(database, wanted, found)
    if undelivered is None:
        return MessagePage(offset + len(rows) + (len(rows) == limit), rows, False, found.lag)
    return MessagePage(total - undelivered, rows, True, found.lag)


async def _of_ids(database: Database, wanted: MessageFilter, ids: list[int], limit: int, offset: int) -> MessagePage:
    """A page of the messages with these ids that match the other conditions of the filter."""
    if not ids:
        return MessagePage(0, ())
    among = f"b.id = ANY({bigints(ids)})"
    query = (
        f"SELECT {LIST}, count(*) OVER () {_FROM} WHERE {among} AND {where(wanted)} "
        f"ORDER BY b.received_at DESC, b.id DESC LIMIT {int(limit)} OFFSET {int(offset)}"
    )
    rows = await database.many(query)
    total = int(rows[0][-1]) if rows else 0
    if not rows and offset:
        counted = await database.one(f"SELECT count(*) {_FROM} WHERE {among} AND {where(wanted)}")
        total = int(counted[0])
    return MessagePage(total, tuple(message(row[:-1]) for row in rows))


async def _selected(database: Database, wanted: MessageFilter, found: Matches) -> tuple[list[int], bool]:
    """The matches among the newest rows that pass a selective filter, and whether those rows were all."""
    leading = "b" if wanted.status is None and not _has_error(wanted) else "s"
    newest = (
        f"SELECT b.id {_FROM} WHERE {where(wanted, leading)} "
        f"ORDER BY {leading}.received_at DESC, {leading}.id DESC LIMIT {_MANY}"
    )
    query = f"SELECT count(*), array_agg(n.id) FILTER (WHERE {found.condition('n.id')}) FROM ({newest}) n"
    count, ids = await database.one(query)
    return ids or [], count < _MANY


async def _are_frequent(database: Database, wanted: MessageFilter, count: int, needed: int) -> bool:
    """Whether so many matches of a tenant are met within the newest _MANY messages, if they are spread evenly."""
    return needed * await _all(database, MessageFilter(tenant=wanted.tenant)) <= _MANY * count


async def _newest(
    database: Database, wanted: MessageFilter, found: Matches, limit: int, offset: int
) -> tuple[MessageRow, ...]:
    """A page of frequent matches: the list is read from its newest row until there are enough."""
    leading = "b" if wanted.status is None else "s"
    rows = await database.many(
        f"SELECT {LIST} {_FROM} WHERE {where(wanted, leading)} AND {found.condition('b.id')} "
        f"ORDER BY {leading}.received_at DESC, {leading}.id DESC LIMIT {int(limit)} OFFSET {int(offset)}"
    )
    return tuple(message(row) for row in rows)


async def _undelivered_among(database: Database, wanted: MessageFilter, found: Matches) -> int | None:
    """How many matches are in the other four states; None where very many messages are."""
    others = (
        f"SELECT s.id FROM message_states s WHERE s.original_id IS NULL AND {of_tenant(wanted, 's.tenant')} "
        f"AND s.status IN ('RECEIVED', 'TRANSFORMING', 'FAILED', 'DEAD_LETTER') LIMIT {_MANY}"
    )
    query = f"SELECT count(*), count(*) FILTER (WHERE {found.condition('o.id')}) FROM ({others}) o"
    count, matching = await database.one(query)
    return int(matching) if count < _MANY else None


async def _rows(database: Database, wanted: MessageFilter, limit: int, offset: int) -> tuple[MessageRow, ...]:
    leading = "b" if wanted.status is None and not _has_error(wanted) else "s"
    rows = await database.many(
        f"SELECT {LIST} {_FROM} WHERE {where(wanted, leading)} "
        f"ORDER BY {leading}.received_at DESC, {leading}.id DESC LIMIT {int(limit)} OFFSET {int(offset)}"
    )
    return tuple(message(row) for row in rows)


async def _total(database: Database, wanted: MessageFilter) -> int:
    """Number of matches of a filter without words and patient."""
    if wanted.status is Status.DELIVERED and not _is_selective(replace(wanted, status=None)):
        everything = await _total(database, replace(wanted, status=None))
        others = [await _counted(database, replace(wanted, status=status)) for status in _UNDELIVERED]
        return everything - sum(others)
    if wanted.status is not None or _is_selective(wanted):
        return await _counted(database, wanted)
    return await _all(database, wanted)


async def _all(database: Database, wanted: MessageFilter) -> int:
    """Number of messages of a tenant, sender and type.

    The query contains the last indexed id as a literal, so that the planner knows that few messages follow it.  If it
    has changed meanwhile, the query runs again.
    """
    fields = [of_tenant(wanted)]
    fields += [f"{name} = {literal(value)}" for name in _FIELDS if (value := getattr(wanted, name)) is not None]
    passing, indexed = " AND ".join(fields), await indexed_to(database)
    while True:
        total, now = await database.one(
            f"SELECT (SELECT coalesce(sum(count), 0) FROM message_totals WHERE {passing}) + "
            f"(SELECT count(*) FROM message_bodies WHERE {passing} AND id > {indexed}), "
            "(SELECT indexed_to FROM message_index_state WHERE single)"
        )
        if now == indexed:
            return int(total)
        indexed = int(now)


async def _counted(database: Database, wanted: MessageFilter) -> int:
    """Count rows, of `message_states` only if its columns suffice."""
    if wanted.status is None and not _has_error(wanted):
        return int((await database.one(f"SELECT count(*) FROM message_bodies b WHERE {where(wanted)}"))[0])
    if any(getattr(wanted, name) is not None for name in _EXACT):
        return int((await database.one(f"SELECT count(*) {_FROM} WHERE {where(wanted, 's')}"))[0])
    query = f"SELECT count(*) FROM message_states s WHERE s.original_id IS NULL AND {where(wanted, 's')}"
    return int((await database.one(query))[0])


def where(wanted: MessageFilter, leading: str = "b") -> str:
    """The conditions without words and patient; `leading`: the table with the index to use."""
    conditions = [of_tenant(wanted, f"{leading}.tenant")]
    conditions += [f"b.{name} = {literal(value)}" for name in _EXACT if (value := getattr(wanted, name)) is not None]
    if wanted.source_id is not None:
        of_source = f"SELECT id FROM message_keys WHERE source_id = {literal(wanted.source_id)}"
        conditions.append(f"b.id = ANY (ARRAY({of_source}))")
    if wanted.status is not None:
        conditions.append(f"s.status = {literal(wanted.status.value)}")
    if wanted.permanent is not None:
        conditions.append(f"s.permanent = {literal(wanted.permanent)} AND s.last_error IS NOT NULL")
    if wanted.error:
        pattern = wanted.error.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        conditions.append(f"s.last_error ILIKE {literal('%' + pattern + '%')}")
    if _has_error(wanted) and wanted.status is None:  # delivered messages have no error; lets PostgreSQL use the index
        conditions.append("s.status IN ('RECEIVED', 'TRANSFORMING', 'FAILED', 'DEAD_LETTER')")
    conditions += _times(leading, wanted.received_from, wanted.received_to)
    return " AND ".join(conditions)


def _times(leading: str, since: datetime | None, until: datetime | None) -> list[str]:
    bounds = [] if since is None else [f"{leading}.received_at >= {literal(since)}"]
    return bounds if until is None else [*bounds, f"{leading}.received_at < {literal(until)}"]


def _has_fields(wanted: MessageFilter) -> bool:
    return wanted.source_system is not None or wanted.message_type is not None


def _has_error(wanted: MessageFilter) -> bool:
    """Whether a condition is about the last error, which delivered messages do not have."""
    return bool(wanted.error) or wanted.permanent is not None


def _is_selective(wanted: MessageFilter) -> bool:
    """Whether an index finds few rows for one of these conditions."""
    names = (wanted.source_id, wanted.correlation_id, wanted.received_from, wanted.received_to)
    few = _has_error(wanted) or any(value is not None for value in names)
    return few or (wanted.status is not None and wanted.status is not Status.DELIVERED)


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
