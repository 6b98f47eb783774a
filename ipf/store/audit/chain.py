"""The hash chains of the audit trail on PostgreSQL: `ports.audit.chain.AuditChainStore`.

Writers leave each record in `audit_unchained`, in their own transactions, which end in any order.  One process at a
time, the holder of an advisory lock, moves committed ones to `audit_chain`, in one transaction for each batch: after a
crash a record is chained or waits.  The last link of a chain is never removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson

from ipf.ports.audit.chain import (
    COLUMNS,
    AuditChainStore,
    ChainFilter,
    Head,
    Link,
    Linked,
    MakeLinks,
    PublicKey,
    Record,
    Waiting,
)
from ipf.store.postgres.database import Database
from ipf.store.postgres.driver import Row
from ipf.store.postgres.quoting import literal, script

_LOCK = "SELECT pg_try_advisory_xact_lock(4919003)"
_MOST_COUNTED = 100_000

_CHAINS = "partitions p CROSS JOIN (VALUES ('fhir'), ('admin')) s (surface)"
_OF_CHAIN = "c.partition_id = p.id AND c.surface = s.surface"
_LINK = """c.position, p.name, c.surface, c.day::text, c.number, c.id::text,
    to_json(c.recorded_at) #>> ARRAY[]::text[], c.version, encode(c.digest, 'hex'), encode(c.hash, 'hex')"""
_HEAD = """p.name, h.surface, h.day::text, h.number, encode(h.hash, 'hex'),
    to_json(h.at) #>> ARRAY[]::text[], h.reason,
    to_json(h.before) #>> ARRAY[]::text[], h.key_id, encode(h.signature, 'hex')"""
_COLUMNS = ", ".join("a.origin::text AS origin" if one == "origin" else f"a.{one}" for one in COLUMNS)


def _record_of(row: str) -> str:
    """The expression for the record of a row that names it, as JSON; NULL when it is gone."""
    return f"""(SELECT row_to_json(x)::text FROM (SELECT {_COLUMNS} FROM audit_records a
        WHERE a.partition_id = {row}.partition_id AND a.recorded_at = {row}.recorded_at AND a.id = {row}.id) x)"""


_WAITING = f"""
SELECT u.position, p.name, u.surface, to_json(u.recorded_at) #>> ARRAY[]::text[], u.id::text, {_record_of("u")}
FROM (SELECT * FROM audit_unchained ORDER BY position LIMIT {{limit}}) u JOIN partitions p ON p.id = u.partition_id
ORDER BY u.position"""

_TAILS = f"""
SELECT {_LINK} FROM {_CHAINS}
JOIN LATERAL (SELECT * FROM audit_chain c WHERE {_OF_CHAIN} ORDER BY c.day DESC, c.number DESC LIMIT 1) c ON true
WHERE {{passing}}"""

_STATE = "SELECT i.id::text, (SELECT coalesce(max(position), 0) FROM audit_chain) FROM audit_installation i"

_INSERT_LINKS = """
INSERT INTO audit_chain (position, partition_id, surface, day, number, id, recorded_at, version, digest, hash)
SELECT r.position, p.id, r.surface, r.day, r.number, r.id, r.recorded_at, r.version, decode(r.digest, 'hex'),
    decode(r.hash, 'hex')
FROM json_to_recordset({links}) AS r (position bigint, tenant text, surface text, day date, number bigint, id uuid,
    recorded_at timestamptz, version smallint, digest text, hash text)
JOIN partitions p ON p.name = r.tenant"""

_INSERT_HEADS = """
INSERT INTO audit_heads (partition_id, surface, day, number, hash, at, reason, before, key_id, signature)
SELECT p.id, r.surface, r.day, r.number, decode(r.hash, 'hex'), r.at, r.reason, r.before, r.key_id,
    decode(r.signature, 'hex')
FROM json_to_recordset({heads}) AS r (tenant text, surface text, day date, number bigint, hash text, at timestamptz,
    reason text, before timestamptz, key_id text, signature text)
JOIN partitions p ON p.name = r.tenant
ON CONFLICT DO NOTHING"""

# The first link of each chain with a record that stays; the link before it, or itself if it is the first one.
_CUTS = f"""
SELECT {_LINK} FROM {_CHAINS}
LEFT JOIN LATERAL (
    SELECT c.day, c.number FROM audit_chain c WHERE {_OF_CHAIN} AND c.recorded_at >= {{before}}
    ORDER BY c.day, c.number LIMIT 1
) n ON true
JOIN LATERAL (
    (SELECT * FROM audit_chain c
     WHERE {_OF_CHAIN} AND (c.day, c.number) < (coalesce(n.day, 'infinity'), coalesce(n.number, 0))
     ORDER BY c.day DESC, c.number DESC LIMIT 1)
    UNION ALL
    (SELECT * FROM audit_chain c WHERE {_OF_CHAIN} ORDER BY c.day, c.number LIMIT 1)
    LIMIT 1
) c ON true"""

