"""Dry run of a Subscription against stored versions, with the rules of matching."""

from __future__ import annotations

from ipf.fhir.search.match import matches
from ipf.fhir.topics.topic import fires
from ipf.ports import Change, Json, Version
from ipf.ports.index import Entries
from ipf.ports.search import Query
from ipf.ports.topics import Topic
from ipf.subscriptions.criteria import criteria_of, queries_for


class DryRun:
    """One Subscription, evaluated against past changes.  Problem BUSINESS_RULE when it cannot be served."""

    def __init__(self, tenant: str, subscription: Json, topic: Topic | None) -> None:
        self._topic = topic
        self._queries: dict[str, Query] = queries_for(criteria_of(tenant, "", subscription), topic)

    @property
    def resource_types(self) -> tuple[str, ...]:
        """The resource types that the criteria cover."""
        return tuple(self._queries)

    def needs_previous(self, version: Version, entries: Entries, resource: Json | None) -> bool:
        """Whether `fires` needs the previous version of the resource."""
        if self._topic is None:
            return False
        return version.deleted or self._matches(version, entries, resource)

    def fires(self, change: Change) -> bool:
        """Whether the change fires the subscription."""
        version = change.version
        if self._topic is None:
            return not version.deleted and self._matches(version, change.after, change.resource)
        state = (change.before, change.previous) if version.deleted else (change.after, change.resource)
        triggers = [one for one in self._topic.triggers if one.resource_type == version.resource_type]
        return self._matches(version, *state) and any(fires(trigger, change) for trigger in triggers)

    def _matches(self, version: Version, entries: Entries, resource: Json | None) -> bool:
        query = self._queries[version.resource_type]
        return matches(query, entries, id=version.id, last_updated=version.last_updated, resource=resource)
