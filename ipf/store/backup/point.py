"""One consistent point of two databases that commit separately, possibly on two servers.

For a moment the inbox takes no messages: a SHARE lock on `message_bodies` waits for the transactions that insert or
delete messages, and holds back new ones.  Meanwhile a snapshot is exported, first of the inbox, then of the FHIR
database.  Then the lock is released, and pg_dump reads both snapshots for as long as it takes.

What the order proves.  Let I and F be the snapshots; I is taken first.

* A conversion commits its resources, events and receipt in the FHIR database, and then DELIVERED in the inbox.  A row
  that is DELIVERED in I was settled before I, so its FHIR commit was before I, and before F: its receipt is in F.
* A conversion that commits in the FHIR database between I and F is not DELIVERED in I.  After a restore it is
  repeated, finds its receipt in F, and changes nothing.
* F has no effect of a message that is not in I: such a message would have been stored between I and F, and the lock
  allows none.
* A message that was acknowledged before the point is in I: its commit was before its acknowledgement.
* An erasure notes its beginning in the FHIR database, removes messages, then resources: what is missing in I was
  noted in F.  Retention deletes the receipts of expired messages before their rows: only these may lack a receipt.

Nobody waits longer than `LOCK_SECONDS` for the lock to be granted and `HELD_SECONDS` while it is held: the server ends
a session that holds it and falls silent.  A lock that was lost makes no point.

Source: https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-SNAPSHOT-SYNCHRONIZATION
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, NamedTuple

from twisted.internet import task

from ipf.errors import Category, Problem
from ipf.store.postgres.connection import Connection, LockUnavailable
from ipf.store.postgres.probe import watched_connection

LOCK_SECONDS = 1
HELD_SECONDS = 3
_TRIES = 60
_PAUSE_SECONDS = 1.0
_LONGEST_SECONDS = 7 * 86_400.0  # of a statement under the snapshot

_LOCK = f"""
BEGIN;
SET LOCAL lock_timeout = '{LOCK_SECONDS}s';
SET LOCAL idle_in_transaction_session_timeout = '{HELD_SECONDS}s';
LOCK TABLE message_bodies IN SHARE MODE"""
_BEGIN = """
SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0;
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"""
_EXPORT = "SELECT pg_export_snapshot(), pg_current_wal_lsn()::text, clock_timestamp()"
_ABOUT = """
SELECT current_setting('server_version'), current_setting('server_version_num')::integer / 10000,
    (SELECT max(number) FROM schema_versions)"""


class Side(NamedTuple):
    """One database at the point: an open transaction with its exported snapshot."""

    connection: Connection
    snapshot: str
    lsn: str
    server: str
    server_major: int
    schema: int


class Point(NamedTuple):
    """Both databases at the point.  `held_ms`: how long the inbox took no messages, milliseconds."""

    inbox: Side
    fhir: Side
    at: datetime
    held_ms: float


@asynccontextmanager
async def consistent_point(inbox_url: str, fhir_url: str, reactor: Any) -> AsyncIterator[Point]:
    """The point, whose snapshots can be read until the end of the block.

    Problem UNAVAILABLE when the lock cannot be had; StoreUnreachable when a server is away.
    """
    options = {"reactor": reactor, "statement_seconds": _LONGEST_SECONDS}
    async with (
        watched_connection(inbox_url, **options) as lock,
        watched_connection(inbox_url, **options) as inbox,
        watched_connection(fhir_url, **options) as fhir,
    ):
        abouts = [(await one.run(_ABOUT))[0] for one in (inbox, fhir)]
        for one in (inbox, fhir):
            await one.run(_BEGIN)  # its first query takes the snapshot
        began = await _locked(lock, reactor)
        exported = [(await one.run(_EXPORT))[0] for one in (inbox, fhir)]
        await lock.run("COMMIT")  # fails if the lock was lost
        held_ms = (reactor.seconds() - began) * 1000
        sides = [
            Side(connection, snapshot, lsn, *about)
            for connection, (snapshot, lsn, _), about in zip((inbox, fhir), exported, abouts, strict=True)
        ]
        yield Point(sides[0], sides[1], exported[0][2], held_ms)


async def _locked(connection: Connection, reactor: Any) -> float:
    """Take the lock; when it was granted."""
    for _ in range(_TRIES):
        try:
            await connection.run(_LOCK)
            return float(reactor.seconds())
        except LockUnavailable:
            await connection.run("ROLLBACK")
            await task.deferLater(reactor, _PAUSE_SECONDS)
    text = "message_bodies cannot be locked: another session holds it (pg_locks, pg_stat_activity)"
    raise Problem(Category.UNAVAILABLE, text)
