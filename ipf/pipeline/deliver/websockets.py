"""Notifications over websockets, to the clients of this process.

A client may connect to any process, and a subscription may have clients at several of them.  Therefore nothing is
leased: each process keeps the number of the newest event sent for each subscription with clients, reads the events
after it, sends them, and writes the attempts to the ledger.  One statement reads the events of all subscriptions, after
each notification and at least every `poll_seconds`.

There are two ways to bind (interface specification "WebSocket"; Backport guide, "Channels").  By id: the client gets
`ping <id>` and, when the subscription has a payload, the content.  With a token: the client gets a handshake Bundle and
then notification Bundles until the token expires (`bound <id>` and pings for a subscription without a topic).  The
grants of the subscription's writers and of the client both apply: a token that may only read Subscriptions gives no
access to patient data.

The numbers of events are those of the subscription, except for a client from which single resources may be hidden: it
gets the numbers 1, 2, 3 ... of what it is sent, and no heartbeat tells it of anything else.  A client that wrote the
subscription with the same grants begins with the number of events since then.

Crash: the cursor in the row is durable.  A client that lost its connection reads missed events with `$events`; the
contract has no replay.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import groupby

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from ipf.errors import Category, Problem
from ipf.pipeline.deliver.attempts import attempt_of, audits_of
from ipf.pipeline.deliver.authorization import SubscriptionChanged
from ipf.pipeline.deliver.bound_clients import Audience, BoundSubscription, ClientBinding, parts, texts_of
from ipf.pipeline.worker import Worker
from ipf.ports import (
    Attempt,
    BindingTokens,
    Caller,
    Clock,
    Compose,
    Delivered,
    DeliveryQueue,
    Event,
    Lease,
    Notification,
    Notifier,
    Session,
    TokenBinding,
    WebsocketClient,
    WebsocketHub,
)
from ipf.ports.audit.records import Audit
from ipf.ports.delivery import AuthorizationFilter
from ipf.security.access import may_hide, may_hold
from ipf.security.audit.delivery import AuditDelivery
from ipf.telemetry import metrics

log = Logger()

NOTIFY_CHANNEL = "delivery"
MAX_EVENTS = 100
EXPIRY_SECONDS = 1.0
PERIOD_MAX_AGE_SECONDS = 10.0
UNDELIVERED = "no client accepted the notification"


NumberedFrom = Callable[[Lease, Caller], Awaitable[int | None]]
"""See `Authorization.numbered_from`."""


class WebsocketNotifier:
    """`ports.WebsocketHub`, with the worker that reads and sends new events."""

    def __init__(
        self,
        queue: DeliveryQueue,
        tokens: BindingTokens,
        compose: Compose,
        notifier: Notifier,
        clock: IReactorTime,
        now: Clock,
        *,
        poll_seconds: float = 1.0,
        authorization_filter: AuthorizationFilter | None = None,
        numbered_from: NumberedFrom | None = None,
        audit: AuditDelivery | None = None,
    ) -> None:
        self._queue = queue
        self._tokens = tokens
        self._compose = compose
        self._authorization_filter = authorization_filter
        self._numbered_from = numbered_from
        self._audit = audit
        self._unrecorded_audits: list[Audit] = []
        self._clock = clock
        self._now = now
        self._subscriptions: dict[int, BoundSubscription] = {}
        self._by_client: dict[WebsocketClient, set[int]] = {}
        self._unrecorded: dict[int, list[Attempt]] = {}
        self._expired_at = clock.seconds()
        self._worker = Worker(self.step, notifier, NOTIFY_CHANNEL, poll_seconds, clock, name="websockets")

    def start(self) -> None:
        """Start the worker."""
        self._worker.start()

    async def stop(self, within_seconds: float = 10.0) -> bool:
        """Finish the current step, then close all clients."""
        idle = await self._worker.stop(within_seconds)
        for client in list(self._by_client):
            client.end("the service stops")
        return idle

    @property
    def clients(self) -> int:
        """Number of bound clients."""
        return len(self._by_client)

    # -- binding

    async def bind(self, client: WebsocketClient, session: Session, subscription_id: str) -> None:
        """See `ports.WebsocketHub.bind`."""
        if session.refusal is not None:
            raise Problem(Category.UNAUTHORIZED, session.refusal)
        lease = await self._queue.websocket_subscription(session.tenant, subscription_id)
        if session.until is not None and session.until <= self._now():
            raise Problem(Category.UNAUTHORIZED, "the token of this connection has expired")
        if lease is None or not session.may_read(lease.resource):
            raise Problem(Category.NOT_FOUND, "there is no websocket subscription with this id")
        self._add_client(client, lease, session, await self._hidden(lease, session.caller))

    async def bind_with_token(self, client: WebsocketClient, token: str) -> TokenBinding:
        """See `ports.WebsocketHub.bind_with_token`."""
        binding = await self._tokens.redeem(token)
        if binding is None:
            raise Problem(Category.UNAUTHORIZED, "the binding token is unknown or has expired")
        caller = binding.caller
        session = Session(binding.tenant, partial(may_hold, caller, "r"), binding.until, caller)
        found = []
        for subscription_id in binding.subscription_ids:
            if await self._bind_one(client, session, subscription_id):
                found.append(subscription_id)
        return TokenBinding(session, binding.subscription_ids, found)

    async def _bind_one(self, client: WebsocketClient, session: Session, subscription_id: str) -> bool:
        """Send a handshake and bind from its event number on; False when there is no such subscription."""
        while True:
            lease = await self._queue.websocket_subscription(session.tenant, subscription_id)
            if lease is None or not session.may_read(lease.resource):
                return False
            hidden = await self._hidden(lease, session.caller)
            if not self._compose.terms(lease.resource).is_topic:  # there are no Bundles without a topic
                client.send([f"bound {lease.subscription_id}".encode()])
                self._add_client(client, lease, session, hidden)
                return True
            seen = lease.last_event_number - (hidden or 0)
            handshake = await self._compose.handshake(replace(lease, last_event_number=seen))
            subscription = self._subscriptions.get(lease.subscription_rid)
            if subscription is None or subscription.last_number <= lease.last_event_number:
                client.send([handshake.body or b""])
                self._add_client(client, lease, session, hidden, by_token=True)
                return True

    async def _hidden(self, lease: Lease, caller: Caller) -> int | None:
        """How many of the events until now do not count for the client; None = its numbers are the stored ones."""
        if self._numbered_from is None or not may_hide(caller):
            return None
        first = await self._numbered_from(lease, caller)
        return lease.last_event_number if first is None else min(first, lease.last_event_number)

    def _add_client(
        self, client: WebsocketClient, lease: Lease, session: Session, hidden: int | None, by_token: bool = False
    ) -> None:
        rid, now = lease.subscription_rid, self._clock.seconds()
        subscription = self._subscriptions.get(rid)
        if subscription is None:
            terms = self._compose.terms(lease.resource)
            subscription = self._subscriptions[rid] = BoundSubscription(
                lease, terms, lease.last_event_number, terms.heartbeat_seconds, now
            )
        count = None if hidden is None else max(0, subscription.last_number - hidden)
        subscription.clients[client] = ClientBinding(session, now, by_token, count)
        self._by_client.setdefault(client, set()).add(rid)

    def leave(self, client: WebsocketClient) -> None:
        """See `ports.WebsocketHub.leave`."""
        for rid in self._by_client.pop(client, ()):
            self._unbind(rid, client)

    def _unbind(self, rid: int, client: WebsocketClient) -> None:
        subscription = self._subscriptions.get(rid)
        if subscription is not None:
            subscription.clients.pop(client, None)
            if not subscription.clients:
                del self._subscriptions[rid]

    def _expire_tokens(self) -> None:
        """Unbind clients with an expired token."""
        if self._clock.seconds() - self._expired_at < EXPIRY_SECONDS:
            return
        self._expired_at, now = self._clock.seconds(), self._now()
        for subscription in list(self._subscriptions.values()):
            for client, binding in list(subscription.clients.items()):
                if binding.session.until is not None and binding.session.until <= now:
                    self._expire(subscription, client)

    def _expire(self, subscription: BoundSubscription, client: WebsocketClient) -> None:
        rid = subscription.lease.subscription_rid
        self._unbind(rid, client)
        left = self._by_client.get(client, set())
        left.discard(rid)
        client.send([f"error the token for {subscription.lease.subscription_id} has expired".encode()])
        if not left:
            client.end("its token has expired")

    # -- sending

    async def step(self) -> bool:
        """Send new events; True when there were any."""
        if self._unrecorded:
            await self._record()
        if not self._subscriptions:
            return False
        self._expire_tokens()
        last_number = {rid: subscription.last_number for rid, subscription in self._subscriptions.items()}
        found = await self._queue.events_after(last_number, MAX_EVENTS)
        for rid, events in groupby(found, key=lambda pair: pair[0]):
            await self._send_events(rid, [event for _, event in events])
        await self._heartbeats()
        if self._unrecorded:
            await self._record()
        return bool(found)

    async def _record(self) -> None:
        written, self._unrecorded = self._unrecorded, {}
        audits, self._unrecorded_audits = self._unrecorded_audits, []
        try:
            await self._queue.record_sent(written, audits)
        except Exception:
            self._unrecorded = written | self._unrecorded
            self._unrecorded_audits = audits + self._unrecorded_audits
            raise

    async def _send_events(self, rid: int, events: Sequence[Event]) -> None:
        subscription = self._subscriptions.get(rid)
        if subscription is None or not await self._refresh(subscription):
            return
        size = max(subscription.terms.max_count, 1)
        try:
            notified = (
                events
                if self._authorization_filter is None
                else await self._authorization_filter(subscription.lease, events)
            )
        except SubscriptionChanged:
            return  # the next step refreshes it and sends the events
        for start in range(0, len(notified), size):
            await self._send(subscription, notified[start : start + size])
        subscription.last_number = max(subscription.last_number, events[-1].number)

    async def _refresh(self, subscription: BoundSubscription) -> bool:
        """Read the Subscription again; False when it is gone: its clients are closed.

        What was read a moment ago may be older than an event: the event would be judged by former criteria.
        """
        lease = await self._queue.websocket_subscription(subscription.lease.tenant, subscription.lease.subscription_id)
        if lease is None:
            for client in list(subscription.clients):
                self._unbind(subscription.lease.subscription_rid, client)
                client.end(f"Subscription/{subscription.lease.subscription_id} is gone")
            return False
        subscription.lease, subscription.terms = lease, self._compose.terms(lease.resource)
        return True

    async def _send(self, subscription: BoundSubscription, events: Sequence[Event]) -> None:
        """Send events to every authorized client, or a heartbeat to those for which one is due."""
        attempted_at, began = self._now(), self._clock.seconds()
        try:
            notifications = await self._notifications(subscription, events)
        except Problem as problem:
            self._add_attempt(subscription, events, attempted_at, Delivered(None, 0, problem.text))
            return
        results = []
        for client, binding in self._authorized_clients(subscription, events):
            made = notifications[binding.audience]
            if made:
                results.append(client.send([text for one in made for text in texts_of(one, binding)]))
                self._note(subscription, binding, made, results[-1])
                binding.sent_at = self._clock.seconds()
                if binding.count is not None and events:
                    binding.count += len(made)
        if not results:
            return
        done = any(results)
        duration_ms = round((self._clock.seconds() - began) * 1000)
        delivered = Delivered(None, duration_ms, None if done else UNDELIVERED, is_done=done)
        metrics.notification_sent(done, duration_ms / 1000)
        self._add_attempt(subscription, events, attempted_at, delivered)

    def _note(
        self, subscription: BoundSubscription, binding: ClientBinding, made: Sequence[Notification], is_sent: bool
    ) -> None:
        """Keep the audit records of what was sent to one client."""
        events = [event for one in made for event in one.events]
        delivered = Delivered(None, 0, None if is_sent else UNDELIVERED, is_done=is_sent)
        self._unrecorded_audits += audits_of(
            self._audit, subscription.lease, subscription.terms, events, delivered, self._now(), binding.session.caller
        )

    async def _notifications(
        self, subscription: BoundSubscription, events: Sequence[Event]
    ) -> dict[Audience, Sequence[Notification]]:
        """The notifications for each audience, or its heartbeat."""
        found: dict[Audience, Sequence[Notification]] = {}
        while (
            missing := {
                binding.audience
                for binding in subscription.clients.values()
                if events or self._is_heartbeat_due(subscription, binding)
            }
            - found.keys()
        ):
            for caller, count in missing:  # further clients may bind in the meantime
                lease = subscription.lease if count is None else replace(subscription.lease, last_event_number=count)
                if not events:
                    found[caller, count] = [await self._compose.heartbeat(lease)]
                    continue
                allowed = events
                if self._authorization_filter is not None and not caller.is_unlimited:
                    lease = replace(lease, callers=(caller,))
                    allowed = await self._authorization_filter(lease, events)
                found[caller, count] = [await self._compose.events(lease, one) for one in parts(allowed, count)]
        return found

    def _add_attempt(
        self, subscription: BoundSubscription, events: Sequence[Event], attempted_at: datetime, delivered: Delivered
    ) -> None:
        made = self._unrecorded.setdefault(subscription.lease.subscription_rid, [])
        made.append(attempt_of(events, attempted_at, delivered))

    def _authorized_clients(
        self, subscription: BoundSubscription, events: Sequence[Event]
    ) -> Iterator[tuple[WebsocketClient, ClientBinding]]:
        now = self._now()
        for client, binding in list(subscription.clients.items()):
            session = binding.session
            if session.until is not None and session.until <= now:
                self._expire(subscription, client)
            elif not session.may_read(subscription.lease.resource):
                self._unbind(subscription.lease.subscription_rid, client)
            elif events or self._is_heartbeat_due(subscription, binding):
                yield client, binding

    async def _heartbeats(self) -> None:
        for subscription in list(self._subscriptions.values()):
            await self._refresh_period(subscription)
            due = [one for one in subscription.clients.values() if self._is_heartbeat_due(subscription, one)]
            if due and await self._refresh(subscription):
                await self._send(subscription, ())

    async def _refresh_period(self, subscription: BoundSubscription) -> None:
        """Read the period again when it is older than `PERIOD_MAX_AGE_SECONDS`, whether there are events or not."""
        now = self._clock.seconds()
        has_heartbeats = any(binding.by_token for binding in subscription.clients.values())
        if not has_heartbeats or now - subscription.period_read_at < PERIOD_MAX_AGE_SECONDS:
            return
        subscription.period_read_at = now
        if await self._refresh(subscription):
            subscription.period = subscription.terms.heartbeat_seconds

    def _is_heartbeat_due(self, subscription: BoundSubscription, binding: ClientBinding) -> bool:
        period = subscription.period
        return binding.by_token and period is not None and self._clock.seconds() - binding.sent_at >= period


_: type[WebsocketHub] = WebsocketNotifier
