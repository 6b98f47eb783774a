"""Attempts in words and numbers: what a try came to, when the next is due, and how long all of them take."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import uuid4

from ipf.ports import EVENT, HEARTBEAT, Attempt, Backoff, Delivered, Event

LONGEST_RETRY_AFTER_SECONDS = 900.0
JITTER = 0.25


def attempt_of(events: Sequence[Event], attempted_at: datetime, delivered: Delivered) -> Attempt:
    """The ledger's row of a try to send these events; none: of a heartbeat."""
    first = events[0].number if events else 0
    last = events[-1].number if len(events) > 1 else None
    return Attempt(
        first, attempted_at, delivered.succeeded, delivered.http_status, delivered.duration_ms, reason_of(delivered),
        correlation_of(events) or str(uuid4()), EVENT if events else HEARTBEAT, last,
    )  # fmt: skip


def correlation_of(events: Sequence[Event]) -> str | None:
    """The correlation id of what is sent: of its first event."""
    return events[0].correlation_id if events else None


def instant(moment: datetime) -> str:
    """A time for people, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def budget_seconds(backoff: Backoff) -> float:
    """How long all attempts take when each is refused at once."""
    return sum(backoff.delay_ms(failures) for failures in range(1, backoff.max_attempts)) / 1000


def reason_of(delivered: Delivered) -> str | None:
    """Why an attempt failed, for the ledger and the log; None when it did not."""
    if delivered.succeeded:
        return None
    return delivered.error or f"HTTP status {delivered.http_status}"


def retry_delay_seconds(backoff: Backoff, failures: int, delivered: Delivered, chance: float = 0.0) -> float:
    """How long to wait after failure number `failures`; up to `JITTER` less, as `chance` has it: the budget holds.

    A 4xx is retried less aggressively (specification, "FHIR Subscription status"): it waits as after two more failures.
    A Retry-After is honoured as the least wait, up to `LONGEST_RETRY_AFTER_SECONDS`.
    """
    status = delivered.http_status or 0
    steps = failures + 2 if 400 <= status < 500 and status not in (408, 425, 429) else failures
    least = min(delivered.retry_after or 0.0, LONGEST_RETRY_AFTER_SECONDS)
    return max(backoff.delay_ms(steps) / 1000 * (1 - JITTER * chance), least * (1 + JITTER * chance))
