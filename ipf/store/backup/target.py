"""A database that a backup is restored into: what is in it, the mark of an unfinished restore, and its removal.

The mark is the table `ipf_restore.unfinished`.  It is set before the first row is loaded and removed when all rows are
checked; `migrate` refuses a database with it.  So no service starts on half of a backup, whatever was killed when.
"""

from __future__ import annotations

from typing import NamedTuple

from psycopg2.extensions import make_dsn

from ipf.store.postgres.connection import Connection
from ipf.store.postgres.quoting import literal, script

_OURS = "n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'"
_ABOUT = f"""
SELECT current_database(), current_setting('server_version_num')::integer / 10000,
    (SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE {_OURS} AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')),
    (SELECT count(*) FROM pg_stat_activity a WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
     AND a.backend_type = 'client backend' AND a.application_name <> {{own}})"""
_SCHEMAS = f"SELECT n.nspname FROM pg_namespace n WHERE {_OURS}"


class Target(NamedTuple):
    """A database.  `relations`: tables, views and sequences; `sessions`: of others."""

    name: str
    server_major: int
    relations: int
    sessions: int


def named(url: str, application_name: str) -> str:
    """The connection string with a name for its sessions."""
    return str(make_dsn(url, application_name=application_name))


async def about(connection: Connection, application_name: str) -> Target:
    """What is in the database, and how many sessions beside those with this name use it."""
    return Target(*(await connection.run(_ABOUT.format(own=literal(application_name))))[0])


async def mark(connection: Connection, backup: str) -> None:
    """Mark the database: a restore of `backup` has begun."""
    make = "CREATE SCHEMA IF NOT EXISTS ipf_restore; CREATE TABLE IF NOT EXISTS ipf_restore.unfinished (backup text)"
    row = f"INSERT INTO ipf_restore.unfinished VALUES ({literal(backup)})"
    await connection.run(script("BEGIN", make, "DELETE FROM ipf_restore.unfinished", row, "COMMIT"))


async def unmark(connection: Connection) -> None:
    """The restore is complete, or was undone."""
    await connection.run("SET client_min_messages = error; DROP SCHEMA IF EXISTS ipf_restore CASCADE")


async def wipe(connection: Connection) -> None:
    """Remove everything but the mark, in one transaction."""
    schemas = [str(name) for (name,) in await connection.run(_SCHEMAS) if name != "ipf_restore"]
    dropped = [f"DROP SCHEMA {connection.quoted_identifier(name)} CASCADE" for name in schemas]
    quiet = "SET LOCAL client_min_messages = error"
    await connection.run(script("BEGIN", quiet, *dropped, "CREATE SCHEMA public", "COMMIT"))
