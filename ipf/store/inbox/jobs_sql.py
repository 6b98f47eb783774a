"""The statements of jobs on many messages: selection, and the batches of replay, retry and discard.

A replay creates further conversions, like a requeue (`unmapped_codes_sql`).  A delivered row does not change.  The
conversion is ordered after all stored messages of its patient.  Later messages of the patient are converted again
after it (`following`), except those that the same job has not processed yet.
"""

from __future__ import annotations

import re

from ipf.store.postgres.quoting import Statement, Value, array, literal, script

COLUMNS = """id, kind, selection, following, per_second, status, total, done_count, changed_count, following_count,
    skipped_count, error, created_at, updated_at, tenant"""

# The tenant of a job on all tenants: the tenant of its messages if they have the same one.
_TENANT_OF_ALL = r"""CASE WHEN $1 <> '*' THEN $1 ELSE (
        SELECT CASE WHEN min(s.tenant) = max(s.tenant) THEN min(s.tenant) ELSE '*' END
        FROM unnest(string_to_array($6, E'\x1f')::bigint[]) AS i(id) JOIN message_states s ON s.id = i.id) END"""

START = Statement(
    "jobs_start",
    "text, text, text, boolean, integer, text",
    rf"""
WITH job AS (
    INSERT INTO admin_jobs (tenant, kind, selection, following, per_second, total, status, created_at, updated_at)
    VALUES ({_TENANT_OF_ALL}, $2, $3, $4, $5, coalesce(array_length(string_to_array($6, E'\x1f'), 1), 0),
            CASE WHEN $6 = '' THEN 'done' ELSE 'requested' END, now(), now())
    RETURNING *
), messages AS (
    INSERT INTO admin_job_messages (job_id, message_id)
    SELECT j.id, m FROM job j CROSS JOIN unnest(string_to_array($6, E'\x1f')::bigint[]) AS m
)
SELECT {COLUMNS} FROM job""",
)
JOB = Statement("jobs_one", "bigint", f"SELECT {COLUMNS} FROM admin_jobs WHERE id = $1")
CANCEL = Statement(
    "jobs_cancel",
    "bigint",
    f"""
UPDATE admin_jobs SET status = 'cancelled', updated_at = now()
WHERE id = $1 AND status IN ('requested', 'running') RETURNING {COLUMNS}""",
)
TAKE = Statement(
    "jobs_take",
    "",
    """
SELECT id, tenant, kind, following, per_second, after_id FROM admin_jobs
WHERE status IN ('requested', 'running') ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED""",
)
NEXT = Statement(
    "jobs_next",
    "bigint, bigint, integer",
    "SELECT message_id FROM admin_job_messages WHERE job_id = $1 AND message_id > $2 ORDER BY message_id LIMIT $3",
)
PROGRESS = Statement(
    "jobs_progress",
    "bigint, text, bigint, bigint, bigint, bigint, text",
    """
WITH done AS (DELETE FROM admin_job_messages WHERE job_id = $1 AND $2 IN ('done', 'failed'))
UPDATE admin_jobs SET status = $2, after_id = $3, done_count = done_count + $4, changed_count = changed_count + $5,
    following_count = following_count + $6, skipped_count = skipped_count + $4 - $5, error = $7, updated_at = now()
WHERE id = $1""",
)
RETRY = Statement(
    "jobs_retry",
    "text, text",
    r"""
WITH retried AS (
    UPDATE message_states s
    SET status = 'RECEIVED', attempt_count = 0, next_attempt_at = NULL, last_error = NULL, permanent = false,
        ready_at = now(),
        mapping_epoch = (SELECT epoch FROM mapping_state WHERE single)
    FROM unnest(string_to_array($2, E'\x1f')::bigint[]) AS i(id)
    WHERE s.id = i.id AND ($1 = '*' OR s.tenant = $1) AND s.original_id IS NULL
      AND s.status::text IN ('FAILED', 'DEAD_LETTER')
    RETURNING s.id
)
SELECT count(*), 0 FROM retried""",
)
DISCARD = Statement(
    "jobs_discard",
    "text, text",
    r"""
WITH s AS (
    DELETE FROM message_states s USING unnest(string_to_array($2, E'\x1f')::bigint[]) AS i(id)
    WHERE s.id = i.id AND ($1 = '*' OR s.tenant = $1) AND s.original_id IS NULL
      AND s.status::text = 'DEAD_LETTER' RETURNING s.id
), again AS (
    DELETE FROM message_states c USING s WHERE c.original_id = s.id
), bodies AS (
    DELETE FROM message_bodies b USING s WHERE b.id = s.id
)
SELECT count(*), 0 FROM s""",
)

