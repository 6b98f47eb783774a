"""Delivery of notifications: leases on pending events, the ledger of attempts, channels."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.audit.records import Audit
from ipf.ports.base import Json
from ipf.ports.caller import OPEN, Caller
from ipf.ports.grants import Writer


@dataclass(slots=True)
class Lease:
    """A subscription leased by one process: until `until`, only this process sends its pending events.

    `last_event_number`: of the newest event at the time of the lease.  `events`: the first due events.  `callers`:
    the grants of all of them limit the notifications: the creator of the Subscription, and the websocket client.
    `resent`: changes with each `resend`, so that what is sent again is no duplicate of what was sent.
    `is_content_withheld`: the notification has the registered form without content.
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
    callers: Sequence[Caller] = ()
    resent: int = 0
    is_content_withheld: bool = False

    @property
    def version_id(self) -> str:
        """The version of the Subscription."""
        return str(self.resource["meta"]["versionId"])


@dataclass(slots=True)
class Event:
    """One numbered event of one subscription, with the body of the version that fired it (empty for a deletion).

    `method`: the HTTP method that created the version.  `last_body`: of a deletion, the body of the version before;
    empty unless it was read to decide who may learn of it.
    """

    number: int
    resource_type: str
    id: str
    version_id: int
    occurred_at: datetime
    correlation_id: str
    body: bytes
    method: str = "PUT"
    last_body: bytes = b""


@dataclass(frozen=True, slots=True)
class Terms:
    """Delivery terms of a Subscription.

    `max_count`: maximum number of events in one notification.  `timeout_seconds`: time limit of one attempt.
    `heartbeat_seconds`: idle time before a heartbeat.  `content`: empty, id-only or full-resource.
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
    """One attempt to send a notification.  `http_status` is None when there was no response.

    `event_number` (0 for a handshake or heartbeat) is the first event, `to_event_number` the last; None: the same.
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
    """The result of a lease.

    `delivered_to`: the highest number acknowledged without a gap, None = no new one.  `attempts` go to the ledger.
    `retry_at` None = no failure pending.  `keep_until` renews the lease of an active subscription instead of releasing
    it; with `more`, only when there are further events, and up to `more` of them are returned.  `audits`: of the
    attempts, written in the same transaction even when the lease was lost.
    """

    delivered_to: int | None
    attempts: Sequence[Attempt]
    retry_at: datetime | None = None
    attempt_count: int = 0
    keep_until: datetime | None = None
    more: int = 0
    audits: Sequence[Audit] = ()


@dataclass(slots=True)
class Settled:
    """The result of `settle`.  `is_kept`: the lease is still held.  `events`: the next events, when requested."""

    is_kept: bool
    events: Sequence[Event] = ()


