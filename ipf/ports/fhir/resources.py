"""The FHIR store: resources, versions, and the events of changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from ipf.ports.audit.records import Audit
from ipf.ports.base import Json
from ipf.ports.caller import OPEN, Caller
from ipf.ports.identity import IdentityAnswer
from ipf.ports.jobs import JobResult
from ipf.ports.queries.history_filter import EVERY_VERSION, HistoryFilter
from ipf.ports.queries.index import Entries
from ipf.ports.queries.search import Query
from ipf.ports.queries.topics import Topic

MATCH_LIMIT = 20
"""Matches of one condition that are read: more than one is already no clear match, and a choice needs the newest."""


@dataclass(slots=True)
class Version:
    """One version of one resource.  `body` is the exact JSON text in UTF-8 (empty for a deletion).

    `rid`: internal number of the resource, increasing, never reused, never shown to clients.  `sources`: which fields
    of HL7 v2 messages its elements come from, as JSON; only what is read for a change has it; empty: no message wrote
    it.
    """

    rid: int
    resource_type: str
    id: str
    version_id: int
    last_updated: datetime
    body: bytes
    deleted: bool = False
    method: str = "PUT"
    sources: str = ""


@dataclass(slots=True)
class Change:
    """A version to be written, and its changes of the index.

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
    """The state row of a Subscription, written in the same transaction as the resource."""

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
    """The state row of a SubscriptionTopic, or of a Basic that contains one.  `served`: subscriptions may use it."""

    tenant: str
    rid: int
    url: str
    served: bool


@dataclass(frozen=True, slots=True)
class SubscriptionCreator:
    """The caller that created a Subscription or replaced its criteria or channel: its grants limit the notifications.

    The grants of all others are removed.  `skips`: earlier events are not sent to it any more, because it may not see
    all that they tell.  `owns`: it has sent the secrets of the channel itself.  A caller without limits has no grants.
    """

    tenant: str
    rid: int
    caller: Caller
    skips: bool = False
    owns: bool = True


@dataclass(slots=True)
class Receipt:
    """Marks a conversion as done, in the transaction that stores its resources: a repeat has no effect."""

    tenant: str
    key: str
    correlation_id: str


@dataclass(frozen=True, slots=True)
class ReindexRequest:
    """A request to reindex resources of these types after deleting the entries of `stale` (type, code).

    `is_definition`: a search parameter changed; increases the epoch.
    """

    tenant: str
    types: tuple[str, ...]
    stale: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    is_definition: bool = False


@dataclass(slots=True)
class Writes:
    """All writes of one database transaction, for one or many FHIR transactions.  `audits`: the records of them."""

    changes: Sequence[Change] = ()
    events: Sequence[NewEvent] = ()
    receipts: Sequence[Receipt] = ()
    subscriptions: Sequence[SubscriptionState] = ()
    reindex: Sequence[ReindexRequest] = ()
    topics: Sequence[TopicState] = ()
    creators: Sequence[SubscriptionCreator] = ()
    audits: Sequence[Audit] = ()
    job_results: Sequence[JobResult] = ()


@dataclass(slots=True)
class Lookup:
    """The reads of a transaction before planning, in one round trip."""

    ids: Sequence[tuple[str, str, str]] = ()  # (tenant, resource type, id)
    conditions: Sequence[tuple[str, Query]] = ()  # (tenant, query)
    receipts: Sequence[tuple[str, str]] = ()  # (tenant, key)


@dataclass(slots=True)
class MatchLocks:
    """The locks of conditions that will create resources, held until the transaction ends.

    `types`: (tenant, resource type) -> whether the lock is exclusive; others share it.  `values`: (tenant, resource
    type, identifier value), each exclusive.
    """

    types: dict[tuple[str, str], bool] = field(default_factory=dict)
    values: set[tuple[str, str, str]] = field(default_factory=set)


@dataclass(slots=True)
class LookupResult:
    """The results, in the order of the `Lookup`.

    `by_id`: the current version (possibly a deletion) or None.  `by_condition`: the live matches of each, in any order;
    of more than MATCH_LIMIT (or the `count` of a condition on several elements) only so many, and of a condition on one
    token the newest.
    `receipts`: the existing keys.  `epoch` increases with every change of a Subscription.
    """

    by_id: Sequence[Version | None]
    by_condition: Sequence[Sequence[Version]]
    receipts: frozenset[tuple[str, str]]
    epoch: int


@dataclass(frozen=True, slots=True)
class ActiveSubscription:
    """A subscription that fires (status requested, active or error); `resource` None: it does not fire.

    `writers`: the callers whose grants limit its events; empty when it was written without authentication.  `owner`:
    the one that sent the secrets of the channel.  Both are known of a subscription that does not fire as well.
    """

    tenant: str
    rid: int
    id: str
    resource: Json | None
    writers: Sequence[Caller] = ()
    owner: Caller | None = None


@dataclass(frozen=True, slots=True)
class ServedTopic:
    """A SubscriptionTopic (or Basic) that subscriptions may use; `resource` None: they may not."""

    tenant: str
    rid: int
    resource: Json | None


