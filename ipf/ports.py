"""What crosses the corridor: frozen records, and the Protocols that hand them over.  No logic lives here.

Everything in this module may be imported by every room; it imports none of them.  Each Protocol has two
implementations, PostgreSQL (`ipf/store`) and memory (`tests/fakes`), and one contract suite runs on both
(`tests/contracts`).  Times are timezone-aware UTC datetimes; durations are seconds unless a name says `_ms`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ipf.fhir.index import Entries
    from ipf.fhir.query import Query

Json = dict[str, Any]
DEFAULT_TENANT = "default"


# --------------------------------------------------------------------------------------------------------------
# Inbox: messages as they came


class Status(StrEnum):
    """States of an ingested message, as the interface specification lists them."""

    RECEIVED = "RECEIVED"
    TRANSFORMING = "TRANSFORMING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"
    DEAD_LETTER = "DEAD_LETTER"


OPEN_STATES = (Status.RECEIVED, Status.TRANSFORMING, Status.FAILED)


@dataclass(frozen=True, slots=True)
class Received:
    """A message that was read from a sender and is about to be stored.  `raw` is what came, byte for byte."""

    correlation_id: str
    received_at: datetime
    source_system: str
    source_id: str
    message_type: str
    raw: bytes
    charset: str = "utf-8"
    raw_content_type: str = "x-application/hl7-v2+er7"
    source_protocol: str = "HL7V2_MLLP"
    listener: str = ""
    tenant: str = DEFAULT_TENANT
    ordering_key: int | None = None


class Outcome(StrEnum):
    """What became of one message that the inbox was asked to store."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    CONFLICTING_DUPLICATE = "conflicting_duplicate"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A frame that is no message of ours, kept for the operator; `raw` is cut to a bound, `size` is not."""

    received_at: datetime
    correlation_id: str
    listener: str
    peer: str
    reason: str
    raw: bytes
    size: int
    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class Claimed:
    """A message that this worker holds: status TRANSFORMING, committed.  `fence` proves the lease when it is settled."""

    id: int
    fence: int
    correlation_id: str
    received_at: datetime
    source_system: str
    source_id: str
    message_type: str
    raw: bytes
    charset: str
    attempt_count: int
    ordering_key: int | None = None
    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a claimed message ended.

    status DELIVERED: done.  FAILED: `attempt_count`, `error` and `next_attempt_at` are written.  DEAD_LETTER: as FAILED,
    never claimed again.  RECEIVED: handed back untried (no attempt counted), e.g. at shutdown.
    """

    id: int
    fence: int
    status: Status
    attempt_count: int = 0
    error: str | None = None
    next_attempt_at: datetime | None = None
    map_url: str | None = None
    transform_ms: float | None = None


@dataclass(frozen=True, slots=True)
class StaleRecovery:
    """A message whose worker was lost; it was settled as a failed attempt.  `settled` is FAILED or DEAD_LETTER."""

    id: int
    correlation_id: str
    source_system: str
    source_id: str
    message_type: str
    attempt_count: int
    settled: Status


@dataclass(frozen=True, slots=True)
class Backoff:
    """`delay = min(base_ms * factor ** (n - 1), max_ms)` after the n-th failure; `max_attempts` ends it."""

    base_ms: int
    factor: float
    max_ms: int
    max_attempts: int

    def delay_ms(self, attempt: int) -> int:
        """Milliseconds to wait after failure number `attempt` (from 1)."""
        return int(min(self.base_ms * self.factor ** min(attempt - 1, 64), self.max_ms))


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A stored message as the admin API shows it; the last three fields are None in lists."""

    id: int
    received_at: datetime
    source_protocol: str
    source_system: str
    source_id: str
    message_type: str
    status: Status
    attempt_count: int
    last_attempt_at: datetime | None
    last_error: str | None
    delivered_at: datetime | None
    correlation_id: str
    next_attempt_at: datetime | None = None
    raw: bytes | None = None
    charset: str | None = None
    raw_content_type: str | None = None


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Exact filters of `GET /admin/messages`; None = not filtered.  They combine with AND."""

    status: Status | None = None
    source_id: str | None = None
    source_system: str | None = None
    message_type: str | None = None
    correlation_id: str | None = None
    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class MessagePage:
    """One page, newest first by (received_at, id); `total` counts all rows that the filter matches."""

    total: int
    rows: tuple[MessageRow, ...]


class Inbox(Protocol):
    """The durable inbound store.  Every method is one committed transaction; StoreUnreachable when PostgreSQL is away."""

    async def store(self, batch: Sequence[Received]) -> list[Outcome]:
        """Insert all in one transaction, in order; durable when this returns.  One outcome a message, same order.

        The pair (source_system, source_id) is unique within a tenant: a repeat (also inside `batch`) makes no row.
        """

    async def reject(self, rejected: Rejected) -> None:
        """Keep a refused frame for the operator."""

    async def claim(self, worker: str, limit: int) -> list[Claimed]:
        """Take up to `limit` messages that are due, oldest first, and commit them as TRANSFORMING (SKIP LOCKED).

        A message is not taken while an earlier open one with its ordering_key is not in the same claim.  Messages of
        one key come in order of id.  Replicas and processes get disjoint rows.
        """

    async def renew(self, claims: Sequence[Claimed]) -> None:
        """Put off staleness of rows still held; rows lost meanwhile are left alone."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the ends; False where the lease was lost (fence differs): that row is not touched."""

    async def recover_stale(self, older_than_seconds: float, backoff: Backoff) -> list[StaleRecovery]:
        """Settle as a failed attempt every TRANSFORMING row not claimed or renewed for so long."""

    async def recover_worker(self, worker: str, backoff: Backoff) -> list[StaleRecovery]:
        """The same, at once, for all rows held by a worker that is known to be dead."""

    async def page(self, wanted: MessageFilter, limit: int, offset: int) -> MessagePage:
        """One page of the admin list (limit and offset already clamped and aligned)."""

    async def get(self, message_id: int) -> MessageRow | None:
        """The full row with its original bytes."""

    async def retry(self, message_id: int) -> MessageRow:
        """FAILED or DEAD_LETTER back to RECEIVED, counters cleared.  Problem NOT_FOUND; WrongState otherwise."""

    async def delete(self, message_id: int) -> None:
        """Remove a DEAD_LETTER row.  Problem NOT_FOUND; WrongState otherwise."""

    async def counts(self) -> dict[Status, int]:
        """How many rows are in each state (all five keys present)."""


