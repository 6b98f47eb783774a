"""Subscription matching: the subscriptions that a change fires, at a cost independent of their number.

Subscriptions are indexed by an equality term of their search (`index.py`); the few candidates are verified with the
whole search.  Topic subscriptions are indexed by their filters in the same way.  A topic's trigger is evaluated at most
once per change, and only when some filter matches the change.

The index is a cache of rows, exact as of its epoch (`ports.Matcher`).  A writer with another epoch in its transaction
loads what changed since; all rows are read once, at the start of the process.

Events are within the grants of the creator of a subscription (`writers.py`); the grants are checked for the few
subscriptions whose search matches.

Large loads (all rows, or new filters of a topic with many subscribers) run in slices, and the reactor runs between
them.  No change is matched in the meantime: a writer of subscriptions or topics waits for earlier writers, and later
writers, which see the new epoch, wait for the last slice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from twisted.internet.defer import DeferredLock
from twisted.logger import Logger

from ipf.errors import Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.search.evaluation.match import matches
from ipf.fhir.search.evaluation.possible import refuse_impossible
from ipf.fhir.topics.trigger import TriggerFailed, fires
from ipf.ports import OPEN, Caller, Change, Changes, Json, Matcher
from ipf.ports.queries.search import Query
from ipf.ports.queries.topics import Topic
from ipf.security.event_access import check_criteria, unreadable, unsearchable
from ipf.subscriptions.criteria import Criteria, criteria_of, queries_for
from ipf.subscriptions.filters import PLACE
from ipf.subscriptions.index import CriteriaIndex
from ipf.subscriptions.missing_scopes import is_missing_scopes, missing_scopes_text
from ipf.subscriptions.status import ACTIVE
from ipf.subscriptions.topic_failures import FailingTopic, TopicFailures, failing_topic
from ipf.subscriptions.topic_index import TopicIndex, TriggerBucket
from ipf.subscriptions.writers import ChangeViews, WriterIndex, tested_types

log = Logger()

SLICE = 128
"""Subscriptions loaded without yielding to the reactor, about five milliseconds."""

Kind = tuple[str, str]
"""(tenant, resource type)"""


@dataclass(frozen=True, slots=True)
class IndexedSubscription:
    """One subscription and its search for one resource type; `number` is its rid."""

    number: int
    query: Query
    ends_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class UnservedSubscription:
    """A stored subscription that cannot fire, and the reason: its topic is gone or no longer allows its filters."""

    tenant: str
    id: str
    status: str
    reason: str
    version_id: str = ""


class MatchingIndex:
    """`ports.Matcher` in memory.  `pause` yields to the reactor; `count_failure` is called for each failed topic.

    `needs_search`: criteria may test only what their writers may search (`SUBSCRIPTION_SERVICE_CRITERIA_NEED_SEARCH`).
    `has_grants`: False while authentication is off; then stored grants have no effect.  `subscribers_read`: the scope
    on Subscription implies reading what matches (`SUBSCRIPTION_SERVICE_SUBSCRIBERS_READ`).
    """

    def __init__(
        self,
        pause: Callable[[], Awaitable[object]] | None = None,
        count_failure: Callable[[], None] = lambda: None,
        *,
        needs_search: bool = False,
        has_grants: bool = True,
        subscribers_read: bool = False,
    ) -> None:
        self._yield_to_reactor = pause
        self._needs_search = needs_search
        self._has_grants = has_grants
        self._checks_reading = has_grants and not subscribers_read
        self.failures = TopicFailures(count_failure)
        self._lock = DeferredLock()
        self._clear()

    def _clear(self) -> None:
        self._epoch = -1
        self._generation = definitions().generation
        self._criteria: dict[int, Criteria] = {}
        self._writers = WriterIndex()
        self._locations: dict[int, list[CriteriaIndex[IndexedSubscription]]] = {}
        self._by_search: dict[Kind, CriteriaIndex[IndexedSubscription]] = {}
        self._topics: TopicIndex[IndexedSubscription] = TopicIndex()
        self._of_topic: dict[tuple[str, str], set[int]] = {}
        self._failing: dict[int, FailingTopic] = {}
        self._without_content: set[int] = set()
        self.unserved: dict[int, UnservedSubscription] = {}

    @property
    def epoch(self) -> int:
        """Epoch of the rows in the index; -1 before the first load."""
        return self._epoch

    def __len__(self) -> int:
        return len(self._locations)

    # -- loading

    async def update_to(self, epoch: int, read: Callable[[int], Awaitable[Changes]]) -> None:
        """See `ports.Matcher.update_to`."""
        await self._lock.acquire()
        try:
            since = self._epoch
            if since == epoch:
                return
            if since > epoch:  # the database was restored to an older state
                since = -1
            slices = self.loading(epoch, await read(since), since)
            try:
                for _ in slices:
                    if self._yield_to_reactor is not None:
                        await self._yield_to_reactor()
            finally:  # finish the load for other waiting writers when this one is cancelled
                for _ in slices:
                    pass
        finally:
            self._lock.release()

    def load(self, epoch: int, changes: Changes, since: int = -1) -> None:
        """`loading` in one go."""
        for _ in self.loading(epoch, changes, since):
            pass

    def loading(self, epoch: int, changes: Changes, since: int = -1) -> Iterator[None]:
        """Apply the changes between the epochs `since` and `epoch`; from -1, rebuild.  Yields after each slice.

        Changes older than the index have no effect.  A subscription that cannot be evaluated never fires: it is logged
        and listed in `unserved`.  While a load runs, the index has no epoch.
        """
        if since < 0:
            self._clear()
        elif epoch < self._epoch:
            return
        self._epoch = -1
        stale = self._stale_subscriptions(changes)
        for number, row in enumerate(changes.subscriptions, 1):
            self._set_criteria(row.rid, None if row.resource is None else criteria_of(row.tenant, row.id, row.resource))
            if self._has_grants:
                self._writers.put(row.rid, row.writers, row.owner)
            stale.add(row.rid)
            if not number % SLICE:
                yield
        for number, rid in enumerate(sorted(stale), 1):
            self._reindex(rid)
            if not number % SLICE:
                yield
        self._epoch = epoch

    def _stale_subscriptions(self, changes: Changes) -> set[int]:
        """Subscriptions to index again because a topic or the search parameters changed."""
        stale: set[int] = set()
        if self._generation != definitions().generation:  # search parameters have changed
            self._generation = definitions().generation
            self._topics.reload()
            stale.update(self._criteria)
        for topic in changes.topics:
            for url in self._topics.add(topic):
                stale |= self._of_topic.get((topic.tenant, url), set())
        return stale

    def _set_criteria(self, rid: int, criteria: Criteria | None) -> None:
        before = self._criteria.pop(rid, None)
        self._without_content.discard(rid)
        if before is not None and before.topic_url:
            self._of_topic[before.tenant, before.topic_url].discard(rid)
            self._failing.pop(rid, None)
        if criteria is not None:
            self._criteria[rid] = criteria
            if self._checks_reading and is_missing_scopes(criteria.error):
                self._without_content.add(rid)
            if criteria.topic_url:
                self._of_topic.setdefault((criteria.tenant, criteria.topic_url), set()).add(rid)
                if criteria.status == ACTIVE and (failing := failing_topic(criteria.error)) is not None:
                    self._failing[rid] = failing

    def _reindex(self, rid: int) -> None:
        """Move a subscription to the buckets of its current criteria."""
        for index in self._locations.pop(rid, ()):
            index.remove(rid)
        self.unserved.pop(rid, None)
        criteria = self._criteria.get(rid)
        if criteria is None:
            return
        topic = self.topic(criteria.tenant, criteria.criteria) if criteria.topic_url else None
        try:
            queries = queries_for(criteria, topic)
            check_criteria(self._writers.of(rid), tested_types(queries, topic), self._needs_search)
        except Problem as problem:
            text = "event=subscription_unreadable subscription_id={subscription_id} reason={reason}"
            log.warn(text, subscription_id=criteria.id, reason=problem.text)
            named = criteria.tenant, criteria.id, criteria.status
            self.unserved[rid] = UnservedSubscription(*named, problem.text, criteria.version_id)
            return
        locations = self._locations[rid] = []
        for name, query in queries.items():
            if topic is None:
                index = self._by_search.setdefault((criteria.tenant, name), CriteriaIndex())
            else:
                index = self._topics.subscribers(criteria.tenant, topic, name)
            index.add(IndexedSubscription(rid, query, criteria.ends_at), query)
            locations.append(index)

    # -- lookups

    def topic(self, tenant: str, canonical: str) -> Topic | None:
        """The topic with this canonical URL, as of the epoch; None when it is not served."""
        return self._topics.find(tenant, canonical)

    def topics(self, tenant: str) -> Sequence[Topic]:
        """All served topics of a tenant, ordered by URL."""
        return self._topics.all(tenant)

    def failing(self) -> Sequence[tuple[Criteria, FailingTopic, bool]]:
        """Active subscriptions that report a failing topic, and whether the topic still has that version."""
        found = []
        for rid, failing in self._failing.items():
            criteria = self._criteria[rid]
            topic = self.topic(criteria.tenant, criteria.criteria)
            found.append((criteria, failing, topic is not None and topic.version_id == failing.version_id))
        return found

    def check(self, tenant: str, subscription: Json, also: Sequence[Topic] = (), caller: Caller = OPEN) -> None:
        """See `ports.Matcher.check`."""
        queries, topic = self._queries(tenant, subscription, also)
        for query in queries.values():
            refuse_impossible(query, PLACE if topic is not None else "Subscription.criteria")
        if self._has_grants:
            check_criteria((caller,), tested_types(queries, topic), self._needs_search)

    def signals(self, tenant: str, subscription: Json, caller: Caller) -> Sequence[str]:
        """See `ports.Matcher.signals`."""
        try:
            return list(unsearchable(caller, tested_types(*self._queries(tenant, subscription))))
        except Problem:  # it is switched off, and its topic is gone
            return ()

    def creators(self, rid: int) -> Sequence[Caller]:
        """See `ports.Matcher.creators`."""
        return self._writers.of(rid)

    def owner(self, rid: int) -> Caller | None:
        """See `ports.Matcher.owner`."""
        return self._writers.owner(rid)

    def unreadable(
        self, tenant: str, subscription: Json, creators: Sequence[Caller], also: Sequence[Topic] = ()
    ) -> frozenset[str]:
        """See `ports.Matcher.unreadable`."""
        if not self._checks_reading or not creators:
            return frozenset()
        try:
            queries, _ = self._queries(tenant, subscription, also)
        except Problem:  # it is switched off, and its topic is gone
            return frozenset()
        return unreadable(creators, queries)

    def missing_scopes(
        self, tenant: str, subscription: Json, creators: Sequence[Caller], also: Sequence[Topic] = ()
    ) -> str | None:
        """See `ports.Matcher.missing_scopes`."""
        types = self.unreadable(tenant, subscription, creators, also)
        return missing_scopes_text(types) if types else None

    @property
    def without_content(self) -> int:
        """Number of subscriptions that fire and whose creator may not read what matches."""
        return len(self._without_content)

    def _queries(
        self, tenant: str, subscription: Json, also: Sequence[Topic] = ()
    ) -> tuple[dict[str, Query], Topic | None]:
        """By resource type the search of its criteria, and its topic.  Problem BUSINESS_RULE: not served."""
        criteria = criteria_of(tenant, "", subscription)
        topic = None
        if criteria.topic_url:
            new = next((one for one in also if one.matches_canonical(criteria.criteria)), None)
            topic = new or self.topic(tenant, criteria.criteria)
        return queries_for(criteria, topic), topic

    def match(self, change: Change) -> list[int]:
        """rids of the subscriptions that `change` fires, in ascending order.

        A deletion fires topic subscriptions only, when a trigger of the topic says so.
        """
        kind = change.tenant, change.version.resource_type
        found: set[int] = set()
        views = ChangeViews(change, self._writers)
        index = self._by_search.get(kind)
        if index is not None and not change.version.deleted:
            found.update(views.visible(_matching(change, index)))
        for bucket in self._topics.triggers(kind, change):
            found.update(self._fired_by_topic(change, bucket, views))
        return sorted(found)

    def _fired_by_topic(
        self, change: Change, bucket: TriggerBucket[IndexedSubscription], views: ChangeViews
    ) -> Iterator[int]:
        """rids of the topic's subscriptions with matching filters, when the trigger fires as their writers see it."""
        for seen, rids in views.by_view(_matching(change, bucket.subscribers)):
            if rids and self._fires(seen, bucket, rids):
                yield from rids

    def _fires(self, change: Change, bucket: TriggerBucket[IndexedSubscription], rids: Sequence[int]) -> bool:
        """Whether a trigger fires; a failure is recorded for these subscriptions."""
        try:
            return fires(bucket.trigger, change)
        except TriggerFailed as failed:
            subscriptions = [self._criteria[rid] for rid in rids]
            self.failures.record(change.tenant, bucket.topic, failed, change.version.last_updated, subscriptions)
            return False


def _matching(change: Change, index: CriteriaIndex[IndexedSubscription]) -> Iterator[int]:
    """rids of the subscriptions with a search that the resource matches; for a deletion, its previous version."""
    version = change.version
    changed_at, id = version.last_updated, version.id
    entries, resource = (change.before, change.previous) if version.deleted else (change.after, change.resource)
    checked: set[int] = set()
    for subscription in index.candidates(id, entries):
        if subscription.number in checked:
            continue
        checked.add(subscription.number)
        if subscription.ends_at is not None and subscription.ends_at <= changed_at:
            continue
        if matches(subscription.query, entries, id=id, last_updated=changed_at, resource=resource):
            yield subscription.number


_: type[Matcher] = MatchingIndex
