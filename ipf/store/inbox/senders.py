"""Senders as operators watch them: when each was heard last, its messages a minute, its errors, what waits.

What arrives: the connection, and a time.  What leaves: `SendersNow`.  Counts come from the tables that the stage
`count_received` of `statistics.py` keeps, plus the messages of the last minutes from an index.  Messages that are not
delivered are looked up one by one, at most MOST_OPEN in each state, so that a long backlog costs no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from ipf.ports.messages.statistics import LEARNT_DAYS, MINUTES, Sender, SendersNow
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.quoting import literal

MOST_SENDERS = 1000
MOST_OPEN = 10_000

_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
_TAIL = "message_bodies WHERE received_at >= (SELECT until FROM received_counted)"

_SENDERS = f"""
WITH heard AS (
    SELECT tenant, source_system, first_seen, last_seen, last_id FROM message_senders
    UNION ALL
    SELECT tenant, source_system, min(received_at), max(received_at), max(id) FROM {_TAIL} GROUP BY 1, 2
), known AS (
    SELECT tenant, source_system, min(first_seen) AS first_seen, max(last_seen) AS last_seen, max(last_id) AS last_id
    FROM heard GROUP BY 1, 2 ORDER BY 4 DESC LIMIT {MOST_SENDERS}
)
SELECT k.tenant, k.source_system, b.listener, k.first_seen, k.last_seen, b.source_protocol
FROM known k LEFT JOIN message_bodies b ON b.id = k.last_id ORDER BY 1, 2"""

_COUNTED = f"""
SELECT tenant, source_system, {{of}}, sum(count) FROM (
    SELECT tenant, source_system, {{of}}, count FROM received_{{of}}s WHERE {{of}} >= {{since}}
    UNION ALL
    SELECT tenant, source_system, date_trunc('{{of}}', received_at), count(*) FROM {_TAIL} GROUP BY 1, 2, 3
) c WHERE {{of}} >= {{since}} GROUP BY 1, 2, 3"""

_GAPS = """
SELECT tenant, source_system, count(*), max(gap) FROM (
    SELECT tenant, source_system, hour - lag(hour) OVER (PARTITION BY tenant, source_system ORDER BY hour) AS gap
    FROM received_hours WHERE hour >= {since} AND count > 0
) g GROUP BY 1, 2"""

_OPEN = """{tenants}, open AS MATERIALIZED (
    SELECT s.id, s.received_at, w.status FROM known k
    CROSS JOIN (VALUES ('RECEIVED'::message_status), ('TRANSFORMING'), ('FAILED')) AS w(status) CROSS JOIN LATERAL (
        SELECT s.id, s.received_at FROM message_states s
        WHERE s.tenant = k.tenant AND s.status = w.status AND s.original_id IS NULL
        ORDER BY s.received_at, s.id LIMIT {most}) s
    UNION ALL
    SELECT s.id, s.received_at, 'DEAD_LETTER' FROM known k CROSS JOIN LATERAL (
        SELECT s.id, s.received_at FROM message_states s
        WHERE s.tenant = k.tenant AND s.status = 'DEAD_LETTER' AND s.original_id IS NULL AND s.received_at >= {since}
        ORDER BY s.received_at DESC, s.id DESC LIMIT {most}) s
)
SELECT b.tenant, b.source_system, o.status::text, count(*), count(*) FILTER (WHERE o.received_at >= {since}),
    min(o.received_at)
FROM open o JOIN message_bodies b ON b.id = o.id GROUP BY 1, 2, 3"""

_Key = tuple[str, str]


async def senders(database: Database, tenants: str, now: datetime) -> SendersNow:
    """All senders.  `tenants`: the beginning of a statement that has the tenants as `known` (`statistics.TENANTS`)."""
    first = now.replace(second=0, microsecond=0) - (MINUTES - 1) * _MINUTE
    since = literal((now - _DAY).replace(minute=0, second=0, microsecond=0))  # as the counts by hour
    found = await database.many(_SENDERS)
    minutes = _by_sender(await database.many(_COUNTED.format(of="minute", since=literal(first))))
    hours = _by_sender(await database.many(_COUNTED.format(of="hour", since=since)))
    gaps = _by_sender(await database.many(_GAPS.format(since=literal(now - LEARNT_DAYS * _DAY))))
    rows = await database.many(_OPEN.format(tenants=tenants, most=MOST_OPEN, since=since))
    open_ = _by_sender(rows)
    made = []
    for row in found:
        key = row[0], row[1]
        errors, waiting, oldest = _opened(open_[key])
        count, gap = gaps[key][0] if gaps[key] else (0, None)
        received = sum(int(number) for _, number in hours[key])
        counts = _minutes(minutes[key], first)
        about = (*row[:5], counts, received, errors, waiting, oldest, int(count), gap, row[5])
        made.append(Sender(*about))
    return SendersNow(made, _is_exact(rows))


def _by_sender(rows: Sequence[Row]) -> dict[_Key, list[Sequence[Any]]]:
    """The rows of each sender, without tenant and name."""
    found: dict[_Key, list[Sequence[Any]]] = defaultdict(list)
    for row in rows:
        found[row[0], row[1]].append(row[2:])
    return found


def _minutes(rows: Sequence[Sequence[Any]], first: datetime) -> Sequence[int]:
    counts = [0] * MINUTES
    for minute, count in rows:
        number = (minute - first) // _MINUTE
        if 0 <= number < MINUTES:
            counts[number] = int(count)
    return counts


def _opened(rows: Sequence[Sequence[Any]]) -> tuple[int, int, datetime | None]:
    """Errors of the last day; number and oldest of the waiting messages."""
    waiting = [row for row in rows if row[0] != "DEAD_LETTER"]
    errors = sum(int(recent) for status, _, recent, _ in rows if status in ("FAILED", "DEAD_LETTER"))
    oldest = min((oldest for _, _, _, oldest in waiting), default=None)
    return errors, sum(int(count) for _, count, _, _ in waiting), oldest


def _is_exact(rows: Sequence[Row]) -> bool:
    """Whether no state of a tenant has more messages than are looked up."""
    seen: dict[_Key, int] = defaultdict(int)
    for tenant, _, status, count, _, _ in rows:
        seen[tenant, status] += int(count)
    return all(count < MOST_OPEN for count in seen.values())
