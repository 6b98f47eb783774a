"""`ports.fhir.erasure.ErasureStore` on PostgreSQL: counts, the removal, and the receipts; `search.py` finds resources.

The removal is one transaction that keeps writers out: versions written since the search began are looked at again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ipf.errors import Category, Problem
from ipf.fhir.index.erased_texts import ErasedTexts
from ipf.fhir.model.json import dumps, loads
from ipf.ports.fhir.erasure import ErasedResources, ErasureReceipt, ErasureStore, FhirCounts
from ipf.store.erasure import removal
from ipf.store.erasure.redaction import redact
from ipf.store.erasure.search import ErasureSearch, mentions, partition_of, texts
from ipf.store.postgres.database import Database, Row, Session
from ipf.store.postgres.lookup import LOCK_SUBSCRIPTIONS
from ipf.store.postgres.quoting import bigints, literal
from ipf.store.postgres.symbols import SymbolTable

LEAST = 3  # characters of a number that is looked for in requests
MARGIN_SECONDS = 600  # a version gets its time before its commit, by the clock of another process
_LATER = """
SELECT r.resource_type || '/' || r.id FROM resource_versions v JOIN resources r ON r.rid = v.rid
WHERE v.partition_id = {partition} AND v.last_updated > {since} AND NOT v.rid = ANY ({known})
    AND {mentions} LIMIT 1"""
_AT = """to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"')"""  # as it was signed
_COLUMNS = f"p.name, {_AT}, e.actor, e.reason, e.counts, e.salt, e.digests, e.key_id, e.signature, e.id"
_FROM = "FROM erasures e JOIN partitions p ON p.id = e.partition_id"


class PostgresErasureStore(ErasureSearch):
    """`ports.fhir.erasure.ErasureStore` on a Database of the FHIR store.  `base_url`: of this server."""

    def __init__(self, database: Database, base_url: str) -> None:
        super().__init__(database, base_url)
        self._symbols = SymbolTable(database)

    async def count(self, erased: ErasedResources) -> FhirCounts:
        """See `ErasureStore.count`."""
        values = self._literals(erased)
        rows = self._database.for_tenant(erased.tenant)
        asked = _asking(erased, await rows.many(removal.ASKED.format(**values)))
        versions, events, attempts, exports, jobs, answers, tokens = await rows.one(
            removal.COUNTS.format(**values, asked=asked)
        )
        subscriptions = [row[0] for row in await rows.many(removal.SUBSCRIPTIONS.format(**values))]
        return FhirCounts(versions, events, attempts, exports, jobs, answers, tokens, subscriptions)

    async def remove(self, erased: ErasedResources, receipt: ErasureReceipt) -> None:
        """See `ErasureStore.remove`."""

        async def work(session: Session) -> None:
            values = self._literals(erased)
            await session.many(LOCK_SUBSCRIPTIONS)  # a writer holds it shared from before its first look to its commit
            await _check(session, erased, values)
            affected = bigints(row[0] for row in await session.many(removal.AFFECTED.format(**values)))
            asked = _asking(erased, await session.many(removal.ASKED.format(**values)))
            await redact(session, erased, self._base_url, self._symbols)
            for statement in removal.REMOVALS:
                await session.many(statement.format(**values, affected=affected, asked=asked))
            await session.many(_finish(receipt))

        await self._database.for_tenant(erased.tenant).transact(work)

    async def unfinished(self, tenant: str) -> Sequence[ErasureReceipt]:
        """See `ErasureStore.unfinished`."""
        sql = f"SELECT {_COLUMNS} {_FROM} WHERE p.name = {literal(tenant)} AND e.signature = '' ORDER BY e.id"
        return [_receipt(row) for row in await self._database.for_tenant(tenant).many(sql)]

    async def begin(self, receipt: ErasureReceipt) -> ErasureReceipt:
        """See `ErasureStore.begin`."""
        rows = self._database.for_tenant(receipt.tenant)
        if receipt.id:
            counts = literal(dumps(receipt.counts).decode())
            await rows.many(f"UPDATE erasures SET counts = {counts} WHERE id = {receipt.id} AND signature = ''")
            return receipt
        (number,) = await rows.one(
            "INSERT INTO erasures (partition_id, at, actor, reason, counts, salt, digests, key_id, signature)"
            f" VALUES ({partition_of(receipt.tenant)}, {', '.join(map(literal, _stored(receipt)))}) RETURNING id"
        )
        return receipt._replace(id=int(number))

    async def receipts(self, tenant: str, limit: int, offset: int) -> tuple[int, Sequence[ErasureReceipt]]:
        """See `ErasureStore.receipts`."""
        rows = self._database.for_tenant(tenant)
        of = f"{_FROM} WHERE p.name = {literal(tenant)}"
        (total,) = await rows.one(f"SELECT count(*) {of}")
        page = await rows.many(f"SELECT {_COLUMNS} {of} ORDER BY e.id DESC LIMIT {int(limit)} OFFSET {int(offset)}")
        return int(total), [_receipt(row) for row in page]

    def _literals(self, erased: ErasedResources) -> dict[str, str]:
        """What the statements are about, as SQL."""
        ids = frozenset(reference.partition("/")[2] for reference in erased.references)
        wanted = texts(erased.references)
        return {
            "rids": bigints(sorted(erased.rids)),
            "known": bigints(sorted({*erased.rids, *erased.redacted})),
            "wanted": wanted,
            "ids": texts(ids),
            "ids_and_numbers": texts(ids | {value for value in erased.values if len(value) >= LEAST}),
            "partition": partition_of(erased.tenant),
            "since": f"{literal(erased.since)} - interval '{MARGIN_SECONDS} seconds'",
            "mentions": mentions("v.body", self._base_url, wanted),
            "correlations": texts(erased.correlation_ids),
        }


