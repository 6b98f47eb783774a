"""`ports.Histories` on PostgreSQL, and the history of one resource.

The versions of a type are found by a scan of all versions in order of time, filtered by type.  That is slow
for a rare type among millions of versions, so a rare type is read by its resources.  A bounded count decides.
"""

from __future__ import annotations

from datetime import UTC, datetime

from ipf.ports.fhir.history import Histories, HistoryCursor
from ipf.ports.fhir.resources import FhirTransaction, Version
from ipf.ports.queries.history_filter import EVERY_VERSION, HistoryFilter
from ipf.store.postgres.lookup import VERSION_COLUMNS, version
from ipf.store.postgres.quoting import Statement
from ipf.store.postgres.session_reads import Readable, view_of

RARE = 5000  # resources; a type with fewer is read by its resources

_TYPES = "text, timestamptz, timestamptz, timestamptz, timestamptz, bigint, integer, integer"
_PARTITION = "(SELECT p.id FROM partitions p WHERE p.name = $1)"
# NULLs: versions of any time.  A subquery with one value, since PostgreSQL may compute an EXISTS for all versions.
_CURRENT = """({to}::timestamptz IS NULL OR (v.last_updated < {to} AND coalesce((
    SELECT n.last_updated FROM resource_versions n WHERE n.rid = v.rid AND n.version_id > v.version_id
    ORDER BY n.version_id LIMIT 1
) > {since}, true)))"""


def _bounds(oldest_first: bool) -> str:
    """$2: not older.  $3, $4: current at that time.  $5 to $7: where it starts.  $8: how many."""
    sign, order = (">", "") if oldest_first else ("<", " DESC")
    keys = ", ".join(f"v.{name}{order}" for name in ("last_updated", "rid", "version_id"))
    return f"""v.last_updated >= $2 AND {_CURRENT.format(since="$3", to="$4")}
AND (v.last_updated, v.rid, v.version_id) {sign} ($5, $6, $7) ORDER BY {keys} LIMIT $8"""


def _both(name: str, types: str, sql: str) -> dict[bool, Statement]:
    """The statement for each order, oldest first or not."""
    return {
        oldest_first: Statement(f"{name}{'_upwards' if oldest_first else ''}", types, sql.replace("{bounds}", bounds))
        for oldest_first, bounds in ((False, _bounds(False)), (True, _bounds(True)))
    }


ALL = _both(
    "fhir_history_all",
    _TYPES,
    f"""
SELECT {VERSION_COLUMNS} FROM resource_versions v JOIN resources r ON r.rid = v.rid
WHERE v.partition_id = {_PARTITION} AND {{bounds}}""",
)
OF_TYPE = _both(
    "fhir_history_type",
    f"{_TYPES}, text",
    f"""
SELECT {VERSION_COLUMNS} FROM resource_versions v JOIN resources r ON r.rid = v.rid AND r.resource_type = $9
WHERE v.partition_id = {_PARTITION} AND {{bounds}}""",
)
OF_RARE_TYPE = _both(
    "fhir_history_rare_type",
    f"{_TYPES}, text",
    f"""
WITH r AS MATERIALIZED (
    SELECT rid, resource_type, id FROM resources WHERE partition_id = {_PARTITION} AND resource_type = $9
)
SELECT {VERSION_COLUMNS} FROM r JOIN resource_versions v ON v.rid = r.rid WHERE {{bounds}}""",
)
OF_ONE = {
    oldest_first: Statement(
        f"fhir_history{'_upwards' if oldest_first else ''}",
        "smallint, text, text, timestamptz, timestamptz, timestamptz, integer, integer",
        f"""
SELECT {VERSION_COLUMNS} FROM resources r JOIN resource_versions v ON v.rid = r.rid
WHERE r.partition_id = $1 AND r.resource_type = $2 AND r.id = $3
AND v.last_updated >= $4 AND {_CURRENT.format(since="$5", to="$6")}
AND v.version_id {sign} $7 ORDER BY v.version_id {order} LIMIT $8""",
    )
    for oldest_first, sign, order in ((False, "<", "DESC"), (True, ">", "ASC"))
}
COUNT_TYPE = Statement(
    "fhir_history_count_type",
    "text, text, integer",
    f"""
SELECT count(*) FROM (
    SELECT 1 FROM resources WHERE partition_id = {_PARTITION} AND resource_type = $2 LIMIT $3
) few""",
)
COUNT_ONE = Statement(
    "fhir_history_count",
    "text, text, text",
    f"""
SELECT count(*) FROM resources r JOIN resource_versions v ON v.rid = r.rid
WHERE r.partition_id = {_PARTITION} AND r.resource_type = $2 AND r.id = $3""",
)

STATEMENTS = (*ALL.values(), *OF_TYPE.values(), *OF_RARE_TYPE.values(), *OF_ONE.values(), COUNT_TYPE, COUNT_ONE)

_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, tzinfo=UTC)
_HIGHEST_VERSION = 2**31 - 1


def of_one(key: tuple[int, str, str], limit: int, start: int | None, wanted: HistoryFilter) -> str:
    """The statement for versions of one resource: partition, type and id."""
    position = start if start is not None else 0 if wanted.oldest_first else _HIGHEST_VERSION
    at = wanted.at or (None, None)
    call = OF_ONE[wanted.oldest_first].call
    return call(*key, wanted.since or _FIRST, *at, min(position, _HIGHEST_VERSION), limit)


class PostgresHistories:
    """`ports.Histories` on a Database that was opened with the FHIR store's statements."""

    def __init__(self, database: Readable) -> None:
        self._database = database

    def within(self, transaction: FhirTransaction) -> Histories:
        """See `ports.Histories.within`."""
        return PostgresHistories(view_of(transaction))

    async def page(
        self,
        tenant: str,
        resource_type: str | None,
        limit: int,
        wanted: HistoryFilter = EVERY_VERSION,
        start: HistoryCursor | None = None,
    ) -> list[Version]:
        """See `ports.Histories.page`."""
        rows, upwards = self._database.for_tenant(tenant), wanted.oldest_first
        start = start or HistoryCursor(_FIRST if upwards else _LAST, 0, 0)
        position = start.last_updated, start.rid, start.version_id
        bounds = (tenant, wanted.since or _FIRST, *(wanted.at or (None, None)), *position, limit)
        if resource_type is None:
            call = ALL[upwards].call(*bounds)
        else:
            (count,) = await rows.one(COUNT_TYPE.call(tenant, resource_type, RARE))
            call = (OF_RARE_TYPE if count < RARE else OF_TYPE)[upwards].call(*bounds, resource_type)
        return [version(row) for row in await rows.many(call)]

    async def count(self, tenant: str, resource_type: str, id: str) -> int:
        """See `ports.Histories.count`."""
        (count,) = await self._database.for_tenant(tenant).one(COUNT_ONE.call(tenant, resource_type, id))
        return int(count)


_: type[Histories] = PostgresHistories
