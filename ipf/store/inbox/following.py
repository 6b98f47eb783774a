"""Messages that were converted before an earlier one of their patient are converted again after it.

A message that ended (a dead letter), or that later ones passed, may be delivered after all.  It then writes data that
is older than what is stored.  Every message of the key from the first one that was converted meanwhile is converted
again, in order, so that the newest data is written last.  Each gets a row of its own with a new id (`original_id`), so
it is ordered after all known messages of the key and before all that are still to come.
"""

from __future__ import annotations

from collections.abc import Sequence

from ipf.ports import Settlement, Status
from ipf.store.postgres.quoting import Statement, joined


def following(late: str, requested: str, reason: str) -> str:
    """CTEs that end in `made`: the conversions that follow the rows of the CTE `late` (id, ordering_key, tenant).

    `requested`: condition on `s` for dead letters that are converted again, too.  `reason`: SQL text.
    """
    return f"""earliest AS MATERIALIZED (
    SELECT tenant, ordering_key, min(id) AS id FROM {late} WHERE ordering_key IS NOT NULL GROUP BY tenant, ordering_key
), overtaken AS MATERIALIZED (
    SELECT e.tenant, e.ordering_key, min(s.id) AS id FROM earliest e
    JOIN message_states s ON s.ordering_key = e.ordering_key AND s.tenant = e.tenant AND s.id > e.id
    WHERE s.id > (SELECT min(id) FROM earliest) AND s.status::text IN ('DELIVERED', 'TRANSFORMING')
    GROUP BY e.tenant, e.ordering_key
), again AS MATERIALIZED (
    SELECT coalesce(s.original_id, s.id) AS id, max(s.id) AS place FROM overtaken o
    JOIN message_states s ON s.ordering_key = o.ordering_key AND s.tenant = o.tenant AND s.id >= o.id
    WHERE s.id >= (SELECT min(id) FROM overtaken) AND (s.status::text <> 'DEAD_LETTER' OR {requested})
    GROUP BY 1
), made AS (
    INSERT INTO message_states
        (id, tenant, status, received_at, ordering_key, ready_at, original_id, mapping_epoch, reason)
    SELECT nextval(pg_get_serial_sequence('message_bodies', 'id')), s.tenant, 'RECEIVED', now(), s.ordering_key, now(),
           s.id, (SELECT epoch FROM mapping_state WHERE single), {reason}
    FROM (SELECT id FROM again ORDER BY place) a JOIN LATERAL (
        SELECT * FROM message_states x WHERE x.id = a.id
    ) s ON true
    RETURNING id
)"""


AFTER_PASSED = Statement(
    "inbox_after_passed",
    "text, text",
    rf"""
WITH late AS MATERIALIZED (
    SELECT s.id, s.tenant, s.ordering_key
    FROM unnest(string_to_array($1, E'\x1f')::bigint[], string_to_array($2, E'\x1f')::bigint[]) AS i(id, fence)
    JOIN message_states s ON s.id = i.id AND s.fence = i.fence AND s.status::text = 'TRANSFORMING'
), {following("late", "false", "'passed by later messages'")}
SELECT count(*) FROM made""",
)

STATEMENTS = (AFTER_PASSED,)


def after_passed(settlements: Sequence[Settlement]) -> str:
    """The statement for messages that are delivered after later ones passed them; "" when there are none."""
    late = [end for end in settlements if end.was_passed and end.status is Status.DELIVERED]
    if not late:
        return ""
    return AFTER_PASSED.call(joined(end.id for end in late), joined(end.fence for end in late))