STATEMENTS = (START, JOB, CANCEL, TAKE, NEXT, PROGRESS, RETRY, DISCARD)

_PARAMETER = re.compile(r"\$[1-5]")


def replay(tenant: str, job: int, ids: str, last_id: int, following: bool) -> str:
    """The script that converts these messages again, inside a transaction.  Result: (messages, following messages)."""
    values: dict[str, Value] = {"$1": tenant, "$2": job, "$3": array([ids]), "$4": last_id, "$5": following}
    query = _PARAMETER.sub(lambda found: literal(values[found.group()]), _REPLAY)
    return script("SET LOCAL enable_hashjoin = on", "SET LOCAL enable_seqscan = on", query)


_REPLAY = """
WITH met AS MATERIALIZED (
    SELECT s.id, s.tenant, s.ordering_key, s.status::text AS status FROM unnest($3::bigint[]) AS i(id)
    JOIN message_states s ON s.id = i.id WHERE ($1 = '*' OR s.tenant = $1) AND s.original_id IS NULL
), retried AS (
    UPDATE message_states s
    SET status = 'RECEIVED', attempt_count = 0, next_attempt_at = NULL, last_error = NULL, permanent = false,
        ready_at = now(),
        mapping_epoch = (SELECT epoch FROM mapping_state WHERE single)
    FROM met m WHERE s.id = m.id AND s.status::text IN ('FAILED', 'DEAD_LETTER') RETURNING s.id
), first AS MATERIALIZED (
    SELECT ordering_key, tenant, min(id) AS id FROM met
    WHERE $5 AND ordering_key IS NOT NULL AND status <> 'RECEIVED' GROUP BY ordering_key, tenant
), following AS MATERIALIZED (
    SELECT s.id FROM first f
    JOIN message_states s ON s.ordering_key = f.ordering_key AND s.tenant = f.tenant AND s.id > f.id
    WHERE s.id > (SELECT min(id) FROM first) AND s.original_id IS NULL AND s.status::text <> 'DEAD_LETTER'
      AND NOT (s.status::text IN ('DELIVERED', 'TRANSFORMING') AND s.id > $4 AND EXISTS (
          SELECT 1 FROM admin_job_messages j WHERE j.job_id = $2 AND j.message_id = s.id))
), again AS MATERIALIZED (
    SELECT id, true AS requested FROM met WHERE status IN ('DELIVERED', 'TRANSFORMING')
    UNION ALL
    SELECT id, false FROM following f WHERE NOT EXISTS (
        SELECT 1 FROM met m WHERE m.id = f.id AND m.status IN ('DELIVERED', 'TRANSFORMING'))
), made AS (
    INSERT INTO message_states
        (id, tenant, status, received_at, ordering_key, ready_at, original_id, mapping_epoch, reason)
    SELECT nextval(pg_get_serial_sequence('message_bodies', 'id')), s.tenant, 'RECEIVED', now(), s.ordering_key, now(),
           s.id, (SELECT epoch FROM mapping_state WHERE single), 'job/' || $2
    FROM (SELECT id FROM again ORDER BY id) a JOIN LATERAL (
        SELECT * FROM message_states o WHERE o.id = a.id
    ) s ON true
)
SELECT (SELECT count(*) FROM again WHERE requested) + (SELECT count(*) FROM retried),
       (SELECT count(*) FROM again WHERE NOT requested)"""
