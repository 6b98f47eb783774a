"""Dry run of a Subscription against stored versions, with the rules of matching."""

from __future__ import annotations

from collections.abc import Sequence

from ipf.fhir.search.evaluation.match import matches
from ipf.fhir.topics.trigger import TriggerFailed, fires
from ipf.ports import Change, Json, Version
from ipf.ports.queries.index import Entries
from ipf.ports.queries.search import Query
from ipf.ports.queries.topics import Topic, Trigger
from ipf.subscriptions.criteria import criteria_of, queries_for


class DryRun:
    """One Subscription, evaluated against past changes.  Problem BUSINESS_RULE when it cannot be served.

    `failed_count`: changes on which a trigger could not be evaluated, and that did not fire.
    """

    def __init__(self, tenant: str, subscription: Json, topic: Topic | None) -> None:
        self._topic = topic
        self.failed_count = 0
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
        return self._matches(version, *state) and self._any_fires(triggers, change)

    def _any_fires(self, triggers: Sequence[Trigger], change: Change) -> bool:
        failed = False
        for trigger in triggers:
            try:
                if fires(trigger, change):
                    return True
            except TriggerFailed:
                failed = True
        self.failed_count += failed
        return False

    def _matches(self, version: Version, entries: Entries, resource: Json | None) -> bool:
        query = self._queries[version.resource_type]
        return matches(query, entries, id=version.id, last_updated=version.last_updated, resource=resource)
