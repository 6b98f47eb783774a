"""Delivery attempts: ledger rows, failure reasons, retry delays, retry budget."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import uuid4

from ipf.ports import EVENT, HEARTBEAT, Attempt, Backoff, Delivered, Event, Lease
from ipf.telemetry.logs import event_line

MAX_RETRY_AFTER_SECONDS = 900.0
JITTER = 0.25


def attempt_of(events: Sequence[Event], attempted_at: datetime, delivered: Delivered) -> Attempt:
    """The ledger row of an attempt to send these events; without events, of a heartbeat."""
    first = events[0].number if events else 0
    last = events[-1].number if len(events) > 1 else None
    return Attempt(
        first, attempted_at, delivered.succeeded, delivered.http_status, delivered.duration_ms, reason_of(delivered),
        correlation_of(events) or str(uuid4()), EVENT if events else HEARTBEAT, last,
    )  # fmt: skip


def correlation_of(events: Sequence[Event]) -> str | None:
    """The correlation id of a notification: that of its first event."""
    return events[0].correlation_id if events else None


def failure_line(
    lease: Lease, events: Sequence[Event], failures: int, delay_seconds: float | None, reason: str | None
) -> str:
    """The log line of a failed attempt; `delay_seconds`: until the next one, None: there is none."""
    return event_line(
        "delivery_failed",
        subscription_id=lease.subscription_id,
        event_number=events[0].number if events else 0,
        attempt_count=failures,
        backoff_ms=None if delay_seconds is None else round(delay_seconds * 1000),
        last_error=reason,
    )


def instant(time: datetime) -> str:
    """A time as text in UTC, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def budget_seconds(backoff: Backoff) -> float:
    """The duration of all attempts when each fails immediately."""
    return sum(backoff.delay_ms(failures) for failures in range(1, backoff.max_attempts)) / 1000


def reason_of(delivered: Delivered) -> str | None:
    """The reason of a failed attempt, for ledger and log; None after a success."""
    if delivered.succeeded:
        return None
    return delivered.error or f"HTTP status {delivered.http_status}"


def retry_delay_seconds(backoff: Backoff, failures: int, delivered: Delivered, chance: float = 0.0) -> float:
    """Seconds to wait after failure number `failures`, reduced at random by up to `JITTER`, so that the budget holds.

    A 4xx waits as long as after two more failures (specification, "FHIR Subscription status").  Retry-After is the
    minimum wait, up to `MAX_RETRY_AFTER_SECONDS`.
    """
    status = delivered.http_status or 0
    steps = failures + 2 if 400 <= status < 500 and status not in (408, 425, 429) else failures
    least = min(delivered.retry_after or 0.0, MAX_RETRY_AFTER_SECONDS)
    return max(backoff.delay_ms(steps) / 1000 * (1 - JITTER * chance), least * (1 + JITTER * chance))
