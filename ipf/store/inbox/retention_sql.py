"""The SQL statements of retention, one batch each.  `retention.py` inserts the values as literals."""

from __future__ import annotations

from ipf.store.postgres.quoting import literal

BATCH = 500
WHOLE_BATCH = 2_000  # messages of a partition that is dropped afterwards
SUBSCRIPTIONS = 200  # of one batch
MOST_AWAITED = 20_000
RUN_HOURS = 6

# {held}: rows of patients under a legal hold (`legal_holds.py`).
_DONE = """s.status = {status} AND s.original_id IS NULL AND s.received_at < {before} AND s.{ended} < {before}
    AND NOT s.id = ANY ({held})
    AND NOT EXISTS (SELECT 1 FROM forwards f WHERE f.message_id = s.id AND f.status = 'PENDING')
    AND NOT EXISTS (SELECT 1 FROM message_states c WHERE c.original_id = s.id
                    AND (c.status <> 'DELIVERED' OR c.delivered_at >= {before}))"""

# Ids increase in order of receipt.  (id, tenant, correlation id, whether it is old); tenant NULL: the row is kept.
MESSAGES = f"""
WITH scanned AS MATERIALIZED (
    SELECT * FROM message_states WHERE id > {{after}} AND id < {{until}} ORDER BY id LIMIT {{most}}
)
SELECT s.id, b.tenant, b.correlation_id::text, s.received_at < {{before}}
FROM (SELECT s.*, {_DONE} AS done FROM scanned s OFFSET 0) s LEFT JOIN message_bodies b ON b.id = s.id AND s.done
ORDER BY s.id"""

REMOVE_MESSAGES = rf"""
WITH chosen AS (SELECT id::bigint FROM unnest(string_to_array({{ids}}, E'\x1f')) AS t(id)),
deleted AS (
    DELETE FROM message_states s USING chosen c WHERE s.id = c.id AND {_DONE} RETURNING s.id
), again AS (
    DELETE FROM message_states c USING deleted g WHERE c.original_id = g.id
), unmapped AS (
    DELETE FROM unmapped_messages u USING deleted g WHERE u.message_id = g.id
), bodies AS (
    DELETE FROM message_bodies b USING deleted g WHERE b.id = g.id RETURNING b.received_at
)
UPDATE received_counted r SET kept = r.kept - n.count
FROM (SELECT count(*) FROM bodies, received_counted c
      WHERE bodies.received_at < c.until AND current_setting('ipf.pruning', true) = 'on') n
WHERE n.count > 0"""

# Of messages whose partition is dropped afterwards: everything but payload and text.  The trigger of `message_bodies`
# does the same for single messages.
REMOVE_STATES = rf"""
WITH chosen AS (SELECT id::bigint FROM unnest(string_to_array({{ids}}, E'\x1f')) AS t(id)),
deleted AS (
    DELETE FROM message_states s USING chosen c WHERE s.id = c.id AND {_DONE} RETURNING s.id
), again AS (
    DELETE FROM message_states c USING deleted g WHERE c.original_id = g.id
), unmapped AS (
    DELETE FROM unmapped_messages u USING deleted g WHERE u.message_id = g.id
), forwarded AS (
    DELETE FROM forwards f USING deleted g WHERE f.message_id = g.id
), effects AS (
    DELETE FROM remote_effects e USING deleted g WHERE e.message_id = g.id
), bodies AS MATERIALIZED (
    SELECT b.id, b.tenant, b.source_system, b.source_id, b.message_type, b.received_at
    FROM deleted g JOIN message_bodies b ON b.id = g.id
), keys AS (
    DELETE FROM message_keys k USING bodies b
    WHERE k.source_id = b.source_id AND k.source_system = b.source_system AND k.tenant = b.tenant AND k.id = b.id
), totals AS (
    UPDATE message_totals t SET count = t.count - n.count
    FROM (SELECT tenant, source_system, message_type, count(*) FROM bodies GROUP BY 1, 2, 3) n
    WHERE t.tenant = n.tenant AND t.source_system = n.source_system AND t.message_type = n.message_type
)
UPDATE received_counted r SET kept = r.kept - n.count
FROM (SELECT count(*) FROM bodies, received_counted c WHERE bodies.received_at < c.until) n
WHERE n.count > 0"""

RECEIPTS = r"""
DELETE FROM receipts r
USING unnest(string_to_array({tenants}, E'\x1f'), string_to_array({ids}, E'\x1f')) AS m(tenant, id),
      partitions p
WHERE p.name = m.tenant AND r.partition_id = p.id
  AND r.key >= 'message/' || m.id AND r.key < 'message/' || m.id || '0'"""

# (last scanned id, NULL = no old rows left; number of deleted rows)
IN_ORDER = f"""
WITH scanned AS MATERIALIZED (
    SELECT id, {{time}} < {{before}} AS old FROM {{table}}
    WHERE id > {{after}} AND id < {{until}} ORDER BY id LIMIT {BATCH}
), deleted AS (
    DELETE FROM {{table}} t USING scanned w WHERE t.id = w.id AND w.old AND NOT t.id = ANY ({{held}}) RETURNING t.id
)
SELECT (SELECT max(id) FROM scanned WHERE EXISTS (SELECT 1 FROM scanned WHERE old)), (SELECT count(*) FROM deleted)"""

