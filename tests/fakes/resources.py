"""The FHIR store in memory: the same behaviour as `ipf/store/resources/resources.py`, held by
`tests/contracts/resources.py`.

Transactions are optimistic here too: `commit` checks every expectation and applies all or nothing.  Locks of match keys
and of the set of subscriptions are held until the transaction ends, as in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy, deepcopy
from dataclasses import dataclass, field
from typing import Any

from ipf.errors import Category, Problem, WriteConflict
from ipf.fhir.model.json import loads
from ipf.fhir.search.evaluation.lastn import last_of_each, observed, too_many
from ipf.fhir.search.evaluation.match import Candidate
from ipf.fhir.topics.basic import topic_in
from ipf.ports import (
    DEFAULT_TENANT,
    MATCH_LIMIT,
    ActiveSubscription,
    Change,
    Changes,
    Event,
    FhirStore,
    FhirTransaction,
    Json,
    Lookup,
    LookupResult,
    MatchLocks,
    ReindexRequest,
    SearchPage,
    ServedTopic,
    SubscriptionState,
    TopicState,
    Version,
    Writes,
)
from ipf.ports.audit.records import Audit
from ipf.ports.grants import Writer, callers_of
from ipf.ports.identity import IdentityAnswer
from ipf.ports.queries.history_filter import EVERY_VERSION, HistoryFilter
from ipf.ports.queries.index import EMPTY, Entries
from ipf.ports.queries.predicates import AllOf, Test
from ipf.ports.queries.search import Query, Sort
from tests.fakes.match_locks import SharedLock

Key = tuple[str, str, str]
"""(tenant, resource type, id)"""


@dataclass
class Stream:
    """A subscription's state and its events."""

    state: SubscriptionState
    events: list[Event] = field(default_factory=list)
    epoch: int = 0
    requests: int = 0  # number of times with status requested
    skipped: int = 0  # events that a narrow client did not take over


