"""Retention on PostgreSQL: deletion of old rows in batches, and the state of the run.

A batch reads rows in the order of their ids and deletes those that are finished and old enough, in one transaction, so
that locks are short and vacuum keeps up.  Retention never deletes: messages that are not DELIVERED (dead letters have
their own policy) or that have an open conversion, events that the subscriber has not acknowledged, the current version
of a resource, versions that such events refer to, and what concerns a patient under a legal hold (`legal_holds.py`).

The receipts of a message in the FHIR database are deleted before its row: a message without a row is never converted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime

import orjson

from ipf.ports import Json
from ipf.ports.messages.statistics import Pruner, RetentionState
from ipf.store.inbox.legal_holds import HeldRows, held_rows
from ipf.store.inbox.message_partitions import (
    LAST_ID,
    Range,
    begin_drop,
    drop_attempts,
    drop_range,
    expired_ranges,
    outside,
    span_after,
    waiting_ranges,
)
from ipf.store.inbox.retention_sql import (
    AWAITED,
    BATCH,
    BEGIN_RUN,
    COUNTS,
    END_RUN,
    EVENTS,
    IN_ORDER,
    LAST_RUN,
    MESSAGES,
    MOST_AWAITED,
    PARTITIONS,
    RECEIPTS,
    REMOVE_MESSAGES,
    REMOVE_STATES,
    RENEW_RUN,
    REQUEST_RUN,
    VERSIONS,
    WHOLE_BATCH,
)
from ipf.store.postgres.database import Database, Session
from ipf.store.postgres.quoting import joined, literal
from ipf.store.postgres.tenant_scope import Executor

Prune = Callable[[datetime, str], Awaitable[tuple[int, str | None]]]


class PostgresPruner:
    """`ports.Pruner` on both databases."""

    kinds: Sequence[str] = ("messages", "dead_letters", "rejects", "attempts", "events", "versions")

    def __init__(self, inbox: Database, fhir: Database, holds: Collection[str] = ()) -> None:
        self._inbox = inbox
        self._fhir = fhir.all_tenants
        self._awaited = ""
        self._holds = holds
        self._held = HeldRows()
        self._expired: list[Range] = []
        self._waiting: list[Range] = []

    async def prune(self, kind: str, before: datetime, after: str) -> tuple[int, str | None]:
        """See `Pruner.prune`."""
        prunes: dict[str, Prune] = {
            "messages": self._messages, "dead_letters": self._dead_letters, "rejects": self._rejects,
            "attempts": self._attempts, "events": self._events, "versions": self._versions,
        }  # fmt: skip
        if not after:
            self._held = await held_rows(self._inbox, self._fhir, self._holds)
            self._waiting = await waiting_ranges(self._database_of(kind), kind, before)
        return await prunes[kind](before, after)

    async def count(self, kind: str, before: datetime) -> int:
        """See `Pruner.count`."""
        database = self._database_of(kind)
        held = _held_of(kind, await held_rows(self._inbox, self._fhir, self._holds))
        query = COUNTS[kind].format(before=literal(before), held=held)
        waiting = await waiting_ranges(database, kind, before)
        if waiting:
            query += f" AND {outside('id', waiting)}"
        return int((await database.one(query))[0])

    def _database_of(self, kind: str) -> Executor:
        return self._inbox if kind in ("messages", "dead_letters", "rejects") else self._fhir

    # -- the inbox

    async def _messages(self, before: datetime, after: str) -> tuple[int, str | None]:
        """Whole partitions first, then single messages from id 0 on."""
        if not after:
            self._expired = await expired_ranges(self._inbox, before, self._held.messages)
        if not self._expired:
            return await self._stored("DELIVERED", "delivered_at", before, after)
        dropped = self._expired[0]
        start = max(int(after or 0), dropped.lower - 1)
        if start == dropped.lower - 1:
            await begin_drop(self._inbox, dropped)
        count, cursor = await self._stored("DELIVERED", "delivered_at", before, str(start), dropped)
        if cursor is None:
            await drop_range(self._inbox, dropped)
            del self._expired[0]
            cursor = str(dropped.upper - 1) if self._expired else "0"
        return count, cursor

    async def _dead_letters(self, before: datetime, after: str) -> tuple[int, str | None]:
        return await self._stored("DEAD_LETTER", "last_attempt_at", before, after)

    async def _stored(
        self, status: str, ended: str, before: datetime, after: str, whole: Range | None = None
    ) -> tuple[int, str | None]:
        """A batch of messages; of a range whose partition is dropped afterwards, all but payload and text."""
        done = {"status": literal(status), "ended": ended, "before": literal(before), "held": self._held.messages}
        start, until = span_after(int(after or 0), self._waiting)
        most = BATCH
        if whole is not None:
            until, most = whole.upper, WHOLE_BATCH
        rows = await self._inbox.many(MESSAGES.format(**done, after=start, until=until, most=most))
        expired = [row for row in rows if row[1] is not None]
        if expired:
            tenants, correlations = joined(row[1] for row in expired), joined(row[2] for row in expired)
            await self._fhir.many(RECEIPTS.format(tenants=literal(tenants), ids=literal(correlations)))
            ids = joined(row[0] for row in expired)
            remove = (REMOVE_MESSAGES if whole is None else REMOVE_STATES).format(**done, ids=literal(ids))
            await self._inbox.transact(lambda session: _removed(session, remove, keeps_count=status == "DELIVERED"))
        is_more = bool(rows) and any(row[3] for row in rows)
        cursor = str(rows[-1][0]) if is_more else None
        if cursor is None and whole is None and until != LAST_ID:
            cursor = str(until - 1)
        return len(expired), cursor

    async def _rejects(self, before: datetime, after: str) -> tuple[int, str | None]:
        return await _in_order(self._inbox, "rejects", "received_at", before, after, self._held.rejects)

    # -- the FHIR database

    async def _attempts(self, before: datetime, after: str) -> tuple[int, str | None]:
        dropped = None if after else await drop_attempts(self._fhir, before)
        if dropped is not None:
            return dropped, ""
        start, until = span_after(int(after or 0), self._waiting)
        removed, cursor = await _in_order(
            self._fhir, "delivery_attempts", "attempted_at", before, str(start), HeldRows().rejects, until
        )
        return removed, str(until - 1) if cursor is None and until != LAST_ID else cursor

    async def _events(self, before: datetime, after: str) -> tuple[int, str | None]:
        """The cursor is the rid of the last completed subscription."""
        start = literal(int(after or 0))
        last, removed = await self._fhir.one(
            EVENTS.format(after=start, before=literal(before), held=self._held.resources)
        )
        if removed:
            return int(removed), after
        return 0, None if last is None else str(last)

    async def _versions(self, before: datetime, after: str) -> tuple[int, str | None]:
        """The cursor is (partition, time, rid, version) of the last scanned version."""
        if not after:
            awaited = await self._fhir.many(AWAITED.format(before=literal(before)))
            if len(awaited) > MOST_AWAITED:  # too many pending events: versions are kept
                return 0, None
            self._awaited = joined(f"{row[0]}/{row[1]}" for row in awaited)
            after = f"{await self._partition_after(0)} 1970-01-01T00:00:00+00:00 0 0"
        partition, moment, rid, version = after.split(" ")
        if partition == "None":
            return 0, None
        query = VERSIONS.format(
            partition=literal(int(partition)), time=literal(datetime.fromisoformat(moment)), rid=literal(int(rid)),
            version=literal(int(version)), before=literal(before), awaited=literal(self._awaited),
            held=self._held.resources,
        )  # fmt: skip
        removed, time, last_rid, last_version = await self._fhir.one(query)
        if time is None:  # no old versions left in this partition
            return int(removed), f"{await self._partition_after(int(partition))} 1970-01-01T00:00:00+00:00 0 0"
        return int(removed), f"{partition} {time.astimezone(UTC).isoformat()} {last_rid} {last_version}"

    async def _partition_after(self, partition: int) -> int | None:
        found: int | None = (await self._fhir.one(PARTITIONS.format(after=literal(partition))))[0]
        return found

    # -- the run

    async def hold_run(self, worker: str, seconds: float, result: Json | None) -> bool:
        """See `Pruner.hold_run`."""
        statement = BEGIN_RUN if result is None else RENEW_RUN
        shown = literal(orjson.dumps(result or {}).decode())
        call = statement.format(worker=literal(worker), seconds=literal(float(seconds)), result=shown)
        return bool(await self._inbox.many(call))

    async def end_run(self, worker: str, result: Json) -> None:
        """See `Pruner.end_run`."""
        shown = literal(orjson.dumps(result).decode())
        await self._inbox.many(END_RUN.format(worker=literal(worker), result=shown))

    async def request_run(self) -> None:
        """See `Pruner.request_run`."""
        await self._inbox.many(REQUEST_RUN)

    async def last_run(self) -> RetentionState:
        """See `Pruner.last_run`."""
        row = await self._inbox.maybe(LAST_RUN)
        if row is None:
            return RetentionState(None, None, None, {})
        held_by, began_at, ended_at, result = row
        return RetentionState(held_by, began_at, ended_at, orjson.loads(result or "{}"))


async def _removed(session: Session, remove: str, *, keeps_count: bool) -> None:
    if keeps_count:
        await session.many("SELECT set_config('ipf.pruning', 'on', true)")
    await session.many(remove)


def _held_of(kind: str, held: HeldRows) -> str:
    """The held rows of one kind."""
    return {"rejects": held.rejects, "messages": held.messages, "dead_letters": held.messages}.get(kind, held.resources)


async def _in_order(
    database: Executor, table: str, time: str, before: datetime, after: str, held: str, until: int = LAST_ID
) -> tuple[int, str | None]:
    """A batch of a table with ids that increase with time."""
    call = IN_ORDER.format(
        table=table, time=time, before=literal(before), after=literal(int(after or 0)), held=held, until=until
    )  # fmt: skip
    last, removed = await database.one(call)
    return int(removed), None if last is None else str(last)


_: type[Pruner] = PostgresPruner
