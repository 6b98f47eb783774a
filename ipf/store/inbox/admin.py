"""Inbox queries of the admin API: one row, retry, delete, counts.  Pages: `pages.py`."""

from __future__ import annotations

from dataclasses import replace

from ipf.errors import Category, Problem
from ipf.ports import MessageRow, Status, WrongState
from ipf.ports.messages.inbox import EVERY_TENANT
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.quoting import Statement, literal

LIST = """b.id, b.received_at, b.source_protocol, b.source_system, b.source_id, b.message_type, s.status::text,
       s.attempt_count, s.last_attempt_at, s.last_error, s.delivered_at, b.correlation_id::text, b.tenant,
       s.permanent"""
_FULL = f"{LIST}, s.next_attempt_at, b.raw_message, b.charset, b.raw_content_type, b.listener, s.transform_ms"

GET = Statement(
    "inbox_get", "bigint", f"SELECT {_FULL} FROM message_bodies b JOIN message_states s ON s.id = b.id WHERE b.id = $1"
)
STATUS = Statement(
    "inbox_status", "bigint", "SELECT status::text FROM message_states WHERE id = $1 AND original_id IS NULL"
)
RETRY = Statement(
    "inbox_retry",
    "bigint",
    f"""
WITH s AS (
    UPDATE message_states
    SET status = 'RECEIVED', attempt_count = 0, next_attempt_at = NULL, last_error = NULL, permanent = false,
        ready_at = now()
    WHERE id = $1 AND original_id IS NULL AND status::text IN ('FAILED', 'DEAD_LETTER') RETURNING *
)
SELECT {_FULL} FROM s JOIN message_bodies b ON b.id = s.id""",
)
DELETE = Statement(
    "inbox_delete",
    "bigint",
    """
WITH s AS (
    DELETE FROM message_states WHERE id = $1 AND original_id IS NULL AND status::text = 'DEAD_LETTER' RETURNING id
), again AS (
    DELETE FROM message_states c USING s WHERE c.original_id = s.id
)
DELETE FROM message_bodies b USING s WHERE b.id = s.id RETURNING b.id""",
)
COUNTS = Statement(
    "inbox_counts",
    "",
    "SELECT status::text, count(*) FROM message_states WHERE original_id IS NULL GROUP BY status",
)

UNFINISHED = Statement(
    "inbox_unfinished",
    "",
    "SELECT status::text, count(*) FROM message_states"
    " WHERE status IN ('RECEIVED', 'TRANSFORMING', 'FAILED', 'DEAD_LETTER') AND original_id IS NULL GROUP BY status",
)

STATEMENTS = (GET, STATUS, RETRY, DELETE, COUNTS, UNFINISHED)


def is_of(tenant: str, column: str = "tenant") -> str:
    """The condition that a row belongs to this tenant, which may be EVERY_TENANT."""
    return "true" if tenant == EVERY_TENANT else f"{column} = {literal(tenant)}"


async def get(database: Database, message_id: int) -> MessageRow | None:
    """The full row; None when there is none."""
    row = await database.maybe(GET.call(message_id)) if _is_id(message_id) else None
    return None if row is None else message(row)


async def retry(database: Database, message_id: int) -> MessageRow:
    """Reset to RECEIVED and clear the counters."""
    row = await database.maybe(RETRY.call(message_id)) if _is_id(message_id) else None
    if row is None:
        raise await _refusal(database, message_id)
    return message(row)


async def delete(database: Database, message_id: int) -> None:
    """Delete a dead-lettered message, body and state."""
    if not _is_id(message_id) or await database.maybe(DELETE.call(message_id)) is None:
        raise await _refusal(database, message_id)


async def counts(database: Database) -> dict[Status, int]:
    """Rows in each state.  Reads the whole list index: call it at most every few seconds."""
    found = {Status(name): int(count) for name, count in await database.many(COUNTS.call())}
    return {status: found.get(status, 0) for status in Status}


async def unfinished(database: Database) -> dict[Status, int]:
    """Rows in each state except DELIVERED; reads no delivered rows."""
    found = {Status(name): int(count) for name, count in await database.many(UNFINISHED.call())}
    return {status: found.get(status, 0) for status in Status if status is not Status.DELIVERED}


async def _refusal(database: Database, message_id: int) -> Exception:
    row = await database.maybe(STATUS.call(message_id)) if _is_id(message_id) else None
    if row is None:
        return Problem(Category.NOT_FOUND, f"there is no message {message_id}")
    return WrongState(message_id, Status(row[0]))


def message(row: Row) -> MessageRow:
    """A row of `LIST`, or of a single message."""
    id_, received_at, protocol, system, source_id, message_type, status, *rest = row
    attempts, last_attempt, error, delivered_at, correlation_id, tenant, *full = rest
    shown = MessageRow(
        id_, received_at, protocol, system, source_id, message_type, Status(status), attempts, last_attempt, error,
        delivered_at, correlation_id, tenant, *full,
    )  # fmt: skip
    return shown if shown.raw is None else _with_bytes(shown)


def _with_bytes(row: MessageRow) -> MessageRow:
    return replace(row, raw=bytes(row.raw or b""))


def _is_id(number: int) -> bool:
    return 0 < number < 2**63
