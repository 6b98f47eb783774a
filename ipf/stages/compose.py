"""Composition: leased events in, the notification that the Subscription asks for out.

Source: interface specification "Notification shapes".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ipf.errors import Category, Problem
from ipf.ports import Compose, Event, Json, Lease, Notification, Terms
from ipf.subscriptions.notification import notification
from ipf.subscriptions.terms import terms_of


class LegacyCompose:
    """`ports.Compose` for subscriptions by criteria, which know neither handshakes nor heartbeats."""

    def terms(self, subscription: Json) -> Terms:
        """See `ports.Compose.terms`."""
        return terms_of(subscription)

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        """See `ports.Compose.events`."""
        made = notification(lease.resource, events[0])
        return replace(made, tenant=lease.tenant, subscription_id=lease.subscription_id, events=tuple(events))

    async def heartbeat(self, lease: Lease) -> Notification:
        """See `ports.Compose.heartbeat`."""
        raise Problem(Category.BUSINESS_RULE, "a subscription by criteria has no heartbeat")

    async def handshake(self, lease: Lease) -> Notification:
        """See `ports.Compose.handshake`."""
        raise Problem(Category.BUSINESS_RULE, "a subscription by criteria has no handshake")


_: type[Compose] = LegacyCompose
