"""The audit trail on PostgreSQL: `ports.AuditStore` on the FHIR database.

Rows come in batches as one JSON text, which costs one statement and one round trip however many they are.  A search
walks the primary key (partition, id), whose ids grow with time, or the index of keys when it names a resource, a user
or a correlation id.  What survives a crash: what `append` returned for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import groupby
from operator import attrgetter

import orjson

from ipf.ports.audit import Audit, AuditFilter, AuditStore, keys_of
from ipf.ports.mapping import Origin
from ipf.store.database import Database, Row
from ipf.store.names import Names
from ipf.store.quoting import Value, json_literal, literal, script

_COLUMNS = """p.name, a.id::text, a.recorded_at, a.duration_ms, a.surface, a.interaction, a.action, a.outcome, a.status,
a.agent, a.agent_name, a.issuer, a.user_reference, a.address, a.correlation_id, a.target, a.entities, a.patients,
a.details"""
_FROM = "FROM audit_events a JOIN partitions p ON p.id = a.partition_id"
_APPEND = """
INSERT INTO audit_events (partition_id, id, recorded_at, duration_ms, surface, interaction, action, outcome, status,
    agent, agent_name, issuer, user_reference, address, correlation_id, target, entities, patients, keys, details)
SELECT partition_id, id, recorded_at, duration_ms, surface, interaction, action, outcome, status,
    agent, agent_name, issuer, user_reference, address, correlation_id, target, entities, patients, keys, details
FROM json_to_recordset({rows}) AS r(partition_id smallint, id uuid, recorded_at timestamptz, duration_ms integer,
    surface text, interaction text, action text, outcome smallint, status smallint, agent text, agent_name text,
    issuer text, user_reference text, address text, correlation_id text, target text, entities text, patients text,
    keys bigint[], details text)
ON CONFLICT DO NOTHING"""
# The index of ages knows pages, not rows: a batch is found by it and by nothing that must be sorted.
_PURGE = """
WITH gone AS (
    DELETE FROM audit_events WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM audit_events WHERE recorded_at < {before} LIMIT {limit}))
    RETURNING 1
)
SELECT count(*) FROM gone"""

_NUL = b"\\u0000"


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
        rows = [_written(audit, self._names.partition(audit.tenant)) for audit in audits]
        return _APPEND.format(rows=json_literal(_text(rows)))

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
        found += [f"a.keys && {_array(map(_hashed, group))}::bigint[]" for group in wanted.keys]
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


def _written(audit: Audit, partition: int) -> dict[str, object]:
    return {
        "partition_id": partition,
        "id": audit.id,
        "recorded_at": audit.recorded_at,
        "duration_ms": audit.duration_ms,
        "surface": audit.surface,
        "interaction": audit.interaction,
        "action": audit.action,
        "outcome": audit.outcome,
        "status": audit.status,
        "agent": audit.agent,
        "agent_name": audit.agent_name,
        "issuer": audit.issuer,
        "user_reference": audit.user,
        "address": audit.address,
        "correlation_id": audit.correlation_id,
        "target": audit.target,
        "entities": " ".join(audit.entities),
        "patients": " ".join(audit.patients),
        "keys": [_hashed(key) for key in keys_of(audit)],
        "details": "" if audit.origin is None else _origin_text(audit.origin),
    }


def _origin_text(origin: Origin) -> str:
    rows = [[_sound(name), _sound(text)] for name, text in origin.details]
    return orjson.dumps([_sound(origin.agent_system), _sound(origin.source_system), rows]).decode()


def _origin(text: str) -> Origin | None:
    if not text:
        return None
    agent_system, source_system, rows = orjson.loads(text)
    return Origin(agent_system, source_system, tuple((name, value) for name, value in rows))


def _hashed(key: str) -> int:
    """64 bits of a hash: numbers are smaller than references and quicker to sort into an index than texts."""
    return int.from_bytes(blake2b(key.encode("utf-8", "replace"), digest_size=8).digest(), "big", signed=True)


def _text(rows: Sequence[dict[str, object]]) -> str:
    """Rows as JSON that PostgreSQL can hold: no NUL, no lone surrogates."""
    try:
        text = orjson.dumps(rows)
    except TypeError:
        text = _NUL
    if _NUL in text:
        text = orjson.dumps([{name: _sound(value) for name, value in row.items()} for row in rows])
    return text.decode()


def _sound(value: object) -> object:
    if isinstance(value, list):
        return [_sound(one) for one in value]
    return value.replace("\0", " ").encode("utf-8", "replace").decode() if isinstance(value, str) else value


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
        origin=_origin(details),
    )


_: type[AuditStore] = PostgresAuditStore
