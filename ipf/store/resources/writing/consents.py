"""`ports.ConsentSource` on PostgreSQL, and the rows that a write of a Consent leaves for it.

Each transaction that writes a Consent takes the next epoch under a row lock that it holds until its commit, at the end
of its work: epochs are in the order of the commits, and nobody who holds the lock waits for another row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipf.fhir.model.json import loads
from ipf.ports import Writes
from ipf.ports.fhir.consents import ConsentSource, StoredConsent
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.quoting import Statement, array
from ipf.store.postgres.symbols import SymbolTable

PUT_CONSENTS = Statement(
    "fhir_put_consents",
    "bigint[], smallint[]",
    """
WITH e AS (UPDATE consent_epoch SET epoch = epoch + 1 WHERE single RETURNING epoch)
INSERT INTO consent_changes (rid, partition_id, epoch)
SELECT t.rid, t.partition_id, e.epoch FROM unnest($1, $2) AS t(rid, partition_id) CROSS JOIN e
ON CONFLICT (rid) DO UPDATE SET epoch = excluded.epoch""",
)
EPOCH = Statement("consents_epoch", "", "SELECT epoch FROM consent_epoch WHERE single")
# A Consent denies by a provision, or by its policyRule; one without these words need not be parsed.
PAGE = Statement(
    "consents_page",
    "bigint, integer",
    """
SELECT p.name, r.rid, CASE WHEN strpos(v.body, 'deny') > 0 OR strpos(v.body, 'OPTOUT') > 0 THEN v.body END
FROM resources r JOIN partitions p ON p.id = r.partition_id
JOIN resource_versions v ON v.rid = r.rid AND v.version_id = r.version_id
WHERE r.resource_type = 'Consent' AND NOT r.deleted AND r.rid > $1 ORDER BY r.rid LIMIT $2""",
)
CHANGES = Statement(
    "consents_changes",
    "bigint",
    """
SELECT p.name, c.rid, CASE WHEN NOT r.deleted THEN v.body END
FROM consent_changes c JOIN partitions p ON p.id = c.partition_id
LEFT JOIN resources r ON r.rid = c.rid
LEFT JOIN resource_versions v ON v.rid = r.rid AND v.version_id = r.version_id
WHERE c.epoch > $1 ORDER BY c.rid""",
)

STATEMENTS = (PUT_CONSENTS, EPOCH, PAGE, CHANGES)


def consent_calls(writes: Writes, symbols: SymbolTable) -> Iterator[str]:
    """The statement that notes the written Consents; none when there are none."""
    found = sorted(
        (change.version.rid, symbols.partition(change.tenant))
        for change in writes.changes
        if change.version.resource_type == "Consent"
    )
    if found:
        rids, partitions = zip(*dict(found).items(), strict=True)
        yield PUT_CONSENTS.call(array(map(str, rids)), array(map(str, partitions)))


class PostgresConsents:
    """`ports.ConsentSource` on a Database that was opened with the FHIR store's statements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def epoch(self) -> int:
        """See `ports.ConsentSource.epoch`."""
        (epoch,) = await self._database.all_tenants.one(EPOCH.call())
        return int(epoch)

    async def page(self, after_rid: int, limit: int) -> Sequence[StoredConsent]:
        """See `ports.ConsentSource.page`."""
        return [_consent(row) for row in await self._database.all_tenants.many(PAGE.call(after_rid, limit))]

    async def changes(self, since: int) -> Sequence[StoredConsent]:
        """See `ports.ConsentSource.changes`."""
        return [_consent(row) for row in await self._database.all_tenants.many(CHANGES.call(since))]


def _consent(row: Row) -> StoredConsent:
    tenant, rid, body = row
    return StoredConsent(str(tenant), int(rid), None if body is None else loads(body))


_: type[ConsentSource] = PostgresConsents
