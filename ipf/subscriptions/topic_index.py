"""An index of the served topics: a change finds the triggers that it may fire without evaluating all of them.

A trigger is indexed by the search that its resource must match.  The subscriptions of a topic have an index of their
own for each resource type (`subscribers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from twisted.logger import Logger

from ipf.errors import Problem
from ipf.fhir.topics.topic import read_topic
from ipf.fhir.topics.trigger import always_meets
from ipf.ports import Change, Json, ServedTopic
from ipf.ports.queries.topics import Topic, Trigger
from ipf.subscriptions.index import CriteriaIndex, Item

log = Logger()

T = TypeVar("T", bound=Item)
Kind = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TriggerBucket(Generic[T]):
    """One trigger of a topic and the subscriptions to changes of its resource type."""

    number: int
    topic: Topic
    trigger: Trigger
    subscribers: CriteriaIndex[T]


@dataclass(slots=True)
class _IndexedTopic(Generic[T]):
    """One stored topic, its subscribers by resource type, and the indexes and numbers of its triggers."""

    tenant: str
    resource: Json
    topic: Topic
    subscribers: dict[str, CriteriaIndex[T]] = field(default_factory=dict)
    triggers: list[tuple[CriteriaIndex[TriggerBucket[T]], int]] = field(default_factory=list)


class TopicIndex(Generic[T]):
    """The topics of all tenants."""

    def __init__(self) -> None:
        self._entries: dict[int, _IndexedTopic[T]] = {}
        self._by_url: dict[tuple[str, str], list[int]] = {}
        self._changed: dict[Kind, CriteriaIndex[TriggerBucket[T]]] = {}
        self._deleted: dict[Kind, CriteriaIndex[TriggerBucket[T]]] = {}
        self._last_number = 0

    def add(self, row: ServedTopic) -> set[str]:
        """Add, replace or remove a topic; the URLs of topics with subscriptions to index again."""
        urls = set()
        before = self._entries.pop(row.rid, None)
        if before is not None:
            urls.add(before.topic.url)
            self._by_url[before.tenant, before.topic.url].remove(row.rid)
            for index, number in before.triggers:
                index.remove(number)
        if row.resource is not None and (entry := self._read(row.tenant, row.resource)) is not None:
            urls.add(entry.topic.url)
            if before is not None and _has_same_subscribers(before.topic, entry.topic):
                urls.clear()  # only triggers or shapes changed: the index of subscribers stays valid
                entry.subscribers = before.subscribers
            self._add_triggers(entry)
            self._entries[row.rid] = entry
            self._by_url.setdefault((row.tenant, entry.topic.url), []).append(row.rid)
        return urls

    def reload(self) -> None:
        """Parse all topics again, after the search parameters have changed."""
        for rid, entry in sorted(self._entries.items()):
            self.add(ServedTopic(entry.tenant, rid, entry.resource))

    def find(self, tenant: str, canonical: str) -> Topic | None:
        """The topic with this canonical URL; of several, the one stored last."""
        entry = self._find(tenant, canonical)
        return None if entry is None else entry.topic

    def _find(self, tenant: str, canonical: str) -> _IndexedTopic[T] | None:
        rids = self._by_url.get((tenant, canonical.partition("|")[0]), ())
        fitting = [rid for rid in rids if self._entries[rid].topic.matches_canonical(canonical)]
        return self._entries[max(fitting)] if fitting else None

    def all(self, tenant: str) -> Sequence[Topic]:
        """The topics of one tenant, ordered by URL."""
        found = (entry.topic for entry in self._entries.values() if entry.tenant == tenant)
        return sorted(found, key=lambda topic: (topic.url, topic.version))

    def subscribers(self, tenant: str, topic: Topic, resource_type: str) -> CriteriaIndex[T]:
        """The index of the topic's subscriptions to changes of this resource type."""
        rids = self._by_url[tenant, topic.url]
        entry = next(self._entries[rid] for rid in rids if self._entries[rid].topic is topic)
        return entry.subscribers[resource_type]

    def triggers(self, kind: Kind, change: Change) -> Iterator[TriggerBucket[T]]:
        """The triggers that the change may fire, each once; triggers without subscribers are left out."""
        deleted = change.version.deleted
        index = (self._deleted if deleted else self._changed).get(kind)
        if index is None:
            return
        seen: set[int] = set()
        for bucket in index.candidates(change.version.id, change.before if deleted else change.after):
            if bucket.number not in seen and len(bucket.subscribers):
                seen.add(bucket.number)
                yield bucket

    def _read(self, tenant: str, resource: Json) -> _IndexedTopic[T] | None:
        try:
            topic = read_topic(resource)
        except Problem as problem:
            log.warn("event=topic_unreadable url={url} reason={reason}", url=resource.get("url"), reason=problem.text)
            return None
        return _IndexedTopic(tenant, resource, topic, {name: CriteriaIndex() for name in topic.resource_types})

    def _add_triggers(self, entry: _IndexedTopic[T]) -> None:
        """Index the triggers of a topic."""
        for trigger in entry.topic.triggers:
            self._add_trigger(entry, trigger)

    def _add_trigger(self, entry: _IndexedTopic[T], trigger: Trigger) -> None:
        kind = entry.tenant, trigger.resource_type
        for indexes, interactions in ((self._changed, ("create", "update")), (self._deleted, ("delete",))):
            if trigger.interactions.isdisjoint(interactions):
                continue
            self._last_number += 1
            index = indexes.setdefault(kind, CriteriaIndex())
            index.add(TriggerBucket(self._last_number, entry.topic, trigger, entry.subscribers[trigger.resource_type]),
                      always_meets(trigger, interactions[0]))  # fmt: skip
            entry.triggers.append((index, self._last_number))


def _has_same_subscribers(one: Topic, other: Topic) -> bool:
    """Whether both topics have the same URL, version, filters and resource types, and so the same subscribers."""
    return (one.url, one.version, one.filters, set(one.resource_types)) == (
        other.url,
        other.version,
        other.filters,
        set(other.resource_types),
    )
