"""The symbol table: tenants and search parameters are stored as smallint in every other table.

Numbers never change, so the process keeps them.  A number is assigned when something is first written under its name,
in a transaction of its own: a later rollback does not take back a number that the process remembers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from operator import itemgetter

from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import Statement, joined

Parameter = tuple[str, str]
"""(resource type, code)"""

UNKNOWN = -1

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
    """A search parameter without a number in this process."""


class _ParameterNumbers(dict[str, str]):
    """Numbers of the search parameters of one resource type, by code."""

    def __missing__(self, code: str) -> str:
        raise UnknownParameter(code)


_NO_NUMBERS = _ParameterNumbers()


class SymbolTable:
    """The numbers that this process has loaded."""

    def __init__(self, database: Database) -> None:
        self.has_statistics = False  # set once the index tables are known to be analysed
        self.has_words = False  # the same of the words for full-text searches
        self._database = database
        self._partitions: dict[str, int] = {}
        self._tenants: dict[int, str] = {}
        self._parameters: dict[Parameter, int] = {}
        self._numbers: dict[str, _ParameterNumbers] = {}
        self._units: set[tuple[str, str]] = set()

    def partition(self, tenant: str) -> int:
        """The number of a tenant; UNKNOWN, which matches no row, when it has none."""
        return self._partitions.get(tenant, UNKNOWN)

    def tenant(self, partition: int) -> str:
        """The tenant with this number."""
        return self._tenants[partition]

    def parameter(self, resource_type: str, code: str) -> int:
        """The number of a search parameter; UNKNOWN, which matches no row, when nothing was written under it."""
        return self._parameters.get((resource_type, code), UNKNOWN)

    def parameter_numbers(self, resource_type: str) -> Mapping[str, str]:
        """The numbers of a type's parameters, as text, by code; UnknownParameter for one without a number."""
        return self._numbers.get(resource_type, _NO_NUMBERS)

    async def load(self, tenants: Collection[str] = (), parameters: Collection[Parameter] = ()) -> None:
        """Load the table again when one of these is missing; another process may have added it."""
        if not self.has(tenants, parameters):
            await self._load()

    def has(self, tenants: Collection[str] = (), parameters: Collection[Parameter] = ()) -> bool:
        """Whether this process has the numbers of all of these."""
        return not (self._missing_tenants(tenants) or self._missing_parameters(parameters))

    async def ensure(self, tenants: Collection[str] = (), parameters: Collection[Parameter] = ()) -> None:
        """Assign numbers to those of these that have none."""
        await self.load(tenants, parameters)
        new_tenants, new_parameters = self._missing_tenants(tenants), self._missing_parameters(parameters)
        if new_tenants:
            await self._database.run_reserved(ADD_PARTITIONS.call(joined(new_tenants)))
        if new_parameters:
            types, codes = zip(*new_parameters, strict=True)
            await self._database.run_reserved(ADD_PARAMETERS.call(joined(types), joined(codes)))
        if new_tenants or new_parameters:
            await self._load()

    async def ensure_units(self, units: Collection[tuple[str, str]]) -> None:
        """Add these (tenant, unit text) to the units that occur.  The tenants have numbers."""
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
                self._numbers.setdefault(name, _ParameterNumbers())[code] = str(number)

    def _missing_tenants(self, tenants: Iterable[str]) -> list[str]:
        return sorted({tenant for tenant in tenants if tenant not in self._partitions})

    def _missing_parameters(self, parameters: Iterable[Parameter]) -> list[Parameter]:
        return sorted({parameter for parameter in parameters if parameter not in self._parameters})
