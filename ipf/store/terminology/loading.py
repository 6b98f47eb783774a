"""Loads a code system: tables of its own, filled by COPY and indexed, then taken into use in one transaction.

A reader sees the earlier import until the last transaction, and this one from then on.  A crash before it leaves tables
that nobody reads; the next import or removal drops them.  One import runs at a time.

This module works in a process of its own (`ipfctl terminology`), so it uses a connection that blocks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg2
from psycopg2 import errors, sql

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.ports.fhir.terminology_import import NewSystem, Progress
from ipf.store.terminology import rows

LOCK = 4_919_038  # any number that nobody else uses
_TRIES = 60
_INDEXES = {
    "concepts": (
        "ALTER TABLE {0} ADD PRIMARY KEY (id)",
        "CREATE UNIQUE INDEX ON {0} (code)",
        "CREATE INDEX ON {0} USING gin (words) WITH (fastupdate = off)",
    ),
    "designations": ("ALTER TABLE {0} ADD PRIMARY KEY (concept_id, number)",),
    "properties": (
        "ALTER TABLE {0} ADD PRIMARY KEY (concept_id, number)",
        "CREATE INDEX ON {0} (name, left(value, 200), concept_id)",
    ),
    "parents": ("ALTER TABLE {0} ADD PRIMARY KEY (child, parent)", "CREATE INDEX ON {0} (parent, child)"),
    "ancestors": (
        "ALTER TABLE {0} ADD PRIMARY KEY (ancestor, descendant)",
        "CREATE INDEX ON {0} (descendant, ancestor)",
    ),
}
TABLES = tuple(_INDEXES)
# The last one: the server frees the lock of a killed import within a second, not only at the end of its statement.
_SETTINGS = """SET maintenance_work_mem = '256MB'; SET statement_timeout = 0; SET TimeZone = 'UTC';
    SET client_connection_check_interval = '1s'"""
_ADD = "INSERT INTO code_systems (url, version, name, is_case_sensitive) VALUES (%s, %s, %s, %s) RETURNING id"
_LEFT = "SELECT id FROM code_systems WHERE NOT is_loaded"
_EARLIER = "SELECT id FROM code_systems WHERE url = %s AND version = %s AND is_loaded"
_NO_CURRENT = "UPDATE code_systems SET is_current = false WHERE url = %s AND is_current"
_USE = """UPDATE code_systems SET is_loaded = true, is_current = true, concepts = %s, properties = %s, languages = %s,
    imported_at = now() WHERE id = %s"""
_NEXT_CURRENT = """UPDATE code_systems SET is_current = true WHERE id = (SELECT id FROM code_systems
    WHERE url = %s AND is_loaded ORDER BY is_current DESC, imported_at DESC, id DESC LIMIT 1)"""
_LIST = "SELECT url, version, name, concepts, is_current, imported_at FROM code_systems WHERE is_loaded ORDER BY 1, 6"
# Processes that run with several tenants read the partitions in their role (ipf/store/postgres/row_security.py).
_GRANT = """
DO $$ DECLARE granted record; BEGIN
    FOR granted IN SELECT DISTINCT a.grantee::regrole AS role FROM pg_class c, aclexplode(c.relacl) a
                   WHERE c.oid = %s::regclass AND a.grantee NOT IN (0, c.relowner) AND a.privilege_type = 'SELECT' LOOP
        EXECUTE format('GRANT SELECT ON %%I TO %%s', %s, granted.role);
    END LOOP;
