"""Names in, small numbers out: partitions and search parameters are kept as smallint in every other table.

The numbers never change, so they are remembered for the life of the process.  Names come into being when something is
first written under them: committed at once, on their own, so that a transaction that is rolled back takes no number
with it that this process remembers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from operator import itemgetter

from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import Statement, joined

Parameter = tuple[str, str]
"""(resource type, code)"""

NO_NUMBER = -1

NAMES = Statement(
    "names_all",
    "",
    """
SELECT id, name, NULL FROM partitions UNION ALL SELECT id, resource_type, code FROM search_parameters""",
)
ADD_PARTITIONS = Statement(
    "names_add_partitions",
    "text",
    r"""
INSERT INTO partitions (name) SELECT name FROM unnest(string_to_array($1, E'\x1f')) AS t(name)
WHERE NOT EXISTS (SELECT 1 FROM partitions p WHERE p.name = t.name)
ORDER BY name ON CONFLICT (name) DO NOTHING""",
)
ADD_PARAMETERS = Statement(
    "names_add_parameters",
    "text, text",
    r"""
INSERT INTO search_parameters (resource_type, code)
SELECT resource_type, code
FROM unnest(string_to_array($1, E'\x1f'), string_to_array($2, E'\x1f')) AS t(resource_type, code)
WHERE NOT EXISTS (SELECT 1 FROM search_parameters s WHERE s.resource_type = t.resource_type AND s.code = t.code)
ORDER BY resource_type, code ON CONFLICT (resource_type, code) DO NOTHING""",
)

ADD_UNITS = Statement(
    "names_add_units",
    "smallint, text",
    r"""
INSERT INTO index_units (partition_id, unit) SELECT $1, unnest(string_to_array($2, E'\x1f')) ON CONFLICT DO NOTHING""",
)

STATEMENTS = (NAMES, ADD_PARTITIONS, ADD_PARAMETERS, ADD_UNITS)


class UnknownParameter(Exception):
    """A search parameter that this process knows no number of."""


class _Numbers(dict[str, str]):
    """Numbers of a resource type's parameters by code."""

    def __missing__(self, code: str) -> str:
        raise UnknownParameter(code)


_NONE = _Numbers()


class Names:
    """What this process knows of the numbers."""

    def __init__(self, database: Database) -> None:
        self.has_statistics = False  # whether this process has seen that PostgreSQL knows how large the index is
        self._database = database
        self._partitions: dict[str, int] = {}
        self._tenants: dict[int, str] = {}
        self._parameters: dict[Parameter, int] = {}
        self._numbers: dict[str, _Numbers] = {}
        self._units: set[tuple[str, str]] = set()

    def partition(self, tenant: str) -> int:
        """The tenant's number, or one that matches nothing."""
        return self._partitions.get(tenant, NO_NUMBER)

    def tenant(self, partition: int) -> str:
        """The tenant of a partition that was loaded."""
        return self._tenants[partition]

    def parameter(self, resource_type: str, code: str) -> int:
        """The parameter's number, or one that matches nothing: then nothing was ever written under it."""
        return self._parameters.get((resource_type, code), NO_NUMBER)

    def numbers(self, resource_type: str) -> Mapping[str, str]:
        """The numbers of a resource type's parameters by code, as text; UnknownParameter for one that is not known."""
        return self._numbers.get(resource_type, _NONE)

    async def load(self, tenants: Collection[str] = (), parameters: Collection[Parameter] = ()) -> None:
        """Look again when one of these is not known yet (others may have added it)."""
        if not self.known(tenants, parameters):
            await self._load()

    def known(self, tenants: Collection[str] = (), parameters: Collection[Parameter] = ()) -> bool:
        """Whether all of these have numbers that this process knows."""
        return not (self._unknown_tenants(tenants) or self._unknown_parameters(parameters))

    async def add(self, tenants: Collection[str] = (), parameters: Collection[Parameter] = ()) -> None:
        """Make sure that all of these have numbers."""
        await self.load(tenants, parameters)
        new_tenants, new_parameters = self._unknown_tenants(tenants), self._unknown_parameters(parameters)
        if new_tenants:
            await self._database.run_reserved(ADD_PARTITIONS.call(joined(new_tenants)))
        if new_parameters:
            types, codes = zip(*new_parameters, strict=True)
            await self._database.run_reserved(ADD_PARAMETERS.call(joined(types), joined(codes)))
        if new_tenants or new_parameters:
            await self._load()

    async def add_units(self, units: Collection[tuple[str, str]]) -> None:
        """Make sure that these (tenant, unit text) are among those that occur; the tenants have numbers."""
        new = sorted(set(units) - self._units) if units else ()
        if new:
            for tenant, some in groupby(new, key=itemgetter(0)):
                call = ADD_UNITS.call(self.partition(tenant), joined(unit for _, unit in some))
                await self._database.for_tenant(tenant).run_reserved(call)
            self._units.update(new)

    async def _load(self) -> None:
        for number, name, code in await self._database.run_reserved(NAMES.call()):
            if code is None:
                self._partitions[name] = number
                self._tenants[number] = name
            else:
                self._parameters[name, code] = number
                self._numbers.setdefault(name, _Numbers())[code] = str(number)

    def _unknown_tenants(self, tenants: Iterable[str]) -> list[str]:
        return sorted({tenant for tenant in tenants if tenant not in self._partitions})

    def _unknown_parameters(self, parameters: Iterable[Parameter]) -> list[Parameter]:
        return sorted({parameter for parameter in parameters if parameter not in self._parameters})