@dataclass(slots=True)
class Changes:
    """Changes of subscriptions, topics and search parameters that every writer must apply.

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

    async def lock(self, conditions: Sequence[tuple[str, Query]], locks: MatchLocks) -> list[Sequence[Version]]:
        """Take these locks until commit and look the conditions up again, after the locks are held."""

    async def identity_answers(self, wanted: Sequence[tuple[str, str, str]]) -> Sequence[IdentityAnswer | None]:
        """The answers of operators for (tenant, resource type, IdentityKey.text), in order; None = there is none."""

    async def changes_since(self, since: int = -1) -> Changes:
        """Changes after the epoch `since`, of all tenants, as this transaction sees them; from -1, all active ones."""

    async def commit(self, writes: Writes, reads: Callable[[], Awaitable[None]] | None = None) -> str:
        """Write and commit in one round trip; durable on return.  WriteConflict: another transaction was first.

        `reads`: called between the writes and the commit, with reads of `FhirStore.within`.  When it raises, nothing is
        stored.  Returns the reason why the audit records could not be written, which fails nothing else; "" when they
        are.
        """

    @property
    def view(self) -> object:
        """What `FhirStore.within` and `Histories.within` need of the transaction."""


class FhirStore(Protocol):
    """Resources on PostgreSQL.  Reads are single statements; writes go through `transaction`."""

    def transaction(self) -> AbstractAsyncContextManager[FhirTransaction]:
        """The only way to write; rolled back unless committed."""

    def within(self, transaction: FhirTransaction) -> FhirStore:
        """This store as a transaction of it sees it, for the `reads` of its commit.  It opens no transaction."""

    async def new_rid(self) -> int:
        """A new internal number from a block that this process has reserved: rarely a round trip."""

    async def read(self, tenant: str, resource_type: str, id: str) -> Version | None:
        """The current version, a deletion included."""

    async def read_version(self, tenant: str, resource_type: str, id: str, version_id: int) -> Version | None:
        """One version; None when there is none."""

    async def history(
        self,
        tenant: str,
        resource_type: str,
        id: str,
        limit: int,
        start: int | None,
        wanted: HistoryFilter = EVERY_VERSION,
    ) -> list[Version]:
        """Versions of one resource, after the version number `start` in the order of `wanted`."""

    async def search(self, tenant: str, query: Query, after: str | None = None) -> SearchPage:
        """One page of matches (query.count at most).  `after`: a token that another page gave."""

    async def lastn(self, tenant: str, query: Query, most: int, limit: int) -> list[Version]:
        """The newest `most` Observations of each code among the matches of `query`, by code, then newest first.

        Problem COSTLY when they are more than `limit`.  `ipf/fhir/search/evaluation/lastn.py` has the rules.
        """

    async def read_many(self, tenant: str, keys: Sequence[tuple[str, str]]) -> list[Version]:
        """The current versions of these (resource type, id) in order, without missing and deleted resources."""

    async def types(self, tenant: str) -> list[str]:
        """The resource types of which the tenant has or had resources, sorted."""

    async def indexed(self, tenant: str, resource_type: str, code: str, limit: int) -> list[str]:
        """The different values of a token or uri parameter in the index, at most `limit`, in order."""

    async def page_token_key(self) -> bytes:
        """The secret key of page tokens (64 bytes), the same for all processes and for as long as the store lives."""

    async def counts(self) -> dict[str, int]:
        """Live resources by type, all tenants (for `bin/demo`, health and tests)."""


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Matches of one page in order; `total` is None unless it was requested; `next` continues, None at the end.

    `ends`: with `Query.each_token`, the page token after each match.  `previous`: the token for a page `backwards`,
    None when no match is before this page, or the store has no way back.
    """

    total: int | None
    matches: tuple[Version, ...]
    next: str | None
    ends: tuple[str, ...] = ()
    previous: str | None = None


class Matcher(Protocol):
    """Finds the subscriptions that a change fires.  A cache of rows, updated to the epoch of each write transaction."""

    @property
    def epoch(self) -> int:
        """Epoch of the rows it was built from; -1 before the first load."""

    async def update_to(self, epoch: int, read: Callable[[int], Awaitable[Changes]]) -> None:
        """Apply the changes until `epoch`; `read(since)` returns them, all from -1.

        Called in a transaction that sees this epoch and blocks changes of it.  Concurrent calls wait for each other.
        Large updates let the reactor run.
        """

    def check(self, tenant: str, subscription: Json, also: Sequence[Topic] = (), caller: Caller = OPEN) -> None:
        """Problem BUSINESS_RULE when the topic of a Subscription is not served, or does not allow its filters.

        Problem UNAUTHORIZED when the writer `caller` may not use these criteria.  `also`: topics written in the same
        transaction.
        """

    def signals(self, tenant: str, subscription: Json, caller: Caller) -> Sequence[str]:
        """The resource types that `caller` may not search, whose content a Subscription of it would test."""

    def creators(self, rid: int) -> Sequence[Caller]:
        """The callers whose grants a stored Subscription has; empty when it was written without authentication."""

    def owner(self, rid: int) -> Caller | None:
        """The caller that sent the secrets of a stored Subscription."""

    def unreadable(
        self, tenant: str, subscription: Json, creators: Sequence[Caller], also: Sequence[Topic] = ()
    ) -> frozenset[str]:
        """The types of what a Subscription matches that its creators may not read.  `also`: as for `check`."""

    def missing_scopes(
        self, tenant: str, subscription: Json, creators: Sequence[Caller], also: Sequence[Topic] = ()
    ) -> str | None:
        """`Subscription.error` when its creators may not read what it matches; None when they may."""

    def topic(self, tenant: str, canonical: str) -> Topic | None:
        """The topic that a canonical names; None when it is not served."""

    def topics(self, tenant: str) -> Sequence[Topic]:
        """All topics that are served."""

    def match(self, change: Change) -> list[int]:
        """rids of the subscriptions that `change` fires, in ascending order."""