END $$"""

Listed = tuple[str, str, str, int, bool, Any]
"""url, version, name, concepts, whether it is current, when it was imported"""


class Loader:
    """Imports, lists and removes code systems.  `connection`: of `connected`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def load(self, system: NewSystem, progress: Progress = lambda step, done: None) -> None:
        """Import a system; an earlier import of the same version is replaced.

        Problem MALFORMED when it has no concepts, a parent that it has not, or a cycle.
        """
        prepared = rows.prepared(system)
        self.clean()
        with self._transaction() as cursor:
            cursor.execute(_ADD, (system.url, system.version, system.name, system.is_case_sensitive))
            (number,) = cursor.fetchone()
        self._fill(number, prepared, progress)
        self._use(number, system, prepared)

    def clean(self) -> None:
        """Drop what imports that were ended have left."""
        with self._transaction() as cursor:
            cursor.execute(_LEFT)
            self._drop(cursor, [number for (number,) in cursor.fetchall()])

    def listed(self) -> Sequence[Listed]:
        """The imported systems."""
        with self._transaction() as cursor:
            cursor.execute(_LIST)
            found: Sequence[Listed] = cursor.fetchall()
            return found

    def remove(self, url: str, version: str) -> bool:
        """Remove one version; False when it is not there."""

        def work(cursor: Any) -> bool:
            cursor.execute(_EARLIER, (url, version))
            found = [number for (number,) in cursor.fetchall()]
            self._drop(cursor, found)
            cursor.execute(_NEXT_CURRENT, (url,))
            return bool(found)

        return bool(self._patiently(work))

    def _fill(self, number: int, prepared: rows.Prepared, progress: Progress) -> None:
        """Tables that nobody reads, with rows and indexes."""
        for table in TABLES:
            name = _name(table, number)
            with self._transaction() as cursor:
                cursor.execute(
                    sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS, CHECK (system_id = {}))").format(
                        name, sql.Identifier(f"code_system_{table}"), sql.Literal(number)
                    )
                )
                copied = rows.CopySource(getattr(prepared, table)(number), partial(progress, table))
                try:
                    cursor.copy_expert(sql.SQL("COPY {} FROM STDIN (FREEZE)").format(name), copied, size=1 << 16)
                except psycopg2.Error as error:
                    raise copied.failure or error from None
                progress(table, copied.rows)
            with self._transaction() as cursor:
                for index in _INDEXES[table]:
                    cursor.execute(sql.SQL(index).format(name))
                if table == "ancestors":  # a few concepts have nearly all descendants: the planner has to know them
                    cursor.execute(sql.SQL("ALTER TABLE {} ALTER ancestor SET STATISTICS 1000").format(name))
                cursor.execute(sql.SQL("ANALYZE {}").format(name))
                cursor.execute(_GRANT, (f"code_system_{table}", f"code_system_{table}_{number}"))
            progress(f"indexes of {table}", copied.rows)

    def _use(self, number: int, system: NewSystem, prepared: rows.Prepared) -> None:
        """Attach the tables and take out the earlier import, in one transaction."""

        def work(cursor: Any) -> None:
            cursor.execute(_EARLIER, (system.url, system.version))
            self._drop(cursor, [earlier for (earlier,) in cursor.fetchall()])
            for table in TABLES:
                cursor.execute(
                    sql.SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES IN ({})").format(
                        sql.Identifier(f"code_system_{table}"), _name(table, number), sql.Literal(number)
                    )
                )
            cursor.execute(_NO_CURRENT, (system.url,))
            languages = " ".join(sorted(prepared.languages()))
            cursor.execute(_USE, (len(system.concepts), json.dumps(system.properties), languages, number))

        self._patiently(work)

    def _drop(self, cursor: Any, numbers: Iterable[int]) -> None:
        for number in numbers:
            for table in TABLES:
                cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(_name(table, number)))
            cursor.execute("DELETE FROM code_systems WHERE id = %s", (number,))

    def _patiently(self, work: Any) -> Any:
        """A transaction that takes locks of tables that others read: it waits a second, lets them pass, tries again."""
        for attempt in range(_TRIES):
            try:
                with self._transaction() as cursor:
                    cursor.execute("SET LOCAL lock_timeout = '1s'")
                    return work(cursor)
            except (errors.LockNotAvailable, errors.DeadlockDetected):
                if attempt == _TRIES - 1:
                    text = "others keep reading the code systems; nothing was changed, repeat the command"
                    raise Problem(Category.UNAVAILABLE, text) from None
                time.sleep(0.5)
        return None

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with self._connection, self._connection.cursor() as cursor:
            yield cursor


@contextmanager
def connected(url: str) -> Iterator[Loader]:
    """A Loader on the FHIR database at `url`.

    StoreUnreachable; Problem CONFLICT when another import runs.
    """
    try:
        connection = psycopg2.connect(url)
    except psycopg2.OperationalError as error:
        raise StoreUnreachable("the FHIR database cannot be reached", detail=str(error).strip()) from error
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(_SETTINGS)
            cursor.execute("SELECT pg_try_advisory_lock(%s)", (LOCK,))
            if not cursor.fetchone()[0]:
                raise Problem(Category.CONFLICT, "another import of a code system runs on this database")
        yield Loader(connection)
    except psycopg2.OperationalError as error:
        raise StoreUnreachable("the FHIR database is gone", detail=str(error).strip()) from error
    finally:
        _close(connection)


def _close(connection: Any) -> None:
    """Free the lock, then close: the server notices a closed connection later, and the next import would be refused."""
    try:
        connection.rollback()
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock_all()")
    except psycopg2.Error:
        pass  # the server has freed it, or is gone
    finally:
        connection.close()


def _name(table: str, number: int) -> sql.Identifier:
    return sql.Identifier(f"code_system_{table}_{number}")
