"""The statements of the inbox.  Every one is a single round trip and a transaction of its own.

Why the claim is right when many run at once (READ COMMITTED; S is the snapshot of the claim's one statement):

* `candidates` locks its rows with SKIP LOCKED, so no two claims that run at the same time have a row in common; a row
  that was claimed and committed meanwhile is looked at again after locking and falls out, since it is TRANSFORMING.
* A message may be claimed only with every earlier open message of its key.  `blocked` looks in S for an
  earlier open row that is not among the candidates.  A row that another claim holds is RECEIVED or FAILED in S (not
  committed yet) or TRANSFORMING (committed): open either way, so it blocks.  Rows become open again only through an
  operator's retry of a message that had ended, and so no longer blocked others.  So S may show a row open that has
  just ended (then a message waits a moment longer than needed), never the reverse.
* A blocked candidate blocks all later ones of its key: its blocker is earlier than they are, too.

The variants for IPF_PERMANENT_ERRORS_HOLD=false (`PASSING`): a row that is FAILED with a permanent error blocks nobody.
While it is tried again it blocks, but a claim at the same time may not see that yet: then it and a later message of its
key are converted at once, in any order.  When it is delivered after all, the later ones are converted again
(`following.py`).

`keys` finds, for each key among the candidates, the first two rows in their way (one scan a key, not a row).

Blocked rows are deferred, otherwise every claim would read them again.  The row directly behind the blocker waits
until the blocker is due (FAILED) or one second.  All further rows wait a minute: the row before them wakes them when
it ends (`woken` in settle), so that a row is deferred once and woken once, however long the queue is.

No wake-up is lost, although a claim C that defers row r and a settle T that ends the row before it may not see each
other.  T locks r before it reads it, and C checks again (`RECHECK_DEFERRED`, snapshot R) after its commit.  When T
commits before R, C sees the end and makes r ready.  Otherwise T was still running at R; had it locked r before C did,
C would have skipped r; so T locked r after C's commit, and saw that it was deferred.  The minute is a safety net.
"""

from __future__ import annotations

from typing import NamedTuple

from ipf.store.postgres.quoting import Statement

# Where a row is found by its id, `status::text` keeps the planner from walking a partial index on that status instead.

WAKE_LIMIT = 50  # rows behind an ended one that become ready with it

_NEXT_ID = "nextval('message_bodies_id_seq')"

# `message_keys` decides which messages are new: a unique index of the partitioned `message_bodies` would have to
# contain its id.  The list of ids is a hashed subquery, since joins are nested loops here.
#
# A payload that is UTF-8 without separators travels as text (kind t): hexadecimal (kind x) would double what is sent,
# read and parsed, which is the larger part of the cost of storing a message.  The other fields of a message are one
# line, taken apart here: each further array costs a set of rows of its own.  `unnest` keeps the order of the batch, so
# identifiers grow in it.  The rows that come back are those that are new.
STORE = Statement(
    "inbox_store",
    "text, text, text",
    rf"""
WITH input AS MATERIALIZED (
    SELECT {_NEXT_ID} AS id, string_to_array(line, $3, '') AS f, coalesce(payload, '') AS payload
    FROM unnest(string_to_array($1, E'\x1f'), string_to_array($2, E'\x1f')) AS t(line, payload) OFFSET 0
), keys AS (
    INSERT INTO message_keys (source_id, source_system, tenant, id)
    SELECT coalesce(f[5], ''), coalesce(f[4], ''), coalesce(f[1], ''), id FROM input
    ON CONFLICT (source_id, source_system, tenant) DO NOTHING
    RETURNING id
), bodies AS (
    INSERT INTO message_bodies (id, tenant, received_at, source_protocol, source_system, source_id, message_type,
        correlation_id, ordering_key, listener, charset, raw_content_type, raw_message) OVERRIDING SYSTEM VALUE
    SELECT id, coalesce(f[1], ''), timestamptz '1970-01-01 00:00Z' + f[2]::bigint * interval '1 microsecond', f[3],
        coalesce(f[4], ''), coalesce(f[5], ''), coalesce(f[6], ''), f[7]::uuid, f[8]::bigint, coalesce(f[9], ''),
        coalesce(f[10], ''), coalesce(f[11], ''),
        CASE WHEN f[12] = 't' THEN convert_to(payload, 'UTF8') ELSE payload::bytea END
    FROM input WHERE (id IN (SELECT id FROM keys)) IS TRUE
    RETURNING id, tenant, received_at, ordering_key
)
INSERT INTO message_states (id, tenant, status, received_at, ordering_key, ready_at)
SELECT id, tenant, 'RECEIVED', received_at, ordering_key, now() FROM bodies
RETURNING id""",
)

