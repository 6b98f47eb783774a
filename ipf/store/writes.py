"""A plan in, the statements of one commit out: resources, versions, index differences, receipts, subscriptions, events.

All of them travel in one string that ends with COMMIT: one round trip; those of many changes go one after another, each
of bounded size.  Rows are sorted by key, so that writers who meet take locks in the same order.  Events are numbered
last: the row of a subscription is locked from that statement to the COMMIT right behind it, which keeps the numbers
without gaps and the wait short.

Several versions of one resource may be in one plan: each gets its row in the history, the last becomes current, and the
index goes from what was before the first to what is after the last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ipf.ports import Change, Writes
from ipf.records import quick
from ipf.store.grants import grants_calls
from ipf.store.names import Names, Parameter
from ipf.store.quoting import Statement, Value, joined

T = TypeVar("T")
PIECE = 250
"""Resources in one statement; most are far fewer."""

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


@dataclass(frozen=True, slots=True)
class _Index:
    """The statements of one index table, and the group of `Entries` that it holds.

    `fill`: rows of resources that are new, so that no row can be there already (a fifth of the cost of the whole commit
    is saved by not looking).  `add`, `remove`: rows that are there already, or gone already, are no error.  The first
    parameter is the partition, the others are the columns.
    """

    group: str
    fill: Statement
    add: Statement
    remove: Statement


def _index(table: str, group: str, columns: Mapping[str, str]) -> _Index:
    """`columns`: names and casts.  The arrays are taken apart in the target list: a FROM clause would store them."""
    types = ", ".join(["smallint", *["text"] * len(columns)])
    casts = enumerate(columns.items(), 2)
    arrays = ", ".join(f"unnest(string_to_array(${n}, E'\\x1f'){cast}) AS {name}" for n, (name, cast) in casts)
    values = ", ".join(f"coalesce({name}, '')" if cast == "" else name for name, cast in columns.items())
    names = ", ".join(["partition_id", *columns])
    rows = f"SELECT partition_id, {values} FROM (SELECT $1 AS partition_id, {arrays}) AS u"
    same = " AND ".join(f"i.{name} = t.{name}" for name in ("partition_id", *columns))
    fill = f"INSERT INTO {table} ({names}) {rows}"
    remove = f"DELETE FROM {table} i USING ({rows}) AS t({names}) WHERE {same}"
    return _Index(
        group,
        Statement(f"fhir_fill_{table}", types, fill),
        Statement(f"fhir_add_{table}", types, f"{fill} ON CONFLICT DO NOTHING"),
        Statement(f"fhir_remove_{table}", types, remove),
    )


_SMALL, _BIG, _NUMBER, _TEXT = "::smallint[]", "::bigint[]", "::numeric[]", ""
_INDEXES = (
    _index("index_text", "texts", {"param": _SMALL, "val": _TEXT, "rid": _BIG}),
    _index("index_date", "dates", {"param": _SMALL, "lo": _BIG, "hi": _BIG, "rid": _BIG}),
    _index(
        "index_quantity",
        "quantities",
        {"param": _SMALL, "lo": _NUMBER, "hi": _NUMBER, "unit": _TEXT, "rid": _BIG},
    ),
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
    "text, text, text, text, text, text, text, text",
    r"""
INSERT INTO subscription_states AS s
    (rid, partition_id, id, status, error, channel_type, heartbeat_seconds, ends_at, heartbeat_at, epoch)
SELECT t.*, now() + heartbeat_seconds * interval '1 second', e.epoch FROM unnest(
    string_to_array($1, E'\x1f')::bigint[], string_to_array($2, E'\x1f')::smallint[],
    string_to_array($3, E'\x1f'), string_to_array($4, E'\x1f'), string_to_array($5, E'\x1f', E'\x1e'),
    string_to_array($6, E'\x1f'), string_to_array($7, E'\x1f', E'\x1e')::integer[],
    string_to_array($8, E'\x1f', E'\x1e')::timestamptz[])
    AS t(rid, partition_id, id, status, error, channel_type, heartbeat_seconds, ends_at)