class MemoryFhirStore:
    """`ports.FhirStore` without a database.  `broken`: raised by every call while it is set."""

    def __init__(self) -> None:
        self.versions: dict[Key, list[Version]] = {}
        self.entries: dict[Key, Entries] = {}
        self.receipts: set[tuple[str, str]] = set()
        self.jobs: set[tuple[str, str]] = set()
        self.job_results: dict[tuple[str, str, int], str] = {}
        self.streams: dict[int, Stream] = {}
        self.creators: dict[int, dict[tuple[str, ...], Writer]] = {}  # by rid, by who it is
        self.epoch = 0
        self.parameters_epoch = 0
        self.consent_epoch = 0
        self.consents: dict[int, tuple[str, Key, int]] = {}  # by rid: tenant, key, epoch
        self.topics: dict[int, tuple[TopicState, int]] = {}
        self.reindex: list[ReindexRequest] = []
        self.answers: dict[tuple[str, str, str], IdentityAnswer] = {}  # by tenant, resource type, key
        self.commits = 0
        self.audits: list[Audit] = []
        self.audit_refusal = ""
        self.broken: Problem | None = None
        self.is_within = False
        self._last_rid = 0
        self._locks: dict[tuple[str, ...], SharedLock] = {}

    def check(self) -> None:
        """Fail while broken."""
        if self.broken is not None:
            raise self.broken

    def within(self, transaction: FhirTransaction) -> MemoryFhirStore:
        """See `ports.FhirStore.within`."""
        other = copy(self)
        other.is_within = True
        return other

    def transaction(self) -> AbstractAsyncContextManager[FhirTransaction]:
        """See `ports.FhirStore.transaction`."""
        if self.is_within:
            raise Problem(Category.NOT_SUPPORTED, "an operation that writes cannot be part of a transaction")
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[FhirTransaction]:
        transaction = MemoryTransaction(self)
        try:
            yield transaction
        finally:
            transaction.end()

    def lock_of(self, *parts: str) -> SharedLock:
        """The lock of a resource type (tenant, type) or of an identifier value (tenant, type, value)."""
        return self._locks.setdefault(parts, SharedLock())

    async def new_rid(self) -> int:
        """See `ports.FhirStore.new_rid`."""
        self._last_rid += 1
        return self._last_rid

    async def read(self, tenant: str, resource_type: str, id: str) -> Version | None:
        """See `ports.FhirStore.read`."""
        self.check()
        return self.current((tenant, resource_type, id))

    def current(self, key: Key) -> Version | None:
        """The newest version."""
        found = self.versions.get(key)
        return found[-1] if found else None

    async def read_version(self, tenant: str, resource_type: str, id: str, version_id: int) -> Version | None:
        """See `ports.FhirStore.read_version`."""
        self.check()
        found = self.versions.get((tenant, resource_type, id), ())
        return next((version for version in found if version.version_id == version_id), None)

    async def history(
        self,
        tenant: str,
        resource_type: str,
        id: str,
        limit: int,
        start: int | None,
        wanted: HistoryFilter = EVERY_VERSION,
    ) -> list[Version]:
        """See `ports.FhirStore.history`."""
        self.check()
        found = wanted_of(self.versions.get((tenant, resource_type, id), []), wanted)
        if wanted.oldest_first:
            return [one for one in found if start is None or one.version_id > start][:limit]
        return [one for one in reversed(found) if start is None or one.version_id < start][:limit]

    def note_consents(self, changes: Sequence[Change]) -> None:
        """As the store notes a write of Consents."""
        found = [change for change in changes if change.version.resource_type == "Consent"]
        self.consent_epoch += bool(found)
        for change in found:
            key = (change.tenant, "Consent", change.version.id)
            self.consents[change.version.rid] = change.tenant, key, self.consent_epoch

    def matching(self, tenant: str, query: Query) -> list[Version]:
        """All live matches in order of rid."""
        found = []
        everything = AllOf(tuple(term.test for term in query.terms))
        for key, versions in self.versions.items():
            version = versions[-1]
            if key[:2] != (tenant, query.resource_type) or version.deleted:
                continue
            if self._candidate(key, version).passes(everything):
                found.append(version)
        return sorted(found, key=lambda version: version.rid)

    def _candidate(self, key: Key, version: Version) -> Candidate:
        others = _Around(self, key[0])
        return Candidate(key[1], self.entries[key], version.id, version.last_updated, loads(version.body), others)

    def live(self, tenant: str, resource_type: str) -> Iterator[tuple[Version, Candidate]]:
        """All resources of a type that are there."""
        for key, versions in self.versions.items():
            if key[:2] == (tenant, resource_type) and not versions[-1].deleted:
                yield versions[-1], self._candidate(key, versions[-1])

    async def search(self, tenant: str, query: Query, after: str | None = None) -> SearchPage:
        """See `ports.FhirStore.search`.  Pages by offset."""
        self.check()
        found = self.matching(tenant, query)
        if query.sort and query.sort[0].descending:
            found.reverse()
        for sort in reversed(query.sort):
            keys = {version.rid: self._sort_key(tenant, version, sort) for version in found}
            having = [version for version in found if keys[version.rid] is not None]
            having.sort(key=lambda one, keys=keys: keys[one.rid], reverse=sort.descending)  # type: ignore[misc]
            found = having + [version for version in found if keys[version.rid] is None]
        total = None if query.total == "none" else len(found)
        count = 50 if query.count is None else query.count
        if query.summary_count or count == 0:
            return SearchPage(len(found), (), None)
        try:
            token = None if after is None else int(after)
        except ValueError as refused:
            raise Problem(Category.VALUE, "the page token cannot be read", "_cursor") from refused
        end = (token or 0) + count if not query.backwards else len(found) if token is None else max(0, token - 1)
        start = max(0, end - count) if query.backwards else token or 0
        ends = tuple(str(place + 1) for place in range(start, min(end, len(found)))) if query.each_token else ()
        previous = str(start + 1) if 0 < start < len(found) else None
        return SearchPage(total, tuple(found[start:end]), str(end) if end < len(found) else None, ends, previous)

    def _sort_key(self, tenant: str, version: Version, sort: Sort) -> Any:
        if sort.kind in ("id", "last_updated"):
            return getattr(version, sort.kind)
        entries = self.entries[tenant, version.resource_type, version.id]
        groups = {"text": entries.texts, "date": entries.dates, "quantity": entries.quantities}
        values = [entry[1] for entry in groups[sort.kind] if entry[0] in (sort.code, *sort.others)]
        return (max(values) if sort.descending else min(values)) if values else None

    async def lastn(self, tenant: str, query: Query, most: int, limit: int) -> list[Version]:
        """See `ports.FhirStore.lastn`."""
        self.check()
        found = last_of_each(map(observed, self.matching(tenant, query)), most)
        if len(found) > limit:
            raise too_many(limit)
        return found

    async def read_many(self, tenant: str, keys: Sequence[tuple[str, str]]) -> list[Version]:
        """See `ports.FhirStore.read_many`."""
        self.check()
        found = [self.current((tenant, *key)) for key in keys]
        return [version for version in found if version is not None and not version.deleted]

    async def types(self, tenant: str) -> list[str]:
        """See `ports.FhirStore.types`."""
        self.check()
        return sorted({key[1] for key in self.versions if key[0] == tenant})

    async def indexed(self, tenant: str, resource_type: str, code: str, limit: int) -> list[str]:
        """See `ports.FhirStore.indexed`."""
        self.check()
        found = {
            text
            for key, entries in self.entries.items() if key[:2] == (tenant, resource_type)
            for name, text in entries.texts if name == code
        }  # fmt: skip
        return sorted(found)[:limit]

    async def page_token_key(self) -> bytes:
        """See `ports.FhirStore.page_token_key`."""
        return b"memory" * 10 + b"keys"

    async def counts(self) -> dict[str, int]:
        """See `ports.FhirStore.counts`."""
        self.check()
        found: dict[str, int] = {}
        for (_, resource_type, _), versions in self.versions.items():
            if not versions[-1].deleted:
                found[resource_type] = found.get(resource_type, 0) + 1
        return found


