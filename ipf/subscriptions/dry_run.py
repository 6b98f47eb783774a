"""Whether a Subscription would have fired at a version that is stored already: the same answer as matching gives."""

from __future__ import annotations

from ipf.fhir.search.match import matches
from ipf.fhir.topics.topic import fires
from ipf.ports import Change, Json, Version
from ipf.ports.index import Entries
from ipf.ports.search import Query
from ipf.ports.topics import Topic
from ipf.subscriptions.criteria import queries_for, wish_of


class Trial:
    """One Subscription, put to changes of the past.  Problem BUSINESS_RULE when it could not be served."""

    def __init__(self, tenant: str, subscription: Json, topic: Topic | None) -> None:
        self._topic = topic
        self._queries: dict[str, Query] = queries_for(wish_of(tenant, "", subscription), topic)

    @property
    def resource_types(self) -> tuple[str, ...]:
        """The types of resources whose changes it hears of."""
        return tuple(self._queries)

    def needs_previous(self, version: Version, entries: Entries, resource: Json | None) -> bool:
        """Whether more must be known of a change: the resource as it was before.  Without it, it does not fire."""
        if self._topic is None:
            return False
        return version.deleted or self._meets(version, entries, resource)

    def fires(self, change: Change) -> bool:
        """Whether it would have been told of the change."""
        version = change.version
        if self._topic is None:
            return not version.deleted and self._meets(version, change.after, change.resource)
        seen = (change.before, change.previous) if version.deleted else (change.after, change.resource)
        triggers = [one for one in self._topic.triggers if one.resource_type == version.resource_type]
        return self._meets(version, *seen) and any(fires(trigger, change) for trigger in triggers)

    def _meets(self, version: Version, entries: Entries, resource: Json | None) -> bool:
        query = self._queries[version.resource_type]
        return matches(query, entries, id=version.id, last_updated=version.last_updated, resource=resource)
