"""Imported code systems: the contract, imports that fail or race, and searches for the codes in use."""

from __future__ import annotations

import random
from functools import partial

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.ports import DEFAULT_TENANT
from ipf.ports.fhir.terminology import Below, NoRule
from ipf.ports.fhir.terminology_import import NewConcept, NewSystem
from ipf.store.resources.resources import PostgresFhirStore
from ipf.store.terminology.closure import Cycle, ancestors
from ipf.store.terminology.closures import PostgresClosureTables
from ipf.store.terminology.loading import TABLES, Loader, connected
from ipf.store.terminology.systems import PostgresCodeSystems
from tests import postgres
from tests.contracts.terminology import URL, ClosureTablesContract, CodeSystemsContract, clinical
from tests.fakes.terminology import MemoryClosureTables, MemoryCodeSystems
from tests.rest.world import World


class CodeSystemsInMemory(CodeSystemsContract, TestCase):
    """The fake."""

    def setUp(self) -> None:
        self.systems = MemoryCodeSystems()

    async def load(self, system: NewSystem) -> None:
        self.systems.load(system)


class ClosureTablesInMemory(ClosureTablesContract, TestCase):
    """The fake."""

    def setUp(self) -> None:
        self.tables = MemoryClosureTables()


def load(url: str, system: NewSystem) -> None:
    """Import a system; blocks."""
    with connected(url) as loader:
        loader.load(system)


class CodeSystemsOnPostgres(CodeSystemsContract, TestCase):
    """PostgreSQL."""

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir")
        self.systems = PostgresCodeSystems(self.database)

    async def load(self, system: NewSystem) -> None:
        await deferToThread(load, self.database.url, system)

    async def test_what_cannot_be_loaded(self) -> None:
        """Nothing of it remains, and the earlier import stays."""
        await self.load(clinical())
        rows = [
            (clinical(bad=NewConcept("bad", parents=["none"])), "bad has the parent none"),
            (clinical(a=NewConcept("a", parents=["b"]), b=NewConcept("b", parents=["a"])), "is an ancestor of itself"),
            (NewSystem(URL, "1", ""), "there is no concept"),
        ]
        for system, reason in rows:
            with self.assertRaises(Problem) as refused:
                await self.load(system)
            self.assertIn(reason, refused.exception.text)
        (system,) = await self.systems.imported()
        self.assertEqual(len(await self.systems.facts(system, ["leaf"])), 1)
        await self.load(clinical("2"))  # drops what the cycle has left
        count = "SELECT count(*) FROM pg_class WHERE relname ~ '^code_system_.*_\\d+$' AND relkind = 'r'"
        self.assertEqual(await self.database.many(count), [(2 * len(TABLES),)])

    async def test_one_import_at_a_time(self) -> None:
        def both() -> str:
            with connected(self.database.url), self.assertRaises(Problem) as refused, connected(self.database.url):
                pass
            return refused.exception.text

        self.assertIn("another import", await deferToThread(both))

    async def test_removal(self) -> None:
        """The import before becomes the current one."""
        for version in ("1", "2"):
            await self.load(clinical(version))

        def work(loader_work: object) -> object:
            with connected(self.database.url) as loader:
                return loader_work(loader)  # type: ignore[operator]

        self.assertTrue(await deferToThread(work, lambda loader: loader.remove(URL, "2")))
        self.assertFalse(await deferToThread(work, lambda loader: loader.remove(URL, "2")))
        (row,) = await deferToThread(work, Loader.listed)
        self.assertEqual(row[:5], (URL, "1", "Clinical", 5, True))

    async def test_codes_in_use(self) -> None:
        await self.load(clinical())
        (system,) = await self.systems.imported()
        world = World(PostgresFhirStore(self.database), database=self.database)
        for code, url in (("leaf", URL), ("old", URL), ("left", "http://x.test/other"), ("none", URL)):
            coding = {"coding": [{"system": url, "code": code}]}
            await world.send("POST", "Observation", {"resourceType": "Observation", "status": "final", "code": coding})
        used = partial(self.systems.used, DEFAULT_TENANT, "Observation", ("code",), system)
        self.assertEqual(await used(Below("root"), 10), {"leaf"})
        self.assertEqual(await used(NoRule(Below("root")), 10), {"old"})
        self.assertEqual(await self.systems.used("b", "Observation", ("code",), system, Below("root"), 10), frozenset())


class UnderRowSecurity(TestCase):
    """What is imported while a service with several tenants runs is read by it."""

    async def test_partitions_are_granted(self) -> None:
        database = await postgres.database(self, "fhir", tenants=True)
        await deferToThread(load, database.url, clinical())
        systems = PostgresCodeSystems(database)
        (system,) = await systems.imported()
        listed, _ = await systems.page(system, Below("left"), ["myo"], 0, 10)
        self.assertEqual([one.code for one in listed], ["leaf"])
        tables = PostgresClosureTables(database)
        await tables.start("a", "t")
        self.assertIsNone(await tables.concepts("b", "t"))
        self.assertEqual(await tables.add("a", "t", [("s", "1")]), 1)


class ClosureTablesOnPostgres(ClosureTablesContract, TestCase):
    """PostgreSQL."""

    async def setUp(self) -> None:
        self.tables = PostgresClosureTables(await postgres.database(self, "fhir"))


class Closure(TestCase):
    """The closure of random hierarchies is that of a plain walk."""

    def test_ancestors(self) -> None:
        chance = random.Random(7)
        for size in (1, 5, 60):
            parents = {
                n: sorted(chance.sample(range(1, n), min(n - 1, chance.randint(1, 3)))) for n in range(2, size + 1)
            }
            order = list(range(1, size + 1))
            chance.shuffle(order)
            renamed = {order[n - 1]: [order[p - 1] for p in above] for n, above in parents.items()}
            for concept, found in ancestors(renamed, size):
                seen, pending = {concept}, [concept]
                while pending:
                    for one in renamed.get(pending.pop(), ()):
                        if one not in seen:
                            seen.add(one)
                            pending.append(one)
                self.assertEqual(found, tuple(sorted(seen)))

    def test_cycles(self) -> None:
        for parents in ({1: [1]}, {1: [2], 2: [3], 3: [1]}, {1: [2], 2: [3], 3: [2]}):
            with self.assertRaises(Cycle):
                list(ancestors(parents, 3))