class WrongState(Exception):
    """A retry or delete of a message in a state that does not allow it."""

    def __init__(self, message_id: int, current: Status) -> None:
        super().__init__(f"message {message_id} is {current}")
        self.message_id = message_id
        self.current = current


# --------------------------------------------------------------------------------------------------------------
# FHIR store: resources, versions, events


@dataclass(frozen=True, slots=True)
class Version:
    """One version of one resource.  `body` is the exact JSON text in UTF-8 (empty for a deletion).

    `rid` is the internal, never reused, growing number of the resource; it never leaves the house.
    """

    rid: int
    resource_type: str
    id: str
    version_id: int
    last_updated: datetime
    body: bytes
    deleted: bool = False
    method: str = "PUT"


@dataclass(frozen=True, slots=True)
class Change:
    """A version to be written, with what it changes in the index.

    `before` and `after` are index entries of the version replaced and of this one (empty when there is none, or when
    deleted); the store writes only the difference.  `resource` is the parsed form of `version.body` (None = deleted).
    """

    tenant: str
    version: Version
    resource: Json | None
    before: Entries
    after: Entries
    correlation_id: str
    interaction: str  # create | update | delete
    previous: Json | None = None


@dataclass(frozen=True, slots=True)
class NewEvent:
    """Change number `change` (its index in `Writes.changes`) fires the subscription with this rid."""

    subscription_rid: int
    change: int


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """The service's own row about a Subscription, written in the transaction that writes the resource."""

    tenant: str
    rid: int
    id: str
    status: str  # requested | active | off | error | deleted
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """Marks a conversion as done, in the transaction that stores its resources, so that a repeat changes nothing."""

    tenant: str
    key: str
    correlation_id: str


@dataclass(frozen=True, slots=True)
class Writes:
    """All that one database transaction writes, for one or many FHIR transactions."""

    changes: Sequence[Change] = ()
    events: Sequence[NewEvent] = ()
    receipts: Sequence[Receipt] = ()
    subscriptions: Sequence[SubscriptionState] = ()


