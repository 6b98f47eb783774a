"""Additional context of a notification: the resources that the topic's notificationShape includes.

They are read at their current version when the notification is made.  A resource that cannot be read is left out; it
does not hold back the event.

Source: https://hl7.org/fhir/R5/subscriptiontopic.html (notificationShape); decisions section 6.
"""

from __future__ import annotations

from collections.abc import Sequence

from ipf.ports import SYSTEM, Event, FhirStore, Lease, Matcher, Version
from ipf.ports.queries.topics import Topic
from ipf.rest.interactions.searches.include import Included
from ipf.rest.write.permission import visible
from ipf.subscriptions.guide import topic_url
from ipf.subscriptions.terms import terms_of

MOST_INCLUDED = 100
"""Included resources of one event."""


async def included_resources(
    lease: Lease, events: Sequence[Event], store: FhirStore, matcher: Matcher, base_url: str
) -> dict[int, Sequence[Version]]:
    """By event number, the included resources that the subscriber may see."""
    subscription = lease.resource
    canonical = topic_url(subscription)
    topic: Topic | None = matcher.topic(lease.tenant, canonical) if canonical is not None else None
    found: dict[int, Sequence[Version]] = {}
    if topic is None or not topic.shapes or terms_of(subscription).content == "empty":
        return found
    for event in events:
        wanted = topic.shapes.get(event.resource_type, ())
        if wanted and event.method != "DELETE":
            version = Version(
                0, event.resource_type, event.id, event.version_id, event.occurred_at, event.body, False, event.method
            )
            first, *others = lease.callers or (SYSTEM,)
            included = Included(store, lease.tenant, base_url, MOST_INCLUDED, first)
            await included.add(wanted, [version])
            included_versions = included.versions
            for caller in others:
                included_versions = visible(included_versions, caller)
            found[event.number] = included_versions
    return found
