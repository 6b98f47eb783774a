"""Events for websockets: what happens to a subscription is told to the clients that are bound to it in this process.

A client may be connected to any of several processes, and one subscription may have clients at all of them.  So nothing
is leased: each process remembers, for each subscription that has clients here, the number of the newest event they know
(at first the newest when they came), reads what is behind it, tells them, and writes to the ledger what it told.  One
statement reads for all subscriptions, after each ring, and at least each `poll_seconds`.

Two ways of binding (interface specification "WebSocket"; Backport guide, "Channels"): by id, a client is sent
`ping <id>` and then the content, when the subscription has a payload; with a token it is sent a handshake Bundle and
then notification Bundles, as long as the token is good (`bound <id>` and pings, when there is no topic).  A client is
told what both the subscription's writers and it itself may know: a token that may read Subscriptions alone brings no
patient's data.

What survives a crash: the cursor in the row.  A client that lost its connection asks `$events` for what it missed; the
contract has no replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import groupby

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from ipf.errors import Category, Problem
from ipf.fhir.model.redaction import masked
from ipf.pipeline.deliver.attempts import attempt_of
from ipf.pipeline.deliver.authorization import Outdated
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
    SocketClient,
    SocketHub,
    Terms,
    TokenBinding,
)
from ipf.ports.delivery import AuthorizationFilter
from ipf.security.access import may_hold
from ipf.telemetry import metrics

log = Logger()

BELL = "delivery"
EVENTS = 100
FRESH_SECONDS = 1.0
NOBODY = "no client could take it"


@dataclass(frozen=True, slots=True)
class Bound:
    """One client at one subscription.  `by_token`: it is sent Bundles alone, without `ping`."""

    session: Session
    by_token: bool = False


@dataclass(slots=True, eq=False)
class Stream:
    """One subscription with clients here.  `known`: the newest event that they were told of."""

    lease: Lease
    terms: Terms
    known: int
    read_at: float
    told_at: float
    clients: dict[SocketClient, Bound] = field(default_factory=dict)


class Sockets:
    """`ports.SocketHub`, with the worker that tails the events."""

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
    ) -> None:
        self._queue = queue
        self._tokens = tokens
        self._compose = compose
        self._authorization_filter = authorization_filter
        self._clock = clock
        self._now = now
        self._streams: dict[int, Stream] = {}
        self._of_client: dict[SocketClient, set[int]] = {}
        self._untold: dict[int, list[Attempt]] = {}
        self._ended_at = clock.seconds()
        self._worker = Worker(self.step, notifier, BELL, poll_seconds, clock, name="websockets")

    def start(self) -> None:
        """Begin to tail."""
        self._worker.start()

    async def stop(self, within_seconds: float = 10.0) -> bool:
        """Tell what is in hand, then say good-bye to everybody."""
        idle = await self._worker.stop(within_seconds)
        for client in list(self._of_client):
            client.end("the service stops")
        return idle

    @property
    def clients(self) -> int:
        """How many are bound here."""
        return len(self._of_client)

    # -- binding

    async def bind(self, client: SocketClient, session: Session, subscription_id: str) -> None:
        """See `ports.SocketHub.bind`."""
        lease = await self._queue.bound(session.tenant, subscription_id)
        if session.until is not None and session.until <= self._now():
            raise Problem(Category.UNAUTHORIZED, "the token of this connection has ended")
        if lease is None or not session.may(lease.resource):
            raise Problem(Category.NOT_FOUND, "there is no websocket subscription with this id")
        self._add(client, lease, Bound(session))

    async def bind_with_token(self, client: SocketClient, token: str) -> TokenBinding:
        """See `ports.SocketHub.bind_with_token`."""
        binding = await self._tokens.redeem(token)
        if binding is None:
            raise Problem(Category.UNAUTHORIZED, "the binding token is unknown or has expired")
        caller = binding.caller
        session = Session(binding.tenant, partial(may_hold, caller, "r"), binding.until, caller)
        found = []
        for subscription_id in binding.subscription_ids:
            if await self._greet(client, session, subscription_id):
                found.append(subscription_id)
        return TokenBinding(session, binding.subscription_ids, found)

    async def _greet(self, client: SocketClient, session: Session, subscription_id: str) -> bool:
        """Handshake, and bound from the very number that it names; False when there is no such subscription."""
        while True:
            lease = await self._queue.bound(session.tenant, subscription_id)
            if lease is None or not session.may(lease.resource):
                return False
            if not self._compose.terms(lease.resource).is_topic:  # a Bundle would have nothing to say
                client.tell([f"bound {lease.subscription_id}".encode()])
                self._add(client, lease, Bound(session))
                return True
            handshake = await self._compose.handshake(lease)
            stream = self._streams.get(lease.subscription_rid)
            if stream is None or stream.known <= lease.last_event_number:
                client.tell([handshake.body or b""])
                self._add(client, lease, Bound(session, by_token=True))
                return True

    def _add(self, client: SocketClient, lease: Lease, bound: Bound) -> None:
        rid, now = lease.subscription_rid, self._clock.seconds()
        stream = self._streams.get(rid)
        if stream is None:
            terms = self._compose.terms(lease.resource)
            stream = self._streams[rid] = Stream(lease, terms, lease.last_event_number, now, now)
        stream.clients[client] = bound
        self._of_client.setdefault(client, set()).add(rid)

    def leave(self, client: SocketClient) -> None:
        """See `ports.SocketHub.leave`."""
        for rid in self._of_client.pop(client, ()):
            self._unbind(rid, client)

    def _unbind(self, rid: int, client: SocketClient) -> None:
        stream = self._streams.get(rid)
        if stream is not None:
            stream.clients.pop(client, None)
            if not stream.clients:
                del self._streams[rid]

    def _end_of_tokens(self) -> None:
        """Whose token has ended hears no more, whether or not anything happens."""
        if self._clock.seconds() - self._ended_at < FRESH_SECONDS:
            return
        self._ended_at, now = self._clock.seconds(), self._now()
        for stream in list(self._streams.values()):
            for client, bound in list(stream.clients.items()):
                if bound.session.until is not None and bound.session.until <= now:
                    self._expire(stream, client)

    def _expire(self, stream: Stream, client: SocketClient) -> None:
        rid = stream.lease.subscription_rid
        self._unbind(rid, client)
        left = self._of_client.get(client, set())
        left.discard(rid)
        client.tell([f"error the token for {stream.lease.subscription_id} has ended".encode()])
        if not left:
            client.end("its token has ended")

    # -- telling

    async def step(self) -> bool:
        """Tell what is new; True when there was anything."""
        if self._untold:
            await self._write()
        if not self._streams:
            return False
        self._end_of_tokens()
        known = {rid: stream.known for rid, stream in self._streams.items()}
        found = await self._queue.tail(known, EVENTS)
        for rid, events in groupby(found, key=lambda pair: pair[0]):
            await self._tell_all(rid, [event for _, event in events])
        await self._heartbeats()
        if self._untold:
            await self._write()
        return bool(found)

    async def _write(self) -> None:
        written, self._untold = self._untold, {}
        try:
            await self._queue.told(written)
        except Exception:
            self._untold = written | self._untold
            raise

    async def _tell_all(self, rid: int, events: Sequence[Event]) -> None:
        stream = self._streams.get(rid)
        if stream is None or not await self._refresh(stream):
            return
        size = max(stream.terms.max_count, 1)
        try:
            told = (
                events if self._authorization_filter is None else await self._authorization_filter(stream.lease, events)
            )
        except Outdated:
            stream.read_at = float("-inf")  # the next step reads it, and tells them
            return
        for start in range(0, len(told), size):
            await self._tell(stream, told[start : start + size])
        stream.known = max(stream.known, events[-1].number)

    async def _refresh(self, stream: Stream) -> bool:
        """The Subscription as it is now, at most a second old; False when it is gone, and its clients with it."""
        now = self._clock.seconds()
        if now - stream.read_at < FRESH_SECONDS:
            return True
        lease = await self._queue.bound(stream.lease.tenant, stream.lease.subscription_id)
        if lease is None:
            for client in list(stream.clients):
                self._unbind(stream.lease.subscription_rid, client)
                client.end(f"Subscription/{stream.lease.subscription_id} is gone")
            return False
        stream.lease, stream.terms, stream.read_at = lease, self._compose.terms(lease.resource), now
        return True

    async def _tell(self, stream: Stream, events: Sequence[Event]) -> None:
        """Some events, or a heartbeat, to every client that is still entitled."""
        attempted_at, began = self._now(), self._clock.seconds()
        try:
            compose, lease = self._compose, stream.lease
            notification = await (compose.events(lease, events) if events else compose.heartbeat(lease))
            own = await self._for_readers(stream, events)
        except Problem as problem:
            self._note(stream, events, attempted_at, Delivered(None, 0, problem.text))
            return
        reached = [
            client.tell(_texts(told, bound))
            for client, bound in self._entitled(stream, events)
            if (told := own.get(bound.session.caller, notification)) is not None
        ]
        if not reached:
            return
        done = any(reached)
        passed = round((self._clock.seconds() - began) * 1000)
        delivered = Delivered(None, passed, None if done else NOBODY, is_done=done)
        metrics.notification_sent(done, passed / 1000)
        stream.told_at = self._clock.seconds()
        self._note(stream, events, attempted_at, delivered)

    async def _for_readers(self, stream: Stream, events: Sequence[Event]) -> dict[Caller, Notification | None]:
        """What those are told whose own grants count beside the writers'; None: nothing."""
        found: dict[Caller, Notification | None] = {}
        authorization_filter = self._authorization_filter
        if not events or authorization_filter is None:
            return found
        while readers := {bound.session.caller for bound in stream.clients.values()} - found.keys():
            limited = [one for one in readers if not one.is_unlimited]
            if not limited:
                break
            for reader in limited:  # others may come meanwhile
                lease = replace(stream.lease, within=(reader,))
                told = await authorization_filter(lease, events)
                found[reader] = await self._compose.events(lease, told) if told else None
        return found

    def _note(self, stream: Stream, events: Sequence[Event], attempted_at: datetime, delivered: Delivered) -> None:
        made = self._untold.setdefault(stream.lease.subscription_rid, [])
        made.append(attempt_of(events, attempted_at, delivered))

    def _entitled(self, stream: Stream, events: Sequence[Event]) -> Iterator[tuple[SocketClient, Bound]]:
        now = self._now()
        for client, bound in list(stream.clients.items()):
            session = bound.session
            if session.until is not None and session.until <= now:
                self._expire(stream, client)
            elif not session.may(stream.lease.resource):
                self._unbind(stream.lease.subscription_rid, client)
            elif events or bound.by_token:
                yield client, bound

    async def _heartbeats(self) -> None:
        now = self._clock.seconds()
        for stream in list(self._streams.values()):
            period = stream.terms.heartbeat_seconds
            if period is not None and now - stream.told_at >= period and await self._refresh(stream):
                await self._tell(stream, ())
                stream.told_at = now


def _texts(notification: Notification, bound: Bound) -> list[bytes]:
    body = None if notification.body is None else masked(notification.body)  # it may bring a Subscription
    if bound.by_token and body is not None:
        return [body]
    ping = f"ping {notification.subscription_id}".encode()
    return [ping] if body is None else [ping, body]


_: type[SocketHub] = Sockets
