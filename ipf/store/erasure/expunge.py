"""`ports.fhir.expunge.ExpungeStore` on PostgreSQL.

A step reads a range of rids and removes the versions it finds in one transaction.  It locks their resources, so that a
deleted one is not created again meanwhile; a writer that waited reads again.  After a crash, a repetition finds what is
left: the deletion itself is the last version of a resource that goes.  The audit records of a step are written in its
transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ipf.ports.audit.records import Audit
from ipf.ports.fhir.expunge import DEFINITION_TYPES, ExpungeCursor, ExpungeRequest, ExpungeStep, ExpungeStore, Record
from ipf.ports.fhir.resources import Version
from ipf.store.erasure.search import NEXT, RANGE, mentions, partition_of, texts
from ipf.store.postgres.audit_calls import note, refusal
from ipf.store.postgres.database import Database, Session
from ipf.store.postgres.lookup import VERSION_COLUMNS, version
from ipf.store.postgres.quoting import bigints, literal

_FOUND = """
SELECT v.rid, v.version_id, v.version_id = r.version_id
FROM resources r JOIN resource_versions v ON v.rid = r.rid
WHERE {of} AND r.rid >= {rid} AND r.rid <= {until} AND (v.rid, v.version_id) > ({rid}, {number})
    AND (v.version_id < r.version_id AND ({previous} OR r.deleted)
         OR v.version_id = r.version_id AND r.deleted AND {deleted})
ORDER BY v.rid, v.version_id LIMIT {limit}"""
_LOCK = "SELECT rid, version_id, deleted FROM resources WHERE rid = ANY ({rids}) ORDER BY rid FOR UPDATE"
# The event of a deletion is sent to those who might see the version before it.  A running export reads the versions of
# its time.  References are indexed without versions.  The answer of a job has resources, as `rest/write/stamp.py`
# writes them, and references; the results of a running one (`rest/write/job_results.py`) have types and ids.
_KEPT = r"""
WITH c AS (
    SELECT * FROM unnest({rids}, {numbers}::integer[]) AS c(rid, version_id)
), pending AS MATERIALIZED (
    SELECT e.resource_rid, e.version_id FROM subscription_states s
    JOIN subscription_events e ON e.subscription_rid = s.rid AND e.event_number > s.delivered_number
    WHERE s.partition_id = {partition} AND s.status <> 'deleted' AND e.resource_rid = ANY ({rids})
)
SELECT c.rid, c.version_id, CASE
    WHEN {held} THEN 'legal-hold'
    WHEN EXISTS (SELECT FROM pending p WHERE p.resource_rid = c.rid
            AND c.version_id IN (p.version_id, p.version_id - 1))
        THEN 'event'
    WHEN EXISTS (SELECT FROM export_jobs j WHERE j.partition_id = {partition} AND j.status = 'running'
            AND v.last_updated <= j.transaction_time AND NOT EXISTS (SELECT FROM resource_versions n
                WHERE n.rid = c.rid AND n.version_id > c.version_id AND n.last_updated <= j.transaction_time))
        THEN 'export'
    WHEN EXISTS (SELECT FROM jobs j WHERE j.partition_id = {partition} AND (strpos(j.answer, n.stamped) > 0
            OR (strpos(j.answer, n.reference) > 0 AND j.answer ~ n.whole)
            OR (j.status = 'running' AND EXISTS (SELECT FROM job_results o
                WHERE o.partition_id = j.partition_id AND o.job_id = j.id AND strpos(o.result, n.listed) > 0))))
        THEN 'job'
    WHEN EXISTS (SELECT FROM index_text t JOIN resources o ON o.rid = t.rid
            JOIN resource_versions b ON b.rid = o.rid AND b.version_id = o.version_id
            WHERE t.partition_id = {partition} AND t.val = n.reference
            AND t.param = ANY (ARRAY(SELECT id FROM search_parameters WHERE resource_type = 'Provenance'))
            AND b.body ~ (n.of_version || c.version_id || '"'))
        THEN 'provenance'
    WHEN c.version_id = r.version_id AND r.resource_type = ANY ({definitions}) THEN 'definition'
