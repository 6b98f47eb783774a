"""What tests of imported code systems share: a server that has some, in memory and on PostgreSQL."""

from __future__ import annotations

from typing import Any

from twisted.internet.threads import deferToThread

from ipf.fhir.model.json import loads
from ipf.fhir.model.packages import Packages
from ipf.ports import Json
from ipf.ports.fhir.terminology_import import NewSystem
from ipf.rest.terminology.searches import TenantTerminology
from ipf.rest.write.conformance import Conformance
from ipf.store.terminology.closures import PostgresClosureTables
from ipf.store.terminology.loading import connected
from ipf.store.terminology.systems import PostgresCodeSystems
from tests.contracts.terminology import URL
from tests.fakes.terminology import MemoryClosureTables, MemoryCodeSystems
from tests.rest.world import OnMemory, OnPostgres, Suite, World

SCT = "http://snomed.info/sct"


def compose(*include: Json, **more: Any) -> Json:
    """Parameters with a value set."""
    value_set = {"resourceType": "ValueSet", "status": "active", "compose": {"include": list(include), **more}}
    return {"resourceType": "Parameters", "parameter": [{"name": "valueSet", "resource": value_set}]}


def where(name: str, op: str, value: str) -> Json:
    """An include of the concepts that a filter selects."""
    return {"system": URL, "filter": [{"property": name, "op": op, "value": value}]}


def served(world: World, systems: Any, closures: Any, mode: str = "off") -> None:
    """Give the world's server imported systems."""
    world.conformance = Conformance(Packages, world.store, lambda: world.now, mode, systems=systems)
    world.terminology = TenantTerminology(world.conformance)
    world.closures = closures


class ImportedSuite(Suite):
    """Tables of requests.  `load` imports."""

    world: World

    async def load(self, system: NewSystem) -> None:
        """Import a system."""
        raise NotImplementedError

    async def codes(self, url: str, body: Any = None) -> list[str]:
        """The codes of an expansion."""
        answer = await self.world.send("GET" if body is None else "POST", url, body)
        self.assertEqual(answer.status, 200, answer.body)
        return [one["code"] for one in loads(answer.body)["expansion"].get("contains", ())]


class ImportedInMemory(OnMemory):
    """On the fakes."""

    async def setUp(self) -> None:
        await super().setUp()
        self.systems = MemoryCodeSystems()
        self.systems.used_codes = {"root", "left", "leaf", "old"}
        served(self.world, self.systems, MemoryClosureTables())

    async def load(self, system: NewSystem) -> None:
        """Import a system."""
        self.systems.load(system)


class ImportedOnPostgres(OnPostgres):
    """On PostgreSQL."""

    async def setUp(self) -> None:
        await super().setUp()
        self.systems = PostgresCodeSystems(self.database)
        served(self.world, self.systems, PostgresClosureTables(self.database))

    async def load(self, system: NewSystem) -> None:
        """Import a system."""

        def work() -> None:
            with connected(self.database.url) as loader:
                loader.load(system)

        await deferToThread(work)
