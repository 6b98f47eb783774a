"""The states of feeds in memory, as `ipf/store/inbox/feeds.py` keeps them (`tests/contracts/feeds.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ipf.errors import Category, Problem
from ipf.ports import Clock, Outcome, Received
from ipf.ports.messages.feeds import FeedLease, FeedRow, FeedState, FeedStore
from tests.fakes.inbox import MemoryInbox


@dataclass
class _Row:
    due_at: datetime
    state: FeedState = field(default_factory=FeedState)
    fence: int = 0
    leased_by: str = ""
    leased_until: datetime | None = None
    failures: int = 0
    last_error: str | None = None
    polled_at: datetime | None = None
    completed_at: datetime | None = None
    fetched: int = 0
    stored: int = 0


class MemoryFeeds:
    """`FeedStore` beside a MemoryInbox."""

    def __init__(self, inbox: MemoryInbox, clock: Clock = lambda: datetime.now(UTC)) -> None:
        self._inbox = inbox
        self._clock = clock
        self._rows: dict[str, _Row] = {}

    async def begin(self, name: str, worker: str, lease_seconds: float) -> FeedLease | None:
        """See `FeedStore.begin`."""
        now = self._clock()
        row = self._rows.setdefault(name, _Row(now))
        if row.due_at > now or (row.leased_until is not None and row.leased_until > now):
            return None
        row.fence += 1
        row.leased_by = worker
        row.leased_until = now + timedelta(seconds=lease_seconds)
        return FeedLease(name, row.fence, row.state, row.failures)

    async def holders(self) -> Sequence[str]:
        """See `FeedStore.holders`."""
        now = self._clock()
        return sorted({row.leased_by for row in self._rows.values() if row.leased_until and row.leased_until > now})

    async def release(self, worker: str) -> None:
        """See `FeedStore.release`."""
        for row in self._rows.values():
            if row.leased_by == worker and row.leased_until is not None:
                row.leased_until, row.fence = None, row.fence + 1

    async def save(
        self,
        lease: FeedLease,
        rows: Sequence[Received],
        state: FeedState,
        lease_seconds: float,
        due_seconds: float | None,
    ) -> Sequence[Outcome] | None:
        """See `FeedStore.save`."""
        before = dict(self._inbox.rows)
        outcomes = await self._inbox.store(rows)
        if Outcome.CONFLICTING_DUPLICATE in outcomes:
            self._inbox.rows.clear()
            self._inbox.rows.update(before)
            return outcomes
        row, now = self._own(lease), self._clock()
        if row is None:
            return None
        row.state, row.failures, row.last_error, row.polled_at = state, 0, None, now
        row.completed_at = now if state.began is None else row.completed_at
        row.fetched += len(rows)
        row.stored += sum(one is Outcome.STORED for one in outcomes)
        row.leased_until = now + timedelta(seconds=lease_seconds) if due_seconds is None else None
        if due_seconds is not None:
            row.due_at = now + timedelta(seconds=due_seconds)
        return outcomes

    async def fail(
        self, lease: FeedLease, state: FeedState, error: str, due_seconds: float, *, is_limit: bool = False
    ) -> None:
        """See `FeedStore.fail`."""
        row = self._own(lease)
        if row is not None:
            row.state, row.failures, row.last_error = state, row.failures + (not is_limit), error
            row.leased_until, row.due_at = None, self._clock() + timedelta(seconds=due_seconds)

    async def feeds(self) -> Sequence[FeedRow]:
        """See `FeedStore.feeds`."""
        return [
            FeedRow(
                name, row.state, row.due_at, row.failures, row.last_error, row.polled_at, row.completed_at, row.fetched,
                row.stored,
            )
            for name, row in sorted(self._rows.items())
        ]  # fmt: skip

    async def rewind(self, name: str, mark: datetime | None) -> None:
        """See `FeedStore.rewind`."""
        row = self._row(name)
        row.state, row.fence, row.leased_until, row.due_at = FeedState(mark), row.fence + 1, None, self._clock()

    async def make_due(self, name: str) -> None:
        """See `FeedStore.make_due`."""
        self._row(name).due_at = self._clock()

    def _own(self, lease: FeedLease) -> _Row | None:
        row = self._rows.get(lease.name)
        return row if row is not None and row.fence == lease.fence else None

    def _row(self, name: str) -> _Row:
        if name not in self._rows:
            raise Problem(Category.NOT_FOUND, f"there is no feed {name[:200]}")
        return self._rows[name]


_: type[FeedStore] = MemoryFeeds
