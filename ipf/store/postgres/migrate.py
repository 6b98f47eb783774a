"""Numbered SQL files in, a database with exactly this schema out.

`schema/ipf` and `schema/fhir` hold `NNN-name.sql`: the baseline, then migrations, applied in order, each in a
transaction of its own together with its row in `schema_versions`.  The numbers go on from those of ipf 0.1, whose
databases become the baseline (`adoption`).  One advisory lock makes replicas that start together take turns.  A crash
leaves whole files applied or not.  A database whose applied files differ from ours, or with half of a backup, is
refused.

A file may begin with these lines of comment:

* `-- beside: N`: programs that know the files up to N may run on the database with this file.  Without the line only
  programs that know the file itself may.  The row keeps N, so that a program that is older than the database starts
  when every file that it does not know admits it, and is refused otherwise.
* `-- online`: its statements, which end with `;` at the end of a line, run one by one outside a transaction, such as
  CREATE INDEX CONCURRENTLY.  They must be repeatable: after a crash the file is applied from its beginning.

DDL waits for its locks in front of the writers that come later, so it waits for one second at most, then lets them
pass, and tries again.

Source: https://www.postgresql.org/docs/current/explicit-locking.html
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from twisted.internet import task
from twisted.logger import Logger

import ipf
from ipf.errors import Category, Problem
from ipf.store.postgres import adoption
from ipf.store.postgres.connection import Connection, LockUnavailable
from ipf.store.postgres.probe import watched_connection
from ipf.store.postgres.quoting import literal, script

log = Logger()

LOCK = 4_919_001  # any number that nobody else uses
LOCK_SECONDS = 1
_TRIES = 300
_PAUSE_SECONDS = 1.0
_TURN_SECONDS = 0.1
_HEADER = re.compile(r"(?:^--.*\n)*", re.MULTILINE)
_VERSIONS = """CREATE TABLE IF NOT EXISTS schema_versions (
    number integer PRIMARY KEY,              -- number of the file
    name text NOT NULL,                      -- its name
    checksum text NOT NULL,                  -- SHA-256 of its text
    applied_at timestamptz NOT NULL DEFAULT now(),
    release text,                            -- version of the ipf that applied it
    beside integer                           -- programs that know this file may run
)"""
_APPLIED = "SELECT number, name, checksum, release, beside FROM schema_versions ORDER BY number"
_UNFINISHED = "SELECT to_regclass('ipf_restore.unfinished') IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, hexadecimal."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def beside(self) -> int:
        """The oldest program, by the number of its last file, that may run on a database with this file."""
        found = re.search(r"^-- beside: (\d+)$", self._header, re.MULTILINE)
        return min(int(found[1]), self.number) if found else self.number

    @property
    def is_online(self) -> bool:
        """Whether its statements run one by one outside a transaction."""
        return re.search(r"^-- online$", self._header, re.MULTILINE) is not None

    @property
    def statements(self) -> list[str]:
        """The statements of an online file."""
        return [
            one for one in re.split(r";\s*$", self.sql, flags=re.MULTILINE) if re.sub(r"(?m)--.*$", "", one).strip()
        ]

    @property
    def _header(self) -> str:
        found = _HEADER.match(self.sql)
        return found[0] if found else ""


class Applied(NamedTuple):
    """A row of `schema_versions`."""

    number: int
    name: str
    checksum: str
    release: str
    beside: int


def migrations(kind: str) -> tuple[Migration, ...]:
    """The files of the database `ipf` or `fhir`, the baseline first; ValueError unless their numbers have no gaps."""
    files = sorted((Path(__file__).resolve().parents[1] / "schema" / kind).glob("[0-9]*.sql"))
    found = tuple(Migration(int(file.name.partition("-")[0]), file.stem, file.read_text()) for file in files)
    if not found or [one.number - found[0].number for one in found] != list(range(len(found))):
        raise ValueError(f"the migrations of {kind} are missing or not numbered without gaps")
    return found


async def migrate(url: str, kind: str, *, reactor: Any, known: Sequence[Migration] | None = None) -> int:
    """Bring the database at `url` up to date; the number of its version, which a later program may have written.

    StoreUnreachable when it cannot be reached; Problem INTERNAL when its schema admits no program as old as this one,
    differs from ours, or is one of ipf 0.1 that cannot be adopted; Problem UNAVAILABLE when other sessions keep their
    locks for minutes.
    """
    wanted = migrations(kind) if known is None else tuple(known)
    async with watched_connection(url, reactor=reactor, statement_seconds=3600) as connection:
        await take_turns(connection, reactor)
        applied = await applied_to(connection, kind, wanted)
        if is_former(kind, applied):
            await _adopt(connection, kind, wanted[0], applied, reactor)
            applied = await applied_to(connection, kind, wanted)
        for migration in wanted[len(applied) :]:
            await _apply(connection, kind, migration, reactor)
    return max([wanted[-1].number, *(row.number for row in applied)])


async def take_turns(connection: Connection, reactor: Any) -> None:
    """Hold the lock of migrations until the connection closes.

    A statement that waits for the lock would hold a snapshot, which CREATE INDEX CONCURRENTLY would wait for in turn.
    """
    while not (await connection.run(f"SELECT pg_try_advisory_lock({LOCK})"))[0][0]:
        await task.deferLater(reactor, _TURN_SECONDS)


async def applied_to(connection: Connection, kind: str, wanted: Sequence[Migration]) -> list[Applied]:
    """The files that were applied, checked against ours unless `is_former`.  The table is made when it is missing."""
    if (await connection.run(_UNFINISHED))[0][0]:
        ((backup,),) = await connection.run("SELECT max(backup) FROM ipf_restore.unfinished")
        text = f"the restore of {backup or 'a backup'} into the {kind} database has not finished"
        raise Problem(Category.INTERNAL, f"{text}: repeat ipfctl restore with --replace")
    await connection.run(_VERSIONS)
    applied = [Applied(*row) for row in await connection.run(_APPLIED)]
    if not is_former(kind, applied):
        _check(kind, wanted, applied)
    return applied


def is_former(kind: str, applied: Sequence[Applied]) -> bool:
    """Whether a database has the migrations of ipf 0.1."""
    return adoption.is_former(kind, [row.number for row in applied])


async def adopting(connection: Connection, kind: str, applied: Sequence[Applied]) -> str:
    """The SQL that turns a database of ipf 0.1 into the baseline.  Problem INTERNAL if it cannot be adopted."""
    return await adoption.adopting(connection, kind, [row.checksum for row in applied])


def _check(kind: str, wanted: Sequence[Migration], applied: Sequence[Applied]) -> None:
    for migration, row in zip(wanted, applied, strict=False):
        if (row.number, row.checksum) != (migration.number, migration.checksum):
            text = f"migration {migration.name} of the {kind} database is not the one that was applied"
            raise Problem(Category.INTERNAL, text)
    later = applied[len(wanted) :]
    if not later:
        return
    release, known = later[-1].release, wanted[-1].number
    newer = f"the {kind} database has version {later[-1].number}, written by ipf {release}"
    oldest = max(row.beside for row in later)
    if oldest > known:
        text = f"{newer}, for programs that know {oldest}; this is ipf {ipf.__version__}, which knows {known}"
        raise Problem(Category.INTERNAL, f"{text}: install ipf {release}, or restore a backup from before the upgrade")
    log.info("event=schema_newer {newer}; this program, which knows {known}, may run beside it",
             event="schema_newer", newer=newer, known=known, database=kind)  # fmt: skip


async def _adopt(
    connection: Connection, kind: str, baseline: Migration, applied: Sequence[Applied], reactor: Any
) -> None:
    sql = script(await adopting(connection, kind, applied), "DELETE FROM schema_versions", _row(baseline))
    await _until_locked(connection, kind, baseline.name, sql, reactor)
    log.info("event=adopted database={kind} of ipf 0.1 as {name}", event="adopted", kind=kind, name=baseline.name)


def _row(migration: Migration) -> str:
    values = (migration.number, migration.name, migration.checksum, ipf.__version__, migration.beside)
    columns = "INSERT INTO schema_versions (number, name, checksum, release, beside) VALUES "
    return columns + f"({', '.join(literal(value) for value in values)})"


async def _apply(connection: Connection, kind: str, migration: Migration, reactor: Any) -> None:
    row = _row(migration)
    if migration.is_online:
        for statement in migration.statements:
            await connection.run(statement)
        await connection.run(row)
    else:
        sql = script(migration.sql.rstrip().removesuffix(";"), row)
        await _until_locked(connection, kind, migration.name, sql, reactor)
    log.info("event=migrated database={kind} version={name}", event="migrated", kind=kind, name=migration.name)


async def _until_locked(connection: Connection, kind: str, name: str, sql: str, reactor: Any) -> None:
    """Run a transaction, again when it had to wait too long for a lock."""
    for tries in range(_TRIES):
        try:
            limit = f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'"
            await connection.run(script("BEGIN", limit, sql, "COMMIT"))
            return
        except LockUnavailable:
            await connection.run("ROLLBACK")
            if not tries:
                line = "event=migration_waits migration {name} of the {kind} database waits for locks of other sessions"
                log.info(line, event="migration_waits", kind=kind, name=name)
            await task.deferLater(reactor, _PAUSE_SECONDS)
    text = f"migration {name} of the {kind} database cannot lock its tables: a long transaction has them"
    raise Problem(Category.UNAVAILABLE, f"{text} (a backup? pg_stat_activity, pg_locks): try again when it has ended")