_NEWEST_CUTS = """
SELECT DISTINCT ON (h.partition_id, h.surface) h.partition_id, h.surface, h.day, h.number, h.at FROM audit_heads h
WHERE h.reason = 'retention' ORDER BY h.partition_id, h.surface, h.at DESC, h.day DESC, h.number DESC"""

_REMOVE_HEADS = f"""
DELETE FROM audit_heads h USING ({_NEWEST_CUTS}) k
WHERE h.partition_id = k.partition_id AND h.surface = k.surface
    AND ((h.day, h.number) < (k.day, k.number) OR (h.reason = 'retention' AND h.at < k.at))"""

_REMOVE_LINKS = f"""
WITH old AS (
    SELECT o.position FROM ({_NEWEST_CUTS}) k CROSS JOIN LATERAL (
        SELECT c.position FROM audit_chain c
        WHERE c.partition_id = k.partition_id AND c.surface = k.surface AND (c.day, c.number) < (k.day, k.number)
        ORDER BY c.day, c.number LIMIT {{limit}}) o
    LIMIT {{limit}}
), deleted AS (
    DELETE FROM audit_chain c USING old o WHERE c.position = o.position RETURNING 1
)
SELECT count(*) FROM deleted"""

_FIRST = f"""
SELECT coalesce(min(c.position), 0) FROM {_CHAINS} JOIN LATERAL (
    SELECT c.position FROM audit_chain c WHERE {_OF_CHAIN} AND c.day >= {{since}} ORDER BY c.day, c.number LIMIT 1
) c ON true"""

_UNLINKED = f"""
SELECT row_to_json(x)::text FROM (
    SELECT {_COLUMNS} FROM partitions p JOIN audit_records a ON a.partition_id = p.id
    WHERE a.recorded_at >= {{day}}::date AND a.recorded_at < {{day}}::date + 1 AND {{passing}}
        AND NOT EXISTS (SELECT FROM audit_chain c
            WHERE c.partition_id = a.partition_id AND c.recorded_at = a.recorded_at AND c.id = a.id)
        AND NOT EXISTS (SELECT FROM audit_unchained u WHERE u.id = a.id)
    LIMIT {{limit}}
) x"""

_NEXT_DAY = """
SELECT min(a.recorded_at)::date::text FROM partitions p JOIN LATERAL (
    SELECT a.recorded_at FROM audit_records a
    WHERE a.partition_id = p.id AND a.recorded_at >= {day}::date + 1 ORDER BY a.recorded_at LIMIT 1
) a ON true
WHERE {passing}"""


