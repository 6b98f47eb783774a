"""Numbered SQL files in, a database with exactly this schema out.

`schema/ipf` and `schema/fhir` hold `NNN-name.sql`, applied in order, each in a transaction of its own together with its
row in `schema_versions` (number, name, checksum, time).  One advisory lock makes replicas that start together take
turns.  A database that is newer than this code, or whose applied files differ from ours, is refused.
A crash leaves whole files applied or not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twisted.logger import Logger

from ipf.errors import Category, Problem
from ipf.store.postgres.connection import Connection
from ipf.store.postgres.probe import watched_connection
from ipf.store.postgres.quoting import literal, script

log = Logger()

LOCK = 4_919_001  # any number that nobody else uses
_VERSIONS = """CREATE TABLE IF NOT EXISTS schema_versions (
    number integer PRIMARY KEY,              -- number of the file
    name text NOT NULL,                      -- its name
    checksum text NOT NULL,                  -- SHA-256 of its text
    applied_at timestamptz NOT NULL DEFAULT now()
)"""


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


def migrations(kind: str) -> tuple[Migration, ...]:
    """The files of the database `ipf` or `fhir`, in order; ValueError unless they are numbered 1, 2, 3 ..."""
    files = sorted((Path(__file__).resolve().parents[1] / "schema" / kind).glob("*.sql"))
    found = tuple(Migration(int(file.name.partition("-")[0]), file.stem, file.read_text()) for file in files)
    if not found or [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"the migrations of {kind} are missing or not numbered without gaps")
    return found


async def migrate(url: str, kind: str, *, reactor: Any, known: Sequence[Migration] | None = None) -> int:
    """Bring the database at `url` up to date; the number of its version.

    StoreUnreachable when it cannot be reached; Problem INTERNAL when its schema is newer than, or differs from, ours.
    """
    wanted = migrations(kind) if known is None else tuple(known)
    async with watched_connection(url, reactor=reactor, statement_seconds=3600) as connection:
        await connection.run(f"SELECT pg_advisory_lock({LOCK})")
        await connection.run(_VERSIONS)
        applied = await connection.run("SELECT number, checksum FROM schema_versions ORDER BY number")
        _check(kind, wanted, {int(number): str(checksum) for number, checksum in applied})
        for migration in wanted[len(applied) :]:
            await _apply(connection, kind, migration)
    return len(wanted)


def _check(kind: str, wanted: Sequence[Migration], applied: dict[int, str]) -> None:
    newest = max(applied, default=0)
    if newest > len(wanted):
        text = f"the schema of the {kind} database has version {newest}, this release knows {len(wanted)}"
        raise Problem(Category.INTERNAL, f"{text}: install a newer one")
    for migration in wanted[:newest]:
        if applied.get(migration.number) != migration.checksum:
            text = f"migration {migration.name} of the {kind} database is not the one that was applied"
            raise Problem(Category.INTERNAL, text)


async def _apply(connection: Connection, kind: str, migration: Migration) -> None:
    values = ", ".join(literal(value) for value in (migration.number, migration.name, migration.checksum))
    row = f"INSERT INTO schema_versions (number, name, checksum) VALUES ({values})"
    await connection.run(script("BEGIN", migration.sql.rstrip().removesuffix(";"), row, "COMMIT"))
    log.info("event=migrated database={kind} version={name}", event="migrated", kind=kind, name=migration.name)
