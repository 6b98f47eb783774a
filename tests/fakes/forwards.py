"""The ledger of forwarded messages in memory, as `ipf/store/inbox/forwards.py` keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ipf.errors import Category, Problem
from ipf.ports import Clock
from ipf.ports.messages.forwards import (
    Candidate,
    DestinationRow,
    Forwarded,
    ForwardRow,
    ForwardStatus,
    ForwardStore,
    Matches,
    Pending,
)
from ipf.ports.messages.sources import JSON_PROTOCOLS
from tests.fakes.inbox import MemoryInbox

PENDING, SENT, DEAD = ForwardStatus.PENDING, ForwardStatus.SENT, ForwardStatus.DEAD_LETTER


@dataclass
class _Entry:
    due_at: datetime
    status: ForwardStatus = PENDING
    attempts: int = 0
    code: str | None = None
    error: str | None = None
    ended_at: datetime | None = None


@dataclass
class _Row:
    filled_to: int
    paused: bool = False
    leased_by: str = ""
    leased_until: datetime | None = None
    fence: int = 0
    entries: dict[int, _Entry] = field(default_factory=dict)


class MemoryForwards:
    """`ForwardStore` beside a MemoryInbox."""

    def __init__(self, inbox: MemoryInbox, clock: Clock = lambda: datetime.now(UTC)) -> None:
        self._inbox = inbox
        self._clock = clock
        self._rows: dict[str, _Row] = {}

    async def begin(self, name: str, worker: str, seconds: float, since: datetime | None) -> int | None:
        """See `ForwardStore.begin`."""
        now = self._clock()
        if name not in self._rows:
            ids = [id for id, row in self._inbox.rows.items() if since is None or row.message.received_at < since]
            self._rows[name] = _Row(max(ids, default=0))
        row = self._rows[name]
        is_held = row.leased_until is not None and row.leased_until > now and row.leased_by != worker
        if row.paused or is_held:
            return None
        row.leased_by, row.leased_until, row.fence = worker, now + timedelta(seconds=seconds), row.fence + 1
        return row.fence

    async def renew(self, name: str, fence: int, seconds: float) -> bool:
        """See `ForwardStore.renew`."""
        row = self._own(name, fence)
        if row is None:
            return False
        row.leased_until = self._clock() + timedelta(seconds=seconds)
        return True

    async def fill(self, name: str, fence: int, matches: Matches, limit: int, *, whole: bool = False) -> int | None:
        """See `ForwardStore.fill`."""
        row = self._own(name, fence)
        if row is None:
            return None
        found = []
        for id, one in sorted(self._inbox.rows.items()):
            message = one.message
            if id > row.filled_to and one.original_id is None and message.source_protocol not in JSON_PROTOCOLS:
                raw = message.raw if whole else message.raw[:4096]
                found.append(Candidate(id, message.received_at, message.tenant, message.source_system,
                                       message.message_type, message.listener, message.charset, raw))  # fmt: skip
        found = found[:limit]
        for candidate in found:
            row.filled_to = candidate.id
            if matches(candidate):
                row.entries.setdefault(candidate.id, _Entry(self._clock()))
        return len(found)

    async def next(self, name: str) -> Pending | None:
        """See `ForwardStore.next`."""
        row = self._rows.get(name)
        waiting = self._pending(row) if row is not None else []
        if row is None or not waiting:
            return None
        entry, message = row.entries[waiting[0]], self._inbox.rows[waiting[0]].message
        wait = (entry.due_at - self._clock()).total_seconds()
        return Pending(waiting[0], message.raw, message.charset, entry.attempts, wait, message.correlation_id)

    async def settle(self, name: str, fence: int, end: Forwarded, seconds: float) -> bool:
        """See `ForwardStore.settle`."""
        row = self._own(name, fence)
        if row is None:
            return False
        await self.renew(name, fence, seconds)
        entry = self._present(row).get(end.message_id)
        if entry is None or entry.status is not PENDING:
            return False
        entry.status, entry.code, entry.error = end.status, end.code, end.text
        entry.attempts += end.status is not SENT
        entry.ended_at = None if end.status is PENDING else self._clock()
        entry.due_at = self._clock() + timedelta(seconds=end.retry_seconds)
        return True

    async def release(self, worker: str) -> None:
        """See `ForwardStore.release`."""
        for row in self._rows.values():
            if row.leased_by == worker and row.leased_until is not None:
                row.leased_until, row.fence = None, row.fence + 1

    async def holders(self) -> Sequence[str]:
        """See `ForwardStore.holders`."""
        now = self._clock()
        return sorted({row.leased_by for row in self._rows.values() if row.leased_until and row.leased_until > now})

    async def destinations(self) -> Sequence[DestinationRow]:
        """See `ForwardStore.destinations`."""
        return [self._shown(name, row) for name, row in sorted(self._rows.items())]

    def _shown(self, name: str, row: _Row) -> DestinationRow:
        entries = self._present(row)
        counts = [one.status for one in entries.values()]
        head = next(iter(self._pending(row)), None)
        entry = entries[head] if head is not None else None
        sent = [one.ended_at for one in entries.values() if one.status is SENT and one.ended_at is not None]
        oldest = self._inbox.rows[head].message.received_at if head is not None else None
        return DestinationRow(
            name, row.paused, counts.count(PENDING), counts.count(DEAD), counts.count(SENT), oldest,
            max(sent, default=None), entry.error if entry else None, head, entry.attempts if entry else 0,
        )  # fmt: skip

    async def messages(
        self, name: str, status: ForwardStatus | None, limit: int, offset: int
    ) -> tuple[int, Sequence[ForwardRow]]:
        """See `ForwardStore.messages`."""
        found = []
        for id, one in sorted(self._present(self._rows[name]).items() if name in self._rows else ()):
            if status is None or one.status is status:
                message = self._inbox.rows[id].message
                found.append(ForwardRow(id, one.status, one.attempts, one.code, one.error, one.ended_at,
                                        message.message_type, message.source_id))  # fmt: skip
        return len(found), found[offset : offset + limit]

    async def retry(self, name: str, message_id: int | None) -> int:
        """See `ForwardStore.retry`."""
        entries = self._present(self._rows[name]) if name in self._rows else {}
        found = [one for id, one in entries.items() if one.status is DEAD and message_id in (None, id)]
        for one in found:
            one.status, one.attempts, one.due_at, one.ended_at = PENDING, 0, self._clock(), None
        return len(found)

    async def skip(self, name: str, message_id: int) -> None:
        """See `ForwardStore.skip`."""
        entry = self._present(self._rows[name]).get(message_id) if name in self._rows else None
        if entry is None or entry.status is not PENDING:
            raise Problem(Category.NOT_FOUND, "there is no such destination, or no such pending message")
        entry.status, entry.ended_at = DEAD, self._clock()

    async def pause(self, name: str, *, paused: bool) -> None:
        """See `ForwardStore.pause`."""
        if name not in self._rows:
            raise Problem(Category.NOT_FOUND, "there is no such destination, or no such pending message")
        row = self._rows[name]
        row.paused = paused
        if paused:
            row.fence, row.leased_until = row.fence + 1, None
        for entry in row.entries.values() if not paused else ():
            entry.due_at = min(entry.due_at, self._clock())

    def _own(self, name: str, fence: int) -> _Row | None:
        row = self._rows.get(name)
        if row is None:
            return None
        leased = row.leased_until is not None and row.leased_until > self._clock()
        return row if row.fence == fence and leased else None

    def _present(self, row: _Row) -> dict[int, _Entry]:
        """The entries: they are removed with their messages."""
        for id in row.entries.keys() - self._inbox.rows.keys():
            del row.entries[id]
        return row.entries

    def _pending(self, row: _Row) -> list[int]:
        return [id for id, one in sorted(self._present(row).items()) if one.status is PENDING]


_: type[ForwardStore] = MemoryForwards
