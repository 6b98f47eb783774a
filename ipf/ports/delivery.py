"""Delivery: leases on pending events, the ledger, and channels to subscribers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.base import Json
from ipf.ports.caller import OPEN, Caller


@dataclass(slots=True)
class Lease:
    """A subscription whose pending events this process alone may send, until `until`.

    `last_event_number`: of its newest event when it was leased.  `events`: the first of those that are due.  `within`:
    callers within whose grants, all of them, it is told: those who wrote it, and who listens over a websocket.
    """

    tenant: str
    subscription_rid: int
    subscription_id: str
    token: int
    until: datetime
    resource: Json
    attempt_count: int
    failing_since: datetime | None
    last_event_number: int = 0
    events: Sequence[Event] = ()
    within: Sequence[Caller] = ()


@dataclass(slots=True)
class Event:
    """One numbered event of one subscription with the version that fired it (exact body; empty for a deletion).

    `method`: the HTTP method that made the version.
    """

    number: int
    resource_type: str
    id: str
    version_id: int
    occurred_at: datetime
    correlation_id: str
    body: bytes
    method: str = "PUT"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a Subscription asks of its delivery, read once from the resource.

    `max_count`: events that one notification may carry.  `timeout_seconds`: bounds one attempt.  `heartbeat_seconds`:
    after so long a silence the subscriber is told that it is still served.  `content`: empty, id-only or full-resource.
    """

    channel_type: str
    endpoint: str
    is_topic: bool = False
    max_count: int = 1
    timeout_seconds: float | None = None
    heartbeat_seconds: int | None = None
    needs_handshake: bool = False
    content: str = "full-resource"


EVENT, HANDSHAKE, HEARTBEAT = "event-notification", "handshake", "heartbeat"
"""Kinds of notification (https://hl7.org/fhir/R5/valueset-subscription-notification-type.html)."""


@dataclass(slots=True)
class Attempt:
    """One try to hand over a notification.  `http_status` is None when there was no answer.

    `event_number` (0 for a handshake or heartbeat) is the first event it carried, `to_event_number` the last; None:
    the same.
    """

    event_number: int
    attempted_at: datetime
    succeeded: bool
    http_status: int | None
    duration_ms: int
    error: str | None
    correlation_id: str
    kind: str = EVENT
    to_event_number: int | None = None


@dataclass(slots=True)
class DeliveryEnd:
    """What a lease came to.

    `delivered_to`: the highest number acknowledged without gap, None = none new.  `attempts` go to the ledger.
    `retry_at` None = no failure pending; `keep_until` renews the lease instead of giving it back, with `more` only when
    there are further events, of which so many are answered.
    """

    delivered_to: int | None
    attempts: Sequence[Attempt]
    retry_at: datetime | None = None
    attempt_count: int = 0
    keep_until: datetime | None = None
    more: int = 0


@dataclass(slots=True)
class Settled:
    """What settling came to.  `is_kept`: the lease is still held; `events`: the next ones, when they were asked for."""

    is_kept: bool
    events: Sequence[Event] = ()


@dataclass(frozen=True, slots=True)
class SubscriptionHealth:
    """Delivery counters and cursor of one subscription.

    `resource` is the Subscription; `error` is what `Subscription.error` says, `last_error` the last attempt's.
    """

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
    error: str | None
    resource: Json
    tenant: str


@dataclass(slots=True)
class AttemptPage:
    """Attempts of one subscription, newest first, and how many there are in all."""

    total: int
    attempts: Sequence[Attempt]


