"""The audit trail on PostgreSQL: `ports.AuditStore` on the FHIR database, one row of `audit_records` for each record.

A batch of records is one statement and one transaction.  The table is partitioned by month.
`pipeline.maintenance.audit_maintenance` creates partitions in advance; `append` creates a missing one.  If that fails,
the default partition stores the records.  Records survive a crash once `append` has returned.

Source: https://www.postgresql.org/docs/current/ddl-partitioning.html
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby

from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.ports.audit.records import Audit, AuditFilter, AuditStore
from ipf.store.audit.rows import COLUMNS, after_id, audit_of, conditions, is_selective, months_of
from ipf.store.postgres.audit_calls import insert
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import literal, script
from ipf.store.postgres.symbols import SymbolTable

log = Logger()

# Only bitmap scans use the index of keys.  With index scans PostgreSQL may read the whole table in time order to find
# three records of one patient.
_BY_KEY = "SET LOCAL enable_indexscan = off;\n"

_MONTHS = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'audit_records'::regclass
ORDER BY 1"""
_MONTH = re.compile(r"audit_records_y(\d+)m(\d\d)")

_PURGE = """
WITH old AS (
    SELECT o.* FROM partitions p CROSS JOIN LATERAL (
        SELECT partition_id, recorded_at, id FROM audit_records
        WHERE partition_id = p.id AND recorded_at < {before} ORDER BY recorded_at, id LIMIT {limit}) o
    LIMIT {limit}
), deleted AS (
    DELETE FROM audit_records a USING old o
    WHERE a.partition_id = o.partition_id AND a.recorded_at = o.recorded_at AND a.id = o.id
        AND a.recorded_at < {before}
    RETURNING 1
)
SELECT count(*) FROM deleted"""


class PostgresAuditStore:
    """`ports.AuditStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._all_tenants = database.all_tenants
        self._symbols = SymbolTable(database)
        self._months: set[datetime] = set()

    async def append(self, audits: Sequence[Audit]) -> None:
        """See `ports.AuditStore.append`."""
        if not audits:
            return
        await self._symbols.ensure({audit.context.tenant for audit in audits})
        await self._ensure_months(audits)
        if not self._database.has_row_security:
            await self._database.many(self._insert(audits))
            return
        by_tenant = groupby(sorted(audits, key=_tenant), _tenant)
        parts = [(self._database.set_tenant(tenant), self._insert(list(some))) for tenant, some in by_tenant]
        await self._database.many(script(*(statement for part in parts for statement in part)))

    def _insert(self, audits: Sequence[Audit]) -> str:
        tenants = {audit.context.tenant for audit in audits}
        return insert(audits, {tenant: self._symbols.partition(tenant) for tenant in tenants})

    async def _ensure_months(self, audits: Sequence[Audit]) -> None:
        for month in months_of(audits) - self._months:
            try:
                await self.ensure_month(month)
            except StoreUnreachable:
                raise
            except Problem as problem:  # the default partition stores the records
                log.warn("event=audit_partition_missing month={month} reason={reason}",
                         event="audit_partition_missing", month=f"{month:%Y-%m}", reason=problem.text)  # fmt: skip

    async def ensure_month(self, moment: datetime) -> None:
        """See `ports.AuditStore.ensure_month`."""
        await self._all_tenants.run_reserved(f"SELECT ensure_audit_month({literal(moment)})")
        self._months.add(datetime(moment.year, moment.month, 1, tzinfo=UTC))

    async def find(
        self, tenant: str, wanted: AuditFilter, limit: int, after: str | None = None, *, oldest_first: bool = False
    ) -> list[Audit]:
        """See `ports.AuditStore.find`."""
        await self._symbols.load((tenant,))
        passing = [f"a.partition_id = {self._symbols.partition(tenant)}", *conditions(wanted)]
        if after is not None:
            passing.append(after_id(after, oldest_first=oldest_first))
        order = "a.recorded_at, a.id" if oldest_first else "a.recorded_at DESC, a.id DESC"
        rows = await self._database.for_tenant(tenant).many(
            f"{_planned(wanted)}SELECT {COLUMNS} FROM audit_records a WHERE {' AND '.join(passing)} "
            f"ORDER BY {order} LIMIT {int(limit)}"
        )
        return [audit_of(tenant, row) for row in rows]

    async def page(self, tenant: str | None, wanted: AuditFilter, limit: int, offset: int) -> tuple[int, list[Audit]]:
        """See `ports.AuditStore.page`."""
        total = await self._count(tenant, wanted)
        if offset >= total:
            return total, []
        passing = " AND ".join(["a.partition_id = p.id", *conditions(wanted)])
        newest = f"SELECT a.* FROM audit_records a WHERE {passing} ORDER BY a.recorded_at DESC, a.id DESC"
        rows = await (self._all_tenants if tenant is None else self._database.for_tenant(tenant)).many(
            f"{_planned(wanted)}SELECT p.name, {COLUMNS} FROM partitions p CROSS JOIN LATERAL "
            f"({newest} LIMIT {int(offset) + int(limit)}) a "
            f"WHERE {'true' if tenant is None else f'p.name = {literal(tenant)}'} "
            f"ORDER BY a.recorded_at DESC, a.id DESC LIMIT {int(limit)} OFFSET {int(offset)}"
        )
        return total, [audit_of(row[0], row[1:]) for row in rows]

    async def count(self, tenant: str, wanted: AuditFilter) -> int:
        """See `ports.AuditStore.count`."""
        return await self._count(tenant, wanted)

    async def _count(self, tenant: str | None, wanted: AuditFilter) -> int:
        passing = conditions(wanted)
        if tenant is not None:
            await self._symbols.load((tenant,))
            passing.append(f"a.partition_id = {self._symbols.partition(tenant)}")
        runs = self._all_tenants if tenant is None else self._database.for_tenant(tenant)
        counted = f"SELECT count(*) FROM audit_records a WHERE {' AND '.join(passing) or 'true'}"
        return int((await runs.one(_planned(wanted) + counted))[0])

    async def purge(self, before: datetime, limit: int) -> int:
        """See `ports.AuditStore.purge`."""
        removed = 0
        for (name,) in await self._all_tenants.many(_MONTHS):
            month = _MONTH.fullmatch(name)
            if month is not None and _end(int(month[1]), int(month[2])) <= before:
                removed += await self._drop(name)
        deleted = await self._all_tenants.one(_PURGE.format(before=literal(before), limit=int(limit)))
        return removed + int(deleted[0])

    async def _drop(self, name: str) -> int:
        """Drop the partition of a month; `name` matches `_MONTH`.  Returns its number of records."""
        async with self._all_tenants.session() as session:
            (count,) = await session.one(f"SELECT count(*) FROM {name}")
            # A backup that reads the table would let every writer of records wait behind this for the usual timeout.
            await session.commit(script("SET LOCAL lock_timeout = '1s'", f"DROP TABLE {name}"))
        self._months.clear()
        return int(count)


def _tenant(audit: Audit) -> str:
    return audit.context.tenant


def _planned(wanted: AuditFilter) -> str:
    return _BY_KEY if is_selective(wanted) else ""


def _end(year: int, month: int) -> datetime:
    """The end of a month."""
    return datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)


_: type[AuditStore] = PostgresAuditStore
