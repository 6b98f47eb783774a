"""A plan in, the statements of one commit out: resources, versions, index differences, receipts, subscriptions, events.

All of them travel in one string that ends with COMMIT: one round trip.  Rows are sorted by key, so that writers who
meet take locks in the same order.  Events are numbered last: the row of a subscription is locked from that statement
to the COMMIT right behind it, which keeps the numbers without gaps and the wait short.

Several versions of one resource may be in one plan: each gets its row in the history, the last becomes current, and the
index goes from what was before the first to what is after the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ipf.ports import Change, Writes
from ipf.store.names import Names, Parameter
from ipf.store.quoting import Statement, Value, joined

INSERT_RESOURCES = Statement(
    "fhir_insert_resources",
    "text, text, text, text, text, text, text",
    r"""
INSERT INTO resources (rid, partition_id, resource_type, id, version_id, last_updated, deleted)
SELECT * FROM unnest(string_to_array($1, E'\x1f')::bigint[], string_to_array($2, E'\x1f')::smallint[],
    string_to_array($3, E'\x1f'), string_to_array($4, E'\x1f'), string_to_array($5, E'\x1f')::integer[],
    string_to_array($6, E'\x1f')::timestamptz[], string_to_array($7, E'\x1f')::boolean[])""",
)

# A row that is not at the version that was read: another writer was first.
UPDATE_RESOURCES = Statement(
    "fhir_update_resources",
    "text, text, text, text, text, bigint",
    r"""
WITH updated AS (
    UPDATE resources r SET version_id = u.version_id, last_updated = u.last_updated, deleted = u.deleted
    FROM unnest(string_to_array($1, E'\x1f')::bigint[], string_to_array($2, E'\x1f')::integer[],
        string_to_array($3, E'\x1f')::integer[], string_to_array($4, E'\x1f')::timestamptz[],
        string_to_array($5, E'\x1f')::boolean[]) AS u(rid, expected, version_id, last_updated, deleted)
    WHERE r.rid = u.rid AND r.version_id = u.expected
    RETURNING 1
)
SELECT expect_rows(count(*), $6) FROM updated""",
)

INSERT_VERSIONS = Statement(
    "fhir_insert_versions",
    "text, text, text, text, text, text, text, text",
    r"""
INSERT INTO resource_versions (rid, version_id, partition_id, last_updated, method, deleted, correlation_id, body)
SELECT rid, version_id, partition_id, last_updated, method, deleted, correlation_id, coalesce(body, '')
FROM unnest(string_to_array($1, E'\x1f')::bigint[], string_to_array($2, E'\x1f')::integer[],
    string_to_array($3, E'\x1f')::smallint[], string_to_array($4, E'\x1f')::timestamptz[],
    string_to_array($5, E'\x1f'), string_to_array($6, E'\x1f')::boolean[], string_to_array($7, E'\x1f')::uuid[],
    string_to_array($8, E'\x1f'))
    AS t(rid, version_id, partition_id, last_updated, method, deleted, correlation_id, body)""",
)


def _index_statements(table: str, columns: str, casts: Sequence[str]) -> tuple[Statement, Statement]:
    """(add, remove) for one index table.  Rows that are there already, or gone already, are no error."""
    names = [name.strip() for name in columns.split(",")]
    types = ", ".join(["text"] * len(names))
    arrays = ", ".join(f"string_to_array(${n}, E'\\x1f'){cast}" for n, cast in enumerate(casts, 1))
    values = ", ".join(f"coalesce({name}, '')" if cast == "" else name for name, cast in zip(names, casts, strict=True))
    rows = f"(SELECT {values} FROM unnest({arrays}) AS u({columns}))"
    same = " AND ".join(f"i.{name} = t.{name}" for name in names)
    add = f"INSERT INTO {table} ({columns}) {rows} ON CONFLICT DO NOTHING"
    remove = f"DELETE FROM {table} i USING {rows} AS t({columns}) WHERE {same}"
    return Statement(f"fhir_add_{table}", types, add), Statement(f"fhir_remove_{table}", types, remove)


_SMALL, _BIG, _NUMBER, _TEXT = "::smallint[]", "::bigint[]", "::numeric[]", ""
ADD_TEXT, REMOVE_TEXT = _index_statements(
    "index_text", "partition_id, param, val, rid", (_SMALL, _SMALL, _TEXT, _BIG)
)  # fmt: skip
ADD_DATE, REMOVE_DATE = _index_statements(
    "index_date", "partition_id, param, lo, hi, rid", (_SMALL, _SMALL, _BIG, _BIG, _BIG)
)
ADD_QUANTITY, REMOVE_QUANTITY = _index_statements(
    "index_quantity", "partition_id, param, lo, hi, unit, rid", (_SMALL, _SMALL, _NUMBER, _NUMBER, _TEXT, _BIG)
)

INSERT_RECEIPTS = Statement(
    "fhir_insert_receipts",
    "text, text, text",
    r"""