@dataclass(frozen=True, slots=True)
class SubscriptionHealth:
    """Delivery counters and cursor of one subscription.

    `resource`: the Subscription.  `error`: `Subscription.error`.  `last_error`: of the last attempt.  `writers`: see
    `ports.CreatorGrants`.
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
    writers: Sequence[Writer] = ()


@dataclass(slots=True)
class AttemptPage:
    """A page of attempts of one subscription, newest first, and their total number."""

    total: int
    attempts: Sequence[Attempt]


class SubscriptionLedger(Protocol):
    """What operators see of subscriptions."""

    async def health(self, tenant: str, subscription_id: str) -> SubscriptionHealth | None:
        """Counters of one subscription."""

    async def tenants_of(self, subscription_id: str) -> list[str]:
        """The tenants that have a subscription with this id.  One, unless clients chose the same id in several."""

    async def healths(self, tenant: str | None, limit: int) -> list[SubscriptionHealth]:
        """Counters of up to `limit` subscriptions, oldest first.  `tenant` None: of all tenants."""

    async def history(self, tenant: str, subscription_id: str, limit: int, offset: int) -> AttemptPage | None:
        """Attempts of one subscription, newest first; None when there is none."""


class DeliveryQueue(SubscriptionLedger, Protocol):
    """Pending events by subscription.  Only active subscriptions are leased."""

    async def lease(self, worker: str, limit: int, until: datetime) -> list[Lease]:
        """Lease up to `limit` subscriptions with due events (SKIP LOCKED), with their first events.

        Fewer than `limit`: there were no more.
        """

    async def events(self, lease: Lease, limit: int) -> list[Event]:
        """The next events of the subscription in order of number, from the first undelivered one."""

    async def heartbeats(self, worker: str, limit: int, until: datetime) -> list[Lease]:
        """Lease up to `limit` subscriptions with a due heartbeat that are not past their `end`."""

    async def settle(self, lease: Lease, end: DeliveryEnd) -> Settled | None:
        """Advance the cursor, write the ledger, release or renew the lease; None when the lease was lost.

        An acknowledged attempt postpones the next heartbeat.
        """

    async def record(self, tenant: str, subscription_id: str, attempts: Sequence[Attempt]) -> None:
        """Write attempts without a lease (handshakes) to ledger and counters; no effect on a deleted subscription."""

    async def websocket_subscription(self, tenant: str, subscription_id: str) -> Lease | None:
        """The current state of a websocket subscription, without a lease; None when there is none."""

    async def events_after(self, cursors: Mapping[int, int], limit: int) -> list[tuple[int, Event]]:
        """(subscription rid, event) after the given number of each active websocket subscription, in order.

        At most `limit` events per subscription.
        """

    async def record_sent(self, attempts: Mapping[int, Sequence[Attempt]], audits: Sequence[Audit] = ()) -> None:
        """Write attempts over websockets, by subscription rid, to ledger and counters; advance the cursor.

        `audits`: of the attempts, written in the same transaction.
        """

    async def holders(self) -> list[str]:
        """Names of the workers with unexpired leases."""

    async def release(self, worker: str) -> int:
        """Release the leases of a dead worker; its unsettled events are sent again."""

    async def requested(self, limit: int) -> list[tuple[str, str]]:
        """(tenant, id) of subscriptions that wait for activation and are not past their `end`."""

    async def peek(self, tenant: str, subscription_id: str) -> Lease | None:
        """A subscription for reading, with token 0; None when there is none."""

    async def ended(self, limit: int) -> list[tuple[str, str]]:
        """(tenant, id) of subscriptions past their `end` that still fire or are delivered."""

    async def event_range(self, tenant: str, subscription_id: str, first: int, last: int, limit: int) -> list[Event]:
        """At most `limit` events with the numbers `first` to `last`, inclusive, in order."""

    async def resend(self, tenant: str, subscription_id: str, first: int, last: int) -> int | None:
        """Send the events `first` to `last`, inclusive, again in order; the total number of due events.

        None: the subscription is not active, or a websocket subscription.
        """

    async def active(self) -> int:
        """Number of active subscriptions of all tenants."""


@dataclass(slots=True)
class Notification:
    """One notification.

    `method`, `url`, `headers` (the registered ones) and `body` (None = empty) are the HTTP request of a rest-hook.
    Other channels use `content_type` (of `body`), `kind` (one of the three above), `content` (the maximum content
    level) and `events`.  `timeout_seconds`: the time limit of the subscriber.

    Message brokers use also `key` (notifications with the same key stay in order), `message_id` (the same for each
    attempt to send the same events; "" without events) and `topic_url` (of a topic Subscription).

    `position`: of the log of the database, behind all events; "" where no standby answers reads.
    `is_content_withheld`: see `Lease`; a websocket client that bound by id gets the ping alone.
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
    key: str = ""
    message_id: str = ""
    topic_url: str = ""
    position: str = ""
    is_content_withheld: bool = False


AuthorizationFilter = Callable[[Lease, Sequence[Event]], Awaitable[Sequence[Event]]]
"""The events that the subscriber may receive, in order."""


class Compose(Protocol):
    """Composes notifications in the form of the Subscription.  Problem when that fails."""

    def terms(self, subscription: Json) -> Terms:
        """The delivery terms; never raises for a stored Subscription."""

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        """One notification of up to `Terms.max_count` events, in order of number."""

    async def heartbeat(self, lease: Lease) -> Notification:
        """A heartbeat notification."""

    async def handshake(self, lease: Lease) -> Notification:
        """A handshake notification."""


@dataclass(slots=True)
class Delivered:
    """The result of sending a notification.

    `http_status` None: no response; `error` is the reason.  `retry_after`: of the Retry-After header, in seconds.
    `is_done`: acknowledged over a protocol other than HTTP.  `is_refused`: the destination answered over such a
    protocol and does not take this notification, as with a 4xx; others may go there.
    """

    http_status: int | None
    duration_ms: int
    error: str | None
    retry_after: float | None = None
    is_done: bool = False
    is_refused: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether the subscriber acknowledged: a 2xx response, or `is_done`."""
        return self.is_done or (self.http_status is not None and 200 <= self.http_status < 300)


NO_MAIL = "email notifications are not sent: this server has no mail server (IPF_SMTP_URL)"


class Channel(Protocol):
    """Sends notifications to subscribers.  Never raises for an error of the subscriber."""

    @property
    def unavailable(self) -> str | None:
        """The reason why this server does not support the channel; None when it does."""

    def destination(self, endpoint: str) -> str:
        """The destination of an endpoint: scheme, host and port, or the relay; endpoints share its circuit breaker."""

    async def send(self, notification: Notification) -> Delivered:
        """Send and wait for the response, up to the time limit."""


Channels = Mapping[str, Channel]
"""By `Subscription.channel.type`."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The subscriptions of a websocket binding token, and its expiry.  `caller`: to whom it was issued."""

    tenant: str
    subscription_ids: tuple[str, ...]
    until: datetime
    caller: Caller = OPEN


class BindingTokens(Protocol):
    """Tokens of `$get-ws-binding-token`, shared by all processes, stored as digests."""

    async def issue(self, tenant: str, subscription_ids: Sequence[str], until: datetime, caller: Caller = OPEN) -> str:
        """A new token for `caller`; expired tokens are deleted."""

    async def redeem(self, token: str) -> Binding | None:
        """The binding of a token; None when it is unknown or expired.  A token may be used repeatedly."""