# The same for a message alone: taking arrays apart is a third of what one row costs.
STORE_ONE = Statement(
    "inbox_store_one",
    "text, timestamptz, text, text, text, text, uuid, text, text, text, text, text, text",
    f"""
WITH key AS (
    INSERT INTO message_keys (source_id, source_system, tenant, id)
    SELECT $5, $4, $1, {_NEXT_ID}
    ON CONFLICT (source_id, source_system, tenant) DO NOTHING
    RETURNING id
), body AS (
    INSERT INTO message_bodies (id, tenant, received_at, source_protocol, source_system, source_id, message_type,
        correlation_id, ordering_key, listener, charset, raw_content_type, raw_message) OVERRIDING SYSTEM VALUE
    SELECT id, $1, $2, $3, $4, $5, $6, $7, nullif($8, '')::bigint, $9, $10, $11,
        CASE WHEN $12 = 't' THEN convert_to($13, 'UTF8') ELSE $13::bytea END FROM key
    RETURNING id, ordering_key
)
INSERT INTO message_states (id, tenant, status, received_at, ordering_key, ready_at)
SELECT id, $1, 'RECEIVED', $2, ordering_key, now() FROM body
RETURNING id""",
)

# Runs only when a batch had repeats: the row of each key, and the digest of its payload.
EXISTING = Statement(
    "inbox_existing",
    "text, text, text",
    r"""
SELECT b.tenant, b.source_system, b.source_id, b.id, sha256(b.raw_message)
FROM (SELECT coalesce(tenant, '') AS tenant, coalesce(system, '') AS system, coalesce(id, '') AS id
      FROM unnest(string_to_array($1, E'\x1f'), string_to_array($2, E'\x1f'), string_to_array($3, E'\x1f'))
      AS t(tenant, system, id)) t
JOIN message_keys k ON k.source_id = t.id AND k.source_system = t.system AND k.tenant = t.tenant
JOIN message_bodies b ON b.id = k.id""",
)

RELEASE_EXCEPT = Statement(
    "inbox_release_except",
    "text, text",
    r"""
UPDATE message_states SET status = 'RECEIVED', ready_at = now(), claimed_by = NULL, leased_at = NULL
WHERE status = 'TRANSFORMING' AND leased_at IS NOT NULL AND claimed_by = $1
  AND id <> ALL (string_to_array($2, E'\x1f')::bigint[])
RETURNING id""",
)

RENEW = Statement(
    "inbox_renew",
    "text, text",
    r"""
UPDATE message_states s SET leased_at = now()
FROM unnest(string_to_array($1, E'\x1f')::bigint[], string_to_array($2, E'\x1f')::bigint[]) AS c(id, fence)
WHERE s.id = c.id AND s.fence = c.fence AND s.status::text = 'TRANSFORMING'""",
)


class Ordered(NamedTuple):
    """The statements that know which messages hold back later ones of their key."""

    claim: Statement
    recheck_deferred: Statement
    settle: Statement


# The tail of settle and of recovery: the next rows of each key that has an ended row become ready.
def _wake_next(ended: str) -> str:
    return f""", ended AS (
    SELECT ordering_key, max(id) AS id FROM settled
    WHERE ordering_key IS NOT NULL AND ({ended}) GROUP BY ordering_key
), behind AS MATERIALIZED (
    SELECT n.id FROM (SELECT * FROM ended ORDER BY ordering_key) e CROSS JOIN LATERAL (
        SELECT s.id, s.ready_at FROM message_states s
        WHERE s.ordering_key = e.ordering_key AND s.id > e.id AND s.ordering_key IS NOT NULL
          AND s.status IN ('RECEIVED', 'TRANSFORMING', 'FAILED') AND s.status::text <> 'TRANSFORMING'
        ORDER BY s.id LIMIT {WAKE_LIMIT} FOR UPDATE OF s
    ) n WHERE n.ready_at > now()
), woken AS (
    UPDATE message_states s SET ready_at = greatest(now(), s.next_attempt_at)
    FROM behind b WHERE s.id = b.id AND s.status::text IN ('RECEIVED', 'FAILED')
)"""


