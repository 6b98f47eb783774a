"""`ports.erasure.ErasureStore` on PostgreSQL.

The search reads every version of a tenant in ranges of rids, because a former version may mention what no index knows.
The removal is one transaction that keeps writers out: versions written since the search began are looked at again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.ports.erasure import (
    ErasedResources,
    ErasureReceipt,
    ErasureStore,
    FhirCounts,
    MentioningResource,
    WrittenTogether,
)
from ipf.store.inbox.retention_sql import RECEIPTS
from ipf.store.postgres.database import Database, Session
from ipf.store.postgres.quoting import array, bigints, joined, literal

RANGE = 20_000  # rids of one statement
MARGIN_SECONDS = 600  # a version gets its time before its commit, by the clock of another process
_REFERENCE = r"([A-Z][A-Za-z]+/[A-Za-z0-9.-]{{1,64}})(?![A-Za-z0-9.-])"
_FOUND = f"(SELECT array_agg(DISTINCT m[1]) FROM regexp_matches(v.body, '{_REFERENCE}', 'g') m)"
_NEXT = "SELECT max(rid) FROM (SELECT rid FROM resources WHERE {of} AND rid > {after} ORDER BY rid LIMIT {limit}) r"
_MENTIONING = f"""
SELECT r.rid, r.resource_type || '/' || r.id, r.version_id, r.deleted FROM resources r
WHERE {{of}} AND r.rid > {{after}} AND r.rid <= {{until}} AND (
    r.resource_type || '/' || r.id = ANY ({{wanted}})
    OR EXISTS (SELECT FROM resource_versions v WHERE v.rid = r.rid {{likely}} AND {_FOUND} && {{wanted}}))
