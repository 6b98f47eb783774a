"""Migrations: in order, once, by one at a time, and never backwards."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from twisted.internet import defer, reactor
from twisted.trial.unittest import TestCase

import ipf
from ipf.errors import Problem
from ipf.store.postgres import migrate as module
from ipf.store.postgres.connect import connect
from ipf.store.postgres.database import Database
from ipf.store.postgres.migrate import Migration, migrate, migrations
from ipf.store.postgres.migration_preview import preview
from tests import postgres
from tests.contracts.resources import gather_all
from tests.waiting import turns

_ONE = Migration(1, "001-one", "CREATE TABLE one (id integer); -- a comment at the end")
_TWO = Migration(2, "002-two", "INSERT INTO one VALUES (2);")
_BAD = Migration(3, "003-bad", "INSERT INTO one VALUES (3); SELECT 1/0")


APPLIED = {
    "fhir": (1, "e54ae68f767007b97c4cee6573914ccefe0874f638d57fbb4924f9be4947a1d2"),
    "ipf": (1, "5fe4ead6792133a0b3bc90faa19a884348797fc40ea64d25bbd325e59463388e"),
}
"""Number of migrations that databases may have, and the SHA-256 of their checksums; a new migration extends it."""


class MigrateTest(TestCase):
    """On an empty database."""

    async def setUp(self) -> None:
        self.url = await postgres.fresh_url(None)

    async def _rows(self) -> list[tuple[int, ...]]:
        database = Database(self.url, reactor=reactor, **postgres.PATIENT, size=1)
        rows = await database.many("SELECT id FROM one")
        await database.close()
        return rows

    async def test_replicas_take_turns(self) -> None:
        """Five at once: applied once."""
        await gather_all([migrate(self.url, "x", reactor=reactor, known=[_ONE, _TWO]) for _ in range(5)])
        self.assertEqual(await self._rows(), [(2,)])

    async def test_step_by_step(self) -> None:
        """Only what is new; a file that fails leaves nothing of itself."""
        self.assertEqual(await migrate(self.url, "x", reactor=reactor, known=[_ONE]), 1)
        self.assertEqual(await migrate(self.url, "x", reactor=reactor, known=[_ONE, _TWO]), 2)
        await self._refused([_ONE, _TWO, _BAD])
        self.assertEqual(await self._rows(), [(2,)])

    async def test_refusals(self) -> None:
        """A newer database, and one with other files."""
        await migrate(self.url, "x", reactor=reactor, known=[_ONE, _TWO])
        refused = await self._refused([_ONE])
        self.assertIn(f"has version 2, written by ipf {ipf.__version__}, for programs that know 2;", refused)
        self.assertIn(f"this is ipf {ipf.__version__}, which knows 1: install", refused)
        changed = Migration(2, "002-two", "SELECT 1")
        self.assertIn("002-two", await self._refused([_ONE, changed]))

    async def test_an_older_program_runs_beside_a_file_that_admits_it(self) -> None:
        """Every file that it does not know must."""
        two, three = (Migration(n, f"00{n}-x", f"-- A table.\n-- beside: 1\n\nCREATE TABLE t{n} ()") for n in (2, 3))
        await migrate(self.url, "x", reactor=reactor, known=[_ONE, two, three])
        self.assertEqual(await migrate(self.url, "x", reactor=reactor, known=[_ONE]), 3)
        four = Migration(4, "004-x", "-- beside: 3\nCREATE TABLE t4 ()")
        await migrate(self.url, "x", reactor=reactor, known=[_ONE, two, three, four])
        self.assertEqual(await migrate(self.url, "x", reactor=reactor, known=[_ONE, two, three]), 4)
        self.assertIn("for programs that know 3", await self._refused([_ONE, two]))
        changed = Migration(1, "001-one", "SELECT 1")
        self.assertIn("is not the one that was applied", await self._refused([changed, two, three]))

    async def test_a_lock_that_others_hold_is_waited_for_without_holding_them_up(self) -> None:
        """Writers that come later pass, and the file is applied when the long transaction ends."""
        await migrate(self.url, "x", reactor=reactor, known=[_ONE])
        holder, writer = await self._connected(), await self._connected()
        alter = Migration(2, "002-alter", "ALTER TABLE one ADD COLUMN more integer")
        async with holder.session() as session:
            await session.many("SELECT count(*) FROM one")  # ACCESS SHARE until the end of the transaction
            migrating = defer.Deferred.fromCoroutine(migrate(self.url, "x", reactor=reactor, known=[_ONE, alter]))
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'one'::regclass"
            while (await writer.many(waiting))[0][0] == 0:
                await turns(1)
            await writer.many("INSERT INTO one VALUES (7)")  # within the lock_timeout of the migration
            self.assertFalse(migrating.called)
        self.assertEqual(await migrating, 2)
        self.assertEqual(await writer.many("SELECT id, more FROM one"), [(7, None)])

    async def test_an_online_file_runs_outside_a_transaction(self) -> None:
        """After a crash it is applied from its beginning; replicas that wait for their turn do not hold it up."""
        online = Migration(
            2,
            "002-online",
            "-- An index.\n-- online\n\nDROP INDEX CONCURRENTLY IF EXISTS one_id;\n"
            "CREATE INDEX CONCURRENTLY one_id ON one (id);\n",
        )
        self.assertEqual(len(online.statements), 2)
        database = await self._connected()
        await migrate(self.url, "x", reactor=reactor, known=[_ONE])
        await database.many("CREATE INDEX one_id ON one (id)")
        await gather_all([migrate(self.url, "x", reactor=reactor, known=[_ONE, online]) for _ in range(3)])
        valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'one_id'::regclass"
        self.assertEqual(await database.many(valid), [(True,)])

    async def test_half_of_a_restore_is_refused(self) -> None:
        """Whatever else is in the database."""
        database = await self._connected()
        await database.many("CREATE SCHEMA ipf_restore; CREATE TABLE ipf_restore.unfinished (backup text)")
        self.assertIn("repeat ipfctl restore with --replace", await self._refused([_ONE]))

    async def test_a_preview_says_what_a_file_locks(self) -> None:
        """And nothing of it stays."""
        await migrate(self.url, "x", reactor=reactor, known=[_ONE])
        connection = await connect(self.url, reactor=reactor, connect_seconds=postgres.PATIENCE)
        self.addCleanup(connection.close)
        expected = {
            "CREATE TABLE two (id integer)": [],
            "CREATE INDEX one_id ON one (id)": [("one", "writes", False, False, 1, False)],
            "ALTER TABLE one ADD COLUMN more text": [("one", "reads and writes", False, False, 0, False)],
            "ALTER TABLE one ALTER id TYPE bigint": [("one", "reads and writes", False, True, 0, False)],
            "INSERT INTO one VALUES (1)": [("one", "", False, False, 0, True)],
            "DROP TABLE one": [("one", "reads and writes", True, False, 0, False)],
        }
        for sql, effects in expected.items():
            await connection.run("BEGIN")
            found, _ = await preview(connection, Migration(2, "002", sql), reactor)
            await connection.run("ROLLBACK")
            self.assertEqual([tuple(one) for one in found], effects, sql)

    async def _connected(self) -> Database:
        database = Database(self.url, reactor=reactor, **postgres.PATIENT, size=1)
        self.addCleanup(lambda: defer.Deferred.fromCoroutine(database.close()))
        await database.start()
        return database

    async def _refused(self, known: list[Migration]) -> str:
        migrating = defer.Deferred.fromCoroutine(migrate(self.url, "x", reactor=reactor, known=known))
        return str((await self.assertFailure(migrating, Problem)).text)

    def test_applied_migrations_never_change(self) -> None:
        """A release refuses a database whose migrations differ from its own, so an edited file stops every upgrade."""
        for kind, (count, digest) in APPLIED.items():
            checksums = "".join(migration.checksum for migration in migrations(kind)[:count])
            self.assertEqual(hashlib.sha256(checksums.encode()).hexdigest(), digest, kind)

    def test_every_column_has_a_comment(self) -> None:
        """In all files of both databases."""
        for kind in ("ipf", "fhir"):
            self.assertGreater(len(migrations(kind)), 0)
            for file in sorted((Path(module.__file__).parents[1] / "schema" / kind).glob("*.sql")):
                for table in re.findall(r"CREATE TABLE \w+ \((.*?)\n\)", file.read_text(), re.DOTALL):
                    for line in table.strip().splitlines():
                        constraint = re.match(r"\s*(PRIMARY KEY|FOREIGN KEY|UNIQUE|CHECK)\b", line)
                        self.assertTrue(constraint or " -- " in line, f"{file.name}: {line}")
