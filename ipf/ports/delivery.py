"""Delivery: leases on pending events, the ledger, and channels to subscribers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.base import Json


@dataclass(frozen=True, slots=True)
class Lease:
    """A subscription whose pending events this process alone may send, until `until`."""

    tenant: str
    subscription_rid: int
    subscription_id: str
    token: int
    until: datetime
    resource: Json
    attempt_count: int
    failing_since: datetime | None


@dataclass(frozen=True, slots=True)
class Event:
    """One numbered event of one subscription with the version that fired it (exact body; empty for a deletion)."""

    number: int
    resource_type: str
    id: str
    version_id: int
    occurred_at: datetime
    correlation_id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to hand over one event.  `http_status` is None when there was no answer."""

    event_number: int
    attempted_at: datetime
    succeeded: bool
    http_status: int | None
    duration_ms: int
    error: str | None
    correlation_id: str


@dataclass(frozen=True, slots=True)
class DeliveryEnd:
    """What a lease came to.

    `delivered_to`: the highest number acknowledged without gap, None = none new.  `attempts` go to the ledger.
    `retry_at` None = no failure pending; `keep` renews the lease instead of giving it back.
    """

    delivered_to: int | None
    attempts: Sequence[Attempt]
    retry_at: datetime | None = None
    attempt_count: int = 0
    keep_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionHealth:
    """Delivery counters and cursor of one subscription."""

    rid: int
    id: str
    status: str
    last_event_number: int
    delivered_number: int
    success_count: int
    failure_count: int
    last_attempt_at: datetime | None
    last_attempt_succeeded: bool | None
    last_error: str | None


class DeliveryQueue(Protocol):
    """Pending events by subscription, leased.  Only subscriptions with status active are handed out."""

    async def lease(self, worker: str, limit: int, until: datetime) -> list[Lease]:
        """Take up to `limit` subscriptions with events due, that nobody else holds (SKIP LOCKED)."""

    async def events(self, lease: Lease, limit: int) -> list[Event]:
        """The next events of that subscription, in order of number, from the first not delivered."""

    async def settle(self, lease: Lease, end: DeliveryEnd) -> bool:
        """Advance the cursor, write the ledger, give back or keep the lease; False when the lease was lost."""

    async def holders(self) -> list[str]:
        """Names of the workers whose leases have not run out."""

    async def release(self, worker: str) -> int:
        """End the leases of a worker that is known to be dead; what it sent and did not settle is sent again."""

    async def requested(self, limit: int) -> list[tuple[str, str]]:
        """(tenant, id) of subscriptions that wait for activation."""

    async def active(self) -> int:
        """How many subscriptions are active, all tenants."""

    async def health(self, tenant: str, subscription_id: str) -> SubscriptionHealth | None:
        """Counters of one subscription."""


@dataclass(frozen=True, slots=True)
class Notification:
    """One HTTP request to a subscriber; `headers` are those registered, `body` None = empty."""

    method: str
    url: str
    headers: Sequence[tuple[str, str]]
    body: bytes | None
    correlation_id: str


@dataclass(frozen=True, slots=True)
class Delivered:
    """What the far end answered.

    `http_status` None: no answer, and `error` says why.  `retry_after`: seconds that the far end asked to wait.
    """

    http_status: int | None
    duration_ms: int
    error: str | None
    retry_after: float | None = None

    @property
    def succeeded(self) -> bool:
        """A 2xx answer acknowledges."""
        return self.http_status is not None and 200 <= self.http_status < 300


class Channel(Protocol):
    """Hands one notification to one far end.  Never raises for what the far end does."""

    async def send(self, notification: Notification) -> Delivered:
        """Send and wait for the answer, or for the time limit."""
