"""The topics that are served, filed so that a change finds the few triggers that it may set off.

A trigger is filed under the search that its resource must meet; who listens to a topic is on a shelf of its own for
each resource type (`audience`).  Topics are few compared with subscriptions, but nothing here tries them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from twisted.logger import Logger

from ipf.errors import Problem
from ipf.fhir.topics.topic import always_meets, read_topic
from ipf.ports import Change, Json, ServedTopic
from ipf.ports.topics import Topic, Trigger
from ipf.subscriptions.index import Item, Shelf

log = Logger()

T = TypeVar("T", bound=Item)
Kind = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TriggerBucket(Generic[T]):
    """One trigger and who listens to changes of its type."""

    number: int
    trigger: Trigger
    audience: Shelf[T]


@dataclass(slots=True)
class _Kept(Generic[T]):
    """One stored topic: as it was read, the numbers of its drawers, and who listens by resource type."""

    tenant: str
    resource: Json
    topic: Topic
    audiences: dict[str, Shelf[T]] = field(default_factory=dict)
    drawers: list[tuple[Shelf[TriggerBucket[T]], int]] = field(default_factory=list)


class Topics(Generic[T]):
    """All topics of all tenants."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept[T]] = {}
        self._by_url: dict[tuple[str, str], list[int]] = {}
        self._changed: dict[Kind, Shelf[TriggerBucket[T]]] = {}
        self._deleted: dict[Kind, Shelf[TriggerBucket[T]]] = {}
        self._last = 0

    def put(self, row: ServedTopic) -> set[str]:
        """Take in a topic, or take it away; the URLs whose subscriptions must be filed again."""
        urls = set()
        before = self._kept.pop(row.rid, None)
        if before is not None:
            urls.add(before.topic.url)
            self._by_url[before.tenant, before.topic.url].remove(row.rid)
            for shelf, number in before.drawers:
                shelf.take(number)
        if row.resource is not None and (kept := self._read(row.tenant, row.resource)) is not None:
            urls.add(kept.topic.url)
            if before is not None and _listens_alike(before.topic, kept.topic):
                urls.clear()  # only triggers or shapes changed: who listens stays where they are
                kept.audiences = before.audiences
            self._draw(kept)
            self._kept[row.rid] = kept
            self._by_url.setdefault((row.tenant, kept.topic.url), []).append(row.rid)
        return urls

    def read_again(self) -> None:
        """Search parameters have changed: what topics ask may mean something else."""
        for rid, kept in sorted(self._kept.items()):
            self.put(ServedTopic(kept.tenant, rid, kept.resource))

    def find(self, tenant: str, canonical: str) -> Topic | None:
        """The topic of a canonical; of several the one stored last."""
        kept = self._find(tenant, canonical)
        return None if kept is None else kept.topic

    def _find(self, tenant: str, canonical: str) -> _Kept[T] | None:
        rids = self._by_url.get((tenant, canonical.partition("|")[0]), ())
        fitting = [rid for rid in rids if self._kept[rid].topic.is_meant_by(canonical)]
        return self._kept[max(fitting)] if fitting else None

    def all(self, tenant: str) -> Sequence[Topic]:
        """Those of one tenant, by URL."""
        found = (kept.topic for kept in self._kept.values() if kept.tenant == tenant)
        return sorted(found, key=lambda topic: (topic.url, topic.version))

    def audience(self, tenant: str, topic: Topic, resource_type: str) -> Shelf[T]:
        """Where subscriptions to changes of this type through this topic stand."""
        rids = self._by_url[tenant, topic.url]
        kept = next(self._kept[rid] for rid in rids if self._kept[rid].topic is topic)
        return kept.audiences[resource_type]

    def drawers(self, kind: Kind, change: Change) -> Iterator[TriggerBucket[T]]:
        """The triggers that the change may set off, each once, if anybody listens."""
        deleted = change.version.deleted
        shelf = (self._deleted if deleted else self._changed).get(kind)
        if shelf is None:
            return
        seen: set[int] = set()
        for drawer in shelf.candidates(change.version.id, change.before if deleted else change.after):
            if drawer.number not in seen and len(drawer.audience):
                seen.add(drawer.number)
                yield drawer

    def _read(self, tenant: str, resource: Json) -> _Kept[T] | None:
        try:
            topic = read_topic(resource)
        except Problem as refused:
            log.warn("event=topic_unreadable url={url} reason={reason}", url=resource.get("url"), reason=refused.text)
            return None
        return _Kept(tenant, resource, topic, {name: Shelf() for name in topic.resource_types})

    def _draw(self, kept: _Kept[T]) -> None:
        """File the triggers of a topic."""
        for trigger in kept.topic.triggers:
            self._draw_one(kept, trigger)

    def _draw_one(self, kept: _Kept[T], trigger: Trigger) -> None:
        kind = kept.tenant, trigger.resource_type
        for shelves, interactions in ((self._changed, ("create", "update")), (self._deleted, ("delete",))):
            if trigger.interactions.isdisjoint(interactions):
                continue
            self._last += 1
            shelf = shelves.setdefault(kind, Shelf())
            shelf.put(TriggerBucket(self._last, trigger, kept.audiences[trigger.resource_type]),
                      always_meets(trigger, interactions[0]))  # fmt: skip
            kept.drawers.append((shelf, self._last))


def _listens_alike(one: Topic, other: Topic) -> bool:
    """Whether whoever subscribed to the one hears of the same resources through the other."""
    return (one.url, one.version, one.filters, set(one.resource_types)) == (
        other.url,
        other.version,
        other.filters,
        set(other.resource_types),
    )
