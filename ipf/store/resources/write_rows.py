"""Changes in, the statements that write their resources and versions out: rows of `resources` and `resource_versions`.

What all rows of a statement share is a value of its own, the tenant and the instant of a plan: PostgreSQL reads it
once.  Arrays are taken apart in the target list, since a FROM clause would store the bodies once more on their way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from ipf.ports import Change
from ipf.records import quick
from ipf.store.postgres.quoting import Statement, array, joined
from ipf.store.postgres.symbols import Names

T = TypeVar("T")
PIECE = 250
"""Resources in one statement; most are far fewer."""

INSERT_RESOURCES = Statement(
    "fhir_insert_resources",
    "smallint, timestamptz, bigint[], text, text, integer[], boolean[]",
    r"""
INSERT INTO resources (partition_id, last_updated, rid, resource_type, id, version_id, deleted)
SELECT $1, $2, unnest($3), unnest(string_to_array($4, E'\x1f')), unnest(string_to_array($5, E'\x1f')), unnest($6),
       unnest($7)""",
)

# A row that is not at the version that was read: another writer was first.
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
    "smallint, timestamptz, bigint[], integer[], text, boolean[], text, text",
    r"""
INSERT INTO resource_versions (partition_id, last_updated, rid, version_id, method, deleted, correlation_id, body)
SELECT $1, $2, rid, version_id, method, deleted, correlation_id, coalesce(body, '')
FROM (SELECT unnest($3) AS rid, unnest($4) AS version_id, unnest(string_to_array($5, E'\x1f')) AS method,
             unnest($6) AS deleted, unnest(string_to_array($7, E'\x1f')::uuid[]) AS correlation_id,
             unnest(string_to_array($8, E'\x1f')) AS body) AS t""",
)

STATEMENTS = (INSERT_RESOURCES, UPDATE_RESOURCES, INSERT_VERSIONS)


@quick
@dataclass(frozen=True, slots=True)
class Span:
    """The first and last change of one resource in a plan, and whether the first makes it."""

    first: Change
    last: Change
    is_new: bool


def spans_of(changes: Sequence[Change]) -> list[Span]:
    """One for each resource, in order of rid."""
    spans: dict[int, Span] = {}
    for change in changes:
        version = change.version
        known = spans.get(version.rid)
        if known is None:
            spans[version.rid] = Span(change, change, version.version_id == 1)
        else:
            spans[version.rid] = Span(known.first, change, known.is_new)
    return [spans[rid] for rid in sorted(spans)]


def resource_calls(spans: Sequence[Span], names: Names) -> Iterator[str]:
    """The statements that make or update the rows of `resources`; in order of key, as all writers do."""
    new = sorted(
        [span.last for span in spans if span.is_new],
        key=lambda change: (change.tenant, change.version.resource_type, change.version.id),
    )
    for (partition, when), changes in _together(new, names):
        for some in pieces(changes):
            versions = [change.version for change in some]
            yield INSERT_RESOURCES.call(
                partition,
                when,
                array([str(v.rid) for v in versions]),
                joined([v.resource_type for v in versions]),
                joined([v.id for v in versions]),
                array([str(v.version_id) for v in versions]),
                _booleans(v.deleted for v in versions),
            )
    for part in pieces([span for span in spans if not span.is_new]):
        versions = [span.last.version for span in part]
        yield UPDATE_RESOURCES.call(
            array([str(v.rid) for v in versions]),
            array([str(span.first.version.version_id - 1) for span in part]),
            array([str(v.version_id) for v in versions]),
            joined([v.last_updated for v in versions]),
            _booleans(v.deleted for v in versions),
            len(part),
        )


def version_calls(changes: Sequence[Change], names: Names) -> Iterator[str]:
    """The statements that add the rows of `resource_versions`."""
    for (partition, when), some in _together(changes, names):
        versions = [change.version for change in some]
        yield INSERT_VERSIONS.call(
            partition,
            when,
            array([str(v.rid) for v in versions]),
            array([str(v.version_id) for v in versions]),
            joined([v.method for v in versions]),
            _booleans(v.deleted for v in versions),
            joined([change.correlation_id for change in some]),
            joined([v.body.decode() for v in versions]),
        )


def pieces(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """The same in order, no more than fit in a statement of bounded size."""
    for start in range(0, len(rows), PIECE):
        yield rows[start : start + PIECE]


def _together(changes: Iterable[Change], names: Names) -> Iterable[tuple[tuple[int, datetime], list[Change]]]:
    """Those of one partition and one instant: nearly always all of them."""
    found: dict[tuple[int, datetime], list[Change]] = {}
    for change in changes:
        key = names.partition(change.tenant), change.version.last_updated
        found.setdefault(key, []).append(change)
    return found.items()


def _booleans(values: Iterable[bool]) -> str:
    return array(["t" if value else "f" for value in values])