CROSS JOIN (SELECT epoch FROM subscription_epoch WHERE single) e
ON CONFLICT (rid) DO UPDATE SET
    epoch = excluded.epoch, ends_at = excluded.ends_at,
    status = excluded.status, error = excluded.error, channel_type = excluded.channel_type,
    heartbeat_seconds = excluded.heartbeat_seconds, heartbeat_at = excluded.heartbeat_at,
    attempt_count = CASE WHEN s.status = excluded.status THEN s.attempt_count ELSE 0 END,
    failing_since = CASE WHEN s.status = excluded.status THEN s.failing_since END,
    ready_at = CASE WHEN s.status = excluded.status THEN s.ready_at ELSE greatest(now(), s.lease_until) END""",
)

PUT_TOPICS = Statement(
    "fhir_put_topics",
    "text, text, text, text",
    r"""
INSERT INTO subscription_topics (rid, partition_id, url, served, epoch)
SELECT t.*, e.epoch FROM unnest(
    string_to_array($1, E'\x1f')::bigint[], string_to_array($2, E'\x1f')::smallint[],
    string_to_array($3, E'\x1f'), string_to_array($4, E'\x1f')::boolean[]) AS t(rid, partition_id, url, served)
CROSS JOIN (SELECT epoch FROM subscription_epoch WHERE single) e
ON CONFLICT (rid) DO UPDATE SET url = excluded.url, served = excluded.served, epoch = excluded.epoch""",
)

# The rows written after it, in the same transaction, carry the epoch that it makes.
BUMP_EPOCH = Statement(
    "fhir_bump_epoch",
    "boolean",
    """
UPDATE subscription_epoch
SET epoch = epoch + 1, parameters_epoch = CASE WHEN $1 THEN epoch + 1 ELSE parameters_epoch END""",
)

ADD_REINDEX = Statement(
    "fhir_add_reindex",
    "smallint, text, text, text",
    """
