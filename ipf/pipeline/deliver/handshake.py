"""Handshakes: what an endpoint is sent before the first event, and when an operator asks for a test.

A Subscription by topic gets a handshake notification, one by search an empty POST with its headers.  Input: a leased or
peeked Subscription.  Output: an `Attempt` for the ledger.  Neither status nor cursor changes here.

Source: http://hl7.org/fhir/uv/subscriptions-backport 1.1.0, "Handshake"; docs/reference/admin-api.md "Subscriptions".
"""

from __future__ import annotations

from dataclasses import dataclass

from ipf.errors import Category, Problem
from ipf.ports import HANDSHAKE, Attempt, Channel, Channels, Clock, Compose, DeliveryQueue, Lease

ACTIVATION_SECONDS = 30.0
"""How long a handshake that fails is repeated (interface specification "FHIR Subscription status")."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 8.0
_LAST_SECOND = 1.0


def pause_after(failures: int, elapsed_seconds: float, retry_after: float | None = None) -> float | None:
    """Seconds until the next handshake after this many failed ones; None: the time is over.

    The pause doubles.  `Retry-After` of the subscriber lengthens it.  The last handshake begins a second before the
    end.
    """
    left = ACTIVATION_SECONDS - _LAST_SECOND - elapsed_seconds
    pause = min(FIRST_PAUSE_SECONDS * 2.0 ** (failures - 1), LONGEST_PAUSE_SECONDS)
    return min(max(pause, retry_after or 0.0), left) if left > 0 else None


async def shake_hands(
    lease: Lease, compose: Compose, channel: Channel, now: Clock, within_seconds: float | None = None
) -> tuple[Attempt, float | None]:
    """Send one handshake; the attempt, and `Retry-After`.

    `within_seconds`: its time limit, when that of the channel is longer.  Problem: it cannot be composed.  A refusal of
    the endpoint is a failed attempt.
    """
    notification = await compose.handshake(lease)
    if within_seconds is not None:
        notification.timeout_seconds = min(notification.timeout_seconds or within_seconds, within_seconds)
    attempted_at = now()
    sent = await channel.send(notification)
    reason = None if sent.succeeded else sent.error or f"HTTP status {sent.http_status}"
    took = sent.http_status, sent.duration_ms, reason, notification.correlation_id
    return Attempt(0, attempted_at, sent.succeeded, *took, kind=HANDSHAKE), sent.retry_after


@dataclass(frozen=True, slots=True)
class TestNotification:
    """A handshake on request of an operator, recorded in the ledger; the status stays as it is."""

    queue: DeliveryQueue
    channels: Channels
    compose: Compose
    now: Clock

    async def __call__(self, tenant: str, subscription_id: str) -> Attempt:
        """The attempt.  Problem NOT_FOUND, or BUSINESS_RULE when there is no endpoint to send to."""
        lease = await self.queue.peek(tenant, subscription_id)
        if lease is None:
            raise Problem(Category.NOT_FOUND, f"there is no subscription with id {subscription_id}")
        kind = self.compose.terms(lease.resource).channel_type
        if kind == "websocket":
            text = "a websocket subscription has no endpoint: its client gets a handshake when it binds"
            raise Problem(Category.BUSINESS_RULE, text)
        channel = self.channels.get(kind)
        if channel is None:
            raise Problem(Category.BUSINESS_RULE, f"this server has no channel {kind}")
        if channel.unavailable is not None:
            raise Problem(Category.BUSINESS_RULE, channel.unavailable)
        attempt, _ = await shake_hands(lease, self.compose, channel, self.now)
        await self.queue.record(tenant, subscription_id, [attempt])
        return attempt
