"""Authorization of notifications: each event is checked against the grants of the creator of the Subscription.

The creator is the client that created the Subscription, or that replaced its criteria or channel.  Events are matched
within the grants that it had then (`subscriptions/writers.py`).  Here the grants of now are checked: an event outside
the limits of a scope (another patient, another category) is skipped.  An event of a resource type without any scope is
sent in the registered form without content (`Lease.is_content_withheld`): to register, a client needs only
`Subscription.crus` (interface specification "FHIR surface" 3), and "a notification is a signal to refresh".  With
`SUBSCRIPTION_SERVICE_SUBSCRIBERS_READ` it is sent with content.  A Subscription written without authentication has no
creator; its notifications are not limited.

A websocket client counts beside the creator.

An endpoint of a client that sees only a part of a type counts from the event after which the client took it over: it
gets no earlier events, and its first one has number 1.

Grants are cached per version of a Subscription.  A lease of an older version is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from ipf.errors import Category, Problem
from ipf.ports import Caller, Compose, Event, Json, Lease, Notification, Terms, Version
from ipf.ports.grants import CreatorGrants, Writer
from ipf.security.access import limits, may_hide, refresh_access
from ipf.security.event_access import Decision, decide, endpoint_from, numbered_from

_MAX_CACHED = 20_000
_WEBSOCKET = "websocket"

ReadVersion = Callable[[str, str, str, int], Awaitable[Version | None]]
"""One version of (tenant, resource type, id, version_id)."""

ReadMany = Callable[[str, Sequence[tuple[str, str]]], Awaitable[Sequence[Version]]]
"""The current versions of (resource type, id) of a tenant."""


class SubscriptionChanged(Problem):
    """The Subscription has changed since it was leased; its grants may belong to another endpoint."""

    def __init__(self, text: str) -> None:
        super().__init__(Category.CONFLICT, text)


class Authorization:
    """`ports.Compose` around another one, and the filter of events before they are sent."""

    def __init__(
        self,
        grants: CreatorGrants,
        compose: Compose,
        read_version: ReadVersion,
        read_many: ReadMany | None = None,
        *,
        subscribers_read: bool = False,
    ) -> None:
        self._grants = grants
        self._decide = partial(decide, subscribers_read=subscribers_read)
        self._read_many = read_many
        self._compose = compose
        self._read_version = read_version
        self._cache: dict[tuple[str, str], tuple[str, Sequence[Writer]]] = {}

    async def authorization_filter(self, lease: Lease, events: Sequence[Event]) -> Sequence[Event]:
        """The events that the subscriber may receive.  Raises SubscriptionChanged, StoreUnreachable."""
        writers = await self._writers(lease)
        callers = _limiting(writers, lease)
        if not callers:
            return events
        await refresh_access()
        first = self._first(lease, writers)
        since = [(one, numbered_from(one, writers)) for one in lease.callers]
        found = []
        for event in await self._not_hidden_now(lease.tenant, events, callers):
            if event.number <= first:
                continue
            event = await self._with_last_body(lease.tenant, event, callers)
            others = [one for one, first in since if first is None or event.number <= first]
            if all(self._decide(one, event) is not Decision.SKIP for one in callers) and (
                not others or await self._was_visible(lease.tenant, event, others)
            ):
                found.append(event)
        return found

    async def _not_hidden_now(self, tenant: str, events: Sequence[Event], callers: Sequence[Caller]) -> Sequence[Event]:
        """Without the events of resources that labels and Consents hide in their current version."""
        limited = [one for one in callers if limits(one)]
        if not limited or self._read_many is None:
            return events
        keys = list(dict.fromkeys((one.resource_type, one.id) for one in events))
        current = {(one.resource_type, one.id): one for one in await self._read_many(tenant, keys)}

        def is_shown(event: Event) -> bool:
            newest = current.get((event.resource_type, event.id))
            if newest is None or newest.version_id == event.version_id:
                return True
            now = replace(event, version_id=newest.version_id, body=newest.body, last_body=b"")
            return all(self._decide(one, now) is not Decision.SKIP for one in limited)

        return [event for event in events if is_shown(event)]

    async def _was_visible(self, tenant: str, event: Event, callers: Sequence[Caller]) -> bool:
        """Whether these callers could see the version before, if there is one.

        A topic may test it.  The change was matched as the writers of that time see it, so another client, from which
        that version is hidden, would learn from the event what it was.
        """
        if not event.body or event.version_id < 2:
            return True
        number = event.version_id - 1
        last = await self._read_version(tenant, event.resource_type, event.id, number)
        if last is None or last.deleted:
            return True
        before = replace(event, version_id=number, occurred_at=last.last_updated, body=last.body)
        return all(self._decide(one, before) is not Decision.SKIP for one in callers)

    async def numbered_from(self, lease: Lease, caller: Caller) -> int | None:
        """See `security.event_access.numbered_from`.  Raises SubscriptionChanged, StoreUnreachable."""
        return numbered_from(caller, await self._writers(lease)) if may_hide(caller) else 0

    def terms(self, subscription: Json) -> Terms:
        """See `ports.Compose.terms`."""
        return self._compose.terms(subscription)

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        """See `ports.Compose.events`; without content when the content of one event is not allowed."""
        writers = await self._writers(lease)
        callers = _limiting(writers, lease)
        if not callers:
            return await self._compose.events(lease, events)
        first = self._first(lease, writers)
        if first:
            events = [replace(event, number=event.number - first) for event in events]
        lease = replace(_counted(lease, first), callers=callers)
        if any(self._decide(one, event) is not Decision.SEND for one in callers for event in events):
            lease = replace(lease, is_content_withheld=True)
            events = [replace(event, body=b"") for event in events]
        return await self._compose.events(lease, events)

    async def heartbeat(self, lease: Lease) -> Notification:
        """See `ports.Compose.heartbeat`."""
        return await self._compose.heartbeat(_counted(lease, self._first(lease, await self._writers(lease))))

    async def handshake(self, lease: Lease) -> Notification:
        """See `ports.Compose.handshake`."""
        return await self._compose.handshake(_counted(lease, self._first(lease, await self._writers(lease))))

    def _first(self, lease: Lease, writers: Sequence[Writer]) -> int:
        """The number before the first event of the endpoint; 0 for a websocket, which numbers for each client."""
        first = endpoint_from(writers)
        return 0 if not first or self._compose.terms(lease.resource).channel_type == _WEBSOCKET else first

    async def _with_last_body(self, tenant: str, event: Event, callers: Sequence[Caller]) -> Event:
        """A deletion with the version before it, when somebody may learn only of a part of the type."""
        if event.body or event.last_body or event.version_id < 2 or not any(may_hide(one) for one in callers):
            return event
        last = await self._read_version(tenant, event.resource_type, event.id, event.version_id - 1)
        return event if last is None else replace(event, last_body=last.body)

    async def _writers(self, lease: Lease) -> Sequence[Writer]:
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


def _limiting(writers: Sequence[Writer], lease: Lease) -> list[Caller]:
    """The callers with limited grants that apply to the lease."""
    return [one for one in (*(writer.caller for writer in writers), *lease.callers) if not one.is_unlimited]


def _counted(lease: Lease, first: int) -> Lease:
    """The lease with the number of the events after `first`."""
    return replace(lease, last_event_number=max(0, lease.last_event_number - first)) if first else lease