def wanted_of(versions: Sequence[Version], wanted: HistoryFilter) -> list[Version]:
    """Of the versions of one resource, oldest first, those that a history is asked for."""
    found = []
    for number, version in enumerate(versions):
        until = versions[number + 1].last_updated if number + 1 < len(versions) else None
        is_recent = wanted.since is None or version.last_updated >= wanted.since
        at = wanted.at
        was_current = at is None or (version.last_updated < at[1] and (until is None or until > at[0]))
        found += [version] if is_recent and was_current else []
    return found


class _Around:
    """`match.Around` on a MemoryFhirStore."""

    def __init__(self, store: MemoryFhirStore, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    def passes(self, resource_type: str, id: str, tests: Sequence[Test]) -> bool:
        """See `match.Around.passes`."""
        found = [candidate for version, candidate in self._store.live(self._tenant, resource_type) if version.id == id]
        return any(all(candidate.passes(test) for test in tests) for candidate in found)

    def referred(self, resource_type: str, code: str, tests: Sequence[Test], reference: str) -> bool:
        """See `match.Around.referred`."""
        return any(
            (code, reference) in candidate.entries.texts and all(candidate.passes(test) for test in tests)
            for _, candidate in self._store.live(self._tenant, resource_type)
        )


class MemoryTransaction:
    """`ports.FhirTransaction` on a MemoryFhirStore."""

    def __init__(self, store: MemoryFhirStore) -> None:
        self._store = store
        self._held: list[SharedLock] = []
        self._epoch: int | None = None
        self._owns_subscriptions = False

    def end(self) -> None:
        """Give back the locks."""
        while self._held:
            self._held.pop().release()

    async def look_up(self, lookup: Lookup, *, subscriptions_change: bool = False) -> LookupResult:
        """See `ports.FhirTransaction.look_up`."""
        store = self._store
        store.check()
        self._owns_subscriptions = subscriptions_change
        self._epoch = store.epoch
        return LookupResult(
            [store.current(key) for key in lookup.ids],
            [_newest(store.matching(tenant, query), query) for tenant, query in lookup.conditions],
            frozenset(key for key in lookup.receipts if key in store.receipts),
            store.epoch,
        )

    async def lock(self, conditions: Sequence[tuple[str, Query]], locks: MatchLocks) -> list[Sequence[Version]]:
        """See `ports.FhirTransaction.lock`."""
        for kind, exclusive in sorted(locks.types.items()):
            await self._take(self._store.lock_of(*kind), exclusive=exclusive)
        for value in sorted(locks.values):
            await self._take(self._store.lock_of(*value), exclusive=True)
        self._store.check()
        return [_newest(self._store.matching(tenant, query), query) for tenant, query in conditions]

    async def _take(self, lock: SharedLock, *, exclusive: bool) -> None:
        await lock.acquire(exclusive=exclusive)
        self._held.append(lock)

    async def identity_answers(self, wanted: Sequence[tuple[str, str, str]]) -> Sequence[IdentityAnswer | None]:
        """See `ports.FhirTransaction.identity_answers`."""
        return [self._store.answers.get(key) for key in wanted]

    async def changes_since(self, since: int = -1) -> Changes:
        """See `ports.FhirTransaction.changes_since`."""
        store = self._store
        subscriptions = [
            ActiveSubscription(
                stream.state.tenant,
                rid,
                stream.state.id,
                self._firing(stream.state),
                *callers_of(list(store.creators.get(rid, {}).values())),
            )
            for rid, stream in sorted(store.streams.items())
            if stream.epoch > since and (since >= 0 or stream.state.status != "deleted")
        ]
        topics = [
            ServedTopic(state.tenant, rid, self._topic(state))
            for rid, (state, epoch) in sorted(store.topics.items())
            if epoch > since
        ]
        if since < 0:
            topics = [one for one in topics if one.resource is not None]
        live = sorted(store.live(DEFAULT_TENANT, "SearchParameter"), key=lambda one: one[0].rid)
        parameters = [loads(version.body) for version, _ in live]
        return Changes(subscriptions, topics, parameters if store.parameters_epoch > since else None)

    def _firing(self, state: SubscriptionState) -> Json | None:
        version = self._store.current((state.tenant, "Subscription", state.id))
        fires = state.status in ("requested", "active", "error") and version is not None and not version.deleted
        return loads(version.body) if version is not None and fires else None

    def _topic(self, state: TopicState) -> Json | None:
        found = [versions[-1] for versions in self._store.versions.values() if versions[-1].rid == state.rid]
        return topic_in(loads(found[0].body)) if state.served else None

    @property
    def view(self) -> object:
        """See `ports.FhirTransaction.view`."""
        return self._store

    async def commit(self, writes: Writes, reads: Callable[[], Awaitable[None]] | None = None) -> str:
        """See `ports.FhirTransaction.commit`."""
        if reads is None:
            return self._commit(writes)
        store = self._store
        before = {name: value for name, value in vars(store).items() if not name.startswith("_")}
        saved = deepcopy(before)
        try:
            refused = self._commit(writes)
            await reads()
        except BaseException:
            vars(store).update(saved)
            raise
        return refused

    def _commit(self, writes: Writes) -> str:
        store = self._store
        store.check()
        if (writes.subscriptions or writes.topics or writes.reindex) and not self._owns_subscriptions:
            raise Problem(Category.INTERNAL, "subscriptions change in a transaction that did not say so")
        if self._epoch != store.epoch:
            raise WriteConflict()
        self._expect(writes)
        store.commits += 1
        store.job_results.update({(one.tenant, one.job_id, one.number): one.result for one in writes.job_results})
        store.receipts.update((receipt.tenant, receipt.key) for receipt in writes.receipts)
        for change in writes.changes:
            key = (change.tenant, change.version.resource_type, change.version.id)
            store.versions.setdefault(key, []).append(change.version)
            store.entries[key] = EMPTY if change.version.deleted else change.after
        has_definition = any(request.is_definition for request in writes.reindex)
        if writes.subscriptions or writes.topics or has_definition:
            store.epoch += 1
        if has_definition:
            store.parameters_epoch = store.epoch
        store.note_consents(writes.changes)
        for state in writes.subscriptions:
            stream = store.streams.setdefault(state.rid, Stream(state))
            stream.state, stream.epoch = state, store.epoch
            stream.requests += state.status == "requested"
        for topic in writes.topics:
            store.topics[topic.rid] = topic, store.epoch
        for one in writes.creators:
            who = one.caller.issuer, one.caller.subject, one.caller.client
            stream = store.streams.get(one.rid)
            known = store.creators.get(one.rid, {})
            earlier = known.get(who, Writer(one.caller, len(stream.events) if stream is not None else 0))
            if one.skips and stream is not None:
                stream.skipped = len(stream.events)
            store.creators[one.rid] = {}
            if one.caller.is_unlimited:
                continue
            store.creators[one.rid][who] = Writer(one.caller, earlier.since, earlier.owns or one.owns)
        store.reindex += writes.reindex
        for event in sorted(writes.events, key=lambda event: event.change):
            self._number(writes, event.subscription_rid, event.change)
        self.end()
        if store.audit_refusal:
            return store.audit_refusal
        store.audits += writes.audits
        return ""

    def _expect(self, writes: Writes) -> None:
        """Every version follows the one that is there; no receipt is there yet."""
        if any((receipt.tenant, receipt.key) in self._store.receipts for receipt in writes.receipts):
            raise WriteConflict()
        for one in writes.job_results:
            if (one.tenant, one.job_id, one.number) in self._store.job_results:
                raise WriteConflict()
            if (one.tenant, one.job_id) not in self._store.jobs:
                raise Problem(Category.INTERNAL, "the job was removed")
        expected: dict[Key, int] = {}
        for change in writes.changes:
            version = change.version
            key = (change.tenant, version.resource_type, version.id)
            current = self._store.current(key)
            last = expected.get(key, 0 if current is None else current.version_id)
            if version.version_id != last + 1:
                raise WriteConflict()
            expected[key] = version.version_id

    def _number(self, writes: Writes, subscription_rid: int, change_number: int) -> None:
        change = writes.changes[change_number]
        version, stream = change.version, self._store.streams[subscription_rid]
        number, named = len(stream.events) + 1, (version.resource_type, version.id, version.version_id)
        at, method = version.last_updated, version.method
        stream.events.append(Event(number, *named, at, change.correlation_id, version.body, method))


def _newest(found: list[Version], query: Query) -> list[Version]:
    return found[::-1][: query.count or MATCH_LIMIT]


_: type[FhirStore] = MemoryFhirStore
__: type[FhirTransaction] = MemoryTransaction
