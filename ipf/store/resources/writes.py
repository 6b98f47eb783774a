"""A plan in, the statements of one commit out: resources, versions, index differences, receipts, subscriptions, events.

All of them travel in one string that ends with COMMIT: one round trip; those of many changes go one after another, each
of bounded size.  Rows are sorted by key, so that writers who meet take locks in the same order.  Events are numbered
last: the row of a subscription is locked from that statement to the COMMIT right behind it, which keeps the numbers
without gaps and the wait short.

Several versions of one resource may be in one plan: each gets its row in the history, the last becomes current, and the
index goes from what was before the first to what is after the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipf.ports import Writes
from ipf.store.postgres.quoting import Statement, Value, array, joined
from ipf.store.postgres.symbols import Names, Parameter
from ipf.store.resources import write_index, write_rows
from ipf.store.resources.grants import grants_calls
from ipf.store.resources.write_rows import pieces, resource_calls, spans_of, version_calls

INSERT_RECEIPTS = Statement(
    "fhir_insert_receipts",
    "smallint[], text, text",
    r"""
INSERT INTO receipts (partition_id, key, correlation_id)
SELECT unnest($1), unnest(string_to_array($2, E'\x1f')), unnest(string_to_array($3, E'\x1f')::uuid[])""",
)

# A subscription whose status changes starts afresh: no backoff, no count of failures; a lease that is held ends first.
# What is asked for anew may have another endpoint, and other writers: whoever holds a lease has lost it.
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
    lease_token = CASE WHEN excluded.status = 'requested' THEN s.lease_token + 1 ELSE s.lease_token END,
    lease_until = CASE WHEN excluded.status <> 'requested' THEN s.lease_until END,
    ready_at = CASE WHEN excluded.status = 'requested' THEN now()
                    WHEN s.status = excluded.status THEN s.ready_at ELSE greatest(now(), s.lease_until) END""",
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
    INSERT_RECEIPTS, PUT_SUBSCRIPTIONS, PUT_TOPICS, BUMP_EPOCH, ADD_REINDEX, INSERT_EVENTS,
    *write_rows.STATEMENTS, *write_index.STATEMENTS,
)  # fmt: skip


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
        partitions, keys, correlation_ids = zip(*rows, strict=True)
        yield INSERT_RECEIPTS.call(array(map(str, partitions)), joined(keys), joined(correlation_ids))
    if writes.changes:
        spans = spans_of(writes.changes)
        yield from resource_calls(spans, names)
        for some in pieces(writes.changes):
            yield from version_calls(some, names)
        for part in pieces(spans):
            yield from write_index.index_calls(part, names)
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
    yield from write_index.index_calls(spans_of(writes.changes), names)


def _columns(rows: Sequence[Sequence[Value]]) -> list[str]:
    return [joined(column) for column in zip(*rows, strict=True)]


def _events_call(writes: Writes) -> str:
    rows = []
    for event in sorted(writes.events, key=lambda event: event.change):
        change = writes.changes[event.change]
        v = change.version
        rows.append((event.subscription_rid, v.rid, v.version_id, v.last_updated, change.correlation_id))
    return INSERT_EVENTS.call(*_columns(rows))
