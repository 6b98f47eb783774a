"""The review queue of identity on PostgreSQL (the inbox database).

`RECORD` and the settle statement are one script: one transaction and one round trip.  An answer locks the messages
first, as settle does, then the rows of the queue; a deadlock with a worker that settles one of them is retried.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ipf.errors import Category, Problem, WriteConflict
from ipf.fhir.model.json import dumps, loads
from ipf.ports import Settlement
from ipf.ports.identity import (
    AnswerKind,
    ConflictFilter,
    ConflictKind,
    ConflictRow,
    ConflictStatus,
    IdentityConflicts,
    IdentityFinding,
    IdentityKey,
    Released,
)
from ipf.store.inbox.admin import is_of
from ipf.store.inbox.following import following
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.quoting import Statement, Value, joined, literal, printable, script

_RETRIES = 3
_LONGEST = 100_000  # characters of a finding

RECORD = Statement(
    "conflicts_record",
    "text, text, text, text, text, text, text",
    r"""
WITH found AS MATERIALIZED (
    SELECT s.id, s.tenant, coalesce(s.original_id, s.id) AS message_id, coalesce(i.place, '') AS place,
           i.resource_type, coalesce(i.first_key, '') AS first_key, coalesce(i.candidates, '') AS candidates, i.finding
    FROM unnest(
        string_to_array($1, E'\x1f')::bigint[], string_to_array($2, E'\x1f')::bigint[], string_to_array($3, E'\x1f'),
        string_to_array($4, E'\x1f'), string_to_array($5, E'\x1f'), string_to_array($6, E'\x1f'),
        string_to_array($7, E'\x1f')
    ) AS i(id, fence, place, resource_type, first_key, candidates, finding)
    JOIN message_states s ON s.id = i.id AND s.fence = i.fence AND s.status::text = 'TRANSFORMING'
), superseded AS (
    UPDATE identity_conflicts c SET status = 'closed' FROM found f
    WHERE c.state_id = f.id AND c.place <> f.place AND c.status = 'open'
)
INSERT INTO identity_conflicts
    (tenant, state_id, message_id, place, status, detected_at, resource_type, first_key, candidates, finding)
