"""Composition: leased events in, the notification that the Subscription asks for out.

The shape of a topic may ask for resources that go along with the one that fired; they are read as they are when the
notification is made.  What cannot be read is left out: the event itself is never held back by it.

Source: decisions section 6; https://hl7.org/fhir/R5/subscriptiontopic.html (notificationShape).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ipf.fhir.topic import Topic
from ipf.ports import (
    EVENT,
    HANDSHAKE,
    HEARTBEAT,
    Clock,
    Compose,
    Event,
    FhirStore,
    Json,
    Lease,
    Matcher,
    Notification,
    Terms,
    Version,
)
from ipf.rest.search_include import Included
from ipf.subscriptions.guide import topic_url
from ipf.subscriptions.notification import notification
from ipf.subscriptions.notification_topic import Telling, form_of
from ipf.subscriptions.terms import terms_of

MOST_INCLUDED = 100
"""Resources that go along with one event."""


class Composer:
    """`ports.Compose`.  `base_url`: of this FHIR server, as subscribers know it."""

    def __init__(self, store: FhirStore, matcher: Matcher, clock: Clock, base_url: str) -> None:
        self._store = store
        self._matcher = matcher
        self._clock = clock
        self._base_url = base_url

    def terms(self, subscription: Json) -> Terms:
        """See `ports.Compose.terms`."""
        return terms_of(subscription)

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        """See `ports.Compose.events`."""
        along = await includes_of(lease, events, self._store, self._matcher, self._base_url)
        return self._made(lease, EVENT, events, along)

    async def heartbeat(self, lease: Lease) -> Notification:
        """See `ports.Compose.heartbeat`."""
        return self._made(lease, HEARTBEAT)

    async def handshake(self, lease: Lease) -> Notification:
        """See `ports.Compose.handshake`."""
        return self._made(lease, HANDSHAKE)

    def _made(
        self,
        lease: Lease,
        kind: str,
        events: Sequence[Event] = (),
        along: Mapping[int, Sequence[Version]] | None = None,
    ) -> Notification:
        subscription = lease.resource
        telling = Telling(
            self._base_url,
            self._clock(),
            max([lease.last_event_number, *(event.number for event in events)]),
            kind,
            terms_of(subscription).content,
            form_of(subscription),
            along or {},
        )
        return notification(subscription, events, telling, lease.tenant)


async def includes_of(
    lease: Lease, events: Sequence[Event], store: FhirStore, matcher: Matcher, base_url: str
) -> dict[int, Sequence[Version]]:
    """By event number, what goes along with its resource, as far as the subscriber may see it."""
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
            included = Included(store, lease.tenant, base_url, MOST_INCLUDED, lease.creator)
            await included.add(wanted, [version])
            found[event.number] = included.versions
    return found


_: type[Compose] = Composer
