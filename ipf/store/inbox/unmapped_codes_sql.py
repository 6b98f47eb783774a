"""The statements of unmapped codes, their overrides, further conversions, and the state of mapping processes.

`RECORD` and the settle statement are one script: one transaction and one round trip.  `RECORD` locks codes in key
order, settle locks messages after it, so there is no deadlock.

A further conversion must not replace newer data with older data.  Its row gets a new id, so it is ordered after all
stored messages of its patient, and before all later ones (`statements`).  Messages that were converted after the
original are therefore converted again after it (`following`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ipf.ports import Settlement
from ipf.store.postgres.quoting import Statement, Value, joined, literal, printable, script

MOST_MESSAGES = 10_000  # message ids kept for one code, for a requeue
_LONGEST = 200  # characters kept of a code
_MOST = 200  # codes recorded of one message

RECORD = Statement(
    "codes_record",
    "text, text, text",
    rf"""
WITH met AS MATERIALIZED (
    SELECT DISTINCT b.tenant, b.source_system, i.concept_map, i.code, b.id
    FROM unnest(
        string_to_array($1, E'\x1f')::bigint[], string_to_array($2, E'\x1f'), string_to_array($3, E'\x1f')
    ) AS i(id, concept_map, code)
    JOIN message_states s ON s.id = i.id
    JOIN message_bodies b ON b.id = coalesce(s.original_id, s.id)
), codes AS (
    INSERT INTO unmapped_codes AS c (tenant, source_system, concept_map, code, first_seen, last_seen, met, kept)
    SELECT tenant, source_system, concept_map, code, now(), now(), count(*), count(*)
    FROM met GROUP BY tenant, source_system, concept_map, code ORDER BY 1, 2, 3, 4
    ON CONFLICT (tenant, source_system, concept_map, code) DO UPDATE
    SET last_seen = now(), met = c.met + excluded.met, kept = least(c.kept + excluded.kept, {MOST_MESSAGES} + 1)
    RETURNING id, tenant, source_system, concept_map, code, kept
)
INSERT INTO unmapped_messages (unmapped_id, message_id)
SELECT c.id, m.id FROM codes c JOIN met m USING (tenant, source_system, concept_map, code)
WHERE c.kept <= {MOST_MESSAGES} ORDER BY 1, 2
ON CONFLICT DO NOTHING""",
)


def record(settlements: Sequence[Settlement]) -> str:
    """The statement that records the unmapped codes of these messages; "" when there are none."""
    found = [(end.id, one) for end in settlements if end.unmapped for one in end.unmapped[:_MOST]]
    if not found:
        return ""
    return RECORD.call(
        joined(id_ for id_, _ in found),
        joined(printable(one.concept_map, _LONGEST) for _, one in found),
        joined(printable(one.code, _LONGEST) for _, one in found),
    )


MESSAGES = Statement(
    "codes_messages",
    "bigint, integer",
    "SELECT message_id FROM unmapped_messages WHERE unmapped_id = $1 ORDER BY message_id DESC LIMIT $2",
)


def requeue(number: int, following: bool, reason: str) -> str:
    """The script that converts the messages of a code again, inside a transaction.

    It allows hash joins, because it reads all later rows to find those of the same patients.
    """
    values: dict[str, Value] = {"$1": number, "$2": following, "$3": reason}
    query = _PARAMETER.sub(lambda found: literal(values[found.group()]), _REQUEUE)
    return script("SET LOCAL enable_hashjoin = on", "SET LOCAL enable_seqscan = on", query)


_PARAMETER = re.compile(r"\$[1-3]")
_REQUEUE = """
WITH code AS (
    UPDATE unmapped_codes SET kept = 0 WHERE id = $1 RETURNING id, tenant
), met AS MATERIALIZED (
    SELECT s.id, s.ordering_key, s.status::text AS status
    FROM code c JOIN unmapped_messages m ON m.unmapped_id = c.id JOIN message_states s ON s.id = m.message_id
), retried AS (
    UPDATE message_states s
    SET status = 'RECEIVED', attempt_count = 0, next_attempt_at = NULL, last_error = NULL, permanent = false,
        ready_at = now(),
        mapping_epoch = (SELECT epoch FROM mapping_state WHERE single)
    FROM met m WHERE s.id = m.id AND s.status::text IN ('FAILED', 'DEAD_LETTER') RETURNING s.id
), first AS MATERIALIZED (
    SELECT ordering_key, min(id) AS id FROM met
    WHERE $2 AND ordering_key IS NOT NULL AND status <> 'RECEIVED' GROUP BY ordering_key
), following AS MATERIALIZED (
    SELECT s.id FROM first f JOIN message_states s ON s.ordering_key = f.ordering_key AND s.id > f.id
    WHERE s.id > (SELECT min(id) FROM first) AND s.original_id IS NULL AND s.status::text <> 'DEAD_LETTER'
      AND s.tenant = (SELECT tenant FROM code)
), again AS MATERIALIZED (
    SELECT id, true AS requested FROM met WHERE status IN ('DELIVERED', 'TRANSFORMING')
    UNION ALL
    SELECT id, false FROM following f WHERE NOT EXISTS (
        SELECT 1 FROM met m WHERE m.id = f.id AND m.status IN ('DELIVERED', 'TRANSFORMING'))
), made AS (
    INSERT INTO message_states
        (id, tenant, status, received_at, ordering_key, ready_at, original_id, mapping_epoch, reason)
    SELECT nextval(pg_get_serial_sequence('message_bodies', 'id')), s.tenant, 'RECEIVED', now(), s.ordering_key, now(),
           s.id, (SELECT epoch FROM mapping_state WHERE single), $3
    FROM (SELECT id FROM again ORDER BY id) a JOIN LATERAL (
        SELECT * FROM message_states o WHERE o.id = a.id
    ) s ON true
), removed AS (
    DELETE FROM unmapped_messages m USING code c WHERE m.unmapped_id = c.id
)
SELECT (SELECT count(*) FROM again WHERE requested), (SELECT count(*) FROM again WHERE NOT requested),
       (SELECT count(*) FROM retried)