def _claim(name: str, blocking: str) -> Statement:
    """One row for each claimed message; one without fence for each deferred message (RECHECK_DEFERRED must follow)."""
    return Statement(
        name,
        "text, integer",
        f"""
WITH candidates AS MATERIALIZED (
    SELECT id, ordering_key FROM message_states
    WHERE status IN ('RECEIVED', 'FAILED') AND ready_at <= now()
    ORDER BY ready_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
), keys AS MATERIALIZED (
    SELECT k.ordering_key, min(b.id) AS blocker, max(b.id) AS second
    FROM (
        SELECT ordering_key, max(id) AS last FROM candidates WHERE ordering_key IS NOT NULL GROUP BY ordering_key
    ) k CROSS JOIN LATERAL (
        SELECT s.id FROM message_states s
        WHERE s.ordering_key = k.ordering_key AND s.ordering_key IS NOT NULL AND s.id < k.last
          AND s.status IN ('RECEIVED', 'TRANSFORMING', 'FAILED'){blocking}
          AND NOT EXISTS (SELECT 1 FROM candidates x WHERE x.id = s.id)
        ORDER BY s.id LIMIT 2
    ) b GROUP BY k.ordering_key
), blocked AS MATERIALIZED (
    SELECT c.id, k.blocker,
           (k.second > k.blocker AND k.second < c.id)
           OR row_number() OVER (PARTITION BY c.ordering_key ORDER BY c.id) > 1 AS further_back
    FROM candidates c JOIN keys k ON c.ordering_key = k.ordering_key AND c.id > k.blocker
), deferred AS (
    UPDATE message_states s
    SET ready_at = CASE
        WHEN b.further_back THEN now() + interval '1 minute'
        WHEN h.status = 'FAILED' AND h.next_attempt_at > now() THEN h.next_attempt_at
        ELSE now() + interval '1 second' END
    FROM blocked b JOIN message_states h ON h.id = b.blocker
    WHERE s.id = b.id
    RETURNING s.id
), taken AS (
    UPDATE message_states s
    SET status = 'TRANSFORMING', fence = s.fence + 1, claimed_by = $1, leased_at = now()
    FROM candidates c
    WHERE s.id = c.id AND NOT EXISTS (SELECT 1 FROM blocked b WHERE b.id = c.id)
    RETURNING s.id, s.fence, s.attempt_count, s.received_at, s.original_id, s.mapping_epoch, s.permanent
)
SELECT t.id, t.fence, b.correlation_id::text, t.received_at, b.source_system, b.source_id, b.message_type,
       b.raw_message, b.charset, t.attempt_count, b.ordering_key, b.tenant, t.original_id, t.mapping_epoch,
       b.listener, t.permanent, b.source_protocol
FROM taken t JOIN message_bodies b ON b.id = coalesce(t.original_id, t.id)
UNION ALL
SELECT id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM deferred
ORDER BY 1""",
    )


def _recheck_deferred(name: str, blocking: str) -> Statement:
    return Statement(
        name,
        "text",
        rf"""
UPDATE message_states s SET ready_at = greatest(now(), s.next_attempt_at)
FROM unnest(string_to_array($1, E'\x1f')::bigint[]) AS p(id)
WHERE s.id = p.id AND s.status::text IN ('RECEIVED', 'FAILED') AND s.ready_at > now() AND NOT EXISTS (
    SELECT 1 FROM message_states e
    WHERE e.ordering_key = s.ordering_key AND e.id < s.id AND e.ordering_key IS NOT NULL
      AND e.status IN ('RECEIVED', 'TRANSFORMING', 'FAILED'){blocking})""",
    )


def _settle(name: str, ended: str) -> Statement:
    return Statement(
        name,
        "text, text, text, text, text, text, text, text, text",
        rf"""
WITH settled AS (
    UPDATE message_states s SET
        status = i.status,
        attempt_count = CASE WHEN i.status IN ('FAILED', 'DEAD_LETTER') THEN i.attempt_count ELSE s.attempt_count END,
        last_attempt_at = CASE WHEN i.status = 'RECEIVED' THEN s.last_attempt_at ELSE now() END,
        next_attempt_at = CASE WHEN i.status = 'FAILED' THEN i.next_attempt_at END,
        ready_at = CASE WHEN i.status = 'FAILED' THEN coalesce(i.next_attempt_at, now()) ELSE now() END,
        last_error = CASE WHEN i.status IN ('FAILED', 'DEAD_LETTER') THEN coalesce(i.error, '')
                          WHEN i.status = 'RECEIVED' THEN s.last_error END,
        delivered_at = CASE WHEN i.status = 'DELIVERED' THEN now() END,
        permanent = CASE WHEN i.status = 'RECEIVED' THEN s.permanent ELSE i.permanent END,
        claimed_by = NULL, leased_at = NULL,
        map_url = coalesce(i.map_url, s.map_url), transform_ms = coalesce(i.transform_ms, s.transform_ms)
    FROM unnest(
        string_to_array($1, E'\x1f')::bigint[], string_to_array($2, E'\x1f')::bigint[],
        string_to_array($3, E'\x1f')::message_status[], string_to_array($4, E'\x1f')::integer[],
        string_to_array($5, E'\x1f', E'\x1e'), string_to_array($6, E'\x1f', E'\x1e')::timestamptz[],
        string_to_array($7, E'\x1f', E'\x1e'), string_to_array($8, E'\x1f', E'\x1e')::real[],
        string_to_array($9, E'\x1f')::boolean[]
    ) AS i(id, fence, status, attempt_count, error, next_attempt_at, map_url, transform_ms, permanent)
    WHERE s.id = i.id AND s.fence = i.fence AND s.status::text = 'TRANSFORMING'
    RETURNING s.id, s.fence, s.ordering_key, s.status, s.permanent
){_wake_next(ended)}, resolved AS (
    UPDATE identity_conflicts c SET status = 'closed' FROM settled s
    WHERE c.state_id = s.id AND c.status <> 'closed' AND s.status = 'DELIVERED'
)
SELECT id, fence FROM settled""",
    )


