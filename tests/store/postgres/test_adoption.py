"""Databases of ipf 0.1 become the baseline, or are refused with the way out."""

from __future__ import annotations

import gzip
from pathlib import Path

from twisted.internet import defer, reactor
from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.store.postgres.connect import connect
from ipf.store.postgres.connection import Connection
from ipf.store.postgres.migrate import migrate, migrations
from ipf.store.postgres.row_security import secure
from tests import postgres
from tests.store.postgres import catalog

FORMER = Path(__file__).parent / "release_0_1"
KINDS = ("ipf", "fhir")
# A code system as 0.1 imported it; two designations and two properties are equal.
_ROWS_OF_SYSTEM = {
    "concepts": "(1, 1, 'a', 'A', true, false, NULL, 'a'), (1, 2, 'b', 'B', true, false, NULL, 'b')",
    "designations": "(1, 1, 'de', '', '', '', 'x'), (1, 1, 'de', '', '', '', 'x'), (1, 2, '', '', '', '', 'y')",
    "properties": "(1, 1, 'p', 'v'), (1, 1, 'p', 'v'), (1, 2, 'p', 'w')",
    "parents": "(1, 2, 1)",
    "ancestors": "(1, 1, 1), (1, 1, 2), (1, 2, 2)",
}
_TABLE = """
CREATE TABLE code_system_{name}_1 (LIKE code_system_{name} INCLUDING DEFAULTS, CHECK (system_id = 1));
INSERT INTO code_system_{name}_1 VALUES {rows};
ALTER TABLE code_system_{name} ATTACH PARTITION code_system_{name}_1 FOR VALUES IN (1);"""
_INDEXES = """
CREATE UNIQUE INDEX ON code_system_concepts_1 (id);
CREATE UNIQUE INDEX ON code_system_concepts_1 (code);
CREATE INDEX ON code_system_designations_1 (concept_id);
CREATE INDEX ON code_system_properties_1 (concept_id);
CREATE INDEX ON code_system_parents_1 (child, parent);
CREATE INDEX ON code_system_parents_1 (parent, child);
CREATE INDEX ON code_system_ancestors_1 (ancestor, descendant);
CREATE INDEX ON code_system_ancestors_1 (descendant, ancestor);"""
CODE_SYSTEM = "".join(_TABLE.format(name=name, rows=rows) for name, rows in _ROWS_OF_SYSTEM.items()) + _INDEXES
_NUMBERS = "SELECT concept_id, number FROM {} ORDER BY 1, 2"
_ROWS = """SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
    AND NOT relispartition AND relname NOT IN ('audit_blocks', 'message_keys', 'schema_versions') ORDER BY 1"""
# Partitions of code systems have keys of their own: a key of the whole table would have to contain system_id.
_WITHOUT_KEY = """SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
    AND c.relkind IN ('r', 'p') AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
    AND NOT (c.relkind = 'p' AND c.relname LIKE 'code_system_%') ORDER BY 1"""

_FINISH = "start ipf 0.1 once"
REFUSED = (
    ("ipf", "DELETE FROM schema_versions WHERE number = 21", f"version 20 of ipf 0.1, the last one is 21: {_FINISH}"),
    ("fhir", "DELETE FROM schema_versions WHERE number > 16",
     f"version 16 of ipf 0.1, the last one is 42: {_FINISH}"),
    ("ipf", "UPDATE schema_versions SET checksum = '' WHERE number = 7", "are not those of ipf 0.1"),
    ("fhir", "INSERT INTO schema_versions VALUES (43, 'x', '', now(), '0.1.9', 43)", "are not those of ipf 0.1"),
    ("fhir", "INSERT INTO audit_blocks SELECT 1, 0, gen_random_uuid(), gen_random_uuid(), '{}', '{}', '{}', ''",
     f"packed audit records (1 blocks): {_FINISH} and let it run"),
    ("fhir", "UPDATE reindex_jobs SET status = 'running' WHERE reason = 'texts of codes'",
     f"a reindex job with status running (texts of codes): {_FINISH} and let it run"),
)  # fmt: skip


def former(kind: str) -> str:
    """The dump of a database of ipf 0.1, as SQL."""
    return gzip.decompress((FORMER / f"{kind}.sql.gz").read_bytes()).decode()