INSERT INTO receipts (partition_id, key, correlation_id)
SELECT * FROM unnest(string_to_array($1, E'\x1f')::smallint[], string_to_array($2, E'\x1f'),
                     string_to_array($3, E'\x1f')::uuid[])""",
)

# A subscription whose status changes starts afresh: no backoff, no count of failures; a lease that is held ends first.
PUT_SUBSCRIPTIONS = Statement(
    "fhir_put_subscriptions",
    "text, text, text, text, text",
    r"""
INSERT INTO subscription_states AS s (rid, partition_id, id, status, error)
SELECT * FROM unnest(string_to_array($1, E'\x1f')::bigint[], string_to_array($2, E'\x1f')::smallint[],
    string_to_array($3, E'\x1f'), string_to_array($4, E'\x1f'), string_to_array($5, E'\x1f', E'\x1e'))
ON CONFLICT (rid) DO UPDATE SET
    status = excluded.status, error = excluded.error,
    attempt_count = CASE WHEN s.status = excluded.status THEN s.attempt_count ELSE 0 END,
    failing_since = CASE WHEN s.status = excluded.status THEN s.failing_since END,
    ready_at = CASE WHEN s.status = excluded.status THEN s.ready_at ELSE greatest(now(), s.lease_until) END""",
)

BUMP_EPOCH = Statement("fhir_bump_epoch", "", "UPDATE subscription_epoch SET epoch = epoch + 1")

INSERT_EVENTS = Statement(
    "fhir_insert_events",
    "text, text, text, text, text",
    r"""
WITH input AS MATERIALIZED (
    SELECT * FROM unnest(string_to_array($1, E'\x1f')::bigint[], string_to_array($2, E'\x1f')::bigint[],
        string_to_array($3, E'\x1f')::integer[], string_to_array($4, E'\x1f')::timestamptz[],
        string_to_array($5, E'\x1f')::uuid[]) WITH ORDINALITY
        AS t(subscription_rid, resource_rid, version_id, occurred_at, correlation_id, n)
), locked AS MATERIALIZED (
    SELECT s.rid, c.events FROM subscription_states s
    JOIN (SELECT subscription_rid, count(*) AS events FROM input GROUP BY subscription_rid) c
      ON s.rid = c.subscription_rid
    ORDER BY s.rid FOR UPDATE OF s
), bumped AS (
    UPDATE subscription_states s SET last_event_number = s.last_event_number + l.events
    FROM locked l WHERE s.rid = l.rid
    RETURNING s.rid, s.last_event_number - l.events AS base
)
INSERT INTO subscription_events
    (subscription_rid, event_number, resource_rid, version_id, occurred_at, correlation_id)
SELECT i.subscription_rid, b.base + row_number() OVER (PARTITION BY i.subscription_rid ORDER BY i.n),
       i.resource_rid, i.version_id, i.occurred_at, i.correlation_id
