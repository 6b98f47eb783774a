"""The audit trail on PostgreSQL: `ports.AuditStore` on the FHIR database.

Records come in batches and are kept in blocks, many to a row (`audit_blocks.py`): a batch costs one statement and one
round trip, a record a quarter of what a row of its own costs.  A search reads blocks a few at a time and looks at the
records in them (`audit_walk.py`).  Totals that depend on kinds and times alone are summed up without reading records.
What survives a crash: what `append` returned for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter

from ipf.ports.audit import Audit, AuditFilter, AuditStore
from ipf.store.audit.blocks import Block, blocks_of, kind_of
from ipf.store.audit.match import SURFACES, Match, behind, holding, least_from
from ipf.store.audit.walk import BY_KEY, SURFACE_NAMES, Walk, where
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import literal, script
from ipf.store.postgres.symbols import Names

_INSERT = """
INSERT INTO audit_blocks (partition_id, surface, first_id, last_id, kinds, counts, keys, body)
VALUES {rows} ON CONFLICT DO NOTHING"""
_BY_KIND = """
SELECT p.name, b.surface, k.kind, sum(k.count)
FROM audit_blocks b JOIN partitions p ON p.id = b.partition_id, unnest(b.kinds, b.counts) AS k (kind, count)
{where} GROUP BY p.name, b.surface, k.kind"""
_PURGE = """
WITH gone AS (
    DELETE FROM audit_blocks b USING (
        SELECT o.partition_id, o.surface, o.last_id FROM partitions p, (VALUES (0), (1)) AS s (surface), LATERAL (
            SELECT partition_id, surface, last_id FROM audit_blocks
            WHERE partition_id = p.id AND surface = s.surface AND last_id < {before} ORDER BY last_id LIMIT {limit}) o
        LIMIT {limit}) old
    WHERE b.partition_id = old.partition_id AND b.surface = old.surface AND b.last_id = old.last_id
    RETURNING (SELECT sum(count) FROM unnest(b.counts) AS count) AS records
)
SELECT coalesce(sum(records), 0) FROM gone"""


class PostgresAuditStore:
    """`ports.AuditStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._all_tenants = database.all_tenants
        self._names = Names(database)

    async def append(self, audits: Sequence[Audit]) -> None:
        """See `ports.AuditStore.append`."""
        if not audits:
            return
        blocks = blocks_of(audits)
        await self._names.add({block.tenant for block in blocks})
        if not self._database.has_row_security:
            await self._database.many(self._inserting(blocks))
            return
        parts = [
            (self._database.set_tenant(tenant), self._inserting(list(some)))
            for tenant, some in groupby(sorted(blocks, key=attrgetter("tenant")), attrgetter("tenant"))
        ]
        await self._database.many(script(*(statement for part in parts for statement in part)))

    def _inserting(self, blocks: Sequence[Block]) -> str:
        return _INSERT.format(rows=", ".join([_values(one, self._names.partition(one.tenant)) for one in blocks]))

    async def find(
        self, tenant: str, wanted: AuditFilter, limit: int, after: str | None = None, *, oldest_first: bool = False
    ) -> list[Audit]:
        """See `ports.AuditStore.find`."""
        found: list[Audit] = []
        async for audit in self._walk(tenant, Match(wanted), after, oldest_first=oldest_first):
            if after is None or (audit.id > after if oldest_first else audit.id < after):
                found.append(audit)
                if len(found) == limit:
                    break
        return found

    async def page(self, tenant: str | None, wanted: AuditFilter, limit: int, offset: int) -> tuple[int, list[Audit]]:
        """See `ports.AuditStore.page`."""
        match = Match(wanted)
        total = await self._total(tenant, match)
        if offset >= total:
            return total, []
        found, place = list[Audit](), 0
        async for audit in self._walk(tenant, match):
            if place >= offset:
                found.append(audit)
                if len(found) == limit:
                    break
            place += 1
        return total, found

    async def count(self, tenant: str, wanted: AuditFilter) -> int:
        """See `ports.AuditStore.count`."""
        return await self._total(tenant, Match(wanted))

    async def purge(self, before: datetime, limit: int) -> int:
        """See `ports.AuditStore.purge`: blocks go whole, when the last of their records is too old."""
        return int((await self._all_tenants.one(_PURGE.format(before=least_from(before), limit=int(limit))))[0])

    async def _total(self, tenant: str | None, match: Match) -> int:
        if not match.is_of_kinds:
            return len([1 async for _ in self._walk(tenant, match)])
        inside = match.inside()
        conditions = [*await self._conditions(tenant, match), *inside]
        by_key = match.keys_are_wanted
        runs = self._all_tenants if tenant is None or by_key else self._database.for_tenant(tenant)
        rows = await runs.many((BY_KEY if by_key else "") + _BY_KIND.format(where=where(conditions)))
        kinds = [(kind_of(name, SURFACE_NAMES[surface], kind), int(count)) for name, surface, kind, count in rows]
        total = sum(count for kind, count in kinds if match.allows(kind))
        if inside:
            outside = f"NOT ({' AND '.join(inside)})"
            total += len([1 async for _ in self._walk(tenant, match, more=(outside,))])
        return total

    async def _walk(
        self,
        tenant: str | None,
        match: Match,
        after: str | None = None,
        *,
        oldest_first: bool = False,
        more: Sequence[str] = (),
    ) -> AsyncIterator[Audit]:
        """What matches, in the order of ids, from the block of `after` on."""
        conditions = [*await self._conditions(tenant, match), *more]
        if after is not None:
            conditions.append(behind(after, oldest_first=oldest_first))
        partition = None if tenant is None else self._names.partition(tenant)
        runs = self._all_tenants if tenant is None else self._database.for_tenant(tenant)
        apart = self._all_tenants if tenant is not None and self._database.has_row_security else None
        walk = Walk(runs, match, conditions, partition, apart, oldest_first=oldest_first)
        async for audit in walk.records():
            yield audit

    async def _conditions(self, tenant: str | None, match: Match) -> list[str]:
        found = []
        if tenant is not None:
            await self._names.load((tenant,))
            found.append(f"b.partition_id = {self._names.partition(tenant)}")
        if match.wanted.ids is not None:
            within = [one.replace("b.", "x.") for one in found]
            if match.wanted.surface is not None:
                within.append(f"x.surface = {SURFACES[match.wanted.surface]}")
            found.append(holding(match.wanted.ids, within))
        return found + match.conditions()


def _values(block: Block, partition: int) -> str:
    """One row.  JSON has no control characters, a kind is JSON, and keys are numbers."""
    kinds = ",".join(map(literal, block.kinds))
    return (
        f"({partition},{SURFACES[block.surface]},'{block.first_id}','{block.last_id}',ARRAY[{kinds}],"
        f"'{{{','.join(map(str, block.counts))}}}','{{{','.join(map(str, block.keys))}}}','\\x{block.body.hex()}')"
    )


_: type[AuditStore] = PostgresAuditStore
