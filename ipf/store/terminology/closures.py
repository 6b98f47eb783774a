"""`ports.ClosureTables` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ipf.ports.fhir.terminology import ClosureTables
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import joined, literal
from ipf.store.postgres.session import Session
from ipf.store.postgres.symbols import SymbolTable

_START = """
DELETE FROM closure_concepts WHERE partition_id = {partition} AND name = {name};
INSERT INTO closure_tables (partition_id, name) VALUES ({partition}, {name})
ON CONFLICT (partition_id, name) DO UPDATE SET version = 0"""
_VERSION = "SELECT version FROM closure_tables WHERE partition_id = {partition} AND name = {name}"
_ADD = r"""
WITH new AS (
    SELECT t.system, t.code
    FROM unnest(string_to_array({systems}, E'\x1f'), string_to_array({codes}, E'\x1f')) t(system, code)
    WHERE NOT EXISTS (SELECT FROM closure_concepts c WHERE c.partition_id = {partition} AND c.name = {name}
                      AND c.system = t.system AND c.code = t.code)),
made AS (UPDATE closure_tables SET version = version + 1
         WHERE partition_id = {partition} AND name = {name} AND EXISTS (SELECT FROM new) RETURNING version)
INSERT INTO closure_concepts (partition_id, name, system, code, version)
SELECT {partition}, {name}, new.system, new.code, made.version FROM new CROSS JOIN made"""
_CONCEPTS = "SELECT system, code, version FROM closure_concepts WHERE partition_id = {partition} AND name = {name}"


class PostgresClosureTables:
    """`ports.ClosureTables` on a Database of the FHIR store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._symbols = SymbolTable(database)

    async def start(self, tenant: str, name: str) -> None:
        """See `ports.ClosureTables.start`."""
        values = await self._values(tenant, name)

        async def work(session: Session) -> None:
            await session.many(_START.format(**values))

        await self._database.for_tenant(tenant).transact(work)

    async def add(self, tenant: str, name: str, codes: Collection[tuple[str, str]]) -> int | None:
        """See `ports.ClosureTables.add`."""
        values = await self._values(tenant, name)
        ordered = sorted(codes)
        systems, plain = literal(joined([one for one, _ in ordered])), literal(joined([one for _, one in ordered]))

        async def work(session: Session) -> int | None:
            held = await session.maybe(f"{_VERSION.format(**values)} FOR UPDATE")
            if held is None:
                return None
            await session.many(_ADD.format(**values, systems=systems, codes=plain))
            (version,) = await session.one(_VERSION.format(**values))
            return int(version)

        return await self._database.for_tenant(tenant).transact(work)

    async def concepts(self, tenant: str, name: str) -> Mapping[tuple[str, str], int] | None:
        """See `ports.ClosureTables.concepts`."""
        values = await self._values(tenant, name)
        scope = self._database.for_tenant(tenant)
        if await scope.maybe(_VERSION.format(**values)) is None:
            return None
        rows = await scope.many(_CONCEPTS.format(**values))
        return {(system, code): int(version) for system, code, version in rows}

    async def _values(self, tenant: str, name: str) -> dict[str, str]:
        await self._symbols.ensure((tenant,))
        return {"partition": literal(self._symbols.partition(tenant)), "name": literal(name)}


_: type[ClosureTables] = PostgresClosureTables
