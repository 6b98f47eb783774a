"""The SQL of an erasure in the FHIR database; `resources.py` inserts the values as literals.

Events keep their numbers, and a number is never used again.  Where the newest pending events of a subscription are
removed, its last remaining pending event gets the newest number, so that the cursor reaches the end when it is
delivered.  The lease of such a subscription ends, since its holder has the events in memory.
"""

from __future__ import annotations

# A de-identified export has hashes instead of the ids that could be found in it.  The id in the URL or in the grants of
# the caller: it was about him.
_EXPORTS = """j.partition_id = {partition} AND (j.status = 'running' OR j.deident IS NOT NULL
    OR EXISTS (SELECT FROM regexp_matches(replace(concat_ws(' ', j.request_url, j.filters, j.caller), '%2F', '/'),
        '([A-Za-z0-9.-]+)', 'g') m WHERE m[1] = ANY ({ids}))
    OR j.id = ANY ({asked})
    OR EXISTS (SELECT FROM export_parts v WHERE v.partition_id = j.partition_id AND v.job_id = j.id AND ({mentions}
        OR EXISTS (SELECT FROM regexp_matches(v.body, '"id":"([A-Za-z0-9.-]{{1,64}})"', 'g') m
                   WHERE m[1] = ANY ({ids})))))"""
# Of a job the request, the answer and the lines that it reported; what a running search would find is not known yet.
_JOBS = """j.partition_id = {partition} AND (j.kind = 'request' AND j.status = 'running' AND j.body = ''
    OR j.id = ANY ({asked})
    OR EXISTS (SELECT FROM regexp_matches(replace(concat_ws(' ', j.asked, j.caller, j.state, j.body, j.answer,
            (SELECT string_agg(concat_ws(' ', f.name, f.body), ' ') FROM job_files f
             WHERE f.partition_id = j.partition_id AND f.job_id = j.id),
            (SELECT string_agg(r.result, ' ') FROM job_results r
             WHERE r.partition_id = j.partition_id AND r.job_id = j.id)), '%2F', '/'),
        '([A-Za-z0-9.-]+)', 'g') m WHERE m[1] = ANY ({ids_and_numbers})))"""
_TOKENS = """t.partition_id = {partition}
    AND EXISTS (SELECT FROM unnest({ids}) i WHERE strpos(t.caller, '"' || i || '"') > 0)"""
_ATTEMPTS = """WITH e AS MATERIALIZED (
    SELECT subscription_rid, event_number FROM subscription_events WHERE resource_rid = ANY ({rids})
)
SELECT a.id FROM delivery_attempts a JOIN e USING (subscription_rid, event_number)
UNION SELECT a.id FROM e JOIN delivery_attempts a ON a.subscription_rid = e.subscription_rid
    AND a.to_event_number IS NOT NULL AND e.event_number BETWEEN a.event_number AND a.to_event_number"""
_ANSWERS = "a.partition_id = {partition} AND a.resource_type || '/' || a.resource_id = ANY ({wanted})"
_WRITTEN = "g.partition_id = {partition} AND (g.patient = ANY ({ids}) OR g.fhir_user = ANY ({wanted}))"

COUNTS = f"""SELECT (SELECT count(*) FROM resource_versions WHERE rid = ANY ({{rids}})),
    (SELECT count(*) FROM subscription_events WHERE resource_rid = ANY ({{rids}})),
    (SELECT count(*) FROM ({_ATTEMPTS}) a),
    (SELECT count(*) FROM export_jobs j WHERE {_EXPORTS}),
    (SELECT count(*) FROM jobs j WHERE {_JOBS}),
    (SELECT count(*) FROM identity_answers a WHERE {_ANSWERS}),
    (SELECT count(*) FROM websocket_tokens t WHERE {_TOKENS})"""

# Without its grants a Subscription would see more: it must be deleted first.
SUBSCRIPTIONS = f"""SELECT DISTINCT 'Subscription/' || s.id FROM subscription_grants g
    JOIN subscription_states s ON s.rid = g.rid AND s.status <> 'deleted' WHERE {_WRITTEN} ORDER BY 1"""

AFFECTED = """SELECT s.rid FROM subscription_states s WHERE s.partition_id = {partition}
    AND EXISTS (SELECT FROM subscription_events e WHERE e.subscription_rid = s.rid AND e.resource_rid = ANY ({rids}))
    ORDER BY s.rid FOR UPDATE"""

# Every process knows the Consents; the rows tell it of those that are gone.
_CONSENTS = """
WITH c AS (
    SELECT rid, partition_id FROM resources WHERE rid = ANY ({known}) AND resource_type = 'Consent'
), e AS (
    UPDATE consent_epoch SET epoch = epoch + 1 WHERE single AND EXISTS (SELECT FROM c) RETURNING epoch
)
INSERT INTO consent_changes (rid, partition_id, epoch) SELECT c.rid, c.partition_id, e.epoch FROM c CROSS JOIN e
ON CONFLICT (rid) DO UPDATE SET epoch = excluded.epoch"""