def _asking(erased: ErasedResources, rows: Sequence[Row]) -> str:
    """The ids of jobs whose request has a text that names him, as SQL.  `rows`: id and request."""
    names = ErasedTexts(erased.texts)
    return texts(frozenset(id_ for id_, request in rows if names.found_in(request)))


async def _check(session: Session, erased: ErasedResources, values: dict[str, str]) -> None:
    """Problem CONFLICT when a resource was written since the search."""
    rows = await session.many("SELECT rid, version_id FROM resources WHERE rid = ANY ({known})".format(**values))
    later = await session.many(_LATER.format(**values))
    if {int(rid): int(version) for rid, version in rows} != {**erased.rids, **erased.redacted} or later:
        text = (
            "the messages are removed, and resources of the patient were written meanwhile: begin with a dry run again"
        )
        raise Problem(Category.CONFLICT, text)
    written = await session.many(removal.SUBSCRIPTIONS.format(**values))
    if written:
        raise Problem(Category.CONFLICT, f"{written[0][0]} was written with a token of the patient: delete it first")


def _stored(receipt: ErasureReceipt) -> tuple[str, ...]:
    """The columns from `at` on."""
    return (
        receipt.at, receipt.actor, receipt.reason, dumps(receipt.counts).decode(), receipt.salt,
        " ".join(receipt.digests), receipt.key_id, receipt.signature,
    )  # fmt: skip


def _finish(receipt: ErasureReceipt) -> str:
    columns = ("at", "actor", "reason", "counts", "salt", "digests", "key_id", "signature")
    changes = ", ".join(f"{name} = {literal(text)}" for name, text in zip(columns, _stored(receipt), strict=True))
    return f"UPDATE erasures SET {changes} WHERE id = {receipt.id}"


def _receipt(row: Row) -> ErasureReceipt:
    tenant, at, actor, reason, counts, salt, digests, key_id, signature, number = row
    return ErasureReceipt(
        tenant, at, actor, reason, loads(counts), salt, digests.split(), key_id, signature, int(number)
    )


_: type[ErasureStore] = PostgresErasureStore