ORDER BY r.rid"""
_VERSIONS = f"""
SELECT v.rid, {_FOUND}, CASE WHEN r.resource_type = 'Patient' THEN v.body END
FROM resource_versions v JOIN resources r ON r.rid = v.rid WHERE v.rid = ANY ({{rids}})"""
_TOGETHER = f"""
SELECT v.correlation_id::text, v.rid, r.resource_type || '/' || r.id, {_FOUND}
FROM resource_versions v JOIN resources r ON r.rid = v.rid
WHERE {{of}} AND v.correlation_id = ANY ({{ids}})"""
_LATER = f"""
SELECT r.resource_type || '/' || r.id FROM resource_versions v JOIN resources r ON r.rid = v.rid
WHERE v.partition_id = {{partition}} AND v.last_updated > {{since}} AND NOT v.rid = ANY ({{rids}})
    AND {_FOUND} && {{wanted}} LIMIT 1"""
_EXPORTS = f"""j.partition_id = {{partition}} AND (j.status = 'running'
    OR (SELECT array_agg(m[1]) FROM regexp_matches(
        concat_ws(' ', j.request_url, j.caller), '{_REFERENCE}', 'g') m) && {{wanted}}
    OR EXISTS (SELECT FROM export_parts v WHERE v.partition_id = j.partition_id AND v.job_id = j.id AND (
        {_FOUND} && {{wanted}}
        OR EXISTS (SELECT FROM unnest({{ids}}) i WHERE strpos(v.body, '"id":"' || i || '"') > 0))))"""
_PENDING = """
SELECT 'Subscription/' || s.id FROM subscription_states s
WHERE s.status <> 'deleted' AND s.channel_type <> 'websocket'
    AND EXISTS (SELECT FROM subscription_events e WHERE e.subscription_rid = s.rid
                AND e.event_number > s.delivered_number AND e.resource_rid = ANY ({rids}))
    AND EXISTS (SELECT FROM subscription_events e WHERE e.subscription_rid = s.rid
                AND e.event_number > s.delivered_number AND NOT e.resource_rid = ANY ({rids}))
    AND s.partition_id = {partition} ORDER BY 1"""
_ATTEMPTS = """EXISTS (SELECT FROM subscription_events e WHERE e.subscription_rid = a.subscription_rid
    AND e.resource_rid = ANY ({rids})
    AND e.event_number BETWEEN a.event_number AND coalesce(a.to_event_number, a.event_number))"""


class PostgresErasureStore:
    """`ports.erasure.ErasureStore` on a Database of the FHIR store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def mentioning(self, tenant: str, references: frozenset[str]) -> Sequence[MentioningResource]:
        """See `ErasureStore.mentioning`."""
        rows = self._database.for_tenant(tenant)
        of, after, found = f"partition_id = {_partition(tenant)}", 0, []
        likely = ""
        if len(references) == 1:
            likely = f"AND strpos(v.body, {literal(next(iter(references)))}) > 0"
        while True:
            (until,) = await rows.one(_NEXT.format(of=of, after=after, limit=RANGE))
            if until is None:
                break
            sql = _MENTIONING.format(of=f"r.{of}", after=after, until=until, wanted=_texts(references), likely=likely)
            found += await rows.many(sql)
            after = until
        details: dict[int, tuple[int, set[str], set[str]]] = {int(row[0]): (0, set(), set()) for row in found}
        for some in _parts([int(row[0]) for row in found]):
            for rid, mentioned, body in await rows.many(_VERSIONS.format(rids=bigints(some))):
                count, references_in, values = details[rid]
                references_in |= set(mentioned or ())
                values |= set(_values(body))
                details[rid] = count + 1, references_in, values
        return [
            MentioningResource(rid, reference, version, deleted, *_frozen(details[rid]))
            for rid, reference, version, deleted in found
        ]

    async def existing(self, tenant: str, references: Sequence[str]) -> frozenset[str]:
        """See `ErasureStore.existing`."""
        types, ids = zip(*(one.split("/") for one in references), strict=True) if references else ((), ())
        sql = rf"""SELECT r.resource_type || '/' || r.id
            FROM unnest(string_to_array({literal(joined(types))}, E'\x1f'),
                        string_to_array({literal(joined(ids))}, E'\x1f')) AS k(resource_type, id)
            JOIN resources r ON r.partition_id = {_partition(tenant)} AND r.resource_type = k.resource_type
                AND r.id = k.id"""
        return frozenset(row[0] for row in await self._database.for_tenant(tenant).many(sql))

    async def correlations(self, tenant: str, rids: Sequence[int]) -> frozenset[str]:
        """See `ErasureStore.correlations`."""
        sql = f"SELECT DISTINCT correlation_id::text FROM resource_versions WHERE rid = ANY ({bigints(rids)})"
        return frozenset(row[0] for row in await self._database.for_tenant(tenant).many(sql))

    async def written_together(self, tenant: str, correlation_ids: Sequence[str]) -> Sequence[WrittenTogether]:
        """See `ErasureStore.written_together`."""
        ids = f"{literal(array(correlation_ids))}::uuid[]"
        sql = _TOGETHER.format(of=f"v.partition_id = {_partition(tenant)}", ids=ids)
        rows = await self._database.for_tenant(tenant).many(sql)
        return [WrittenTogether(id_, rid, name, frozenset(found or ())) for id_, rid, name, found in rows]

    async def count(self, erased: ErasedResources) -> FhirCounts:
        """See `ErasureStore.count`."""
        values = _literals(erased)
        attempts = f"SELECT count(*) FROM delivery_attempts a WHERE {_ATTEMPTS}"
        events = "SELECT count(*) FROM subscription_events WHERE resource_rid = ANY ({rids})"
        sql = f"""SELECT (SELECT count(*) FROM resource_versions WHERE rid = ANY ({{rids}})), ({events}), ({attempts}),
            (SELECT count(*) FROM export_jobs j WHERE {_EXPORTS}),
            (SELECT count(*) FROM identity_answers a WHERE a.partition_id = {{partition}}
             AND a.resource_type || '/' || a.resource_id = ANY ({{wanted}}))"""
        rows = self._database.for_tenant(erased.tenant)
        versions, events_found, attempts_found, exports, answers = await rows.one(sql.format(**values))
        held_back = [row[0] for row in await rows.many(_PENDING.format(**values))]
        return FhirCounts(versions, events_found, attempts_found, exports, answers, held_back)

    async def remove(self, erased: ErasedResources, receipt: ErasureReceipt) -> ErasureReceipt:
        """See `ErasureStore.remove`."""

        async def work(session: Session) -> int:
            values = _literals(erased)
            await session.many("LOCK TABLE resource_versions IN SHARE ROW EXCLUSIVE MODE")
            await _check(session, erased, values)
            for statement in _removals(erased):
                await session.many(statement.format(**values))
            (number,) = await session.one(_insertion(receipt))
            return int(number)

        number = await self._database.for_tenant(erased.tenant).transact(work)
        return receipt._replace(id=number)

    async def receipts(self, tenant: str, limit: int, offset: int) -> tuple[int, Sequence[ErasureReceipt]]:
        """See `ErasureStore.receipts`."""
        rows = self._database.for_tenant(tenant)
        of = f"FROM erasures e JOIN partitions p ON p.id = e.partition_id WHERE p.name = {literal(tenant)}"
        (total,) = await rows.one(f"SELECT count(*) {of}")
        page = await rows.many(
            "SELECT p.name, to_json(e.at) #>> ARRAY[]::text[], e.actor, e.reason, e.counts, e.salt, e.digest, e.key_id,"
            f" e.signature, e.id {of} ORDER BY e.id DESC LIMIT {int(limit)} OFFSET {int(offset)}"
        )
        return int(total), [ErasureReceipt._make((*row[:4], loads(row[4]), *row[5:])) for row in page]


