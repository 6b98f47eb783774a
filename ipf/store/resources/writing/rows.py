"""The statements that write the rows of `resources` and `resource_versions`.

Values that all rows of a statement share, tenant and time, are parameters of their own, parsed once.  Arrays are
unnested in the target list, because a FROM clause would materialise the bodies once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from ipf.ports import Change
from ipf.store.postgres.quoting import Statement, array, joined
from ipf.store.postgres.symbols import SymbolTable

T = TypeVar("T")
BATCH_SIZE = 250
"""The most resources in one statement."""

INSERT_RESOURCES = Statement(
    "fhir_insert_resources",
    "smallint, timestamptz, bigint[], text, text, integer[], boolean[]",
    r"""
INSERT INTO resources (partition_id, last_updated, rid, resource_type, id, version_id, deleted)
SELECT $1, $2, unnest($3), unnest(string_to_array($4, E'\x1f')), unnest(string_to_array($5, E'\x1f')), unnest($6),
       unnest($7)""",
)

# A row that is no longer at the version that was read raises a conflict.
UPDATE_RESOURCES = Statement(
    "fhir_update_resources",
    "bigint[], integer[], integer[], text, boolean[], bigint",
    r"""
WITH updated AS (
    UPDATE resources r SET version_id = u.version_id, last_updated = u.last_updated, deleted = u.deleted
    FROM unnest($1, $2, $3, string_to_array($4, E'\x1f')::timestamptz[], $5)
        AS u(rid, expected, version_id, last_updated, deleted)
    WHERE r.rid = u.rid AND r.version_id = u.expected
    RETURNING 1
)
SELECT expect_rows(count(*), $6) FROM updated""",
)

INSERT_VERSIONS = Statement(
    "fhir_insert_versions",
    "smallint, timestamptz, bigint[], integer[], text, boolean[], text, text, text",
    r"""
INSERT INTO resource_versions
    (partition_id, last_updated, rid, version_id, method, deleted, correlation_id, body, sources)
SELECT $1, $2, rid, version_id, method, deleted, correlation_id, coalesce(body, ''), nullif(sources, '')
FROM (SELECT unnest($3) AS rid, unnest($4) AS version_id, unnest(string_to_array($5, E'\x1f')) AS method,
             unnest($6) AS deleted, unnest(string_to_array($7, E'\x1f')::uuid[]) AS correlation_id,
             unnest(string_to_array($8, E'\x1f')) AS body, unnest(string_to_array($9, E'\x1f')) AS sources) AS t""",
)

STATEMENTS = (INSERT_RESOURCES, UPDATE_RESOURCES, INSERT_VERSIONS)


@dataclass(slots=True)
class ResourceDelta:
    """The first and last change of one resource in a plan; `is_new`: the first creates it."""

    first: Change
    last: Change
    is_new: bool


def deltas_of(changes: Sequence[Change]) -> list[ResourceDelta]:
    """One for each resource, in order of rid."""
    deltas: dict[int, ResourceDelta] = {}
    for change in changes:
        version = change.version
        known = deltas.get(version.rid)
        if known is None:
            deltas[version.rid] = ResourceDelta(change, change, version.version_id == 1)
        else:
            deltas[version.rid] = ResourceDelta(known.first, change, known.is_new)
    return [deltas[rid] for rid in sorted(deltas)]


def resource_calls(deltas: Sequence[ResourceDelta], symbols: SymbolTable) -> Iterator[str]:
    """The statements that insert or update rows of `resources`, in order of key, as all writers do."""
    new = sorted(
        [delta.last for delta in deltas if delta.is_new],
        key=lambda change: (change.tenant, change.version.resource_type, change.version.id),
    )
    for (partition, when), changes in _by_partition_and_time(new, symbols):
        for batch in batches(changes):
            versions = [change.version for change in batch]
            yield INSERT_RESOURCES.call(
                partition,
                when,
                array([str(v.rid) for v in versions]),
                joined([v.resource_type for v in versions]),
                joined([v.id for v in versions]),
                array([str(v.version_id) for v in versions]),
                _booleans(v.deleted for v in versions),
            )
    for part in batches([delta for delta in deltas if not delta.is_new]):
        versions = [delta.last.version for delta in part]
        yield UPDATE_RESOURCES.call(
            array([str(v.rid) for v in versions]),
            array([str(delta.first.version.version_id - 1) for delta in part]),
            array([str(v.version_id) for v in versions]),
            joined([v.last_updated for v in versions]),
            _booleans(v.deleted for v in versions),
            len(part),
        )


def version_calls(changes: Sequence[Change], symbols: SymbolTable) -> Iterator[str]:
    """The statements that add the rows of `resource_versions`."""
    for (partition, when), group in _by_partition_and_time(changes, symbols):
        versions = [change.version for change in group]
        yield INSERT_VERSIONS.call(
            partition,
            when,
            array([str(v.rid) for v in versions]),
            array([str(v.version_id) for v in versions]),
            joined([v.method for v in versions]),
            _booleans(v.deleted for v in versions),
            joined([change.correlation_id for change in group]),
            joined([v.body.decode() for v in versions]),
            joined([v.sources for v in versions]),
        )


def batches(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """The rows in batches of `BATCH_SIZE`."""
    for start in range(0, len(rows), BATCH_SIZE):
        yield rows[start : start + BATCH_SIZE]


def _by_partition_and_time(
    changes: Iterable[Change], symbols: SymbolTable
) -> Iterable[tuple[tuple[int, datetime], list[Change]]]:
    """Changes grouped by partition and time; nearly always one group."""
    found: dict[tuple[int, datetime], list[Change]] = {}
    for change in changes:
        key = symbols.partition(change.tenant), change.version.last_updated
        found.setdefault(key, []).append(change)
    return found.items()


def _booleans(values: Iterable[bool]) -> str:
    return array(["t" if value else "f" for value in values])