INSERT INTO reindex_jobs (partition_id, resource_types, parameters, reason, until_rid)
SELECT $1, $2, $3, $4, newest_rid()""",
)

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
    INSERT_RESOURCES, UPDATE_RESOURCES, INSERT_VERSIONS, INSERT_RECEIPTS, PUT_SUBSCRIPTIONS, PUT_TOPICS, BUMP_EPOCH,
    ADD_REINDEX, INSERT_EVENTS,
    *(statement for index in _INDEXES for statement in (index.fill, index.add, index.remove)),
)  # fmt: skip


@quick
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
    found: dict[str, set[str]] = {}
    for change in writes.changes:
        codes = found.setdefault(change.version.resource_type, set())
        for entries in (change.before, change.after):
            for group in (entries.texts, entries.dates, entries.quantities):
                if group:
                    codes.update([entry[0] for entry in group])
    return {(resource_type, code) for resource_type, codes in found.items() for code in codes}


def units_of(writes: Writes) -> set[tuple[str, str]]:
    """(tenant, unit text) of the quantities that are written."""
    return {
        (change.tenant, entry[3]) for change in writes.changes if change.after.quantities
        for entry in change.after.quantities if entry[3]
    }  # fmt: skip


def names_of(writes: Writes) -> tuple[set[str], set[Parameter], set[tuple[str, str]]]:
    """Tenants, search parameters and units that must have numbers."""
    groups = writes.changes, writes.receipts, writes.subscriptions, writes.topics, writes.reindex
    return {item.tenant for group in groups for item in group}, parameters_of(writes), units_of(writes)


def commit_calls(writes: Writes, names: Names) -> Iterator[str]:
    """The statements, in the order in which they must run."""
    if writes.receipts:
        rows = sorted((names.partition(item.tenant), item.key, item.correlation_id) for item in writes.receipts)
        yield INSERT_RECEIPTS.call(*_columns(rows))
    if writes.changes:
        spans = _spans(writes.changes)
        yield from _resource_calls(spans, names)
        for some in _pieces(writes.changes):
            yield _versions_call(some, names)
        for part in _pieces(spans):
            yield from _index_calls(part, names)
    yield from _epoch_calls(writes, names)
    yield from grants_calls(writes.creators, names)
    for request in writes.reindex:
        stale = ",".join(f"{name}.{code}" for name, code in request.stale)
        yield ADD_REINDEX.call(names.partition(request.tenant), ",".join(request.types), stale, request.reason)
    if writes.events:
        yield _events_call(writes)


def _epoch_calls(writes: Writes, names: Names) -> Iterator[str]:
    """What every writer must know of: a new epoch, and the rows that carry it."""
    has_definition = any(request.is_definition for request in writes.reindex)
    if writes.subscriptions or writes.topics or has_definition:
        yield BUMP_EPOCH.call(has_definition)
    if writes.subscriptions:
        states = sorted(writes.subscriptions, key=lambda state: state.rid)
        put: list[tuple[Value, ...]] = [
            (s.rid, names.partition(s.tenant), s.id, s.status, s.error, s.channel_type, s.heartbeat_seconds, s.ends_at)
            for s in states
        ]
        yield PUT_SUBSCRIPTIONS.call(*_columns(put))
    if writes.topics:
        rows = sorted((t.rid, names.partition(t.tenant), t.url, t.served) for t in writes.topics)
        yield PUT_TOPICS.call(*_columns(rows))


def index_calls(writes: Writes, names: Names) -> Iterator[str]:
    """The statements for the index entries alone, of versions that are stored already."""
    yield from _index_calls(_spans(writes.changes), names)


def _pieces(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """The same in order, no more than fit in a statement of bounded size."""
    for start in range(0, len(rows), PIECE):
        yield rows[start : start + PIECE]


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
        for part in _pieces(rows):
            yield INSERT_RESOURCES.call(*_columns(part))
    if old:
        updates = [
            (v.rid, span.first.version.version_id - 1, v.version_id, v.last_updated, v.deleted)
            for span in old
            for v in (span.last.version,)
        ]
        for some in _pieces(updates):
            yield UPDATE_RESOURCES.call(*_columns(some), len(some))


def _versions_call(changes: Sequence[Change], names: Names) -> str:
    rows: list[tuple[Value, ...]] = []
    for change in changes:
        v, partition = change.version, names.partition(change.tenant)
        made = (v.method, v.deleted, change.correlation_id, v.body.decode())
        rows.append((v.rid, v.version_id, partition, v.last_updated, *made))
    return INSERT_VERSIONS.call(*_columns(rows))


class _Rows:
    """Index rows for one statement, column by column: parameters, the values of the entries, rids."""

    __slots__ = ("params", "rids", "values")

    def __init__(self) -> None:
        self.params: list[str] = []
        self.values: list[list[Value]] = []
        self.rids: list[str] = []

    def add(self, entries: Collection[Sequence[Any]], numbers: Mapping[str, str], rid: str) -> None:
        """A row for each entry of one resource."""
        codes, *values = zip(*entries, strict=True)
        self.params += map(numbers.__getitem__, codes)
        self.rids += [rid] * len(codes)
        if not self.values:
            self.values = [[] for _ in values]
        for column, more in zip(self.values, values, strict=True):
            column += more

    def call(self, statement: Statement, partition: int) -> str:
        """The statement that carries the rows."""
        return statement.call(partition, joined(self.params), *map(joined, self.values), joined(self.rids))


def _index_calls(spans: Sequence[_Span], names: Names) -> Iterator[str]:
    """The rows of one resource are written by whoever holds its row in `resources`, so their order is free."""
    for index in _INDEXES:
        rows: dict[tuple[int, str], tuple[Statement, _Rows]] = {}
        for span in spans:
            version, partition = span.last.version, names.partition(span.last.tenant)
            for statement, entries in _differences(index, span):
                if entries:
                    _, target = rows.setdefault((partition, statement.name), (statement, _Rows()))
                    target.add(entries, names.numbers(version.resource_type), str(version.rid))
        for (partition, _), (statement, found) in rows.items():
            yield found.call(statement, partition)


def _differences(index: _Index, span: _Span) -> Iterator[tuple[Statement, frozenset[Any]]]:
    """What is to be done with which entries."""
    before, after = getattr(span.first.before, index.group), getattr(span.last.after, index.group)
    if span.is_new:
        yield index.fill, after
    else:
        yield index.remove, before - after
        yield index.add, after - before


def _events_call(writes: Writes) -> str:
    rows = []
    for event in sorted(writes.events, key=lambda event: event.change):
        change = writes.changes[event.change]
        v = change.version
        rows.append((event.subscription_rid, v.rid, v.version_id, v.last_updated, change.correlation_id))
    return INSERT_EVENTS.call(*_columns(rows))