class PostgresAuditChain:
    """`ports.audit.chain.AuditChainStore`."""

    def __init__(self, database: Database) -> None:
        self._all = database.all_tenants

    async def take_up(self, limit: int, make: MakeLinks) -> int:
        """See `AuditChainStore.take_up`."""
        async with self._all.session() as session:
            (is_alone,) = await session.one(_LOCK)
            rows = await session.many(_WAITING.format(limit=int(limit))) if is_alone else []
            if not rows:
                return 0
            # each statement sees what is committed when it begins: the links of the last holder of the lock
            installation, position = await session.one(_STATE)
            tails = [Link(*row) for row in await session.many(_TAILS.format(passing="true"))]
            waiting = [_waiting(row) for row in rows]
            links, heads = make(installation, waiting, {tail.chain: tail for tail in tails}, position)
            taken = ",".join(str(int(row[0])) for row in rows)
            removal = f"DELETE FROM audit_unchained WHERE position IN ({taken})"
            await session.commit(script(removal, _INSERT_LINKS.format(links=_json(links)), _heads(heads)))
        return len(rows)

    async def backlog(self) -> tuple[int, datetime | None]:
        """See `AuditChainStore.backlog`."""
        first = "SELECT position, recorded_at FROM audit_unchained ORDER BY position LIMIT"
        count, oldest = await self._all.one(
            f"SELECT (SELECT count(*) FROM ({first} {_MOST_COUNTED}) u), (SELECT recorded_at FROM ({first} 1) u)"
        )
        return int(count), oldest

    async def tails(self, without_head_since: datetime | None) -> list[Link]:
        """See `AuditChainStore.tails`."""
        of_chain = "SELECT FROM audit_heads h WHERE h.partition_id = c.partition_id AND h.surface = c.surface AND"
        passing = f"NOT EXISTS ({of_chain} h.day = c.day AND h.number = c.number AND h.hash = c.hash)"
        if without_head_since is not None:
            passing += f" AND NOT EXISTS ({of_chain} h.at > {literal(without_head_since)})"
        return [Link(*row) for row in await self._all.many(_TAILS.format(passing=passing))]

    async def add_heads(self, heads: Sequence[Head]) -> None:
        """See `AuditChainStore.add_heads`."""
        if heads:
            await self._all.many(_heads(heads))

    async def add_key(self, key_id: str, public_key: str) -> None:
        """See `AuditChainStore.add_key`."""
        values = f"{literal(key_id)}, {literal(bytes.fromhex(public_key))}"
        await self._all.many(f"INSERT INTO audit_keys (key_id, public_key) VALUES ({values}) ON CONFLICT DO NOTHING")

    async def keys(self) -> list[PublicKey]:
        """See `AuditChainStore.keys`."""
        rows = await self._all.many(
            "SELECT key_id, encode(public_key, 'hex'), to_json(created_at) #>> ARRAY[]::text[] FROM audit_keys"
            " ORDER BY created_at, key_id"
        )
        return [PublicKey(*row) for row in rows]

    async def installation(self) -> str:
        """See `AuditChainStore.installation`."""
        return str((await self._all.one(_STATE))[0])

    async def heads(self, wanted: ChainFilter, limit: int, offset: int) -> tuple[int, list[Head]]:
        """See `AuditChainStore.heads`."""
        found = f"FROM audit_heads h JOIN partitions p ON p.id = h.partition_id WHERE {_passing(wanted, 'h')}"
        (total,) = await self._all.one(f"SELECT count(*) {found}")
        rows = await self._all.many(
            f"SELECT {_HEAD} {found} ORDER BY h.at DESC, p.name, h.surface, h.day DESC, h.number DESC, h.reason"
            f" LIMIT {int(limit)} OFFSET {int(offset)}"
        )
        return int(total), [Head(*row) for row in rows]

    async def cuts(self, before: datetime) -> list[Link]:
        """See `AuditChainStore.cuts`."""
        return [Link(*row) for row in await self._all.many(_CUTS.format(before=literal(before)))]

    async def remove_links(self, limit: int) -> int:
        """See `AuditChainStore.remove_links`."""
        rows = await self._all.many(script(_REMOVE_HEADS, _REMOVE_LINKS.format(limit=int(limit))))
        return int(rows[0][0])

    async def anchors(self, wanted: ChainFilter) -> list[Link]:
        """See `AuditChainStore.anchors`."""
        if wanted.since is None:
            return []
        rows = await self._all.many(
            f"SELECT {_LINK} FROM {_CHAINS} JOIN LATERAL (SELECT * FROM audit_chain c WHERE {_OF_CHAIN}"
            f" AND c.day < {literal(wanted.since)}::date ORDER BY c.day DESC, c.number DESC LIMIT 1) c ON true"
            f" WHERE {_passing(ChainFilter(wanted.tenant, wanted.surface), 'c')}"
        )
        return [Link(*row) for row in rows]

    async def links(self, wanted: ChainFilter, after: int, limit: int) -> list[Linked]:
        """See `AuditChainStore.links`."""
        passing = f"c.position > {int(after)} AND {_passing(wanted, 'c')}"
        if wanted.since is not None and not after:
            passing += f" AND c.position >= ({_FIRST.format(since=literal(wanted.since) + '::date')})"
        rows = await self._all.many(
            f"SELECT {_LINK}, {_record_of('c')} FROM audit_chain c JOIN partitions p ON p.id = c.partition_id"
            f" WHERE {passing} ORDER BY c.position LIMIT {int(limit)}"
        )
        return [Linked(Link(*row[:-1]), _parsed(row[-1])) for row in rows]

    async def unlinked(self, wanted: ChainFilter, day: str, limit: int) -> tuple[list[Record], str | None]:
        """See `AuditChainStore.unlinked`."""
        whose = "true" if wanted.tenant is None else f"p.name = {literal(wanted.tenant)}"
        passing = whose if wanted.surface is None else f"{whose} AND a.surface = {literal(wanted.surface)}"
        rows = await self._all.many(_UNLINKED.format(day=literal(day), passing=passing, limit=int(limit)))
        ((following,),) = await self._all.many(_NEXT_DAY.format(day=literal(day), passing=whose))
        found = [record for (text,) in rows if (record := _parsed(text)) is not None]
        return found, following if wanted.until is None or (following or "") <= wanted.until else None


def _waiting(row: Row) -> Waiting:
    _, tenant, surface, recorded_at, id_, record = row
    return Waiting(tenant, surface, recorded_at, id_, _parsed(record))


def _parsed(record: str | None) -> Record | None:
    return None if record is None else orjson.loads(record)


def _passing(wanted: ChainFilter, row: str) -> str:
    """The conditions of a filter on rows of links or heads, beside `p`, their partition."""
    tests: list[tuple[str, Any]] = [
        ("p.name = {}", wanted.tenant), (f"{row}.surface = {{}}", wanted.surface),
        (f"{row}.day >= {{}}::date", wanted.since), (f"{row}.day <= {{}}::date", wanted.until),
    ]  # fmt: skip
    return " AND ".join(test.format(literal(value)) for test, value in tests if value is not None) or "true"


def _heads(heads: Sequence[Head]) -> str:
    return _INSERT_HEADS.format(heads=_json(heads)) if heads else ""


def _json(rows: Sequence[Link] | Sequence[Head]) -> str:
    return literal(orjson.dumps([row._asdict() for row in rows]).decode())


_: type[AuditChainStore] = PostgresAuditChain