class DeliveryQueue(Protocol):
    """Pending events by subscription, leased.  Only subscriptions with status active are handed out."""

    async def lease(self, worker: str, limit: int, until: datetime) -> list[Lease]:
        """Take up to `limit` subscriptions with events due, that nobody else holds (SKIP LOCKED).

        Their first events come with them.  Fewer than `limit`: there were no more.
        """

    async def events(self, lease: Lease, limit: int) -> list[Event]:
        """The next events of that subscription, in order of number, from the first not delivered."""

    async def heartbeats(self, worker: str, limit: int, until: datetime) -> list[Lease]:
        """Take up to `limit` subscriptions whose heartbeat is due, as `lease` does."""

    async def settle(self, lease: Lease, end: DeliveryEnd) -> Settled | None:
        """Advance the cursor, write the ledger, give back or keep the lease; None when the lease was lost.

        An acknowledged attempt moves the next heartbeat.
        """

    async def record(self, tenant: str, subscription_id: str, attempts: Sequence[Attempt]) -> None:
        """Write attempts made without a lease (handshakes) to ledger and counters; nothing when it is gone."""

    async def bound(self, tenant: str, subscription_id: str) -> Lease | None:
        """A websocket subscription as it is, leased to nobody; None when there is none of this channel (any more)."""

    async def tail(self, cursors: Mapping[int, int], limit: int) -> list[tuple[int, Event]]:
        """(subscription rid, event) beyond the number known of each, in order; of active websocket ones only.

        At most `limit` events of each subscription.
        """

    async def told(self, attempts: Mapping[int, Sequence[Attempt]]) -> None:
        """What went out over websockets, by subscription rid: ledger, counters, and the cursor over what succeeded."""

    async def holders(self) -> list[str]:
        """Names of the workers whose leases have not run out."""

    async def release(self, worker: str) -> int:
        """End the leases of a worker that is known to be dead; what it sent and did not settle is sent again."""

    async def requested(self, limit: int) -> list[tuple[str, str]]:
        """(tenant, id) of subscriptions that wait for activation."""

    async def peek(self, tenant: str, subscription_id: str) -> Lease | None:
        """A subscription for reading, with token 0; None when there is none (any more)."""

    async def ended(self, limit: int) -> list[tuple[str, str]]:
        """(tenant, id) of subscriptions whose `end` has come and that fire or are delivered still."""

    async def between(self, tenant: str, subscription_id: str, first: int, last: int, limit: int) -> list[Event]:
        """At most `limit` of the events with these numbers, both included, in order."""

    async def resend(self, tenant: str, subscription_id: str, first: int, last: int) -> int | None:
        """Have the events with these numbers, both included, sent again, in order; how many are due then in all.

        None: it is not active, or of a channel that is never leased.
        """

    async def active(self) -> int:
        """How many subscriptions are active, all tenants."""

    async def health(self, tenant: str, subscription_id: str) -> SubscriptionHealth | None:
        """Counters of one subscription."""

    async def healths(self, tenant: str | None, limit: int) -> list[SubscriptionHealth]:
        """Counters of up to `limit` subscriptions, oldest first, in one statement.  `tenant` None: of all tenants."""

    async def history(self, tenant: str, subscription_id: str, limit: int, offset: int) -> AttemptPage | None:
        """Attempts of one subscription, newest first; None when there is no such subscription."""


@dataclass(slots=True)
class Notification:
    """What one subscriber is told at once.

    `method`, `url`, `headers` (those registered) and `body` (None = empty) are the HTTP request of a rest-hook.  The
    rest is for channels of other kinds: `content_type` is that of `body`, `kind` one of the three above, `content` the
    level that nothing sent may exceed, `events` what it is about.  `timeout_seconds`: the subscriber's own limit.
    """

    method: str
    url: str
    headers: Sequence[tuple[str, str]]
    body: bytes | None
    correlation_id: str
    tenant: str = ""
    subscription_id: str = ""
    content_type: str | None = None
    kind: str = EVENT
    content: str = "full-resource"
    events: Sequence[Event] = ()
    timeout_seconds: float | None = None


AuthorizationFilter = Callable[[Lease, Sequence[Event]], Awaitable[Sequence[Event]]]
"""Those events that the subscriber may know of, in order."""


class Compose(Protocol):
    """Makes notifications in the form that the Subscription asks for.  Problem when none can be made."""

    def terms(self, subscription: Json) -> Terms:
        """What it asks of its delivery; never raises for a stored Subscription."""

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        """One notification of these events, `Terms.max_count` at most, in order of number."""

    async def heartbeat(self, lease: Lease) -> Notification:
        """One that says: you are still served, nothing happened."""

    async def handshake(self, lease: Lease) -> Notification:
        """One that asks: are you there?"""


@dataclass(slots=True)
class Delivered:
    """What the far end answered.

    `http_status` None: no answer, and `error` says why.  `retry_after`: seconds that the far end asked to wait.
    `is_done`: acknowledged by a far end that speaks no HTTP.
    """

    http_status: int | None
    duration_ms: int
    error: str | None
    retry_after: float | None = None
    is_done: bool = False

    @property
    def succeeded(self) -> bool:
        """A 2xx answer acknowledges."""
        return self.is_done or (self.http_status is not None and 200 <= self.http_status < 300)


class Channel(Protocol):
    """Hands one notification to one far end.  Never raises for what the far end does."""

    @property
    def unavailable(self) -> str | None:
        """Why nothing is ever sent over this channel here; None: it is."""

    def place(self, endpoint: str) -> str:
        """What an endpoint shares its failures with: scheme, host and port, or a server that it all goes through."""

    async def send(self, notification: Notification) -> Delivered:
        """Send and wait for the answer, or for the time limit."""


Channels = Mapping[str, Channel]
"""By `Subscription.channel.type`."""


@dataclass(frozen=True, slots=True)
class Binding:
    """What a websocket token binds, and until when.  `caller`: who asked for it."""

    tenant: str
    subscription_ids: tuple[str, ...]
    until: datetime
    caller: Caller = OPEN


class BindingTokens(Protocol):
    """Tokens of `$get-ws-binding-token`, known to every process, kept as digests."""

    async def issue(self, tenant: str, subscription_ids: Sequence[str], until: datetime, caller: Caller = OPEN) -> str:
        """A new token for `caller`; what has expired is forgotten on the way."""

    async def redeem(self, token: str) -> Binding | None:
        """What it binds; None when it is unknown or has expired.  It may be used again until then."""