SELECT tenant, id, message_id, place, 'open', now(), resource_type, first_key, candidates, finding
FROM found ORDER BY id
ON CONFLICT (state_id, place) WHERE status <> 'closed' DO UPDATE
SET status = 'open', detected_at = excluded.detected_at, resource_type = excluded.resource_type,
    first_key = excluded.first_key, candidates = excluded.candidates, finding = excluded.finding,
    answer = NULL, target = NULL, answered_by = NULL, answered_at = NULL""",
)

OPEN_COUNT = Statement("conflicts_open", "", "SELECT count(*) FROM identity_conflicts WHERE status = 'open'")

STATEMENTS = (RECORD, OPEN_COUNT)

_COLUMNS = """c.id, c.message_id, b.correlation_id::text, b.source_system, b.source_id, b.message_type, c.detected_at,
    c.status, c.finding, s.status::text,
    CASE WHEN s.original_id IS NOT NULL THEN s.id END, c.tenant, c.answer, c.target, c.answered_by,
    c.answered_at"""
_FROM = """identity_conflicts c JOIN message_states s ON s.id = c.state_id
    JOIN message_bodies b ON b.id = c.message_id"""

_PARAMETER = re.compile(r"\$[1-4]")
_ANSWER = f"""
WITH decided AS MATERIALIZED (
    SELECT c.id, c.state_id FROM identity_conflicts w JOIN identity_conflicts c
        ON c.tenant = w.tenant AND c.resource_type = w.resource_type
    WHERE w.id = $1 AND (c.id = w.id OR (c.status = 'open' AND (
        (c.first_key <> '' AND c.first_key = w.first_key) OR ($2 = 'merge' AND c.candidates = w.candidates))))
), late AS MATERIALIZED (
    SELECT s.id, s.tenant, s.ordering_key FROM message_states s
    WHERE s.id IN (SELECT state_id FROM decided) AND s.status::text IN ('FAILED', 'DEAD_LETTER')
    ORDER BY s.id FOR UPDATE
), answered AS (
    UPDATE identity_conflicts c
    SET status = 'answered', answer = $2, target = $3, answered_by = $4, answered_at = now()
    FROM decided d WHERE c.id = d.id
), retried AS (
    UPDATE message_states s
    SET status = 'RECEIVED', attempt_count = 0, next_attempt_at = NULL, last_error = NULL, permanent = false,
        ready_at = now()
    FROM late l WHERE s.id = l.id RETURNING s.id
), {following("late", "s.id IN (SELECT id FROM late)", "'identity-conflict/' || $1")}
SELECT (SELECT count(*) FROM retried), (SELECT count(*) FROM made)"""


def record(settlements: Sequence[Settlement]) -> str:
    """The statement that records the conflicts of these messages; "" when there are none."""
    found = [(end, end.conflict) for end in settlements if end.conflict is not None]
    if not found:
        return ""
    return RECORD.call(
        joined(end.id for end, _ in found),
        joined(end.fence for end, _ in found),
        joined(printable(one.slot) for _, one in found),
        joined(printable(one.resource_type) for _, one in found),
        joined(printable(one.keys[0].text) if one.keys else "" for _, one in found),
        joined(" ".join(one.candidates) for _, one in found),
        joined(printable(_stored(one), _LONGEST) for _, one in found),
    )


class PostgresIdentityConflicts:
    """`ports.IdentityConflicts` on a Database that was opened with the inbox's statements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def conflicts(self, wanted: ConflictFilter, limit: int, offset: int) -> tuple[int, Sequence[ConflictRow]]:
        """See `ports.IdentityConflicts.conflicts`."""
        exact: dict[str, Value] = {
            "c.status": None if wanted.status is None else wanted.status.value, "c.resource_type": wanted.resource_type,
            "c.message_id": wanted.message_id, "b.source_system": wanted.source_system,
        }  # fmt: skip
        conditions = [is_of(wanted.tenant, "c.tenant")]
        conditions += [f"{name} = {literal(value)}" for name, value in exact.items() if value is not None]
        listed = f"FROM {_FROM} WHERE {' AND '.join(conditions)}"
        total = await self._database.one(f"SELECT count(*) {listed}")
        page = f"ORDER BY c.detected_at DESC, c.id DESC LIMIT {int(limit)} OFFSET {int(offset)}"
        rows = await self._database.many(f"SELECT {_COLUMNS} {listed} {page}")
        return int(total[0]), [conflict_row(row) for row in rows]

    async def conflict(self, number: int) -> ConflictRow | None:
        """See `ports.IdentityConflicts.conflict`."""
        row = await self._database.maybe(f"SELECT {_COLUMNS} FROM {_FROM} WHERE c.id = {literal(number)}")
        return None if row is None else conflict_row(row)

    async def answer(self, number: int, kind: AnswerKind, target: str | None, answered_by: str) -> Released:
        """See `ports.IdentityConflicts.answer`."""
        known = await self.conflict(number)
        if known is None:
            raise Problem(Category.NOT_FOUND, f"there is no identity conflict {number}")
        if known.status is ConflictStatus.CLOSED:
            raise Problem(Category.CONFLICT, f"identity conflict {number} is closed: its message was delivered")
        values: dict[str, Value] = {"$1": number, "$2": kind.value, "$3": target, "$4": printable(answered_by)}
        query = _PARAMETER.sub(lambda found: literal(values[found.group()]), _ANSWER)
        work = script("SET LOCAL enable_hashjoin = on", "SET LOCAL enable_seqscan = on", query)
        for left in reversed(range(_RETRIES)):
            try:
                row = await self._database.transact(lambda session: session.one(work))
                break
            except WriteConflict:
                if not left:
                    raise
        return Released(int(row[0]), int(row[1]))

    async def open_count(self) -> int:
        """See `ports.IdentityConflicts.open_count`."""
        return int((await self._database.one(OPEN_COUNT.call()))[0])


def of_correlation(correlation_id: str, limit: int) -> str:
    """The query for the conflicts of the messages with this correlation id, oldest first."""
    of = f"b.correlation_id = {literal(correlation_id)}"
    return f"SELECT {_COLUMNS} FROM {_FROM} WHERE {of} ORDER BY c.id LIMIT {int(limit)}"


def conflict_row(row: Row) -> ConflictRow:
    """A row of these queries."""
    status, finding, message_status, conversion_id, tenant, answer, *answered = row[7:]
    kind = None if answer is None else AnswerKind(answer)
    found = (ConflictStatus(status), _finding(finding), message_status, conversion_id, tenant, kind)
    fields: Row = (*row[:7], *found, *answered)
    return ConflictRow(*fields)


def _stored(finding: IdentityFinding) -> str:
    return dumps({
        "kind": finding.kind.value,
        "resource_type": finding.resource_type,
        "keys": [[key.system, key.type, key.value] for key in finding.keys],
        "candidates": list(finding.candidates),
        "subject": finding.subject,
        "place": finding.place,
    }).decode()  # fmt: skip


def _finding(text: str) -> IdentityFinding:
    stored: dict[str, Any] = loads(text)
    return IdentityFinding(
        ConflictKind(stored["kind"]), stored["resource_type"], tuple(IdentityKey(*key) for key in stored["keys"]),
        tuple(stored["candidates"]), stored["subject"], stored["place"],
    )  # fmt: skip


_: type[IdentityConflicts] = PostgresIdentityConflicts