# Events that are sent again: up to the last one that remains; if none does, the cursor returns.
_RESENT = """
UPDATE subscription_states s SET resend_until = n.last,
    delivered_number = CASE WHEN n.last IS NULL THEN greatest(s.delivered_number, s.resume_number)
                            ELSE s.delivered_number END
FROM subscription_states o LEFT JOIN LATERAL (
    SELECT max(e.event_number) AS last FROM subscription_events e WHERE e.subscription_rid = o.rid
        AND e.event_number > o.delivered_number AND e.event_number <= o.resend_until
) n ON true
WHERE s.rid = ANY ({affected}) AND o.rid = s.rid AND s.resend_until IS NOT NULL"""
_PENDING = """SELECT s.rid, s.last_event_number,
    (SELECT max(e.event_number) FROM subscription_events e WHERE e.subscription_rid = s.rid AND e.event_number >
        CASE WHEN s.resend_until IS NULL THEN s.delivered_number ELSE s.resume_number END) AS last
    FROM subscription_states s WHERE s.rid = ANY ({affected})"""
_DONE = f"""
UPDATE subscription_states s SET
    delivered_number = CASE WHEN s.resend_until IS NULL THEN s.last_event_number ELSE s.delivered_number END,
    resume_number = CASE WHEN s.resend_until IS NULL THEN s.resume_number ELSE s.last_event_number END
FROM ({_PENDING}) n WHERE n.rid = s.rid AND n.last IS NULL"""
_LAST = f"""
UPDATE subscription_events e SET event_number = n.last_event_number
FROM ({_PENDING}) n
WHERE e.subscription_rid = n.rid AND e.event_number = n.last AND n.last < n.last_event_number"""
_LEASES = """
UPDATE subscription_states SET lease_token = lease_token + 1, lease_until = NULL, leased_by = NULL, ready_at = now()
WHERE rid = ANY ({affected}) AND lease_until IS NOT NULL"""

_RECEIPTS = """DELETE FROM receipts r USING unnest({correlations}) m(id) WHERE r.partition_id = {partition}
    AND r.key >= 'message/' || m.id AND r.key < 'message/' || m.id || '0'"""

# Every process matches Subscriptions and topics in memory; the new epoch tells it of those that are gone or redacted.
# The state of a removed one stays.
_DEFINITIONS = """
WITH e AS (
    UPDATE subscription_epoch SET epoch = epoch + 1 WHERE single AND (
        EXISTS (SELECT FROM subscription_states WHERE rid = ANY ({known}))
        OR EXISTS (SELECT FROM subscription_topics WHERE rid = ANY ({known}))) RETURNING epoch
), t AS (
    UPDATE subscription_topics t SET epoch = e.epoch, served = t.served AND NOT t.rid = ANY ({rids})
    FROM e WHERE t.rid = ANY ({known})
)
UPDATE subscription_states s SET epoch = e.epoch, error = NULL, last_error = NULL,
    status = CASE WHEN s.rid = ANY ({rids}) THEN 'deleted' ELSE s.status END
FROM e WHERE s.rid = ANY ({known})"""
# A request names him by a number or a name.
ASKED = """SELECT id, asked FROM jobs WHERE partition_id = {partition}
    UNION ALL SELECT id, concat_ws(' ', request_url, filters) FROM export_jobs WHERE partition_id = {partition}"""

# In an order in which each still finds its rows.
REMOVALS = (
    f"DELETE FROM delivery_attempts WHERE id IN ({_ATTEMPTS})",
    "DELETE FROM delivery_attempts WHERE subscription_rid = ANY ({rids})",
    "DELETE FROM subscription_events WHERE resource_rid = ANY ({rids}) OR subscription_rid = ANY ({rids})",
    _RESENT,
    _DONE,
    _LAST,
    _LEASES,
    f"DELETE FROM subscription_grants g WHERE g.rid = ANY ({{rids}}) OR {_WRITTEN}",
    _DEFINITIONS,
    _CONSENTS,
    *(
        f"DELETE FROM {table} WHERE partition_id = {{partition}} AND rid = ANY ({{rids}})"
        for table in ("index_text", "index_date", "index_quantity", "index_words")
    ),
    f"DELETE FROM export_jobs j WHERE {_EXPORTS}",
    f"DELETE FROM jobs j WHERE {_JOBS}",
    f"DELETE FROM identity_answers a WHERE {_ANSWERS}",
    f"DELETE FROM websocket_tokens t WHERE {_TOKENS}",
    "DELETE FROM resource_versions WHERE rid = ANY ({rids})",
    "DELETE FROM resources WHERE rid = ANY ({rids})",
    _RECEIPTS,
)
