"""Pages of the admin list, newest first, and their totals.

Queries are put together from literal fragments, one for each filter that is set, so that each combination gets the plan
that fits it.  What makes a page fast on millions of rows:

* Counting reads no row for each message: the messages of a chunk are counted when they are indexed (`message_index`),
  so a total is a sum over chunks and a count of the few that are not indexed yet.  Delivered ones are all but those in
  the other states, which are few.
* Words inside messages, patients, systems and types are found in the index of words.  When they find few messages
  these are looked up; when they find many the list is walked, which meets a match soon.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from ipf.ports import MessageFilter, MessagePage, MessageRow, Status
from ipf.store.inbox.admin import LIST, message
from ipf.store.inbox.text_index import indexed_to
from ipf.store.inbox.text_search import TAIL, Matches, matches, of_tenant
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import literal

_FEW = 2_000  # messages that are looked up one by one
_MANY = 20_000
_WALKED = 100_000
_SHORTEST_STEP, _LONGEST_STEP = 200, 20_000
_UNDELIVERED = tuple(status for status in Status if status is not Status.DELIVERED)
_EXACT = ("source_id", "source_system", "message_type", "correlation_id")
_FROM = "FROM message_bodies b JOIN message_states s ON s.id = b.id AND s.original_id IS NULL"


async def page(database: Database, wanted: MessageFilter, limit: int, offset: int) -> MessagePage:
    """One page, newest first.  A correlation id that is no UUID matches nothing.  Problem VALUE or COSTLY: the text."""
    if wanted.correlation_id is not None and not _is_uuid(wanted.correlation_id):
        return MessagePage(0, ())
    if wanted.text or wanted.patient:
        found = await matches(database, wanted)
        answer = await _searched(database, wanted, found, limit, offset)
        return answer if found.lag <= TAIL else replace(answer, is_exact=False)
    if _has_fields(wanted) and not _is_selective(wanted):
        found = await matches(database, wanted)
        if found.lag > TAIL:  # not all of the newest were looked at
            return MessagePage(await _counted(database, wanted), await _rows(database, wanted, limit, offset))
        if found.count <= _FEW:
            return replace(await _of_few(database, wanted, found, limit, offset), index_lag=None)
        return MessagePage(await _total(database, wanted, found), await _rows(database, wanted, limit, offset))
    return MessagePage(await _total(database, wanted, None), await _rows(database, wanted, limit, offset))


async def _searched(database: Database, wanted: MessageFilter, found: Matches, limit: int, offset: int) -> MessagePage:
    if found.count <= _FEW or _is_selective(wanted):
        return await _of_few(database, wanted, found, limit, offset)
    rows, is_end = await _walk(database, wanted, found, limit, offset)
    rest = _rest(wanted)
    if rest == MessageFilter(tenant=wanted.tenant):
        return MessagePage(found.count, rows, True, found.lag)
    if rest == MessageFilter(tenant=wanted.tenant, status=Status.DELIVERED):
        others = await _undelivered(database, wanted)
        if len(others) < _MANY:
            return MessagePage(found.count - sum(map(found.holds, others)), rows, True, found.lag)
    if is_end:
        return MessagePage(offset + len(rows), rows, True, found.lag)
    return MessagePage(offset + len(rows) + 1, rows, False, found.lag)


async def _of_few(database: Database, wanted: MessageFilter, found: Matches, limit: int, offset: int) -> MessagePage:
    """Look up what was found, or what a selective filter finds of it (the newest, when that is very much)."""
    is_exact = True
    if found.count <= _FEW:
        ids = found.ids()
    else:
        leading = "b" if wanted.status is None and not wanted.error else "s"
        among = f"{where(wanted, leading)} ORDER BY {leading}.received_at DESC, {leading}.id DESC LIMIT {_MANY}"
        selected = await database.many(f"SELECT b.id {_FROM} WHERE {among}")
        is_exact = len(selected) < _MANY
        ids = [row[0] for row in selected if found.holds(row[0])]
    if not ids:
        return MessagePage(0, (), is_exact, found.lag)
    among = f"b.id = ANY('{{{','.join(map(str, ids))}}}'::bigint[])"
    query = (
        f"SELECT {LIST}, count(*) OVER () {_FROM} WHERE {among} AND {where(wanted)} "
        f"ORDER BY b.received_at DESC, b.id DESC LIMIT {int(limit)} OFFSET {int(offset)}"
    )
    rows = await database.many(query)
    total = int(rows[0][-1]) if rows else 0
    if not rows and offset:
        counted = await database.one(f"SELECT count(*) {_FROM} WHERE {among} AND {where(wanted)}")
        total = int(counted[0])
    return MessagePage(total, tuple(message(row[:-1]) for row in rows), is_exact, found.lag)


async def _walk(
    database: Database, wanted: MessageFilter, found: Matches, limit: int, offset: int
) -> tuple[tuple[MessageRow, ...], bool]:
    """Walk the list from the newest on, keep what was found; and whether that came to the end of the list."""
    rest, kept, walked, after = _rest(wanted), list[int](), 0, ""
    share = found.count / max(found.among + found.lag, found.count, 1)
    step = int(min(max(1.5 * (offset + limit) / share, _SHORTEST_STEP), _LONGEST_STEP))
    table = "b" if rest.status is None else "s"
    while walked < _WALKED and len(kept) < offset + limit:
        join = _FROM if rest.status is not None or rest.error else "FROM message_bodies b"
        query = (
            f"SELECT {table}.received_at, {table}.id {join} WHERE {where(rest, table)}{after} "
            f"ORDER BY {table}.received_at DESC, {table}.id DESC LIMIT {step}"
        )
        rows = await database.many(query)
        kept += [row[1] for row in rows if found.holds(row[1])]
        walked += len(rows)
        if len(rows) < step:
            return await _by_ids(database, kept[offset : offset + limit]), True
        after = f" AND ({table}.received_at, {table}.id) < ({literal(rows[-1][0])}, {int(rows[-1][1])})"
    return await _by_ids(database, kept[offset : offset + limit]), False


async def _undelivered(database: Database, wanted: MessageFilter) -> list[int]:
    """Ids of messages in the other four states."""
    rows = await database.many(
        f"SELECT s.id FROM message_states s WHERE s.original_id IS NULL AND {of_tenant(wanted, 's.tenant')} "
        f"AND s.status IN ('RECEIVED', 'TRANSFORMING', 'FAILED', 'DEAD_LETTER') LIMIT {_MANY}"
    )
    return [int(row[0]) for row in rows]


async def _by_ids(database: Database, ids: list[int]) -> tuple[MessageRow, ...]:
    if not ids:
        return ()
    among = f"b.id = ANY('{{{','.join(map(str, ids))}}}'::bigint[])"
    rows = await database.many(f"SELECT {LIST} {_FROM} WHERE {among} ORDER BY b.received_at DESC, b.id DESC")
    return tuple(message(row) for row in rows)


async def _rows(database: Database, wanted: MessageFilter, limit: int, offset: int) -> tuple[MessageRow, ...]:
    leading = "b" if wanted.status is None and not wanted.error else "s"
    rows = await database.many(
        f"SELECT {LIST} {_FROM} WHERE {where(wanted, leading)} "
        f"ORDER BY {leading}.received_at DESC, {leading}.id DESC LIMIT {int(limit)} OFFSET {int(offset)}"
    )
    return tuple(message(row) for row in rows)


async def _total(database: Database, wanted: MessageFilter, found: Matches | None) -> int:
    """How many messages a filter without words and patient matches."""
    if wanted.status is Status.DELIVERED and not _is_selective(replace(wanted, status=None)):
        everything = await _total(database, replace(wanted, status=None), found)
        others = [await _counted(database, replace(wanted, status=status)) for status in _UNDELIVERED]
        return everything - sum(others)
    if wanted.status is not None or _is_selective(wanted):
        return await _counted(database, wanted)
    if found is not None:
        return found.count
    return await _all(database, wanted)


async def _all(database: Database, wanted: MessageFilter) -> int:
    """How many messages there are.  The end of the index is a number in the query, or the planner would not know that
    few come after it; when it moved meanwhile, the query is asked again."""
    indexed = await indexed_to(database)
    while True:
        total, now = await database.one(
            f"SELECT (SELECT coalesce(sum(n), 0) FROM message_chunks WHERE {of_tenant(wanted)}) + "
            f"(SELECT count(*) FROM message_bodies WHERE {of_tenant(wanted)} AND id > {indexed}), "
            "(SELECT indexed_to FROM message_index_state WHERE single)"
        )
        if now == indexed:
            return int(total)
        indexed = int(now)


async def _counted(database: Database, wanted: MessageFilter) -> int:
    """Count rows; those of the states alone where they have all that is asked."""
    if wanted.status is None and not wanted.error:
        return int((await database.one(f"SELECT count(*) FROM message_bodies b WHERE {where(wanted)}"))[0])
    if any(getattr(wanted, name) is not None for name in _EXACT):
        return int((await database.one(f"SELECT count(*) {_FROM} WHERE {where(wanted, 's')}"))[0])
    query = f"SELECT count(*) FROM message_states s WHERE s.original_id IS NULL AND {where(wanted, 's')}"
    return int((await database.one(query))[0])


def where(wanted: MessageFilter, leading: str = "b") -> str:
    """The conditions that SQL answers; `leading`: the table whose index leads."""
    conditions = [of_tenant(wanted, f"{leading}.tenant")]
    conditions += [f"b.{name} = {literal(value)}" for name in _EXACT if (value := getattr(wanted, name)) is not None]
    if wanted.status is not None:
        conditions.append(f"s.status = {literal(wanted.status.value)}")
    if wanted.error:
        pattern = wanted.error.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        conditions.append(f"s.last_error ILIKE {literal('%' + pattern + '%')}")
        if wanted.status is None:  # delivered ones have none; said so that the index of the states is used
            conditions.append("s.status IN ('RECEIVED', 'TRANSFORMING', 'FAILED', 'DEAD_LETTER')")
    conditions += _times(leading, wanted.received_from, wanted.received_to)
    return " AND ".join(conditions)


def _times(leading: str, since: datetime | None, until: datetime | None) -> list[str]:
    bounds = [] if since is None else [f"{leading}.received_at >= {literal(since)}"]
    return bounds if until is None else [*bounds, f"{leading}.received_at < {literal(until)}"]


def _rest(wanted: MessageFilter) -> MessageFilter:
    """What the index of words does not answer."""
    return replace(wanted, text=None, patient=None, source_system=None, message_type=None)


def _has_fields(wanted: MessageFilter) -> bool:
    return wanted.source_system is not None or wanted.message_type is not None


def _is_selective(wanted: MessageFilter) -> bool:
    """Whether an index of a table finds few rows by itself."""
    names = (wanted.source_id, wanted.correlation_id, wanted.error, wanted.received_from, wanted.received_to)
    few = any(value is not None for value in names)
    return few or (wanted.status is not None and wanted.status is not Status.DELIVERED)


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
