"""Which subscriptions a change fires, at a cost that does not grow with the number of subscriptions.

Subscriptions are filed under what they ask equality of (`shelf.py`); the few candidates are verified with the whole
search.  Subscriptions to a topic are filed by their filters in the same way; the topic's trigger is put to a change at
most once, and only when some filter lets the change through.

The index is a cache of rows, exact as of its epoch (`ports.Matcher`).  A writer whose transaction has another epoch
brings it there by what changed since, which costs as much as there are changes; all rows are read once, when the
process begins.

Much that changes at once (all rows, or what a topic of many subscribers may be filtered by) is taken in slices, between
which the process does other things.  Nobody matches meanwhile: whoever changes subscriptions or topics waits for the
writers before, and the writers after it, who see the new epoch, wait for the last slice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from twisted.internet.defer import DeferredLock
from twisted.logger import Logger

from ipf.errors import Problem
from ipf.fhir.model.definitions import definitions
from ipf.fhir.search.match import matches
from ipf.fhir.topics.topic import fires
from ipf.ports import Change, Changes, Json, Matcher
from ipf.ports.search import Query
from ipf.ports.topics import Topic
from ipf.subscriptions.criteria import Criteria, queries_for, wish_of
from ipf.subscriptions.index import Shelf
from ipf.subscriptions.topic_index import Topics, TriggerBucket

log = Logger()

SLICE = 128
"""Subscriptions that are taken in without a break, about five milliseconds."""

Kind = tuple[str, str]
"""(tenant, resource type)"""


@dataclass(frozen=True, slots=True)
class Filed:
    """One subscription to changes of one type; `number` is its rid, which orders."""

    number: int
    query: Query
    ends_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Unserved:
    """A stored subscription that cannot fire, and why: its topic is gone, or no longer allows its filters."""

    tenant: str
    id: str
    status: str
    reason: str


class MatchingIndex:
    """`ports.Matcher` in memory.  `pause` gives everything else in the process a turn."""

    def __init__(self, pause: Callable[[], Awaitable[object]] | None = None) -> None:
        self._pause = pause
        self._turn = DeferredLock()
        self._forget()

    def _forget(self) -> None:
        self._epoch = -1
        self._generation = definitions().generation
        self._wishes: dict[int, Criteria] = {}
        self._places: dict[int, list[Shelf[Filed]]] = {}
        self._shelves: dict[Kind, Shelf[Filed]] = {}
        self._topics: Topics[Filed] = Topics()
        self._of_topic: dict[tuple[str, str], set[int]] = {}
        self.unserved: dict[int, Unserved] = {}

    @property
    def epoch(self) -> int:
        """Epoch of the rows it was built from; -1 before the first load."""
        return self._epoch

    def __len__(self) -> int:
        return len(self._places)

    # -- what it is made of

    async def bring_to(self, epoch: int, read: Callable[[int], Awaitable[Changes]]) -> None:
        """See `ports.Matcher.bring_to`."""
        await self._turn.acquire()
        try:
            since = self._epoch
            if since == epoch:
                return
            if since > epoch:  # the database is an older one than that which was known
                since = -1
            slices = self.loading(epoch, await read(since), since)
            try:
                for _ in slices:
                    if self._pause is not None:
                        await self._pause()
            finally:  # also for those who wait when this one is cancelled
                for _ in slices:
                    pass
        finally:
            self._turn.release()

    def load(self, epoch: int, news: Changes, since: int = -1) -> None:
        """As `loading`, without a break."""
        for _ in self.loading(epoch, news, since):
            pass

    def loading(self, epoch: int, news: Changes, since: int = -1) -> Iterator[None]:
        """Take in what changed between the epochs `since` and `epoch`; from -1, everything anew.  Yields now and then.

        Rows that came too late, because the index is younger already, change nothing.  A row that cannot be read (any
        more) never fires: it is logged, and in `unserved`.  An index that is not whole has no epoch.
        """
        if since < 0:
            self._forget()
        elif epoch < self._epoch:
            return
        self._epoch = -1
        stale = self._stale(news)
        for number, row in enumerate(news.subscriptions, 1):
            self._set_wish(row.rid, None if row.resource is None else wish_of(row.tenant, row.id, row.resource))
            stale.add(row.rid)
            if not number % SLICE:
                yield
        for number, rid in enumerate(sorted(stale), 1):
            self._file(rid)
            if not number % SLICE:
                yield
        self._epoch = epoch

    def _stale(self, news: Changes) -> set[int]:
        """Those that are to be filed again because of something else than themselves."""
        stale: set[int] = set()
        if self._generation != definitions().generation:  # searches may mean something else now
            self._generation = definitions().generation
            self._topics.read_again()
            stale.update(self._wishes)
        for topic in news.topics:
            for url in self._topics.put(topic):
                stale |= self._of_topic.get((topic.tenant, url), set())
        return stale

    def _set_wish(self, rid: int, wish: Criteria | None) -> None:
        before = self._wishes.pop(rid, None)
        if before is not None and before.topic_url:
            self._of_topic[before.tenant, before.topic_url].discard(rid)
        if wish is not None:
            self._wishes[rid] = wish
            if wish.topic_url:
                self._of_topic.setdefault((wish.tenant, wish.topic_url), set()).add(rid)

    def _file(self, rid: int) -> None:
        """Take a subscription from where it is, and file it where its criteria say now."""
        for shelf in self._places.pop(rid, ()):
            shelf.take(rid)
        self.unserved.pop(rid, None)
        wish = self._wishes.get(rid)
        if wish is None:
            return
        topic = self.topic(wish.tenant, wish.criteria) if wish.topic_url else None
        try:
            queries = queries_for(wish, topic)
        except Problem as refused:
            text = "event=subscription_unreadable subscription_id={subscription_id} reason={reason}"
            log.warn(text, subscription_id=wish.id, reason=refused.text)
            self.unserved[rid] = Unserved(wish.tenant, wish.id, wish.status, refused.text)
            return
        places = self._places[rid] = []
        for name, query in queries.items():
            if topic is None:
                shelf = self._shelves.setdefault((wish.tenant, name), Shelf())
            else:
                shelf = self._topics.audience(wish.tenant, topic, name)
            shelf.put(Filed(rid, query, wish.ends_at), query)
            places.append(shelf)

    # -- what is asked of it

    def topic(self, tenant: str, canonical: str) -> Topic | None:
        """The topic that a canonical names, as of the epoch; None when it is not served."""
        return self._topics.find(tenant, canonical)

    def topics(self, tenant: str) -> Sequence[Topic]:
        """All topics that are served, in order of their URLs."""
        return self._topics.all(tenant)

    def check(self, tenant: str, subscription: Json, also: Sequence[Topic] = ()) -> None:
        """Problem BUSINESS_RULE when a Subscription could not be served; `also`: topics that are just being written."""
        wish = wish_of(tenant, "", subscription)
        if wish.topic_url:
            new = next((one for one in also if one.is_meant_by(wish.criteria)), None)
            queries_for(wish, new or self.topic(tenant, wish.criteria))

    def match(self, change: Change) -> list[int]:
        """rids of the subscriptions that `change` fires, in ascending order.

        Deletions fire no subscription by criteria; topics say themselves what fires them.
        """
        kind = change.tenant, change.version.resource_type
        found: set[int] = set()
        shelf = self._shelves.get(kind)
        if shelf is not None and not change.version.deleted:
            found.update(_listening(change, shelf))
        for drawer in self._topics.drawers(kind, change):
            found.update(_told(change, drawer))
        return sorted(found)


def _told(change: Change, drawer: TriggerBucket[Filed]) -> Iterator[int]:
    """The subscriptions of a topic, when one of them would hear of the change and the trigger means it."""
    listening = list(_listening(change, drawer.audience))
    if listening and fires(drawer.trigger, change):
        yield from listening


def _listening(change: Change, shelf: Shelf[Filed]) -> Iterator[int]:
    """rids on the shelf whose search the resource meets; for a deletion, the resource as it was."""
    version = change.version
    at, id = version.last_updated, version.id
    entries, whole = (change.before, change.previous) if version.deleted else (change.after, change.resource)
    seen: set[int] = set()
    for filed in shelf.candidates(id, entries):
        if filed.number in seen:
            continue
        seen.add(filed.number)
        if filed.ends_at is not None and filed.ends_at <= at:
            continue
        if matches(filed.query, entries, id=id, last_updated=at, resource=whole):
            yield filed.number


_: type[Matcher] = MatchingIndex