@dataclass(frozen=True, slots=True)
class Asks:
    """What a transaction must know before it can be planned; answered in one round trip."""

    ids: Sequence[tuple[str, str, str]] = ()  # (tenant, resource type, id)
    conditions: Sequence[tuple[str, Query]] = ()  # (tenant, query)
    receipts: Sequence[tuple[str, str]] = ()  # (tenant, key)


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers in the order of the asks.

    `by_id`: the current version (possibly a deletion) or None.  `by_condition`: at most two live matches each.
    `receipts`: those keys that are there.  `epoch` grows with every change of any Subscription.
    """

    by_id: Sequence[Version | None]
    by_condition: Sequence[Sequence[Version]]
    receipts: frozenset[tuple[str, str]]
    epoch: int


@dataclass(frozen=True, slots=True)
class ActiveSubscription:
    """A subscription that fires (status requested, active or error), as the matching index needs it."""

    tenant: str
    rid: int
    id: str
    resource: Json


class FhirTransaction(Protocol):
    """One PostgreSQL transaction.  A subscription cannot change between `ask` and the commit."""

    async def ask(self, asks: Asks, *, subscriptions_change: bool = False) -> Answers:
        """First call, one round trip.  `subscriptions_change`: this transaction writes Subscription resources."""

    async def lock(self, conditions: Sequence[tuple[str, Query]]) -> list[Sequence[Version]]:
        """Serialise on these match keys until commit and answer them again, as of after the locks."""

    async def subscriptions(self) -> list[ActiveSubscription]:
        """All subscriptions that fire, of all tenants, as of this transaction."""

    async def commit(self, writes: Writes) -> None:
        """Write and commit in one round trip; durable when it returns.  WriteConflict when another was first."""


class FhirStore(Protocol):
    """Resources on PostgreSQL.  Reads are single statements; writes go through `transaction`."""

    def transaction(self) -> AbstractAsyncContextManager[FhirTransaction]:
        """The only door to writing; rolled back unless committed."""

    async def new_rid(self) -> int:
        """A fresh internal number, from a block that this process holds: almost never a round trip."""

    async def read(self, tenant: str, resource_type: str, id: str) -> Version | None:
        """The current version, a deletion included."""

    async def read_version(self, tenant: str, resource_type: str, id: str, version_id: int) -> Version | None:
        """One version."""

    async def history(self, tenant: str, resource_type: str, id: str, limit: int, before: int | None) -> list[Version]:
        """Versions of one resource, newest first; only those with version_id < `before` when it is given."""

    async def search(self, tenant: str, query: Query, after: str | None = None) -> SearchPage:
        """One page of matches (query.count at most).  `after` is the token of the page before."""

    async def counts(self) -> dict[str, int]:
        """Live resources by type, all tenants (for `bin/demo`, health and tests)."""


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Matches of one page in order; `total` is None when it was not asked for; `next` continues, None at the end."""

    total: int | None
    matches: tuple[Version, ...]
    next: str | None


class Matcher(Protocol):
    """Which subscriptions a change fires: a cache of rows, rebuilt whenever its epoch is not the transaction's."""

    @property
    def epoch(self) -> int:
        """Epoch of the rows it was built from; -1 before the first load."""

    def load(self, epoch: int, subscriptions: Sequence[ActiveSubscription]) -> None:
        """Replace the whole index."""

    def match(self, change: Change) -> list[int]:
        """rids of the subscriptions that `change` fires, in ascending order."""


# --------------------------------------------------------------------------------------------------------------
# Delivery


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

    async def requested(self, limit: int) -> list[tuple[str, str]]:
        """(tenant, id) of subscriptions that wait for activation."""

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
    """What the far end answered.  `http_status` None: no answer, and `error` says why.  `retry_after`: seconds asked for."""

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


# --------------------------------------------------------------------------------------------------------------
# Mapping and the FHIR server as the engine sees them (in this process, or remote)


@dataclass(frozen=True, slots=True)
class Mapped:
    """A transaction Bundle, and which map made it."""

    bundle: Json
    map_url: str


class Mapper(Protocol):
    """Chooses the StructureMap for a message type and runs it.  Problem UNMAPPED, MAPPING or UPSTREAM."""

    def has_map(self, message_type: str) -> bool:
        """Whether a map for this type is installed (True when that cannot be known: a remote service)."""

    async def transform(self, message: Claimed) -> Mapped:
        """Message bytes to transaction Bundle."""


class Bell(Protocol):
    """Wakes workers, here and in other processes.  A lost ring costs one poll interval, never a message."""

    def ring(self, name: str) -> None:
        """Say that there is work; returns at once, many rings become one."""

    def subscribe(self, name: str, wake: Callable[[], None]) -> None:
        """Call `wake` at each ring of `name`."""


# --------------------------------------------------------------------------------------------------------------
# HTTP, as values


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request without its socket.  `path`: segments after `/fhir`; `headers`: lower-case names."""

    method: str
    path: tuple[str, ...]
    query: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]
    body: bytes
    base_url: str
    correlation_id: str
    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer without its socket."""

    status: int
    body: bytes = b""
    headers: Sequence[tuple[str, str]] = ()
    content_type: str = "application/fhir+json;charset=utf-8"


Clock = Callable[[], datetime]
Handler = Callable[[Request], Awaitable[Answer]]
