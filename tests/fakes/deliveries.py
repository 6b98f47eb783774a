"""The delivery queue in memory, on the streams of a MemoryFhirStore; held by `tests/contracts/deliveries.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from ipf.fhir.model.json import loads
from ipf.ports import (
    Attempt,
    AttemptPage,
    Clock,
    DeliveryEnd,
    DeliveryQueue,
    Event,
    Json,
    Lease,
    SubscriptionHealth,
    SubscriptionState,
)
from ipf.ports.audit.records import Audit
from ipf.ports.delivery import Settled
from tests.fakes.resources import MemoryFhirStore, Stream

FIRST_EVENTS = 2
"""Few, so that tests meet leases that have more."""


@dataclass
class _Cursor:
    """How far one subscription's delivery is."""

    ready_at: datetime
    delivered: int = 0
    attempt_count: int = 0
    failing_since: datetime | None = None
    token: int = 0
    leased: bool = False
    worker: str = ""
    status: str = ""
    heartbeat_at: datetime | None = None
    resend_until: int | None = None
    resume: int = 0
    resent: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    requests: int = 0
    state: SubscriptionState | None = None

    def follow(self, stream: Stream, now: datetime) -> None:
        """Revoke the lease of a subscription that was requested again, and reset its failures."""
        if self.requests != stream.requests:
            self.requests, self.token, self.leased, self.ready_at = stream.requests, self.token + 1, False, now
            self.attempt_count, self.failing_since = 0, None