FROM code"""

OVERRIDE_COLUMNS = """id, tenant, source_system, concept_map, code, target_system, target_code, target_display,
       created_at, updated_at"""

_BUMP = "UPDATE mapping_state SET epoch = epoch + 1 WHERE single"
_BUMP_MAPS = "UPDATE mapping_state SET epoch = epoch + 1, maps_epoch = epoch + 1 WHERE single"

SET_OVERRIDE = Statement(
    "codes_set_override",
    "text, text, text, text, text, text, text",
    f"""
WITH bumped AS ({_BUMP})
INSERT INTO code_overrides AS o
    (tenant, source_system, concept_map, code, target_system, target_code, target_display, created_at,
     updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, now(), now())
ON CONFLICT (tenant, source_system, concept_map, code) DO UPDATE
SET target_system = excluded.target_system, target_code = excluded.target_code,
    target_display = excluded.target_display, updated_at = now()
RETURNING {OVERRIDE_COLUMNS}""",
)

OVERRIDE = Statement("codes_override", "bigint", f"SELECT {OVERRIDE_COLUMNS} FROM code_overrides WHERE id = $1")

DELETE_OVERRIDE = Statement(
    "codes_delete_override",
    "bigint",
    f"WITH bumped AS ({_BUMP}) DELETE FROM code_overrides WHERE id = $1 RETURNING id",
)

ALL_OVERRIDES = Statement("codes_all_overrides", "", f"SELECT {OVERRIDE_COLUMNS} FROM code_overrides ORDER BY id")

_CONVERSION = """c.id, c.original_id, c.received_at, coalesce(c.reason, ''), c.status::text, c.attempt_count,
       c.last_attempt_at, c.next_attempt_at, c.last_error, c.delivered_at, b.correlation_id::text, c.tenant,
       c.permanent"""

CONVERSIONS = f"""SELECT {_CONVERSION} FROM message_states c JOIN message_bodies b ON b.id = c.original_id
WHERE c.original_id IS NOT NULL"""

CONVERSION_STATUS = Statement(
    "conversion_status",
    "bigint",
    "SELECT status::text FROM message_states WHERE id = $1 AND original_id IS NOT NULL",
)

RETRY_CONVERSION = Statement(
    "conversion_retry",
    "bigint",
    f"""
WITH c AS (
    UPDATE message_states
    SET status = 'RECEIVED', attempt_count = 0, next_attempt_at = NULL, last_error = NULL, permanent = false,
        ready_at = now()
    WHERE id = $1 AND original_id IS NOT NULL AND status::text IN ('FAILED', 'DEAD_LETTER') RETURNING *
)
SELECT {_CONVERSION} FROM c JOIN message_bodies b ON b.id = c.original_id""",
)

DELETE_CONVERSION = Statement(
    "conversion_delete",
    "bigint",
    "DELETE FROM message_states WHERE id = $1 AND original_id IS NOT NULL"
    " AND status::text = 'DEAD_LETTER' RETURNING id",
)

EPOCHS = Statement("mapping_epochs", "", "SELECT epoch, maps_epoch FROM mapping_state WHERE single")
MAPS_CHANGED = Statement("mapping_maps_changed", "", _BUMP_MAPS)

_INSTALLED = "resource_type, id, url, version, updated_at, content"
INSTALLED = Statement("mapping_installed", "", f"SELECT {_INSTALLED} FROM mapping_resources ORDER BY 1, 2")
INSTALL = Statement(
    "mapping_install",
    "text, text, text, text",
    f"""
WITH bumped AS ({_BUMP_MAPS})
INSERT INTO mapping_resources AS m (resource_type, id, url, version, updated_at, content)
VALUES ($1, $2, $3, 1, now(), $4)
ON CONFLICT (resource_type, url) DO UPDATE
SET version = m.version + 1, updated_at = now(), content = excluded.content
RETURNING {_INSTALLED}""",
)
REMOVE = Statement(
    "mapping_remove",
    "text, text",
    f"WITH bumped AS ({_BUMP_MAPS}) DELETE FROM mapping_resources WHERE resource_type = $1 AND id = $2 RETURNING id",
)

STATEMENTS = (
    RECORD, MESSAGES, SET_OVERRIDE, OVERRIDE, DELETE_OVERRIDE, ALL_OVERRIDES, CONVERSION_STATUS, RETRY_CONVERSION,
    DELETE_CONVERSION, EPOCHS, MAPS_CHANGED, INSTALLED, INSTALL, REMOVE,
)  # fmt: skip
