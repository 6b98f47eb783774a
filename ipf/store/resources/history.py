"""`ports.Histories` on PostgreSQL.

The versions of a type are found by a backward scan of all versions in order of time, filtered by type.  That is slow
for a rare type among millions of versions, so a rare type is read by its resources.  A bounded count decides.
"""

from __future__ import annotations

from datetime import UTC, datetime

from ipf.ports.history import Histories, HistoryCursor
from ipf.ports.resources import Version
from ipf.store.postgres.database import Database
from ipf.store.postgres.lookup import VERSION_COLUMNS, version
from ipf.store.postgres.quoting import Statement

RARE = 5000  # resources; a type with fewer is read by its resources

_TYPES = "text, timestamptz, timestamptz, bigint, integer, integer"
_BOUNDS = """v.last_updated >= $2 AND (v.last_updated, v.rid, v.version_id) < ($3, $4, $5)
ORDER BY v.last_updated DESC, v.rid DESC, v.version_id DESC LIMIT $6"""
_PARTITION = "(SELECT p.id FROM partitions p WHERE p.name = $1)"

ALL = Statement(
    "fhir_history_all",
    _TYPES,
    f"""
SELECT {VERSION_COLUMNS} FROM resource_versions v JOIN resources r ON r.rid = v.rid
WHERE v.partition_id = {_PARTITION} AND {_BOUNDS}""",
)
OF_TYPE = Statement(
    "fhir_history_type",
    f"{_TYPES}, text",
    f"""
SELECT {VERSION_COLUMNS} FROM resource_versions v JOIN resources r ON r.rid = v.rid AND r.resource_type = $7
WHERE v.partition_id = {_PARTITION} AND {_BOUNDS}""",
)
OF_RARE_TYPE = Statement(
    "fhir_history_rare_type",
    f"{_TYPES}, text",
    f"""
WITH r AS MATERIALIZED (
    SELECT rid, resource_type, id FROM resources WHERE partition_id = {_PARTITION} AND resource_type = $7
)
SELECT {VERSION_COLUMNS} FROM r JOIN resource_versions v ON v.rid = r.rid WHERE {_BOUNDS}""",
)
COUNT_TYPE = Statement(
    "fhir_history_count_type",
    "text, text, integer",
    f"""
SELECT count(*) FROM (
    SELECT 1 FROM resources WHERE partition_id = {_PARTITION} AND resource_type = $2 LIMIT $3
) few""",
)

STATEMENTS = (ALL, OF_TYPE, OF_RARE_TYPE, COUNT_TYPE)

_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_LAST = HistoryCursor(datetime(9999, 12, 31, tzinfo=UTC), 0, 0)


class PostgresHistories:
    """`ports.Histories` on a Database that was opened with the FHIR store's statements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self,
        tenant: str,
        resource_type: str | None,
        limit: int,
        since: datetime | None = None,
        before: HistoryCursor | None = None,
    ) -> list[Version]:
        """See `ports.Histories.page`."""
        end, rows = before or _LAST, self._database.for_tenant(tenant)
        bounds = (tenant, since or _FIRST, end.last_updated, end.rid, end.version_id, limit)
        if resource_type is None:
            call = ALL.call(*bounds)
        else:
            (count,) = await rows.one(COUNT_TYPE.call(tenant, resource_type, RARE))
            call = (OF_RARE_TYPE if count < RARE else OF_TYPE).call(*bounds, resource_type)
        return [version(row) for row in await rows.many(call)]


_: type[Histories] = PostgresHistories