class AdoptionTest(TestCase):
    async def _connected(self, url: str) -> Connection:
        connection = await connect(url, reactor=reactor, connect_seconds=postgres.PATIENCE)
        self.addCleanup(connection.close)
        return connection

    async def _former(self, kind: str) -> tuple[str, Connection]:
        """A database of ipf 0.1."""
        url = await postgres.fresh_url(None)
        await (await self._connected(url)).run(former(kind))  # which leaves the session with settings of pg_dump
        return url, await self._connected(url)

    async def _catalog(self, connection: Connection) -> list[str]:
        return [
            line for kind, query in catalog.QUERIES.items() for line in catalog.lines(kind, await connection.run(query))
        ]

    async def test_the_schema_is_that_of_a_new_database(self) -> None:
        """With and without row-level security, switched on before; the history is that of a new database."""
        for kind, is_secure in (("ipf", False), ("fhir", False), ("fhir", True)):
            url, adopted = await self._former(kind)
            new_url = await postgres.fresh_url(kind)
            new = await self._connected(new_url)
            if is_secure:
                await secure(url, reactor=reactor)
                await secure(new_url, reactor=reactor)
            self.assertEqual(await migrate(url, kind, reactor=reactor), migrations(kind)[-1].number)
            without_names = [[line.replace(name, "") for line in await self._catalog(connection)]
                             for connection, name in ((adopted, _name(url)), (new, _name(new_url)))]  # fmt: skip
            self.assertEqual(without_names[0], without_names[1])
            history = "SELECT number, name, checksum, release, beside FROM schema_versions"
            self.assertEqual(await adopted.run(history), await new.run(history))
            self.assertEqual(await migrate(url, kind, reactor=reactor), migrations(kind)[-1].number)  # once

    async def test_no_row_is_lost(self) -> None:
        """Messages that had no key get one; all other tables have as many rows as before."""
        for kind in KINDS:
            url, connection = await self._former(kind)
            tables = [str(name) for (name,) in await connection.run(_ROWS)]
            counts = "SELECT " + ", ".join(f"(SELECT count(*) FROM {name})" for name in tables)
            before = await connection.run(counts)
            await migrate(url, kind, reactor=reactor)
            self.assertEqual(await connection.run(counts), before)
        url, connection = await self._former("ipf")
        self.assertEqual(await connection.run("SELECT count(*) FROM message_keys"), [(1,)])
        await migrate(url, "ipf", reactor=reactor)
        columns = "SELECT source_id, source_system, tenant, id FROM {} ORDER BY id"
        found, expected = [await connection.run(columns.format(name)) for name in ("message_keys", "message_bodies")]
        self.assertEqual((found, len(found)), (expected, 19))

    async def test_every_table_has_a_primary_key(self) -> None:
        """Also of a code system that 0.1 has imported."""
        url, connection = await self._former("fhir")
        await connection.run(CODE_SYSTEM)
        await migrate(url, "fhir", reactor=reactor)
        new = [await self._connected(await postgres.fresh_url(kind)) for kind in KINDS]
        for one in (connection, *new):
            self.assertEqual(await one.run(_WITHOUT_KEY), [])
        for table in ("code_system_designations", "code_system_properties"):
            self.assertEqual(await connection.run(_NUMBERS.format(table)), [(1, 1), (1, 2), (2, 1)])

    async def test_what_0_1_has_to_finish_is_refused_and_left_as_it_is(self) -> None:
        """Its migrations, and the layouts that it converts in the background."""
        for kind, change, said in REFUSED:
            url, connection = await self._former(kind)
            await connection.run(change)
            before = await self._catalog(connection), await connection.run("SELECT * FROM schema_versions ORDER BY 1")
            migrating = defer.Deferred.fromCoroutine(migrate(url, kind, reactor=reactor))
            refused = str((await self.assertFailure(migrating, Problem)).text)
            self.assertIn(said, refused)
            self.assertNotIn("\n", refused)
            after = await self._catalog(connection), await connection.run("SELECT * FROM schema_versions ORDER BY 1")
            self.assertEqual(after, before)

    async def test_a_failure_on_the_way_leaves_0_1(self) -> None:
        """It is one transaction: 0.1 could still start."""
        url, connection = await self._former("fhir")
        await connection.run("CREATE VIEW holds AS SELECT * FROM audit_blocks")
        before = await self._catalog(connection)
        await self.assertFailure(defer.Deferred.fromCoroutine(migrate(url, "fhir", reactor=reactor)), Problem)
        self.assertEqual(await self._catalog(connection), before)
        self.assertEqual(await connection.run("SELECT count(*) FROM schema_versions"), [(42,)])

    async def test_versions_go_on_from_those_of_0_1(self) -> None:
        """Backups and programs compare them."""
        self.assertEqual([migrations(kind)[0].name for kind in KINDS], ["022-baseline", "043-baseline"])


def _name(url: str) -> str:
    """The name of the database, which the role of its tenants is named after."""
    return url.rpartition("dbname=")[2]
