"""A plan in, the statements of one commit out: resources, versions, index differences, receipts, subscriptions, events.

They are sent as one string that ends with COMMIT, in one round trip; those of many changes one by one, each of bounded
size.  Rows are sorted by key, so that concurrent writers take locks in the same order.  Events are numbered last: the
row of a subscription is locked only from that statement to the COMMIT behind it, and the numbers have no gaps.

A plan may hold several versions of one resource: each gets a row in the history, the last becomes current, and the
index goes from the state before the first to the state after the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipf.fhir.index.contained import CONTAINED
from ipf.fhir.index.entries import NAMES, text_code, word_codes
from ipf.ports import Writes
from ipf.store.postgres.audit_calls import note, refuse
from ipf.store.postgres.quoting import Statement, Value, array, joined
from ipf.store.postgres.symbols import Parameter, SymbolTable
from ipf.store.resources.jobs import result_call
from ipf.store.resources.writing import index as write_index
from ipf.store.resources.writing import rows as write_rows
from ipf.store.resources.writing.consents import consent_calls
from ipf.store.resources.writing.grants import grants_calls
from ipf.store.resources.writing.rows import batches, deltas_of, resource_calls, version_calls

INSERT_RECEIPTS = Statement(
    "fhir_insert_receipts",
    "smallint[], text, text",
    r"""
INSERT INTO receipts (partition_id, key, correlation_id)
SELECT unnest($1), unnest(string_to_array($2, E'\x1f')), unnest(string_to_array($3, E'\x1f')::uuid[])""",
)

# A change of status resets backoff and failure count; a lease that is held ends first.  A Subscription that becomes
# `requested` may have another endpoint and other writers, so it revokes the lease.
PUT_SUBSCRIPTIONS = Statement(
    "fhir_put_subscriptions",
    "text, text, text, text, text, text, text, text",
    r"""
INSERT INTO subscription_states AS s
    (rid, partition_id, id, status, error, channel_type, heartbeat_seconds, ends_at, heartbeat_at, epoch, ready_at)
SELECT t.*, now() + heartbeat_seconds * interval '1 second', e.epoch, now() FROM unnest(
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

# Rows written later in the same transaction carry the new epoch.
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


def written_parameters(writes: Writes) -> set[Parameter]:
    """The search parameters of the index entries that are written or removed."""
    found: dict[str, set[str]] = {}
    for change in writes.changes:
        codes = found.setdefault(change.version.resource_type, set())
        for entries in (change.before, change.after):
            for group in (entries.texts, entries.dates, entries.quantities, entries.words):
                if group:
                    codes.update([entry[0] for entry in group])
    for (
        codes
    ) in found.values():  # a search finds their numbers, also where no name has two words and nothing is contained
        codes.update([CONTAINED, *(one for code in codes & NAMES for one in word_codes(code))])
    return {(resource_type, code) for resource_type, codes in found.items() for code in codes}


def written_units(writes: Writes) -> set[tuple[str, str]]:
    """(tenant, unit text) of the quantities that are written."""
    return {
        (change.tenant, entry[3]) for change in writes.changes if change.after.quantities
        for entry in change.after.quantities if entry[3]
    }  # fmt: skip


def required_symbols(writes: Writes) -> tuple[set[str], set[Parameter], set[tuple[str, str]]]:
    """The tenants, search parameters and units that must be in the symbol table."""
    return tenants_of(writes), written_parameters(writes), written_units(writes)


def tenants_of(writes: Writes) -> set[str]:
    """The tenants whose rows are written."""
    groups = writes.changes, writes.receipts, writes.subscriptions, writes.topics, writes.reindex, writes.creators
    tenants = {item.tenant for group in groups for item in group} | {item.tenant for item in writes.job_results}
    return tenants | {audit.context.tenant for audit in writes.audits}


def commit_calls(writes: Writes, symbols: SymbolTable) -> Iterator[str]:
    """The statements, in the order in which they must run."""
    if writes.receipts:
        rows = sorted((symbols.partition(item.tenant), item.key, item.correlation_id) for item in writes.receipts)
        partitions, keys, correlation_ids = zip(*rows, strict=True)
        yield INSERT_RECEIPTS.call(array(map(str, partitions)), joined(keys), joined(correlation_ids))
    for result in writes.job_results:
        yield result_call(result, symbols.partition(result.tenant))
    if writes.changes:
        deltas = deltas_of(writes.changes)
        yield from resource_calls(deltas, symbols)
        for changes in batches(writes.changes):
            yield from version_calls(changes, symbols)
        for part in batches(deltas):
            yield from write_index.index_calls(part, symbols)
    yield from _epoch_calls(writes, symbols)
    yield from consent_calls(writes, symbols)
    yield from grants_calls(writes.creators, symbols)
    for request in writes.reindex:
        stale = ",".join(f"{name}.{one}" for name, code in request.stale for one in _written_codes(code))
        yield ADD_REINDEX.call(symbols.partition(request.tenant), ",".join(request.types), stale, request.reason)
    if writes.audits:
        yield _audit_call(writes, symbols)
    if writes.events:
        yield _events_call(writes)


def _written_codes(code: str) -> tuple[str, ...]:
    """The codes under which the values of a parameter are written."""
    return (code, text_code(code), *word_codes(code))


def _epoch_calls(writes: Writes, symbols: SymbolTable) -> Iterator[str]:
    """A new epoch for the other writers, and the rows that carry it."""
    has_definition = any(request.is_definition for request in writes.reindex)
    if writes.subscriptions or writes.topics or has_definition:
        yield BUMP_EPOCH.call(has_definition)
    if writes.subscriptions:
        states = sorted(writes.subscriptions, key=lambda state: state.rid)
        put: list[tuple[Value, ...]] = [
            (
                s.rid,
                symbols.partition(s.tenant),
                s.id,
                s.status,
                s.error,
                s.channel_type,
                s.heartbeat_seconds,
                s.ends_at,
            )
            for s in states
        ]
        yield PUT_SUBSCRIPTIONS.call(*_columns(put))
    if writes.topics:
        rows = sorted((t.rid, symbols.partition(t.tenant), t.url, t.served) for t in writes.topics)
        yield PUT_TOPICS.call(*_columns(rows))


def _audit_call(writes: Writes, symbols: SymbolTable) -> str:
    """The statement that writes the audit records under a savepoint; one that only warns when they cannot be sent."""
    try:
        return note(writes.audits, {tenant: symbols.partition(tenant) for tenant in tenants_of(writes)})
    except Exception as failed:
        return refuse(type(failed).__name__)


def index_calls(writes: Writes, symbols: SymbolTable) -> Iterator[str]:
    """The statements for the index entries alone, of versions that are stored already."""
    yield from write_index.index_calls(deltas_of(writes.changes), symbols)


def _columns(rows: Sequence[Sequence[Value]]) -> list[str]:
    return [joined(column) for column in zip(*rows, strict=True)]


def _events_call(writes: Writes) -> str:
    rows = []
    for event in sorted(writes.events, key=lambda event: event.change):
        change = writes.changes[event.change]
        v = change.version
        rows.append((event.subscription_rid, v.rid, v.version_id, v.last_updated, change.correlation_id))
    return INSERT_EVENTS.call(*_columns(rows))
