"""Composition of notifications: leased events of a Subscription become the notification in its form.

Source: decisions section 6; https://hl7.org/fhir/R5/subscriptiontopic.html (notificationShape).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from ipf.config.brokers import LIBRARIES
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
from ipf.ports.replica import Position
from ipf.rest.operations.notification_includes import included_resources
from ipf.subscriptions.notification import NotificationTemplate, notification, template_of
from ipf.subscriptions.notification_topic import NotificationContext
from ipf.subscriptions.terms import terms_of

REST_HOOK = "rest-hook"
WITHOUT_CONTENT = "empty"
"""The content level of a notification whose content is withheld: a status with the numbers of events."""
MAX_TEMPLATES = 4096
"""Number of cached templates."""


class Composer:
    """`ports.Compose`.  `base_url`: the public base URL of this FHIR server.

    `position`: asks where the log of the database is now; None where no standby answers reads.
    """

    def __init__(
        self,
        store: FhirStore,
        matcher: Matcher,
        clock: Clock,
        base_url: str,
        position: Callable[[], Awaitable[Position]] | None = None,
    ) -> None:
        self._position = position
        self._store = store
        self._matcher = matcher
        self._clock = clock
        self._base_url = base_url
        self._templates: dict[int, tuple[Json, NotificationTemplate]] = {}

    def terms(self, subscription: Json) -> Terms:
        """See `ports.Compose.terms`."""
        return terms_of(subscription)

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        """See `ports.Compose.events`."""
        includes, terms = None, self._template(lease).terms
        if terms.is_topic and not lease.is_content_withheld:
            includes = await included_resources(lease, events, self._store, self._matcher, self._base_url)
        if terms.channel_type in LIBRARIES:
            events = [await self._with_last_body(lease.tenant, event) for event in events]
        made = self._notification(lease, EVENT, events, includes)
        if self._position is not None and terms.channel_type == REST_HOOK:
            made.position = (await self._position()).text
        return made

    async def _with_last_body(self, tenant: str, event: Event) -> Event:
        """A deletion with the version before it, which says whose resource it was."""
        if event.body or event.last_body or event.version_id < 2:
            return event
        last = await self._store.read_version(tenant, event.resource_type, event.id, event.version_id - 1)
        return event if last is None else replace(event, last_body=last.body)

    async def heartbeat(self, lease: Lease) -> Notification:
        """See `ports.Compose.heartbeat`."""
        return self._notification(lease, HEARTBEAT)

    async def handshake(self, lease: Lease) -> Notification:
        """See `ports.Compose.handshake`."""
        return self._notification(lease, HANDSHAKE)

    def _notification(
        self,
        lease: Lease,
        kind: str,
        events: Sequence[Event] = (),
        includes: Mapping[int, Sequence[Version]] | None = None,
    ) -> Notification:
        template = self._template(lease)
        total = max(lease.last_event_number, events[-1].number if events else 0)
        content = WITHOUT_CONTENT if lease.is_content_withheld else template.terms.content
        context = NotificationContext(
            self._base_url, self._clock(), total, kind, content, template.form, includes or {}
        )
        made = notification(lease.resource, events, context, lease.tenant, template, lease.resent)
        made.is_content_withheld = lease.is_content_withheld
        return made

    def _template(self, lease: Lease) -> NotificationTemplate:
        """The template of the leased Subscription, cached per version."""
        cached = self._templates.get(lease.subscription_rid)
        if cached is not None and cached[0] is lease.resource:
            return cached[1]
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        template = template_of(lease.resource)
        self._templates[lease.subscription_rid] = lease.resource, template
        return template


_: type[Compose] = Composer
