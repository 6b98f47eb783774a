"""Partitions of messages and attempts: made before they are needed, and ranges of messages that retention drops.

`message_bodies` and `message_text` have the same partitions by ranges of ids, `delivery_attempts` has its own
(the views message_partitions and attempt_partitions).  A row without a partition goes to the default one,
so that no writer fails.  How far a partition reaches follows from the rate of the last 100,000 rows: a twelfth of the
time that retention keeps rows, at most 30 days; a year where nothing is removed.

Were old rows removed one by one every six hours, nothing would be left to drop.  So the rows of a partition whose
newest row will be old within a twelfth of the time that is kept wait for it: a row is kept a twelfth longer, at most.

A range of messages is dropped in two steps.  Batches remove everything but text and payload: receipts, states, keys,
totals.  Then one short transaction drops both partitions.  A crash in between, or a lock that others hold, leaves
payloads that nothing refers to; the next run drops them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from twisted.logger import Logger

from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import literal
from ipf.store.postgres.tenant_scope import Executor

log = Logger()

SMALLEST = 10_000_000
"""Ids of a partition, at least: about 15 GB of messages."""
EVERY_SECONDS = 600.0
_PART = 12
_LONGEST_DAYS, _DAYS_FOR_EVER = 30.0, 365.0

# Partitions that get no more messages, whose text is indexed and in which no message must be kept.
_EXPIRED = """
SELECT p.lower, p.upper FROM message_partitions p
WHERE p.upper <= pg_sequence_last_value('message_bodies_id_seq')
  AND p.upper <= (SELECT indexed_to FROM message_index_state WHERE single)
  AND coalesce((SELECT s.received_at < {before} FROM message_states s
                WHERE s.id < p.upper AND s.original_id IS NULL ORDER BY s.id DESC LIMIT 1), true)
  AND NOT EXISTS (SELECT FROM message_states s
                  WHERE s.id >= p.lower AND s.id < p.upper AND s.original_id IS NULL
                    AND (s.status <> 'DELIVERED' OR s.received_at >= {before} OR s.delivered_at >= {before}
                         OR s.delivered_at IS NULL OR s.id = ANY ({held})))
  AND NOT EXISTS (SELECT FROM forwards f
                  WHERE f.message_id >= p.lower AND f.message_id < p.upper AND f.status = 'PENDING')
  AND NOT EXISTS (SELECT FROM message_states c
                  WHERE c.original_id >= p.lower AND c.original_id < p.upper
                    AND (c.status <> 'DELIVERED' OR c.delivered_at >= {before}))
ORDER BY p.upper"""

# Partitions that get no more rows, of which the newest row will be old soon.
_WAITING = """
SELECT p.lower, p.upper FROM {kind}_partitions p
WHERE p.upper <= pg_sequence_last_value(pg_get_serial_sequence('{table}', 'id')::regclass)
  AND (SELECT t.{time} >= {before}::timestamptz
          AND t.{time} < {before}::timestamptz + (now() - {before}::timestamptz) / {part}
       FROM {table} t WHERE t.id >= p.lower AND t.id < p.upper ORDER BY t.id DESC LIMIT 1)
ORDER BY p.upper"""
LAST_ID = 2**63 - 1


class Range(NamedTuple):
    """Ids of messages, without the upper one."""

    lower: int
    upper: int


async def expired_ranges(inbox: Database, before: datetime, held: str) -> list[Range]:
    """The partitions that retention may drop as a whole, oldest first.  `held`: SQL of an array of ids."""
    query = _EXPIRED.format(before=literal(before), held=held)
    return [Range(int(lower), int(upper)) for lower, upper in await inbox.many(query)]


async def waiting_ranges(rows: Executor, kind: str, before: datetime) -> list[Range]:
    """The partitions of `messages` or `attempts` of which no row is removed now, since all will be dropped soon."""
    names = {"messages": ("message", "message_bodies", "received_at"),
             "attempts": ("attempt", "delivery_attempts", "attempted_at")}  # fmt: skip
    if kind not in names:
        return []
    prefix, table, time = names[kind]
    query = _WAITING.format(kind=prefix, table=table, time=time, before=literal(before), part=_PART)
    return [Range(int(lower), int(upper)) for lower, upper in await rows.many(query)]


def span_after(after: int, waiting: Sequence[Range]) -> tuple[int, int]:
    """The next ids that are in no waiting range: those greater than the first number and less than the second."""
    for one in waiting:
        if one.lower > after + 1:
            return after, one.lower
        after = max(after, one.upper - 1)
    return after, LAST_ID


def outside(column: str, waiting: Sequence[Range]) -> str:
    """SQL: the id is in no waiting range."""
    return " AND ".join(f"NOT ({column} >= {one.lower} AND {column} < {one.upper})" for one in waiting) or "true"


async def begin_drop(inbox: Database, dropped: Range) -> None:
    """Note that the messages of a range are being removed; an erasure waits until it is dropped."""
    await inbox.many(f"INSERT INTO message_drops (upper) VALUES ({int(dropped.upper)}) ON CONFLICT DO NOTHING")


async def drop_range(inbox: Database, dropped: Range) -> None:
    """Drop the partitions of a range of which no state is left; the next run does when others use them."""
    (is_dropped,) = await inbox.one(f"SELECT drop_message_partition({int(dropped.upper)})")
    log.info(
        "event={event} table=message_bodies first={first} end={end}",
        event="partition_dropped" if is_dropped else "partition_in_use", first=dropped.lower, end=dropped.upper,
    )  # fmt: skip


async def drop_attempts(fhir: Executor, before: datetime) -> int | None:
    """Drop the oldest partition of attempts that are all older; the number of its rows, None when there is none."""
    (removed,) = await fhir.one(f"SELECT drop_attempt_partition({literal(before)})")
    if removed is None:
        return None
    log.info("event={event} table=delivery_attempts rows={rows}", event="partition_dropped", rows=int(removed))
    return int(removed)


class PartitionsAhead:
    """`run` makes the partitions that messages and attempts will need.

    `days`: how long retention keeps them; 0: for ever.
    """

    def __init__(self, inbox: Database, fhir: Database, days: int, smallest: int = SMALLEST) -> None:
        self._inbox = inbox
        self._fhir = fhir.all_tenants
        self._days = min(_LONGEST_DAYS, max(days / _PART, 1.0)) if days else _DAYS_FOR_EVER
        self._smallest = smallest

    async def run(self) -> None:
        """One run.  Several processes may do it at once."""
        databases: Sequence[tuple[Executor, str, tuple[str, ...]]] = (
            (self._inbox, "message", ("message_bodies", "message_text")),
            (self._fhir, "attempt", ("delivery_attempts",)),
        )
        for database, kind, tables in databases:
            (is_made,) = await database.one(
                f"SELECT ensure_{kind}_partition({literal(self._days)}, {int(self._smallest)})"
            )
            if is_made is not False:
                event = "partition_made" if is_made else "partition_in_use"
                log.info("event={event} table={table}", event=event, table=tables[0])
            for table in tables:
                await database.many(f"SELECT reset_empty_partitions('{table}')")
