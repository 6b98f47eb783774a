"""kill -9 of an import of a code system: readers see the earlier import, and the command can be repeated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.store.postgres.database import Database
from ipf.store.terminology.loading import TABLES, connected
from ipf.store.terminology.systems import PostgresCodeSystems
from tests import postgres
from tests.contracts.terminology import clinical
from tests.waiting import until

GROUP = "kills"

ROOT = Path(__file__).parents[2]
STEPS = ("concepts", "indexes of concepts", "ancestors", "indexes of ancestors")
_TABLES = "SELECT count(*) FROM pg_class WHERE relname ~ '^code_system_.*_\\d+$' AND relkind = 'r'"
_WAITERS = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation::regclass::text LIKE 'code_system%'"


class ImportKills(TestCase):
    """An import of a version that is there already, killed at each step."""

    async def setUp(self) -> None:
        self.database: Database = await postgres.database(self, "fhir")
        await self._load()

    async def test_at_each_step(self) -> None:
        for step in STEPS:
            child = _child(self.database.url, step)
            await deferToThread(_killed_at, child, step)
            await self._check_earlier()
            await self._load()
            self.assertEqual(await self.database.many(_TABLES), [(len(TABLES),)], step)

    async def test_while_it_takes_the_tables_into_use(self) -> None:
        """A reader holds the earlier tables, so the last transaction has begun and waits."""
        (system,) = await PostgresCodeSystems(self.database).imported()
        async with self.database.session() as reader:
            await reader.many(f"SELECT count(*) FROM code_system_ancestors_{system.id}")
            child = _child(self.database.url, "")
            await deferToThread(_read, child, "connected")
            await until(self._waits, "the import waits for the reader")
            child.kill()
            await deferToThread(child.communicate)
        await self._check_earlier()
        await self._load()
        self.assertEqual(await self.database.many(_TABLES), [(len(TABLES),)])

    async def _load(self) -> None:
        await until(lambda: deferToThread(_load, self.database.url), "the import is repeated")

    async def _waits(self) -> bool:
        return bool(await self.database.many(_WAITERS) != [(0,)])

    async def _check_earlier(self) -> None:
        systems = PostgresCodeSystems(self.database)
        (system,) = await systems.imported()
        self.assertEqual((system.concepts, system.is_current), (5, True))
        self.assertEqual(sorted(await systems.facts(system, ["leaf", "new"])), ["leaf"])


def _child(url: str, step: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.faults.import_child", url, step]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def _read(child: subprocess.Popen[str], wanted: str) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        if line.strip() == wanted:
            return
    raise AssertionError(f"the import ended before {wanted}")


def _killed_at(child: subprocess.Popen[str], step: str) -> None:
    try:
        _read(child, step)
    finally:
        child.kill()
        child.communicate()


def _load(url: str) -> bool:
    """Import; False while PostgreSQL has not noticed that the killed import is gone."""
    try:
        with connected(url) as loader:
            loader.load(clinical())
            return True
    except Problem as problem:
        if problem.category is not Category.CONFLICT:
            raise
        return False
