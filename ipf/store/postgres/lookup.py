"""What a transaction reads before it is planned, in one statement: ids, match conditions, receipts and the epoch.

Conditions on a single token (nearly always an identifier) are matched set-wise in that statement; other conditions run
as general searches.  The results show what was committed before the statement began.  `lock` matches again after the
locks are held, which makes a conditional create safe.

Advisory locks: class 1 guards the set of subscriptions (shared by writers, exclusive for a change of the set), class 2
is for identifier values, class 3 for resource types (`MatchLocks`).  Their keys are hashed to a bounded range; two keys
with the same hash wait for each other.  Every transaction takes them in the order of classes and keys.
Source: https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from zlib import crc32

from ipf.ports import MATCH_LIMIT, Lookup, LookupResult, MatchLocks, Version
from ipf.ports.queries.search import Query
from ipf.store.postgres.database import Row
from ipf.store.postgres.quoting import Statement, array, joined, script
from ipf.store.postgres.symbols import Parameter, SymbolTable

Condition = tuple[str, Query]

BATCH_SIZE = 500  # ids and conditions in one statement, changes in one round trip; a batch of messages has up to 300
SUBSCRIPTIONS_CLASS = 1
VALUE_CLASS = 2
TYPE_CLASS = 3
LOCK_KEYS = 16384  # of each class

SHARE_SUBSCRIPTIONS = f"SELECT pg_advisory_xact_lock_shared({SUBSCRIPTIONS_CLASS}, 0)"
LOCK_SUBSCRIPTIONS = f"SELECT pg_advisory_xact_lock({SUBSCRIPTIONS_CLASS}, 0)"

# The current version of a row of `resources`.  `+ 0` keeps PostgreSQL from joining the versions by another table's rid,
# which reads all versions of the resource and filters them afterwards.
CURRENT_VERSION = "JOIN resource_versions v ON v.rid = r.rid + 0 AND v.version_id = r.version_id"

VERSION_COLUMNS = "r.rid, r.resource_type, r.id, v.version_id, v.last_updated, v.body, v.deleted, v.method"
_STATE_COLUMNS = f"{VERSION_COLUMNS}, v.sources"

# The limit comes before the join, or PostgreSQL may read all versions of the matches.
_MATCHES = f"""
    SELECT {_STATE_COLUMNS}
    FROM (SELECT r.rid, r.resource_type, r.id, r.version_id FROM index_text t JOIN resources r ON r.rid = t.rid
          WHERE t.partition_id = c.partition_id AND t.param = c.param AND t.val = c.val
          ORDER BY t.rid DESC LIMIT {MATCH_LIMIT}) r
    JOIN resource_versions v ON v.rid = r.rid AND v.version_id = r.version_id LIMIT {MATCH_LIMIT}"""

LOOK_UP = Statement(
    "fhir_look_up",
    "smallint[], text, text, smallint[], smallint[], text, smallint[], text",
    rf"""
SELECT 0, a.n, {_STATE_COLUMNS}
FROM unnest($1, string_to_array($2, E'\x1f'), string_to_array($3, E'\x1f')) WITH ORDINALITY
     AS a(partition_id, resource_type, id, n)
JOIN resources r ON r.partition_id = a.partition_id AND r.resource_type = a.resource_type AND r.id = a.id
JOIN resource_versions v ON v.rid = r.rid AND v.version_id = r.version_id
UNION ALL
SELECT 1, c.n, m.*
FROM unnest($4, $5, string_to_array($6, E'\x1f')) WITH ORDINALITY AS c(partition_id, param, val, n)
CROSS JOIN LATERAL ({_MATCHES}) m
UNION ALL
SELECT 2, k.n, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM unnest($7, string_to_array($8, E'\x1f')) WITH ORDINALITY AS k(partition_id, key, n)
JOIN receipts x ON x.partition_id = k.partition_id AND x.key = k.key
UNION ALL
SELECT 3, epoch, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM subscription_epoch""",
)

MATCH = Statement(
    "fhir_match",
    "smallint[], smallint[], text",
    rf"""
SELECT 1, c.n, m.*
FROM unnest($1, $2, string_to_array($3, E'\x1f')) WITH ORDINALITY AS c(partition_id, param, val, n)
CROSS JOIN LATERAL ({_MATCHES}) m""",
)

# A function scan yields the keys in the order in which they are given: ascending, so two transactions cannot deadlock.
LOCK_TYPES = Statement(
    "fhir_lock_types",
    "integer[], boolean[]",
    f"""
SELECT count(CASE WHEN t.exclusive THEN pg_advisory_xact_lock({TYPE_CLASS}, t.key)
                  ELSE pg_advisory_xact_lock_shared({TYPE_CLASS}, t.key) END)
