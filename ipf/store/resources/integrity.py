"""`ports.Referrers` on PostgreSQL: one index lookup for each search parameter that was ever written."""

from __future__ import annotations

from ipf.ports import Version
from ipf.ports.fhir.integrity import Referrers
from ipf.store.postgres.database import Database
from ipf.store.postgres.lookup import CURRENT_VERSION, VERSION_COLUMNS, version
from ipf.store.postgres.quoting import Statement

# Each parameter gives its first rids, sorted; the first rids of all parameters together are among them.
REFERRING = Statement(
    "fhir_referring",
    "text, text, bigint, integer",
    f"""
SELECT {VERSION_COLUMNS}
FROM (
    SELECT DISTINCT t.rid
    FROM search_parameters s
    CROSS JOIN LATERAL (
        SELECT t.rid FROM index_text t
        WHERE t.partition_id = (SELECT p.id FROM partitions p WHERE p.name = $1) AND t.param = s.id AND t.val = $2
          AND t.rid > $3
        ORDER BY t.rid LIMIT $4
    ) t
    ORDER BY t.rid LIMIT $4
) t
JOIN resources r ON r.rid = t.rid AND NOT r.deleted {CURRENT_VERSION}
ORDER BY r.rid""",
)

STATEMENTS = (REFERRING,)


class PostgresReferrers:
    """`ports.Referrers` on a Database that was opened with the FHIR store's statements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def referring(self, tenant: str, reference: str, after: int, limit: int) -> list[Version]:
        """See `ports.Referrers.referring`."""
        rows = await self._database.for_tenant(tenant).many(REFERRING.call(tenant, reference, after, limit))
        return [version(row) for row in rows]


_: type[Referrers] = PostgresReferrers