_ENDED = "status IN ('DELIVERED', 'DEAD_LETTER')"
_NOT_PASSED = " AND NOT ({0}.status::text = 'FAILED' AND {0}.permanent)"

HOLDING = Ordered(
    _claim("inbox_claim", ""), _recheck_deferred("inbox_recheck_deferred", ""), _settle("inbox_settle", _ENDED)
)
PASSING = Ordered(
    _claim("inbox_claim_passing", _NOT_PASSED.format("s")),
    _recheck_deferred("inbox_recheck_passing", _NOT_PASSED.format("e")),
    _settle("inbox_settle_passing", f"{_ENDED} OR status::text = 'FAILED' AND permanent"),
)


def _recover(lost: str) -> str:
    """Settle the rows that the condition `lost` (with $1) finds as failed; $2.. = base, factor, max, max_attempts."""
    return f"""
WITH lost AS (
    SELECT id FROM message_states WHERE status = 'TRANSFORMING' AND {lost}
    ORDER BY leased_at LIMIT 1000 FOR UPDATE SKIP LOCKED
), settled AS (
    UPDATE message_states s SET
        status = CASE WHEN s.attempt_count + 1 >= $5 THEN 'DEAD_LETTER' ELSE 'FAILED' END::message_status,
        attempt_count = s.attempt_count + 1,
        last_attempt_at = now(),
        next_attempt_at = CASE WHEN s.attempt_count + 1 < $5 THEN now() + d.delay END,
        ready_at = now() + d.delay,
        last_error = 'the worker that held this message was lost', permanent = false,
        claimed_by = NULL, leased_at = NULL
    FROM lost l JOIN message_states o ON o.id = l.id CROSS JOIN LATERAL (
        SELECT least($2::double precision * $3::double precision ^ least(o.attempt_count, 64), $4)
               * interval '1 millisecond' AS delay
    ) d
    WHERE s.id = l.id
    RETURNING s.id, s.ordering_key, s.status, s.attempt_count, s.original_id
){_wake_next(_ENDED)}
SELECT s.id, b.correlation_id::text, b.source_system, b.source_id, b.message_type, s.attempt_count, s.status::text,
       b.source_protocol
FROM settled s JOIN message_bodies b ON b.id = coalesce(s.original_id, s.id) ORDER BY s.id"""


RECOVER_STALE = Statement(
    "inbox_recover_stale",
    "double precision, double precision, double precision, double precision, integer",
    _recover("leased_at < now() - $1 * interval '1 second'"),
)

# Rows that are due later than any rule can defer them: the clock was set back since.  They become ready now.
RESCHEDULE = Statement(
    "inbox_reschedule",
    "double precision",
    """
UPDATE message_states SET ready_at = now(), next_attempt_at = CASE WHEN status::text = 'FAILED' THEN now() END
WHERE status IN ('RECEIVED', 'FAILED') AND ready_at > now() + $1 * interval '1 second'""",
)

RECOVER_WORKER = Statement(
    "inbox_recover_worker",
    "text, double precision, double precision, double precision, integer",
    _recover("claimed_by = $1"),
)

HOLDERS = Statement(
    "inbox_holders",
    "",
    "SELECT DISTINCT claimed_by FROM message_states WHERE status = 'TRANSFORMING' AND leased_at IS NOT NULL"
    " AND claimed_by IS NOT NULL",
)

REJECT = Statement(
    "inbox_reject",
    "text, timestamptz, uuid, text, text, text, bigint, bytea",
    """
INSERT INTO rejects (tenant, received_at, correlation_id, listener, peer, reason, size, raw)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)""",
)

STATEMENTS = (
    STORE, STORE_ONE, EXISTING, *HOLDING, *PASSING, RELEASE_EXCEPT, RENEW, RECOVER_STALE, RESCHEDULE,
    RECOVER_WORKER, HOLDERS, REJECT,
)  # fmt: skip