async def _check(session: Session, erased: ErasedResources, values: dict[str, str]) -> None:
    """Problem CONFLICT when a resource was written since the search."""
    rows = await session.many("SELECT rid, version_id FROM resources WHERE rid = ANY ({rids})".format(**values))
    later = await session.many(_LATER.format(**values))
    if {int(rid): int(version) for rid, version in rows} != dict(erased.rids) or later:
        raise Problem(Category.CONFLICT, "resources of the patient were written meanwhile: begin with a dry run again")
    held_back = await session.many(_PENDING.format(**values))
    if held_back:
        raise Problem(Category.CONFLICT, f"{held_back[0][0]} has pending events about other patients: repeat later")


def _removals(erased: ErasedResources) -> Iterator[str]:
    """The statements, in an order in which each still finds its rows."""
    yield f"DELETE FROM delivery_attempts a WHERE {_ATTEMPTS} OR a.subscription_rid = ANY ({{rids}})"
    # all pending events of these are removed: nothing is left to deliver
    yield """UPDATE subscription_states s SET delivered_number = s.last_event_number
        WHERE EXISTS (SELECT FROM subscription_events e WHERE e.subscription_rid = s.rid
                      AND e.event_number > s.delivered_number AND e.resource_rid = ANY ({rids}))
          AND NOT EXISTS (SELECT FROM subscription_events e WHERE e.subscription_rid = s.rid
                          AND e.event_number > s.delivered_number AND NOT e.resource_rid = ANY ({rids}))"""
    yield "DELETE FROM subscription_events WHERE resource_rid = ANY ({rids}) OR subscription_rid = ANY ({rids})"
    for table in ("subscription_grants", "subscription_topics", "subscription_states", "consent_changes"):
        yield f"DELETE FROM {table} WHERE rid = ANY ({{rids}})"
    for table in ("index_text", "index_date", "index_quantity"):
        yield f"DELETE FROM {table} WHERE partition_id = {{partition}} AND rid = ANY ({{rids}})"
    yield f"DELETE FROM export_jobs j WHERE {_EXPORTS}"
    yield """DELETE FROM identity_answers a WHERE a.partition_id = {partition}
        AND a.resource_type || '/' || a.resource_id = ANY ({wanted})"""
    yield """DELETE FROM websocket_tokens t WHERE t.partition_id = {partition}
        AND EXISTS (SELECT FROM unnest({ids}) i WHERE strpos(t.caller, '"' || i || '"') > 0)"""
    yield "DELETE FROM resource_versions WHERE rid = ANY ({rids})"
    yield "DELETE FROM resources WHERE rid = ANY ({rids})"
    if erased.message_ids:
        ids = sorted(erased.message_ids)
        tenants, numbers = literal(joined([erased.tenant] * len(ids))), literal(joined(ids))
        yield RECEIPTS.format(tenants=tenants, ids=numbers)


def _insertion(receipt: ErasureReceipt) -> str:
    texts = (receipt.actor, receipt.reason, dumps(receipt.counts).decode(), receipt.salt, receipt.digest,
             receipt.key_id, receipt.signature)  # fmt: skip
    values = ", ".join(literal(text) for text in texts)
    return f"""INSERT INTO erasures (partition_id, at, actor, reason, counts, salt, digest, key_id, signature)
        VALUES ({_partition(receipt.tenant)}, {literal(receipt.at)}, {values}) RETURNING id"""


def _literals(erased: ErasedResources) -> dict[str, str]:
    ids = frozenset(reference.partition("/")[2] for reference in erased.references)
    return {
        "rids": bigints(sorted(erased.rids)),
        "wanted": _texts(erased.references),
        "ids": _texts(ids),
        "partition": _partition(erased.tenant),
        "since": f"{literal(erased.since)} - interval '{MARGIN_SECONDS} seconds'",
    }


def _partition(tenant: str) -> str:
    return f"(SELECT id FROM partitions WHERE name = {literal(tenant)})"


def _texts(values: frozenset[str]) -> str:
    return rf"coalesce(string_to_array({literal(joined(sorted(values)))}, E'\x1f'), ARRAY[]::text[])"


def _parts(rids: list[int], size: int = 2_000) -> Iterator[list[int]]:
    for start in range(0, len(rids), size):
        yield rids[start : start + size]


def _frozen(details: tuple[int, set[str], set[str]]) -> tuple[int, frozenset[str], frozenset[str]]:
    count, mentioned, values = details
    return count, frozenset(mentioned), frozenset(values)


def _values(body: str | None) -> Iterator[str]:
    """Values of the identifiers of a Patient's version; a deletion has no body."""
    patient: dict[str, Any] = loads(body) if body else {}
    for identifier in patient.get("identifier", ()):
        value = identifier.get("value")
        if isinstance(value, str) and value.strip():
            yield value.strip()


_: type[ErasureStore] = PostgresErasureStore
