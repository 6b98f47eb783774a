"""Migrations: in order, once, by one at a time, and never backwards."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from twisted.internet import defer, reactor
from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.store.postgres import migrate as module
from ipf.store.postgres.database import Database
from ipf.store.postgres.migrate import Migration, migrate, migrations
from tests import postgres
from tests.contracts.resources import gather_all

_ONE = Migration(1, "001-one", "CREATE TABLE one (id integer); -- a comment at the end")
_TWO = Migration(2, "002-two", "INSERT INTO one VALUES (2);")
_BAD = Migration(3, "003-bad", "INSERT INTO one VALUES (3); SELECT 1/0")


APPLIED = {
    "fhir": (33, "f9d98ceb521751472036ab06f1b0ad463e5e534afba1d0d276f2748981430e80"),
    "ipf": (20, "1e4e7ff24ab40a6bbd61ee599efa262e3adcaaa769245f3e8f6635e97678d65d"),
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
        self.assertIn("has version 2, this release knows 1", await self._refused([_ONE]))
        changed = Migration(2, "002-two", "SELECT 1")
        self.assertIn("002-two", await self._refused([_ONE, changed]))

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