FROM unnest($1, $2) AS t(key, exclusive)""",
)

LOCK_VALUES = Statement(
    "fhir_lock_values",
    "integer[]",
    f"SELECT count(pg_advisory_xact_lock({VALUE_CLASS}, k)) FROM unnest($1) AS t(k)",
)

STATEMENTS = (LOOK_UP, MATCH, LOCK_TYPES, LOCK_VALUES)


def look_up_call(lookup: Lookup, symbols: SymbolTable) -> str:
    """The statement for everything that is matched set-wise."""
    tokens = _tokens(lookup.conditions)
    return LOOK_UP.call(
        array([str(symbols.partition(tenant)) for tenant, _, _ in lookup.ids]),
        joined([resource_type for _, resource_type, _ in lookup.ids]),
        joined([id_ for _, _, id_ in lookup.ids]),
        *_token_columns(tokens, symbols),
        array([str(symbols.partition(tenant)) for tenant, _ in lookup.receipts]),
        joined([key for _, key in lookup.receipts]),
    )


def match_call(conditions: Sequence[Condition], symbols: SymbolTable) -> str:
    """The statement for the conditions that are single tokens."""
    return MATCH.call(*_token_columns(_tokens(conditions), symbols))


def _token_columns(tokens: Sequence[tuple[str, str, str, str]], symbols: SymbolTable) -> tuple[str, str, str]:
    return (
        array([str(symbols.partition(tenant)) for tenant, _, _, _ in tokens]),
        array([str(symbols.parameter(resource_type, code)) for _, resource_type, code, _ in tokens]),
        joined([value for _, _, _, value in tokens]),
    )


def lookup_result(lookup: Lookup, rows: Iterable[Row], others: dict[int, Sequence[Version]]) -> LookupResult:
    """The result of the rows of `look_up_call`; `others`: matches of conditions that are no single tokens."""
    by_id: list[Version | None] = [None] * len(lookup.ids)
    receipts: set[tuple[str, str]] = set()
    matched: list[Row] = []
    epoch = 0
    for row in rows:
        kind, n = row[0], row[1]
        if kind == 0:
            by_id[n - 1] = version(row[2:])
        elif kind == 1:
            matched.append(row)
        elif kind == 2:
            receipts.add(lookup.receipts[n - 1])
        else:
            epoch = n
    return LookupResult(by_id, matches(lookup.conditions, matched, others), frozenset(receipts), epoch)


def matches(
    conditions: Sequence[Condition], rows: Iterable[Row], others: dict[int, Sequence[Version]]
) -> list[Sequence[Version]]:
    """The versions in rows of `match_call`, in the order of the conditions."""
    found: list[list[Version]] = [list(others.get(number, ())) for number in range(len(conditions))]
    numbers = [number for number, (_, query) in enumerate(conditions) if query.single_token is not None]
    for row in rows:
        found[numbers[row[1] - 1]].append(version(row[2:]))
    return list(found)


def general_conditions(conditions: Sequence[Condition]) -> list[tuple[int, Condition]]:
    """The conditions that are no single tokens, with their positions."""
    return [(n, condition) for n, condition in enumerate(conditions) if condition[1].single_token is None]


def batches_of(lookup: Lookup) -> Iterator[Lookup]:
    """The lookup in batches of bounded size; the receipts are in the first."""
    if len(lookup.ids) + len(lookup.conditions) <= BATCH_SIZE:
        yield lookup
        return
    receipts = lookup.receipts
    for start in range(0, max(len(lookup.ids), len(lookup.conditions)), BATCH_SIZE):
        end = start + BATCH_SIZE
        yield Lookup(lookup.ids[start:end], lookup.conditions[start:end], receipts)
        receipts = ()


def merged(parts: Sequence[LookupResult]) -> LookupResult:
    """The results of `batches_of` as one."""
    first = parts[0]
    if len(parts) == 1:
        return first
    by_id = [one for part in parts for one in part.by_id]
    return LookupResult(by_id, [one for part in parts for one in part.by_condition], first.receipts, first.epoch)


def lock_call(locks: MatchLocks) -> str:
    """The statements that take these locks, each in ascending order."""
    types: dict[int, bool] = {}
    for parts, exclusive in locks.types.items():
        key = _lock_key(parts)
        types[key] = types.get(key, False) or exclusive
    numbers = sorted(types)
    flags = ["true" if types[key] else "false" for key in numbers]
    values = sorted({_lock_key(parts) for parts in locks.values})
    taken = [LOCK_TYPES.call(array(map(str, numbers)), array(flags))]
    return script(*taken, *([LOCK_VALUES.call(array(map(str, values)))] if values else ()))


async def with_sources(
    many: Callable[[str], Awaitable[list[Row]]], symbols: SymbolTable, tenant: str, found: Sequence[Version]
) -> Sequence[Version]:
    """Versions that a search found, as `look_up` gives them."""
    if not found:
        return found
    lookup = Lookup([(tenant, one.resource_type, one.id) for one in found], ())
    rows = await many(look_up_call(lookup, symbols))
    return [one for one in lookup_result(lookup, rows, {}).by_id if one is not None]


def condition_parameters(conditions: Sequence[Condition]) -> set[Parameter]:
    """The search parameters of the conditions that are single tokens."""
    return {(resource_type, code) for _, resource_type, code, _ in _tokens(conditions)}


def version(row: Row) -> Version:
    """A row of VERSION_COLUMNS, with or without the sources of its elements."""
    rid, resource_type, id_, version_id, last_updated, body, deleted, method, *sources = row
    known = sources[0] or "" if sources else ""
    return Version(rid, resource_type, id_, version_id, last_updated, body.encode(), deleted, method, known)


def _tokens(conditions: Sequence[Condition]) -> list[tuple[str, str, str, str]]:
    return [
        (tenant, query.resource_type, *query.single_token)
        for tenant, query in conditions
        if query.single_token is not None
    ]


def _lock_key(parts: Iterable[str]) -> int:
    return crc32("\x1f".join(parts).encode()) % LOCK_KEYS
