"""What a migration does to tables that are there, as PostgreSQL itself says it: locks, rewrites, new indexes.

A preview runs the file in a transaction and looks at the locks that it holds at its end: on an empty database of the
same schema for a dry run, or on the real one in a transaction that is rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ipf.store.postgres.connection import Connection
from ipf.store.postgres.migrate import LOCK_SECONDS, Migration
from ipf.store.postgres.quoting import script

_EXCLUSIVE = "AccessExclusiveLock"
_BLOCKING_WRITES = ("ExclusiveLock", "ShareRowExclusiveLock", "ShareLock")
_TABLES = """
SELECT c.oid, c.relname, pg_relation_filenode(c.oid), (SELECT count(*) FROM pg_index i WHERE i.indrelid = c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'"""
_LOCKS = """
SELECT relation, array_agg(mode) FROM pg_locks
WHERE pid = pg_backend_pid() AND locktype = 'relation' AND granted GROUP BY 1"""
SIZES = """
SELECT c.relname, greatest(c.reltuples, 0)::bigint, pg_table_size(c.oid) FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'"""


class Effect(NamedTuple):
    """On a table that was there.  `blocks`: reads and writes, writes, or nothing; `builds`: new indexes."""

    table: str
    blocks: str
    is_dropped: bool
    is_rewritten: bool
    builds: int
    changes_rows: bool


async def preview(connection: Connection, migration: Migration, reactor: Any) -> tuple[list[Effect], float]:
    """Run a file in the transaction that is open, and say what it did and how many seconds it took.

    LockUnavailable when a lock is not granted within a second.
    """
    before = {oid: rest for oid, *rest in await connection.run(_TABLES)}
    held = {oid: set(modes) for oid, modes in await connection.run(_LOCKS)}
    began = reactor.seconds()
    await connection.run(script(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'", migration.sql))
    seconds = reactor.seconds() - began
    after = {oid: rest for oid, *rest in await connection.run(_TABLES)}
    locks = {oid: set(modes) - held.get(oid, set()) for oid, modes in await connection.run(_LOCKS)}
    effects = [_effect(rest, after.get(oid), locks.get(oid, set())) for oid, rest in before.items()]
    found = [one for one in effects if one.blocks or one.changes_rows or one.is_dropped]
    return sorted(found), seconds


def _effect(before: Sequence[Any], after: Sequence[Any] | None, modes: set[str]) -> Effect:
    name, node, indexes = before
    blocks = "writes" if modes.intersection(_BLOCKING_WRITES) else ""
    blocks = "reads and writes" if _EXCLUSIVE in modes else blocks
    rewritten = after is not None and node is not None and after[1] != node
    builds = max(0, after[2] - indexes) if after is not None else 0
    return Effect(name, blocks, after is None, rewritten, builds, "RowExclusiveLock" in modes)
