"""Composition: leased events in, the notification that the Subscription asks for out.

The shape of a topic may ask for resources that go along with the one that fired; they are read as they are when the
notification is made.  What cannot be read is left out: the event itself is never held back by it.

Source: decisions section 6; https://hl7.org/fhir/R5/subscriptiontopic.html (notificationShape).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from ipf.rest.operations.notification_includes import included_resources
from ipf.subscriptions.notification import NotificationTemplate, notification, template_of
from ipf.subscriptions.notification_topic import NotificationContext
from ipf.subscriptions.terms import terms_of

MOST_KEPT = 4096
"""Subscriptions whose letterhead is remembered."""


class Composer:
    """`ports.Compose`.  `base_url`: of this FHIR server, as subscribers know it."""

    def __init__(self, store: FhirStore, matcher: Matcher, clock: Clock, base_url: str) -> None:
        self._store = store
        self._matcher = matcher
        self._clock = clock
        self._base_url = base_url
        self._heads: dict[int, tuple[Json, NotificationTemplate]] = {}

    def terms(self, subscription: Json) -> Terms:
        """See `ports.Compose.terms`."""
        return terms_of(subscription)

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        """See `ports.Compose.events`."""
        along = None
        if self._head(lease).terms.is_topic:
            along = await included_resources(lease, events, self._store, self._matcher, self._base_url)
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
        head = self._head(lease)
        total = max(lease.last_event_number, events[-1].number if events else 0)
        content = head.terms.content
        context = NotificationContext(self._base_url, self._clock(), total, kind, content, head.form, along or {})
        return notification(lease.resource, events, context, lease.tenant, head)

    def _head(self, lease: Lease) -> NotificationTemplate:
        """Read once for as long as the same resource is told of."""
        known = self._heads.get(lease.subscription_rid)
        if known is not None and known[0] is lease.resource:
            return known[1]
        if len(self._heads) >= MOST_KEPT:
            self._heads.clear()
        head = template_of(lease.resource)
        self._heads[lease.subscription_rid] = lease.resource, head
        return head


_: type[Compose] = Composer
