"""The delivery queue in memory, on the streams of a MemoryFhirStore; held by `tests/contracts/deliveries.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ipf.fhir.json import loads
from ipf.ports import Attempt, Clock, DeliveryEnd, DeliveryQueue, Event, Lease, SubscriptionHealth
from tests.fakes.resources import MemoryFhirStore, Stream


@dataclass
class _Cursor:
    """How far one subscription's delivery is."""

    delivered: int = 0
    ready_at: datetime | None = None
    attempt_count: int = 0
    failing_since: datetime | None = None
    token: int = 0
    leased: bool = False
    worker: str = ""
    status: str = ""
    attempts: list[Attempt] = field(default_factory=list)


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
        for _, _, cursor in due[:limit]:
            cursor.worker = worker
        return [self._leased(rid, stream, cursor, until) for rid, stream, cursor in due[:limit]]

    def _all(self) -> Iterator[tuple[int, Stream, _Cursor]]:
        for rid, stream in sorted(self._store.streams.items()):
            cursor = self._cursors.setdefault(rid, _Cursor(status=stream.state.status))
            if cursor.status != stream.state.status:
                cursor.status, cursor.attempt_count, cursor.failing_since = stream.state.status, 0, None
                if not cursor.leased:
                    cursor.ready_at = None
            yield rid, stream, cursor

    def _due(self, stream: Stream, cursor: _Cursor) -> bool:
        ready = cursor.ready_at is None or cursor.ready_at <= self._clock()
        return ready and stream.state.status == "active" and len(stream.events) > cursor.delivered

    def _leased(self, rid: int, stream: Stream, cursor: _Cursor, until: datetime) -> Lease:
        cursor.token, cursor.ready_at, cursor.leased = cursor.token + 1, until, True
        state = stream.state
        version = self._store.current((state.tenant, "Subscription", state.id))
        resource = loads(version.body) if version is not None else {}
        return Lease(
            state.tenant, rid, state.id, cursor.token, until, resource, cursor.attempt_count, cursor.failing_since
        )

    def _held(self, lease: Lease) -> _Cursor | None:
        cursor = self._cursors[lease.subscription_rid]
        return cursor if cursor.token == lease.token and cursor.leased else None

    async def events(self, lease: Lease, limit: int) -> list[Event]:
        """See `ports.DeliveryQueue.events`."""
        self._store.check()
        cursor = self._held(lease)
        stream = self._store.streams[lease.subscription_rid]
        if cursor is None or stream.state.status != "active":
            return []
        return stream.events[cursor.delivered : cursor.delivered + limit]

    async def settle(self, lease: Lease, end: DeliveryEnd) -> bool:
        """See `ports.DeliveryQueue.settle`."""
        self._store.check()
        cursor = self._held(lease)
        if cursor is None:
            return False
        cursor.delivered = max(cursor.delivered, end.delivered_to or 0)
        cursor.attempts += end.attempts
        cursor.attempt_count = end.attempt_count
        if not end.attempt_count:
            cursor.failing_since = None
        elif cursor.failing_since is None:
            failed = [attempt.attempted_at for attempt in end.attempts if not attempt.succeeded]
            cursor.failing_since = min(failed, default=self._clock())
        cursor.ready_at, cursor.leased = end.keep_until or end.retry_at, end.keep_until is not None
        return True

    async def holders(self) -> list[str]:
        """See `ports.DeliveryQueue.holders`."""
        self._store.check()
        return sorted({cursor.worker for _, _, cursor in self._all() if self._runs(cursor)})

    async def release(self, worker: str) -> int:
        """See `ports.DeliveryQueue.release`."""
        self._store.check()
        held = [cursor for _, _, cursor in self._all() if self._runs(cursor) and cursor.worker == worker]
        for cursor in held:
            cursor.token, cursor.leased, cursor.ready_at = cursor.token + 1, False, None
        return len(held)

    def _runs(self, cursor: _Cursor) -> bool:
        return cursor.leased and cursor.ready_at is not None and cursor.ready_at > self._clock()

    async def requested(self, limit: int) -> list[tuple[str, str]]:
        """See `ports.DeliveryQueue.requested`."""
        self._store.check()
        waiting = [stream.state for _, stream, _ in self._all() if stream.state.status == "requested"]
        return [(state.tenant, state.id) for state in waiting[:limit]]

    async def active(self) -> int:
        """See `ports.DeliveryQueue.active`."""
        self._store.check()
        return sum(stream.state.status == "active" for _, stream, _ in self._all())

    async def health(self, tenant: str, subscription_id: str) -> SubscriptionHealth | None:
        """See `ports.DeliveryQueue.health`."""
        self._store.check()
        for rid, stream, cursor in self._all():
            state = stream.state
            if (state.tenant, state.id) == (tenant, subscription_id) and state.status != "deleted":
                last = cursor.attempts[-1] if cursor.attempts else None
                successes = sum(attempt.succeeded for attempt in cursor.attempts)
                return SubscriptionHealth(
                    rid, state.id, state.status, len(stream.events), cursor.delivered, successes,
                    len(cursor.attempts) - successes, last.attempted_at if last else None,
                    last.succeeded if last else None, (last.error if last else None) or state.error,
                )  # fmt: skip
        return None


_: type[DeliveryQueue] = MemoryDeliveryQueue