EVENTS = f"""
WITH scanned AS MATERIALIZED (
    SELECT rid, CASE WHEN status = 'deleted' THEN last_event_number ELSE delivered_number END AS done
    FROM subscription_states WHERE rid > {{after}} ORDER BY rid LIMIT {SUBSCRIPTIONS}
), expired AS MATERIALIZED (
    SELECT e.subscription_rid, e.event_number FROM scanned l CROSS JOIN LATERAL (
        SELECT e.* FROM subscription_events e
        WHERE e.subscription_rid = l.rid AND e.event_number <= l.done AND NOT e.resource_rid = ANY ({{held}})
        ORDER BY e.event_number LIMIT 50
    ) e WHERE e.occurred_at < {{before}}
), deleted AS (
    DELETE FROM subscription_events e USING expired d
    WHERE e.subscription_rid = d.subscription_rid AND e.event_number = d.event_number RETURNING 1
)
SELECT (SELECT max(rid) FROM scanned), (SELECT count(*) FROM deleted)"""

AWAITED = f"""
SELECT e.resource_rid, e.version_id
FROM subscription_states s JOIN subscription_events e
    ON e.subscription_rid = s.rid AND e.event_number > s.delivered_number
WHERE s.rid > 0 AND s.last_event_number > s.delivered_number AND s.status <> 'deleted' AND e.occurred_at < {{before}}
LIMIT {MOST_AWAITED + 1}"""

PARTITIONS = "SELECT min(id) FROM partitions WHERE id > {after}"

# The age of a former version counts from the version that replaced it.
VERSIONS = rf"""
WITH scanned AS MATERIALIZED (
    SELECT rid, version_id, last_updated FROM resource_versions
    WHERE partition_id = {{partition}} AND (last_updated, rid, version_id) > ({{time}}, {{rid}}, {{version}})
      AND last_updated < {{before}}
    ORDER BY last_updated, rid, version_id LIMIT {BATCH}
), expired AS MATERIALIZED (
    SELECT w.rid, w.version_id FROM scanned w JOIN resources r ON r.rid = w.rid
    LEFT JOIN resource_versions n ON n.rid = w.rid AND n.version_id = w.version_id + 1
    WHERE w.version_id < r.version_id AND coalesce(n.last_updated, w.last_updated) < {{before}}
      AND NOT w.rid = ANY ({{held}})
      AND w.rid || '/' || w.version_id NOT IN (SELECT unnest(string_to_array({{awaited}}, E'\x1f')))
), deleted AS (
    DELETE FROM resource_versions v USING expired d WHERE v.rid = d.rid AND v.version_id = d.version_id RETURNING 1
), last AS (
    SELECT last_updated, rid, version_id FROM scanned ORDER BY last_updated DESC, rid DESC, version_id DESC LIMIT 1
)
SELECT (SELECT count(*) FROM deleted), l.last_updated, l.rid, l.version_id
FROM (VALUES (1)) v LEFT JOIN last l ON true"""

_FORMER = """
SELECT count(*) FROM resource_versions w JOIN resources r ON r.rid = w.rid
LEFT JOIN resource_versions n ON n.rid = w.rid AND n.version_id = w.version_id + 1
WHERE w.last_updated < {before} AND w.version_id < r.version_id
  AND coalesce(n.last_updated, w.last_updated) < {before} AND NOT w.rid = ANY ({held})"""


def _messages(status: str, ended: str) -> str:
    done = _DONE.replace("{status}", literal(status)).replace("{ended}", ended)
    return f"SELECT count(*) FROM message_states s WHERE {done}"


COUNTS = {
    "messages": _messages("DELIVERED", "delivered_at"),
    "dead_letters": _messages("DEAD_LETTER", "last_attempt_at"),
    "rejects": "SELECT count(*) FROM rejects WHERE received_at < {before} AND NOT id = ANY ({held})",
    "attempts": "SELECT count(*) FROM delivery_attempts WHERE id > 0 AND attempted_at < {before}",
    "events": "SELECT count(*) FROM subscription_states s JOIN subscription_events e ON e.subscription_rid = s.rid"
    " AND e.event_number <= CASE WHEN s.status = 'deleted' THEN s.last_event_number ELSE s.delivered_number END"
    " WHERE s.rid > 0 AND e.occurred_at < {before} AND NOT e.resource_rid = ANY ({held})",
    "versions": _FORMER,
}

BEGIN_RUN = f"""
INSERT INTO duties AS d (name, held_by, held_until, began_at, ended_at, result)
VALUES ('retention', {{worker}}, now() + {{seconds}} * interval '1 second', now(), NULL, {{result}})
ON CONFLICT (name) DO UPDATE SET held_by = excluded.held_by, held_until = excluded.held_until, began_at = now(),
    ended_at = NULL, result = excluded.result
WHERE (d.held_by IS NULL OR d.held_until < now())
  AND (d.ended_at IS NULL OR d.ended_at < now() - interval '{RUN_HOURS} hours')
RETURNING 1"""

RENEW_RUN = """
UPDATE duties SET held_until = now() + {seconds} * interval '1 second', result = {result}
WHERE name = 'retention' AND held_by = {worker} RETURNING 1"""

END_RUN = """
UPDATE duties SET held_by = NULL, held_until = now(), ended_at = now(), result = {result}
WHERE name = 'retention' AND held_by = {worker}"""

REQUEST_RUN = "UPDATE duties SET ended_at = NULL WHERE name = 'retention' AND held_by IS NULL"

LAST_RUN = "SELECT held_by, began_at, ended_at, result FROM duties WHERE name = 'retention'"
