"""Delivery attempts: ledger rows, failure reasons, retry delays, retry budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from ipf.errors import Problem, StoreUnreachable
from ipf.pipeline.deliver.authorization import SubscriptionChanged
from ipf.ports import (
    EVENT,
    HEARTBEAT,
    SYSTEM,
    Attempt,
    Backoff,
    Caller,
    Channel,
    Compose,
    Delivered,
    DeliveryEnd,
    DeliveryQueue,
    Event,
    Lease,
    Terms,
)
from ipf.ports.audit.records import Audit
from ipf.ports.delivery import Settled
from ipf.security.audit.delivery import AuditDelivery
from ipf.telemetry.logs import event_line

log = Logger()

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


def terms_of(compose: Compose, lease: Lease) -> Terms:
    """The terms of a lease.  Those of a Subscription that cannot be read name no channel, so that its attempts fail."""
    try:
        return compose.terms(lease.resource)
    except Exception:
        log.failure("the terms of Subscription/{id} cannot be read", id=lease.subscription_id)
        return Terms("", "")


async def settle(queue: DeliveryQueue, lease: Lease, end: DeliveryEnd) -> Settled | None:
    """Settle a lease.  What the store refuses of its ledger and its audit records is left out: else the same events
    would be sent again and again."""
    try:
        return await queue.settle(lease, end)
    except (StoreUnreachable, CancelledError):
        raise
    except Exception:
        log.failure("the attempts of Subscription/{id} cannot be written", id=lease.subscription_id)
        return await queue.settle(lease, replace(end, attempts=(), audits=()))


async def send(compose: Compose, channel: Channel, lease: Lease, events: Sequence[Event]) -> Delivered:
    """Compose and send a notification of these events, or a heartbeat.

    Raises StoreUnreachable and SubscriptionChanged; every other failure is one of the attempt.
    """
    try:
        notification = await (compose.events(lease, events) if events else compose.heartbeat(lease))
    except (StoreUnreachable, SubscriptionChanged):
        raise
    except Problem as problem:
        return Delivered(None, 0, problem.text)
    except Exception:
        log.failure("the notification for Subscription/{id} cannot be composed", id=lease.subscription_id)
        return Delivered(None, 0, "the notification cannot be composed")
    try:
        return await channel.send(notification)
    except (StoreUnreachable, SubscriptionChanged, CancelledError):
        raise
    except Exception as error:
        log.failure("the notification for Subscription/{id} cannot be sent", id=lease.subscription_id)
        return Delivered(None, 0, f"unexpected {type(error).__name__}")


def audits_of(
    audit: AuditDelivery | None,
    lease: Lease,
    terms: Terms,
    events: Sequence[Event],
    delivered: Delivered,
    ended: datetime,
    caller: Caller = SYSTEM,
) -> list[Audit]:
    """The audit records of an attempt to send these events.  A failure here is logged; it fails no delivery."""
    try:
        return [] if audit is None else audit(lease, terms, events, delivered, ended, caller)
    except Exception:
        log.failure("event=audit_not_written", correlation_id=correlation_of(events))
        return []


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

    A refusal (4xx) waits as long as after two more failures (specification, "FHIR Subscription status").  Retry-After
    is the minimum wait, up to `MAX_RETRY_AFTER_SECONDS`.
    """
    status = delivered.http_status or 0
    is_refused = delivered.is_refused or (400 <= status < 500 and status not in (408, 425, 429))
    steps = failures + 2 if is_refused else failures
    least = min(delivered.retry_after or 0.0, MAX_RETRY_AFTER_SECONDS)
    return max(backoff.delay_ms(steps) / 1000 * (1 - JITTER * chance), least * (1 + JITTER * chance))
