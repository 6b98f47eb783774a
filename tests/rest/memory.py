"""A FHIR store in memory, small enough to read at once, for the tests of planning and committing.

Transactions see what was committed before their questions; a writer that was overtaken gets WriteConflict.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred, DeferredLock

from ipf.errors import WriteConflict
from ipf.fhir.index import extract
from ipf.fhir.json import loads
from ipf.fhir.match import matches
from ipf.fhir.query import Query
from ipf.ports import (
    ActiveSubscription,
    Answers,
    Asks,
    FhirStore,
    FhirTransaction,
    NewEvent,
    SearchPage,
    SubscriptionState,
    Version,
    Writes,
)

Key = tuple[str, str, str]


@dataclass
class SmallStore:
    """All rows; `commits` counts transactions that wrote, `pause` lets others in before each commit."""

    versions: dict[Key, list[Version]] = field(default_factory=dict)
    receipts: set[tuple[str, str]] = field(default_factory=set)
    states: dict[int, SubscriptionState] = field(default_factory=dict)
    events: list[tuple[int, Version]] = field(default_factory=list)
    epoch: int = 0
    commits: int = 0
    rid: int = 0
    pause: Deferred[None] | None = None
    locks: dict[str, DeferredLock] = field(default_factory=dict)

    def transaction(self) -> AbstractAsyncContextManager[FhirTransaction]:
        """A transaction whose locks are given back at its end."""
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[FhirTransaction]:
        transaction = SmallTransaction(self)
        try:
            yield transaction
        finally:
            for lock in transaction.held:
                lock.release()

    async def new_rid(self) -> int:
        """The next number."""
        self.rid += 1
        return self.rid

    def current(self, key: Key) -> Version | None:
        """The newest version."""
        return self.versions[key][-1] if key in self.versions else None

    def found(self, tenant: str, query: Query) -> list[Version]:
        """All live matches in order of rid."""
        newest = [
            rows[-1]
            for (owner, kind, _), rows in self.versions.items()
            if (owner, kind) == (tenant, query.resource_type)
        ]
        live = sorted((version for version in newest if not version.deleted), key=lambda version: version.rid)
        return [v for v in live if matches(query, extract(loads(v.body)), id=v.id, last_updated=v.last_updated)]

    async def read(self, tenant: str, resource_type: str, id: str) -> Version | None:
        """As the port."""
        return self.current((tenant, resource_type, id))

    async def read_version(self, tenant: str, resource_type: str, id: str, version_id: int) -> Version | None:
        """As the port."""
        rows = self.versions.get((tenant, resource_type, id), [])
        return next((version for version in rows if version.version_id == version_id), None)

    async def history(self, tenant: str, resource_type: str, id: str, limit: int, before: int | None) -> list[Version]:
        """As the port."""
        rows = reversed(self.versions.get((tenant, resource_type, id), []))
        return [version for version in rows if before is None or version.version_id < before][:limit]

    async def search(self, tenant: str, query: Query, after: str | None = None) -> SearchPage:
        """As the port; the token of a page is the rid of its last match."""
        found = self.found(tenant, query)
        rest = [version for version in found if version.rid > int(after or 0)]
        page = tuple(rest[: query.count])
        following = str(page[-1].rid) if page and len(rest) > len(page) else None
        return SearchPage(len(found), () if query.summary_count else page, following)

    async def counts(self) -> dict[str, int]:
        """As the port."""
        counts: dict[str, int] = {}
        for (_, kind, _), rows in self.versions.items():
            counts[kind] = counts.get(kind, 0) + (not rows[-1].deleted)
        return counts


class SmallTransaction:
    """One transaction."""

    def __init__(self, store: SmallStore) -> None:
        self.store = store
        self.held: list[DeferredLock] = []

    async def ask(self, asks: Asks, *, subscriptions_change: bool = False) -> Answers:
        """As the port."""
        by_id = [self.store.current(key) for key in asks.ids]
        by_condition = [self.store.found(tenant, query)[:2] for tenant, query in asks.conditions]
        receipts = frozenset(self.store.receipts & set(asks.receipts))
        return Answers(by_id, by_condition, receipts, self.store.epoch)

    async def lock(self, conditions: Sequence[tuple[str, Query]]) -> list[Sequence[Version]]:
        """As the port."""
        for tenant, query in sorted(conditions, key=lambda one: one[1].canonical):
            lock = self.store.locks.setdefault(f"{tenant} {query.resource_type} {query.canonical}", DeferredLock())
            await lock.acquire()
            self.held.append(lock)
        return [self.store.found(tenant, query)[:2] for tenant, query in conditions]

    async def subscriptions(self) -> list[ActiveSubscription]:
        """As the port."""
        live = [state for state in self.store.states.values() if state.status in ("requested", "active", "error")]
        found = []
        for state in live:
            version = self.store.current((state.tenant, "Subscription", state.id))
            assert version is not None
            found.append(ActiveSubscription(state.tenant, state.rid, state.id, loads(version.body)))
        return found

    async def commit(self, writes: Writes) -> None:
        """As the port."""
        store = self.store
        if store.pause is not None:
            await store.pause
        counted: dict[Key, int] = {}
        for change in writes.changes:
            key = (change.tenant, change.version.resource_type, change.version.id)
            now = store.current(key)
            if change.version.version_id != counted.get(key, now.version_id if now else 0) + 1:
                raise WriteConflict
            counted[key] = change.version.version_id
        for change in writes.changes:
            key = (change.tenant, change.version.resource_type, change.version.id)
            store.versions.setdefault(key, []).append(change.version)
        store.receipts.update((receipt.tenant, receipt.key) for receipt in writes.receipts)
        store.states.update((state.rid, state) for state in writes.subscriptions)
        store.events += [self._event(event, writes) for event in writes.events]
        store.epoch += bool(writes.subscriptions)
        store.commits += 1

    def _event(self, event: NewEvent, writes: Writes) -> tuple[int, Version]:
        return event.subscription_rid, writes.changes[event.change].version


_store: type[FhirStore] = SmallStore
_transaction: type[FhirTransaction] = SmallTransaction