END
FROM c JOIN resources r ON r.rid = c.rid JOIN resource_versions v ON v.rid = c.rid AND v.version_id = c.version_id
CROSS JOIN LATERAL (SELECT r.resource_type || '/' || r.id, replace(r.id, '.', '\.')) AS i(reference, id)
CROSS JOIN LATERAL (SELECT i.reference,
    '"resourceType":"' || r.resource_type || '","id":"' || r.id || '"',
    '"' || r.resource_type || '","' || r.id || '",',
    '[^A-Za-z]' || r.resource_type || '/' || i.id || '[^A-Za-z0-9.-]',
    '[^A-Za-z]' || r.resource_type || '/' || i.id || '/_history/'
) AS n(reference, stamped, listed, whole, of_version)"""
_REMOVE = f"""DELETE FROM resource_versions v
USING unnest({{rids}}, {{numbers}}::integer[]) AS c(rid, version_id), resources r
WHERE v.rid = c.rid AND v.version_id = c.version_id AND r.rid = v.rid RETURNING {VERSION_COLUMNS}"""
_REMOVE_LAST = f"""DELETE FROM resource_versions v USING resources r
WHERE r.rid = v.rid AND v.rid = ANY ({{rids}}) AND NOT EXISTS (
    SELECT FROM resource_versions o WHERE o.rid = v.rid AND o.version_id <> v.version_id) RETURNING {VERSION_COLUMNS}"""
_TABLES = ("index_text", "index_date", "index_quantity", "index_words", "resources")

Key = tuple[int, int]


class PostgresExpungeStore:
    """`ports.fhir.expunge.ExpungeStore` on a Database of the FHIR store.

    `base_url`: of this server.  `holds`: patients under a legal hold, as Patient/1 (in every tenant) or
    tenant:Patient/1.  Theirs is each resource of which some version refers to one.
    """

    def __init__(self, database: Database, base_url: str, holds: Collection[str] = ()) -> None:
        self._database = database
        self._base_url = base_url
        self._holds = [hold.rpartition(":") for hold in holds]

    async def expunge(
        self, wanted: ExpungeRequest, limit: int, after: ExpungeCursor, record: Record = lambda versions: ()
    ) -> ExpungeStep:
        """See `ExpungeStore.expunge`."""

        async def work(session: Session) -> ExpungeStep:
            step = await self._step(session, wanted, limit, after)
            records = record(step.removed) if step.removed else ()
            return replace(step, refused=await _note(session, wanted.tenant, records)) if records else step

        return await self._database.for_tenant(wanted.tenant).transact(work)

    async def _step(self, session: Session, wanted: ExpungeRequest, limit: int, after: ExpungeCursor) -> ExpungeStep:
        values = {"of": _of(wanted), "after": after.rid - 1, "limit": RANGE}
        ((until,),) = await session.many(NEXT.format(**values))
        if until is None:
            return ExpungeStep()
        rows = await session.many(_FOUND.format(
            of=_of(wanted, "r.") + ("" if wanted.version_id is None else f" AND v.version_id = {wanted.version_id}"),
            rid=after.rid, number=after.version_id, until=until, limit=limit,
            previous=literal(wanted.previous), deleted=literal(wanted.deleted),
        ))  # fmt: skip
        removed, kept = await self._remove(session, wanted, {(rid, number): last for rid, number, last in rows})
        last = ExpungeCursor(*rows[-1][:2]) if len(rows) == limit else ExpungeCursor(until + 1, 0)
        return ExpungeStep(removed, kept, last)

    async def _remove(
        self, session: Session, wanted: ExpungeRequest, found: dict[Key, bool]
    ) -> tuple[list[Version], Counter[str]]:
        """`found`: versions, and whether each is the deletion of its resource."""
        if not found:
            return [], Counter()
        locked = await session.many(_LOCK.format(rids=_rids(found)))
        gone = {rid: version for rid, version, deleted in locked if deleted}
        fit = [key for key, last in found.items() if key[0] in gone or (wanted.previous and not last)]
        fit = [(rid, number) for rid, number in fit if not found[rid, number] or gone[rid] == number]
        reasons = {(rid, number): reason for rid, number, reason in await session.many(self._kept(wanted, fit))}
        free = [key for key in fit if reasons.get(key, "") is None]
        kept = Counter(reason for reason in reasons.values() if reason)
        former = [key for key in free if not found[key]]
        removed = await session.many(_REMOVE.format(rids=_rids(former), numbers=_numbers(former)))
        deletions = [key for key in free if found[key]]
        ended = await session.many(_REMOVE_LAST.format(rids=_rids(deletions)))
        for table in _TABLES if ended else ():
            partition, rids = partition_of(wanted.tenant), bigints(row[0] for row in ended)
            await session.many(f"DELETE FROM {table} WHERE partition_id = {partition} AND rid = ANY ({rids})")
        if len(deletions) > len(ended):
            kept["versions"] += len(deletions) - len(ended)
        return [version(row) for row in (*removed, *ended)], kept

    def _kept(self, wanted: ExpungeRequest, keys: list[Key]) -> str:
        """The statement that says why each version stays, NULL for those that go."""
        held = frozenset(reference for tenant, _, reference in self._holds if tenant in ("", wanted.tenant))
        names, mentioned = texts(held), mentions("h.body", self._base_url, texts(held))
        is_held = f"""r.resource_type || '/' || r.id = ANY ({names})
        OR EXISTS (SELECT FROM resource_versions h WHERE h.rid = c.rid AND {mentioned})"""
        return _KEPT.format(
            rids=_rids(keys),
            numbers=_numbers(keys),
            partition=partition_of(wanted.tenant),
            held=is_held if held else "false",
            definitions=texts(DEFINITION_TYPES),
        )


async def _note(session: Session, tenant: str, records: Sequence[Audit]) -> str:
    """Write audit records; why they could not be written, "" when they were."""
    (number,) = await session.one(f"SELECT {partition_of(tenant)}")
    await session.many(note(records, {tenant: number}))
    return refusal(session.warnings())


def _of(wanted: ExpungeRequest, prefix: str = "") -> str:
    """SQL: the resource is of the tenant, and the one or the type that is wanted."""
    found = f"{prefix}partition_id = {partition_of(wanted.tenant)}"
    if wanted.resource_type is not None:
        found += f" AND {prefix}resource_type = {literal(wanted.resource_type)}"
    return found if wanted.id is None else f"{found} AND {prefix}id = {literal(wanted.id)}"


def _rids(keys: Iterable[Key]) -> str:
    return bigints(rid for rid, _ in keys)


def _numbers(keys: Iterable[Key]) -> str:
    return bigints(number for _, number in keys)


_: type[ExpungeStore] = PostgresExpungeStore
