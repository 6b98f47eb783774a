"""The FHIR store: resources, their versions, and the events that a change fires."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.base import Json
from ipf.ports.caller import Caller
from ipf.ports.index import Entries
from ipf.ports.search import Query
from ipf.ports.topics import Topic


@dataclass(slots=True)
class Version:
    """One version of one resource.  `body` is the exact JSON text in UTF-8 (empty for a deletion).

    `rid` is the internal, never reused, growing number of the resource; it never leaves the service.
    """

    rid: int
    resource_type: str
    id: str
    version_id: int
    last_updated: datetime
    body: bytes
    deleted: bool = False
    method: str = "PUT"


@dataclass(slots=True)
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


@dataclass(slots=True)
class NewEvent:
    """Change number `change` (its index in `Writes.changes`) fires the subscription with this rid."""

    subscription_rid: int
    change: int


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """The row of the service for a Subscription, written in the transaction that writes the resource."""

    tenant: str
    rid: int
    id: str
    status: str  # requested | active | off | error | deleted
    error: str | None = None
    channel_type: str = "rest-hook"
    heartbeat_seconds: int | None = None
    ends_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class TopicState:
    """The row of the service for a SubscriptionTopic, or a Basic that holds one; `served` is false once it does not."""

    tenant: str
    rid: int
    url: str
    served: bool


@dataclass(frozen=True, slots=True)
class SubscriptionCreator:
    """The caller that wrote a Subscription with a token; notifications are checked against the grants.

    `begins`: grants of earlier writers are removed, because it is new or its endpoint changed.
    """

    tenant: str
    rid: int
    caller: Caller
    begins: bool = True


@dataclass(slots=True)
class Receipt:
    """Marks a conversion as done, in the transaction that stores its resources, so that a repeat changes nothing."""

    tenant: str
    key: str
    correlation_id: str


@dataclass(frozen=True, slots=True)
class ReindexRequest:
    """Resources of these types are to be indexed anew, after the entries of `stale` (type, code) were removed.

    `is_definition`: a search parameter changed, so that the epoch grows.
    """

    tenant: str
    types: tuple[str, ...]
    stale: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    is_definition: bool = False


@dataclass(slots=True)
class Writes:
    """All that one database transaction writes, for one or many FHIR transactions."""

    changes: Sequence[Change] = ()
    events: Sequence[NewEvent] = ()
    receipts: Sequence[Receipt] = ()
    subscriptions: Sequence[SubscriptionState] = ()
    reindex: Sequence[ReindexRequest] = ()
    topics: Sequence[TopicState] = ()
    creators: Sequence[SubscriptionCreator] = ()


@dataclass(slots=True)
class Lookup:
    """What a transaction reads before it is planned, in one round trip."""

    ids: Sequence[tuple[str, str, str]] = ()  # (tenant, resource type, id)
    conditions: Sequence[tuple[str, Query]] = ()  # (tenant, query)
    receipts: Sequence[tuple[str, str]] = ()  # (tenant, key)


@dataclass(slots=True)
class LookupResult:
    """The answers, in the order of the `Lookup`.

    `by_id`: the current version (possibly a deletion) or None.  `by_condition`: at most two live matches each.
    `receipts`: those keys that are there.  `epoch` grows with every change of any Subscription.
    """

    by_id: Sequence[Version | None]
    by_condition: Sequence[Sequence[Version]]
    receipts: frozenset[tuple[str, str]]
    epoch: int


@dataclass(frozen=True, slots=True)
class ActiveSubscription:
    """A subscription that fires (status requested, active or error); `resource` None: it does not, or no longer."""

    tenant: str
    rid: int
    id: str
    resource: Json | None


@dataclass(frozen=True, slots=True)
class ServedTopic:
    """A SubscriptionTopic (or Basic) that subscriptions may use; `resource` None: they may not, or no longer."""

    tenant: str
    rid: int
    resource: Json | None


@dataclass(slots=True)
class Changes:
    """Changes of subscriptions, topics and search parameters that every writer must take in.

    `subscriptions` are read lazily, once.  `search_parameters`: all SearchParameter resources of the
    default tenant, oldest first; None when none changed.
    """

    subscriptions: Iterable[ActiveSubscription] = ()
    topics: Sequence[ServedTopic] = ()
    search_parameters: Sequence[Json] | None = None


class FhirTransaction(Protocol):
    """One PostgreSQL transaction.  A subscription cannot change between `look_up` and the commit."""

    async def look_up(self, lookup: Lookup, *, subscriptions_change: bool = False) -> LookupResult:
        """First call, one round trip.  `subscriptions_change`: this transaction writes Subscription resources."""

    async def lock(self, conditions: Sequence[tuple[str, Query]]) -> list[Sequence[Version]]:
        """Lock these match keys until commit and look them up again, after the locks are held."""

    async def changes_since(self, since: int = -1) -> Changes:
        """Changes after the epoch `since`, of all tenants, as this transaction sees them; from -1, all that fires."""

    async def commit(self, writes: Writes) -> None:
        """Write and commit in one round trip; durable when it returns.  WriteConflict when another was first."""


class FhirStore(Protocol):
    """Resources on PostgreSQL.  Reads are single statements; writes go through `transaction`."""

    def transaction(self) -> AbstractAsyncContextManager[FhirTransaction]:
        """The only way to write; rolled back unless committed."""

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

    async def read_many(self, tenant: str, keys: Sequence[tuple[str, str]]) -> list[Version]:
        """The current versions of these (resource type, id) that are there and not deleted, in order."""

    async def types(self, tenant: str) -> list[str]:
        """The resource types of which the tenant has, or had, any; in order."""

    async def counts(self) -> dict[str, int]:
        """Live resources by type, all tenants (for `bin/demo`, health and tests)."""


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Matches of one page in order; `total` is None unless it was requested; `next` continues, None at the end.

    `ends`: when `Query.each_token` is set, the token behind each match.
    """

    total: int | None
    matches: tuple[Version, ...]
    next: str | None
    ends: tuple[str, ...] = ()


class Matcher(Protocol):
    """Which subscriptions a change fires: a cache of rows, brought to the epoch of each transaction that writes."""

    @property
    def epoch(self) -> int:
        """Epoch of the rows it was built from; -1 before the first load."""

    async def update_to(self, epoch: int, read: Callable[[int], Awaitable[Changes]]) -> None:
        """Take in what changed until `epoch`; `read(since)` says what, from -1 everything.

        For the transaction that sees this epoch, and holds off changes of it; several at once wait for one another.
        Other work goes on meanwhile, when there is much to take in.
        """

    def check(self, tenant: str, subscription: Json, also: Sequence[Topic] = ()) -> None:
        """Problem BUSINESS_RULE when the topic of a Subscription is not served, or does not allow its filters.

        `also`: topics that are being written together with it.
        """

    def topic(self, tenant: str, canonical: str) -> Topic | None:
        """The topic that a canonical names; None when it is not served."""

    def topics(self, tenant: str) -> Sequence[Topic]:
        """All topics that are served."""

    def match(self, change: Change) -> list[int]:
        """rids of the subscriptions that `change` fires, in ascending order."""
