"""Authorization of notifications: each event is checked against the grants of all writers of the Subscription.

An event outside the limits of a scope (another patient, another category) is skipped.  An event of a resource type
without any scope is sent without content: to register, a client needs only `Subscription.crus` (interface specification
"FHIR surface" 3), and "a notification is a signal to refresh".  A Subscription written without authentication has no
writers; its notifications are not limited.

Several clients may write one Subscription, but its endpoint belongs to one of them.  Therefore the grants of all
clients that wrote the Subscription since the endpoint was set apply.  A websocket client counts as one of them.

Grants are cached per version of a Subscription.  A lease of an older version is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from ipf.errors import Category, Problem
from ipf.ports import Caller, Compose, Event, Json, Lease, Notification, Terms, Version
from ipf.ports.grants import CreatorGrants
from ipf.security.access import may_see, permit

_MAX_CACHED = 20_000

CachedWriters = tuple[str, Sequence[Caller]]


class Decision(Enum):
    """How one event is handled."""

    SEND = "send"
    WITHOUT_CONTENT = "signal"
    SKIP = "skip"


class SubscriptionChanged(Problem):
    """The Subscription has changed since it was leased; its grants may belong to another endpoint."""

    def __init__(self, text: str) -> None:
        super().__init__(Category.CONFLICT, text)


def decide(caller: Caller, event: Event) -> Decision:
    """One event against the grants of one caller."""
    if caller.is_unlimited:
        return Decision.SEND
    kind = event.resource_type
    if permit(caller, kind, "r") is None and permit(caller, kind, "s") is None:
        return Decision.WITHOUT_CONTENT
    version = Version(0, kind, event.id, event.version_id, event.occurred_at, event.body, not event.body)
    return Decision.SEND if may_see(caller, version) else Decision.SKIP


class Authorization:
    """`ports.Compose` around another one, and the filter of events before they are sent."""

    def __init__(self, grants: CreatorGrants, compose: Compose) -> None:
        self._grants = grants
        self._compose = compose
        self._cache: dict[tuple[str, str], CachedWriters] = {}

    async def authorization_filter(self, lease: Lease, events: Sequence[Event]) -> Sequence[Event]:
        """The events that the subscriber may receive.  Raises SubscriptionChanged, StoreUnreachable."""
        callers = await self._limiting_callers(lease)
        if not callers:
            return events
        return [event for event in events if all(decide(one, event) is not Decision.SKIP for one in callers)]

    def terms(self, subscription: Json) -> Terms:
        """See `ports.Compose.terms`."""
        return self._compose.terms(subscription)

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        """See `ports.Compose.events`; without content when the content of one event is not allowed."""
        callers = await self._limiting_callers(lease)
        if not callers:
            return await self._compose.events(lease, events)
        lease = replace(lease, callers=callers)
        if any(decide(one, event) is not Decision.SEND for one in callers for event in events):
            lease = replace(lease, resource=without_payload(lease.resource))
            events = [replace(event, body=b"") for event in events]
        return await self._compose.events(lease, events)

    async def heartbeat(self, lease: Lease) -> Notification:
        """See `ports.Compose.heartbeat`."""
        return await self._compose.heartbeat(lease)

    async def handshake(self, lease: Lease) -> Notification:
        """See `ports.Compose.handshake`."""
        return await self._compose.handshake(lease)

    async def _limiting_callers(self, lease: Lease) -> list[Caller]:
        """The callers with limited grants that apply to the lease."""
        return [one for one in (*await self._writers(lease), *lease.callers) if not one.is_unlimited]

    async def _writers(self, lease: Lease) -> Sequence[Caller]:
        key, version = (lease.tenant, lease.subscription_id), str(lease.resource["meta"]["versionId"])
        cached = self._cache.get(key)
        if cached is not None and cached[0] == version:
            return cached[1]
        writers = await self._grants.writers(*key, int(version))
        if writers is None:
            raise SubscriptionChanged(f"Subscription/{lease.subscription_id} has changed since it was leased")
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[key] = version, writers
        return writers


_: type[Compose] = Authorization


def without_payload(subscription: Json) -> Json:
    """The Subscription without a payload."""
    channel = {name: value for name, value in subscription["channel"].items() if name not in ("payload", "_payload")}
    return {**subscription, "channel": channel}
