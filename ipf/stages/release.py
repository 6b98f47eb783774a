"""What a subscriber may be told: every event, before it is sent, against the grants of whoever wrote the Subscription.

What the creator may not see is never sent.  An event outside the limits of a scope (another patient, another category)
is passed over, as if it had not matched.  Of a type that the creator has no scope for at all only the fact is told, in
a notification without content: to register, a client needs no more than `Subscription.crus` (interface specification
"FHIR surface" 3), and "a notification is a signal to refresh".  A Subscription that was written while no token was
asked for has no creator, and is told everything.  Who listens over a websocket may see less than the creator: then each
event is held against the grants of both.

Grants are read once for each version of a Subscription, in whose transaction they were written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from ipf.ports import Caller, Compose, Event, Json, Lease, Notification, Terms, Version
from ipf.ports.grants import CreatorGrants
from ipf.security.access import may_see, permit

_MOST_KEPT = 20_000

Known = tuple[str, Caller | None]


class Verdict(Enum):
    """What becomes of one event."""

    SEND = "send"
    SIGNAL = "signal"
    SKIP = "skip"


def judge(creator: Caller | None, event: Event) -> Verdict:
    """One event against the grants of the creator."""
    if creator is None or creator.is_unlimited:
        return Verdict.SEND
    kind = event.resource_type
    if permit(creator, kind, "r") is None and permit(creator, kind, "s") is None:
        return Verdict.SIGNAL
    version = Version(0, kind, event.id, event.version_id, event.occurred_at, event.body, not event.body)
    return Verdict.SEND if may_see(creator, version) else Verdict.SKIP


class Release:
    """`ports.Compose` around another one, and the sieve of the stages that send."""

    def __init__(self, grants: CreatorGrants, compose: Compose) -> None:
        self._grants = grants
        self._compose = compose
        self._known: dict[tuple[str, str], Known] = {}

    async def sieve(self, lease: Lease, events: Sequence[Event]) -> Sequence[Event]:
        """Those events that the subscriber may know of.  StoreUnreachable passes through."""
        told = _told(await self._creator(lease), lease.reader)
        if not told:
            return events
        return [event for event in events if all(judge(one, event) is not Verdict.SKIP for one in told)]

    def terms(self, subscription: Json) -> Terms:
        """See `ports.Compose.terms`."""
        return self._compose.terms(subscription)

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        """See `ports.Compose.events`; without content when one of them may not be shown."""
        creator = await self._creator(lease)
        told = _told(creator, lease.reader)
        if not told:
            return await self._compose.events(lease, events)
        lease = lease if creator is None else replace(lease, creator=creator)
        if any(judge(one, event) is not Verdict.SEND for one in told for event in events):
            lease = replace(lease, resource=without_payload(lease.resource))
            events = [replace(event, body=b"") for event in events]
        return await self._compose.events(lease, events)

    async def heartbeat(self, lease: Lease) -> Notification:
        """See `ports.Compose.heartbeat`."""
        return await self._compose.heartbeat(lease)

    async def handshake(self, lease: Lease) -> Notification:
        """See `ports.Compose.handshake`."""
        return await self._compose.handshake(lease)

    async def _creator(self, lease: Lease) -> Caller | None:
        key, version = (lease.tenant, lease.subscription_id), str(lease.resource.get("meta", {}).get("versionId"))
        known = self._known.get(key)
        if known is not None and known[0] == version:
            return known[1]
        creator = await self._grants.creator(*key)
        if len(self._known) >= _MOST_KEPT:
            self._known.clear()
        self._known[key] = version, creator
        return creator


_: type[Compose] = Release


def _told(creator: Caller | None, reader: Caller) -> list[Caller]:
    """Whose grants count."""
    return [one for one in (creator, reader) if one is not None and not one.is_unlimited]


def without_payload(subscription: Json) -> Json:
    """A Subscription that asks for no content."""
    channel = {name: value for name, value in subscription["channel"].items() if name not in ("payload", "_payload")}
    return {**subscription, "channel": channel}
