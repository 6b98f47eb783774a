"""The audit trail on PostgreSQL: `ports.AuditStore` on the FHIR database.

Rows come in batches, which cost one statement and one round trip however many they are.  A search
walks the primary key (partition, id), whose ids grow with time, or the index of keys when it names a resource, a user
or a correlation id.  What survives a crash: what `append` returned for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter

from ipf.ports.audit import Audit, AuditFilter, AuditStore
from ipf.store.audit_rows import append_sql, hashed, origin_of
from ipf.store.database import Database, Row
from ipf.store.names import Names
from ipf.store.quoting import Value, literal, script

_COLUMNS = """p.name, a.id::text, a.recorded_at, a.duration_ms, a.surface, a.interaction, a.action, a.outcome, a.status,
a.agent, a.agent_name, a.issuer, a.user_reference, a.address, a.correlation_id, a.target, a.entities, a.patients,
a.details"""
_FROM = "FROM audit_events a JOIN partitions p ON p.id = a.partition_id"
# The index of ages knows pages, not rows: a batch is found by it and by nothing that must be sorted.
_PURGE = """
WITH gone AS (
    DELETE FROM audit_events WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM audit_events WHERE recorded_at < {before} LIMIT {limit}))
    RETURNING 1
)
SELECT count(*) FROM gone"""


class PostgresAuditStore:
    """`ports.AuditStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._all = database.everyone
        self._names = Names(database)

    async def append(self, audits: Sequence[Audit]) -> None:
        """See `ports.AuditStore.append`."""
        if not audits:
            return
        await self._names.add({audit.tenant for audit in audits})
        if not self._database.is_divided:
            await self._database.many(self._appending(audits))
            return
        parts = [
            (self._database.bind(tenant), self._appending(list(some)))
            for tenant, some in groupby(sorted(audits, key=attrgetter("tenant")), attrgetter("tenant"))
        ]
        await self._database.many(script(*(statement for part in parts for statement in part)))

    def _appending(self, audits: Sequence[Audit]) -> str:
        return append_sql(audits, self._names.partition)

    async def find(
        self, tenant: str, wanted: AuditFilter, limit: int, after: str | None = None, *, oldest_first: bool = False
    ) -> list[Audit]:
        """See `ports.AuditStore.find`."""
        conditions = await self._conditions(tenant, wanted)
        if after is not None:
            conditions.append(f"a.id {'>' if oldest_first else '<'} {literal(after)}::uuid")
        order = f"ORDER BY a.id {'' if oldest_first else 'DESC'} LIMIT {int(limit)}"
        if self._database.is_divided and wanted.keys:
            conditions, order = await self._found(conditions, order), f"ORDER BY a.id {'' if oldest_first else 'DESC'}"
        rows = await self._database.of(tenant).many(f"SELECT {_COLUMNS} {_FROM} {_where(conditions)} {order}")
        return [_read(row) for row in rows]

    async def _found(self, conditions: Sequence[str], order: str) -> list[str]:
        """What names the rows found by their keys, whose index PostgreSQL does not use under a policy: the operator may
        tell what a policy hides.  So the ids alone are looked up past it, and the rows are read within it."""
        rows = await self._database.everyone.many(f"SELECT a.id::text {_FROM} {_where(conditions)} {order}")
        return [f"a.id = ANY ({_array(id_ for (id_,) in rows)}::uuid[])"]

    async def page(self, tenant: str | None, wanted: AuditFilter, limit: int, offset: int) -> tuple[int, list[Audit]]:
        """See `ports.AuditStore.page`."""
        where = _where(await self._conditions(tenant, wanted))
        total = int((await self._all.one(f"SELECT count(*) FROM audit_events a {where}"))[0])
        if offset >= total:
            return total, []
        order = f"ORDER BY a.id DESC LIMIT {int(limit)} OFFSET {int(offset)}"
        rows = await self._all.many(f"SELECT {_COLUMNS} {_FROM} {where} {order}")
        return total, [_read(row) for row in rows]

    async def count(self, tenant: str, wanted: AuditFilter) -> int:
        """See `ports.AuditStore.count`."""
        where = _where(await self._conditions(tenant, wanted))
        rows = self._all if wanted.keys else self._database.of(tenant)
        return int((await rows.one(f"SELECT count(*) FROM audit_events a {where}"))[0])

    async def purge(self, before: datetime, limit: int) -> int:
        """See `ports.AuditStore.purge`."""
        return int((await self._all.one(_PURGE.format(before=literal(before), limit=int(limit))))[0])

    async def _conditions(self, tenant: str | None, wanted: AuditFilter) -> list[str]:
        found = []
        if tenant is not None:
            await self._names.load((tenant,))
            found.append(f"a.partition_id = {self._names.partition(tenant)}")
        if wanted.surface is not None:
            found.append(f"a.surface = {literal(wanted.surface)}")
        found += [f"a.keys && {_array(map(hashed, group))}::bigint[]" for group in wanted.keys]
        if wanted.since is not None:
            found.append(f"a.recorded_at >= {literal(wanted.since)} AND a.id >= {literal(_lowest(wanted.since))}::uuid")
        if wanted.until is not None:
            after = wanted.until + timedelta(milliseconds=1)
            found.append(f"a.recorded_at <= {literal(wanted.until)} AND a.id < {literal(_lowest(after))}::uuid")
        if wanted.ids is not None:
            found.append(f"a.id = ANY ({_array(sorted(wanted.ids))}::uuid[])")
        for column, values in _sets(wanted):
            if values is not None:
                found.append(f"a.{column} = ANY ({_array(values)}::{_TYPES.get(column, 'text')}[])")
        return found


_TYPES = {"outcome": "smallint"}


def _sets(wanted: AuditFilter) -> Iterable[tuple[str, Iterable[Value] | None]]:
    return (
        ("agent", wanted.agents),
        ("action", wanted.actions),
        ("outcome", wanted.outcomes),
        ("interaction", wanted.interactions),
    )


def _where(conditions: Sequence[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""


def _array(values: Iterable[Value]) -> str:
    return f"ARRAY[{','.join(literal(value) for value in values)}]"


def _lowest(moment: datetime) -> str:
    """The least UUID version 7 of a millisecond."""
    text = f"{max(int(moment.timestamp() * 1000), 0):012x}"
    return f"{text[:8]}-{text[8:12]}-0000-0000-000000000000"


def _read(row: Row) -> Audit:
    tenant, id_, recorded_at, duration_ms, surface, interaction, action, outcome, status, agent, *rest = row
    agent_name, issuer, user, address, correlation_id, target, entities, patients, details = rest
    moment = recorded_at if recorded_at.tzinfo is not None else recorded_at.replace(tzinfo=UTC)
    return Audit(
        tenant=tenant,
        id=id_,
        recorded_at=moment,
        duration_ms=duration_ms,
        surface=surface,
        interaction=interaction,
        action=action,
        outcome=outcome,
        status=status,
        agent=agent,
        correlation_id=correlation_id,
        agent_name=agent_name,
        issuer=issuer,
        user=user,
        address=address,
        target=target,
        entities=tuple(entities.split()),
        patients=tuple(patients.split()),
        origin=origin_of(details),
    )


_: type[AuditStore] = PostgresAuditStore