FROM input i JOIN bumped b ON b.rid = i.subscription_rid""",
)

STATEMENTS = (
    INSERT_RESOURCES, UPDATE_RESOURCES, INSERT_VERSIONS, ADD_TEXT, REMOVE_TEXT, ADD_DATE, REMOVE_DATE, ADD_QUANTITY,
    REMOVE_QUANTITY, INSERT_RECEIPTS, PUT_SUBSCRIPTIONS, BUMP_EPOCH, INSERT_EVENTS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Span:
    """The first and last change of one resource in a plan."""

    first: Change
    last: Change

    @property
    def is_new(self) -> bool:
        return self.first.version.version_id == 1


def parameters_of(writes: Writes) -> set[Parameter]:
    """The search parameters whose numbers the statements need."""
    return {
        (change.version.resource_type, entry[0])
        for change in writes.changes
        for entries in (change.before, change.after)
        for group in (entries.texts, entries.dates, entries.quantities)
        for entry in group
    }


def commit_calls(writes: Writes, names: Names) -> Iterator[str]:
    """The statements, in the order in which they must run."""
    if writes.receipts:
        rows = sorted((names.partition(item.tenant), item.key, item.correlation_id) for item in writes.receipts)
        yield INSERT_RECEIPTS.call(*_columns(rows))
    if writes.changes:
        spans = _spans(writes.changes)
        yield from _resource_calls(spans, names)
        yield _versions_call(writes.changes, names)
        yield from _index_calls(spans, names)
    if writes.subscriptions:
        states = sorted(writes.subscriptions, key=lambda state: state.rid)
        put = [(s.rid, names.partition(s.tenant), s.id, s.status, s.error) for s in states]
        yield PUT_SUBSCRIPTIONS.call(*_columns(put))
        yield BUMP_EPOCH.call()
    if writes.events:
        yield _events_call(writes)


def _columns(rows: Sequence[Sequence[Value]]) -> list[str]:
    return [joined(column) for column in zip(*rows, strict=True)]


def _spans(changes: Sequence[Change]) -> list[_Span]:
    spans: dict[int, _Span] = {}
    for change in changes:
        known = spans.get(change.version.rid)
        spans[change.version.rid] = _Span(change if known is None else known.first, change)
    return [spans[rid] for rid in sorted(spans)]


def _resource_calls(spans: Sequence[_Span], names: Names) -> Iterator[str]:
    new, old = [span for span in spans if span.is_new], [span for span in spans if not span.is_new]
    if new:
        versions = [(names.partition(span.last.tenant), span.last.version) for span in new]
        rows = sorted(
            ((v.rid, p, v.resource_type, v.id, v.version_id, v.last_updated, v.deleted) for p, v in versions),
            key=lambda row: row[1:4],
        )
        yield INSERT_RESOURCES.call(*_columns(rows))
    if old:
        updates = [
            (v.rid, span.first.version.version_id - 1, v.version_id, v.last_updated, v.deleted)
            for span in old
            for v in (span.last.version,)
        ]
        yield UPDATE_RESOURCES.call(*_columns(updates), len(updates))


def _versions_call(changes: Sequence[Change], names: Names) -> str:
    rows: list[tuple[Value, ...]] = []
    for change in changes:
        v, partition = change.version, names.partition(change.tenant)
        made = (v.method, v.deleted, change.correlation_id, v.body.decode())
        rows.append((v.rid, v.version_id, partition, v.last_updated, *made))
    return INSERT_VERSIONS.call(*_columns(rows))


_KINDS: tuple[tuple[Callable[[Any], frozenset[Any]], Statement, Statement], ...] = (
    (lambda entries: entries.texts, ADD_TEXT, REMOVE_TEXT),
    (lambda entries: entries.dates, ADD_DATE, REMOVE_DATE),
    (lambda entries: entries.quantities, ADD_QUANTITY, REMOVE_QUANTITY),
)


def _index_calls(spans: Sequence[_Span], names: Names) -> Iterator[str]:
    for group, add, remove in _KINDS:
        gone = [row for s in spans for row in _rows(s, group(s.first.before) - group(s.last.after), names)]
        new = [row for s in spans for row in _rows(s, group(s.last.after) - group(s.first.before), names)]
        if gone:
            yield remove.call(*_columns(sorted(gone)))
        if new:
            yield add.call(*_columns(sorted(new)))


def _rows(span: _Span, entries: frozenset[Any], names: Names) -> Iterator[tuple[Any, ...]]:
    """Index rows: partition, parameter, the entry's values, rid."""
    if entries:
        version, partition = span.last.version, names.partition(span.last.tenant)
        for code, *values in entries:
            yield (partition, names.parameter(version.resource_type, code), *values, version.rid)


def _events_call(writes: Writes) -> str:
    rows = []
    for event in sorted(writes.events, key=lambda event: event.change):
        change = writes.changes[event.change]
        v = change.version
        rows.append((event.subscription_rid, v.rid, v.version_id, v.last_updated, change.correlation_id))
    return INSERT_EVENTS.call(*_columns(rows))
