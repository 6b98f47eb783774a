"""What a subscriber may be told: every event, before it is sent, against the grants of all who wrote the Subscription.

What one of them may not see is never sent.  An event outside the limits of a scope (another patient, another category)
is passed over, as if it had not matched.  Of a type that there is no scope for at all only the fact is told, in
a notification without content: to register, a client needs no more than `Subscription.crus` (interface specification
"FHIR surface" 3), and "a notification is a signal to refresh".  A Subscription that was written while no token was
asked for has no writers, and is told everything.

Several clients may write one Subscription, and the endpoint is of one of them.  What it is told must be within the
grants of all who wrote since it has this endpoint: whoever changes a status, or criteria, lends nothing to it, and
gains nothing by what others may see.  Who listens over a websocket counts as one more of them.

Grants are read once for each version of a Subscription, in whose transaction they were written, and for no other: who
still has an older one in hand is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from ipf.errors import Category, Problem
from ipf.ports import Caller, Compose, Event, Json, Lease, Notification, Terms, Version
from ipf.ports.grants import CreatorGrants
from ipf.security.access import may_see, permit

_MOST_KEPT = 20_000

Known = tuple[str, Sequence[Caller]]


class Verdict(Enum):
    """What becomes of one event."""

    SEND = "send"
    SIGNAL = "signal"
    SKIP = "skip"


class Outdated(Problem):
    """What is to be told is of a Subscription that was changed: the grants of its writers are not for this endpoint."""

    def __init__(self, text: str) -> None:
        super().__init__(Category.CONFLICT, text)


def judge(caller: Caller, event: Event) -> Verdict:
    """One event against the grants of one caller."""
    if caller.is_unlimited:
        return Verdict.SEND
    kind = event.resource_type
    if permit(caller, kind, "r") is None and permit(caller, kind, "s") is None:
        return Verdict.SIGNAL
    version = Version(0, kind, event.id, event.version_id, event.occurred_at, event.body, not event.body)
    return Verdict.SEND if may_see(caller, version) else Verdict.SKIP


class Authorization:
    """`ports.Compose` around another one, and the sieve of the stages that send."""

    def __init__(self, grants: CreatorGrants, compose: Compose) -> None:
        self._grants = grants
        self._compose = compose
        self._known: dict[tuple[str, str], Known] = {}

    async def authorization_filter(self, lease: Lease, events: Sequence[Event]) -> Sequence[Event]:
        """Those events that the subscriber may know of.  Raises Outdated; StoreUnreachable passes through."""
        within = await self._within(lease)
        if not within:
            return events
        return [event for event in events if all(judge(one, event) is not Verdict.SKIP for one in within)]

    def terms(self, subscription: Json) -> Terms:
        """See `ports.Compose.terms`."""
        return self._compose.terms(subscription)

    async def events(self, lease: Lease, events: Sequence[Event]) -> Notification:
        """See `ports.Compose.events`; without content when one of them may not be shown."""
        within = await self._within(lease)
        if not within:
            return await self._compose.events(lease, events)
        lease = replace(lease, within=within)
        if any(judge(one, event) is not Verdict.SEND for one in within for event in events):
            lease = replace(lease, resource=without_payload(lease.resource))
            events = [replace(event, body=b"") for event in events]
        return await self._compose.events(lease, events)

    async def heartbeat(self, lease: Lease) -> Notification:
        """See `ports.Compose.heartbeat`."""
        return await self._compose.heartbeat(lease)

    async def handshake(self, lease: Lease) -> Notification:
        """See `ports.Compose.handshake`."""
        return await self._compose.handshake(lease)

    async def _within(self, lease: Lease) -> list[Caller]:
        """All within whose grants it is told, but for those whom nothing limits."""
        return [one for one in (*await self._writers(lease), *lease.within) if not one.is_unlimited]

    async def _writers(self, lease: Lease) -> Sequence[Caller]:
        key, version = (lease.tenant, lease.subscription_id), str(lease.resource["meta"]["versionId"])
        known = self._known.get(key)
        if known is not None and known[0] == version:
            return known[1]
        writers = await self._grants.writers(*key, int(version))
        if writers is None:
            raise Outdated(f"Subscription/{lease.subscription_id} was changed meanwhile")
        if len(self._known) >= _MOST_KEPT:
            self._known.clear()
        self._known[key] = version, writers
        return writers


_: type[Compose] = Authorization


def without_payload(subscription: Json) -> Json:
    """A Subscription that asks for no content."""
    channel = {name: value for name, value in subscription["channel"].items() if name not in ("payload", "_payload")}
    return {**subscription, "channel": channel}