class MemoryDeliveryQueue:
    """`ports.DeliveryQueue` without a database."""

    def __init__(self, store: MemoryFhirStore, clock: Clock = lambda: datetime.now(UTC)) -> None:
        self._store = store
        self._clock = clock
        self._cursors: dict[int, _Cursor] = {}

    def attempts(self, subscription_rid: int) -> list[Attempt]:
        """The ledger."""
        return self._cursors[subscription_rid].attempts

    async def lease(self, worker: str, limit: int, until: datetime) -> list[Lease]:
        """See `ports.DeliveryQueue.lease`."""
        self._store.check()
        due = [(rid, stream, cursor) for rid, stream, cursor in self._all() if self._due(stream, cursor)]
        due = sorted(sorted(due, key=lambda one: (one[2].ready_at, one[0]))[:limit], key=lambda one: one[0])
        return [self._leased(worker, rid, stream, cursor, until) for rid, stream, cursor in due]

    async def heartbeats(self, worker: str, limit: int, until: datetime) -> list[Lease]:
        """See `ports.DeliveryQueue.heartbeats`."""
        self._store.check()
        due = [
            (rid, stream, cursor)
            for rid, stream, cursor in self._all()
            if cursor.heartbeat_at is not None
            and stream.state.heartbeat_seconds is not None
            and cursor.heartbeat_at <= self._clock()
            and self._may(stream, cursor)
            and not self._has_ended(stream)
        ]
        due = sorted(sorted(due, key=lambda one: (one[2].heartbeat_at, one[0]))[:limit], key=lambda one: one[0])
        return [self._leased(worker, rid, stream, cursor, until) for rid, stream, cursor in due]

    def _all(self) -> Iterator[tuple[int, Stream, _Cursor]]:
        for rid, stream in sorted(self._store.streams.items()):
            if rid not in self._cursors:
                self._cursors[rid] = _Cursor(self._clock(), status=stream.state.status, requests=stream.requests)
            cursor = self._cursors[rid]
            if cursor.state is not stream.state:  # each write begins the idle time again
                cursor.state = stream.state
                self._beat(stream, cursor)
            cursor.follow(stream, self._clock())
            if stream.skipped > cursor.delivered:
                cursor.delivered, cursor.resend_until = stream.skipped, None
            if cursor.status != stream.state.status:
                cursor.status, cursor.attempt_count, cursor.failing_since = stream.state.status, 0, None
                cursor.ready_at = max(cursor.ready_at, self._clock()) if cursor.leased else self._clock()
            yield rid, stream, cursor

    def _may(self, stream: Stream, cursor: _Cursor) -> bool:
        state = stream.state
        return cursor.ready_at <= self._clock() and state.status == "active" and state.channel_type != "websocket"

    def _has_ended(self, stream: Stream) -> bool:
        return stream.state.ends_at is not None and stream.state.ends_at <= self._clock()

    def _due(self, stream: Stream, cursor: _Cursor) -> bool:
        return self._may(stream, cursor) and len(stream.events) > cursor.delivered

    def _beat(self, stream: Stream, cursor: _Cursor) -> None:
        seconds = stream.state.heartbeat_seconds
        cursor.heartbeat_at = None if seconds is None else self._clock() + timedelta(seconds=seconds)

    def _leased(self, worker: str, rid: int, stream: Stream, cursor: _Cursor, until: datetime) -> Lease:
        cursor.token, cursor.ready_at, cursor.leased, cursor.worker = cursor.token + 1, until, True, worker
        return replace(self._lease_of(rid, stream, cursor, until), events=tuple(_next(stream, cursor, FIRST_EVENTS)))

    def _lease_of(self, rid: int, stream: Stream, cursor: _Cursor, until: datetime) -> Lease:
        state = stream.state
        return Lease(
            state.tenant, rid, state.id, cursor.token, until, self._resource(stream), cursor.attempt_count,
            cursor.failing_since, len(stream.events),
            resent=cursor.resent,
        )  # fmt: skip

    def _resource(self, stream: Stream) -> Json:
        version = self._store.current((stream.state.tenant, "Subscription", stream.state.id))
        return loads(version.body) if version is not None else {}

    def _held(self, lease: Lease) -> _Cursor | None:
        cursor = self._cursors[lease.subscription_rid]
        cursor.follow(self._store.streams[lease.subscription_rid], self._clock())
        return cursor if cursor.token == lease.token and cursor.leased else None

    async def events(self, lease: Lease, limit: int) -> list[Event]:
        """See `ports.DeliveryQueue.events`."""
        self._store.check()
        cursor = self._held(lease)
        stream = self._store.streams[lease.subscription_rid]
        if cursor is None or stream.state.status != "active":
            return []
        return _next(stream, cursor, limit)

    async def settle(self, lease: Lease, end: DeliveryEnd) -> Settled | None:
        """See `ports.DeliveryQueue.settle`."""
        self._store.check()
        self._store.audits += end.audits
        cursor = self._held(lease)
        if cursor is None:
            return None
        cursor.delivered = max(cursor.delivered, end.delivered_to or 0)
        if cursor.resend_until is not None and cursor.delivered >= cursor.resend_until:
            cursor.delivered, cursor.resend_until = max(cursor.delivered, cursor.resume), None
        self._keep(lease.subscription_rid, end.attempts)
        cursor.attempt_count = end.attempt_count
        if not end.attempt_count:
            cursor.failing_since = None
        elif cursor.failing_since is None:
            failed = [attempt.attempted_at for attempt in end.attempts if not attempt.succeeded]
            cursor.failing_since = min(failed, default=self._clock())
        stream = self._store.streams[lease.subscription_rid]
        events = _next(stream, cursor, len(stream.events))
        is_active = stream.state.status == "active"
        keep = end.keep_until is not None and is_active and (not end.more or bool(events))
        kept, retry = end.keep_until if keep else None, end.retry_at or self._clock()
        cursor.ready_at, cursor.leased = kept or retry, kept is not None
        return Settled(keep, tuple(events[: end.more]) if keep else ())

    def _keep(self, rid: int, attempts: Sequence[Attempt]) -> None:
        cursor = self._cursors[rid]
        cursor.attempts += attempts
        if attempts and attempts[-1].succeeded:
            self._beat(self._store.streams[rid], cursor)

    def _find(self, tenant: str, subscription_id: str) -> tuple[int, Stream, _Cursor] | None:
        for found in self._all():
            state = found[1].state
            if (state.tenant, state.id) == (tenant, subscription_id) and state.status != "deleted":
                return found
        return None

    async def record(self, tenant: str, subscription_id: str, attempts: Sequence[Attempt]) -> None:
        """See `ports.DeliveryQueue.record`."""
        self._store.check()
        found = self._find(tenant, subscription_id)
        if found is not None:
            self._keep(found[0], attempts)

    async def websocket_subscription(self, tenant: str, subscription_id: str) -> Lease | None:
        """See `ports.DeliveryQueue.websocket_subscription`."""
        self._store.check()
        found = self._find(tenant, subscription_id)
        if found is None or found[1].state.channel_type != "websocket":
            return None
        return self._lease_of(*found, self._clock())

    async def events_after(self, cursors: Mapping[int, int], limit: int) -> list[tuple[int, Event]]:
        """See `ports.DeliveryQueue.events_after`."""
        self._store.check()
        return [
            (rid, event)
            for rid, stream, _ in self._all()
            if rid in cursors and stream.state.status == "active" and stream.state.channel_type == "websocket"
            for event in stream.events[cursors[rid] : cursors[rid] + limit]
        ]

    async def record_sent(self, attempts: Mapping[int, Sequence[Attempt]], audits: Sequence[Audit] = ()) -> None:
        """See `ports.DeliveryQueue.record_sent`."""
        self._store.check()
        self._store.audits += audits
        for rid, made in attempts.items():
            self._keep(rid, made)
            numbers = [attempt.to_event_number or attempt.event_number for attempt in made if attempt.succeeded]
            self._cursors[rid].delivered = max([self._cursors[rid].delivered, *numbers])

    async def peek(self, tenant: str, subscription_id: str) -> Lease | None:
        """See `ports.DeliveryQueue.peek`."""
        self._store.check()
        found = self._find(tenant, subscription_id)
        return None if found is None else replace(self._lease_of(*found, self._clock()), token=0)

    async def ended(self, limit: int) -> list[tuple[str, str]]:
        """See `ports.DeliveryQueue.ended`."""
        self._store.check()
        states = [stream.state for _, stream, _ in self._all() if stream.state.status not in ("off", "deleted")]
        over = [one for one in states if one.ends_at is not None and one.ends_at <= self._clock()]
        return [(one.tenant, one.id) for one in over[:limit]]

    async def event_range(self, tenant: str, subscription_id: str, first: int, last: int, limit: int) -> list[Event]:
        """See `ports.DeliveryQueue.event_range`."""
        self._store.check()
        found = self._find(tenant, subscription_id)
        return [] if found is None else [one for one in found[1].events if first <= one.number <= last][:limit]

    async def resend(self, tenant: str, subscription_id: str, first: int, last: int) -> int | None:
        """See `ports.DeliveryQueue.resend`."""
        self._store.check()
        found = self._find(tenant, subscription_id)
        if found is None or found[1].state.status != "active" or found[1].state.channel_type == "websocket":
            return None
        cursor = found[2]
        if cursor.resend_until is not None:
            cursor.resend_until = max(cursor.resend_until, last)
        elif last < cursor.delivered:
            cursor.resend_until, cursor.resume = last, cursor.delivered
        cursor.delivered = min(cursor.delivered, first - 1)
        cursor.token, cursor.leased, cursor.ready_at = cursor.token + 1, False, self._clock()
        cursor.resent = cursor.token
        if cursor.resend_until is None:
            return len(found[1].events) - cursor.delivered
        return cursor.resend_until - cursor.delivered + len(found[1].events) - cursor.resume

    async def holders(self) -> list[str]:
        """See `ports.DeliveryQueue.holders`."""
        self._store.check()
        return sorted({cursor.worker for _, _, cursor in self._all() if self._runs(cursor)})

    async def release(self, worker: str) -> int:
        """See `ports.DeliveryQueue.release`."""
        self._store.check()
        held = [cursor for _, _, cursor in self._all() if self._runs(cursor) and cursor.worker == worker]
        for cursor in held:
            cursor.token, cursor.leased, cursor.ready_at = cursor.token + 1, False, self._clock()
        return len(held)

    def _runs(self, cursor: _Cursor) -> bool:
        return cursor.leased and cursor.ready_at > self._clock()

    async def requested(self, limit: int) -> list[tuple[str, str]]:
        """See `ports.DeliveryQueue.requested`."""
        self._store.check()
        waiting = [
            stream.state
            for _, stream, _ in self._all()
            if stream.state.status == "requested" and not self._has_ended(stream)
        ]
        return [(state.tenant, state.id) for state in waiting[:limit]]

    async def active(self) -> int:
        """See `ports.DeliveryQueue.active`."""
        self._store.check()
        return sum(stream.state.status == "active" for _, stream, _ in self._all())

    async def health(self, tenant: str, subscription_id: str) -> SubscriptionHealth | None:
        """See `ports.DeliveryQueue.health`."""
        self._store.check()
        found = self._find(tenant, subscription_id)
        return None if found is None else self._health(*found)

    async def tenants_of(self, subscription_id: str) -> list[str]:
        """See `ports.DeliveryQueue.tenants_of`."""
        self._store.check()
        states = [stream.state for _, stream, _ in self._all()]
        return sorted(one.tenant for one in states if one.id == subscription_id and one.status != "deleted")

    async def healths(self, tenant: str | None, limit: int) -> list[SubscriptionHealth]:
        """See `ports.DeliveryQueue.healths`."""
        self._store.check()
        kept = [found for found in self._all() if found[1].state.status != "deleted"]
        return [self._health(*found) for found in kept if tenant in (None, found[1].state.tenant)][:limit]

    def _health(self, rid: int, stream: Stream, cursor: _Cursor) -> SubscriptionHealth:
        state = stream.state
        last = cursor.attempts[-1] if cursor.attempts else None
        successes = sum(attempt.succeeded for attempt in cursor.attempts)
        return SubscriptionHealth(
            rid, state.id, state.status, len(stream.events), cursor.delivered, successes,
            len(cursor.attempts) - successes, last.attempted_at if last else None,
            last.succeeded if last else None, last.error if last else None, state.error, self._resource(stream),
            state.tenant, tuple(self._store.creators.get(rid, {}).values()),
        )  # fmt: skip

    async def history(self, tenant: str, subscription_id: str, limit: int, offset: int) -> AttemptPage | None:
        """See `ports.DeliveryQueue.history`."""
        self._store.check()
        found = self._find(tenant, subscription_id)
        if found is None:
            return None
        latest_first = list(reversed(found[2].attempts))  # equal times stay in this order
        newest = sorted(latest_first, key=lambda attempt: attempt.attempted_at, reverse=True)
        return AttemptPage(len(newest), tuple(newest[offset : offset + limit]))


def _next(stream: Stream, cursor: _Cursor, limit: int) -> list[Event]:
    return stream.events[cursor.delivered : cursor.resend_until][:limit]


_: type[DeliveryQueue] = MemoryDeliveryQueue
