"""The inbox in memory: the same behaviour as `ipf/store/inbox/inbox.py`, held by `tests/contracts/inbox.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from ipf.errors import Category, Problem
from ipf.hl7.words import folded, patients_of, query_words, words_of
from ipf.ports import (
    Backoff,
    Claimed,
    Clock,
    Inbox,
    MessageFilter,
    MessagePage,
    MessageRow,
    Outcome,
    Received,
    Rejected,
    Settlement,
    StaleRecovery,
    Status,
    UnmappedCode,
    WrongState,
)
from ipf.ports.identity import AnswerKind, ConflictStatus, IdentityFinding
from ipf.ports.messages.inbox import EVERY_TENANT
from ipf.store.inbox.inbox import DEFER_SECONDS
from tests.fakes import claims


@dataclass
class Row:
    """One message and its state."""

    id: int
    message: Received
    ready_at: datetime
    status: Status = Status.RECEIVED
    attempt_count: int = 0
    last_attempt_at: datetime | None = None
    next_attempt_at: datetime | None = None
    last_error: str | None = None
    permanent: bool = False
    delivered_at: datetime | None = None
    fence: int = 0
    claimed_by: str | None = None
    leased_at: datetime | None = None
    map_url: str | None = None
    transform_ms: float | None = None
    original_id: int | None = None
    mapping_epoch: int | None = None
    requested_at: datetime | None = None
    reason: str = ""


@dataclass
class Conflict:
    """A row of the review queue (`tests/fakes/conflicts.py`)."""

    id: int
    state_id: int
    finding: IdentityFinding
    detected_at: datetime
    status: ConflictStatus = ConflictStatus.OPEN
    answer: AnswerKind | None = None
    target: str | None = None
    answered_by: str | None = None
    answered_at: datetime | None = None


class MemoryInbox:
    """`ports.Inbox` without a database.  `broken`: raised by every call while it is set."""

    def __init__(self, clock: Clock = lambda: datetime.now(UTC), *, holds_permanent: bool = True) -> None:
        self.rows: dict[int, Row] = {}
        self.rejects: list[Rejected] = []
        self.broken: Problem | None = None
        self.noted: list[tuple[Row, UnmappedCode, datetime]] = []
        self.conflicts: list[Conflict] = []
        self._clock = clock
        self._holds_permanent = holds_permanent
        self._last_id = 0

    async def store(self, batch: Sequence[Received]) -> list[Outcome]:
        """See `ports.Inbox.store`."""
        self._check()
        return [self._store_one(message) for message in batch]

    def _store_one(self, message: Received) -> Outcome:
        for row in self.rows.values():
            known = row.message
            if (known.tenant, known.source_system, known.source_id) == (
                message.tenant, message.source_system, message.source_id,
            ):  # fmt: skip
                return Outcome.DUPLICATE if known.raw == message.raw else Outcome.CONFLICTING_DUPLICATE
        self._last_id += 1
        self.rows[self._last_id] = Row(self._last_id, message, self._clock())
        return Outcome.STORED

    async def reject(self, rejected: Rejected) -> None:
        """See `ports.Inbox.reject`."""
        self._check()
        self.rejects.append(rejected)

    async def claim(self, worker: str, limit: int) -> list[Claimed]:
        """See `ports.Inbox.claim`."""
        self._check()
        now, rows = self._clock(), self.rows.values()
        for _ in range(claims.DEFER_ROUNDS):
            taken, deferred = claims.claimable(rows, limit, now, self._passes)
            for row in taken:
                row.status, row.fence, row.claimed_by, row.leased_at = Status.TRANSFORMING, row.fence + 1, worker, now
            claims.recheck(deferred, rows, now, self._passes)
            if taken or not deferred:
                return [_claimed(row) for row in taken]
        return []

    def _passes(self, row: Row) -> bool:
        """Whether it does not hold back later messages of its key."""
        return row.status is Status.FAILED and row.permanent and not self._holds_permanent

    async def release_except(self, worker: str, held: Sequence[int]) -> int:
        """See `ports.Inbox.release_except`."""
        self._check()
        rows = [row for row in self.rows.values() if row.claimed_by == worker and row.id not in held]
        for row in rows:
            row.status, row.ready_at, row.claimed_by, row.leased_at = Status.RECEIVED, self._clock(), None, None
        return len(rows)

    async def renew(self, claims: Sequence[Claimed]) -> None:
        """See `ports.Inbox.renew`."""
        self._check()
        for claim in claims:
            row = self._held(claim.id, claim.fence)
            if row is not None:
                row.leased_at = self._clock()

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """See `ports.Inbox.settle`."""
        self._check()
        held = [(end, row) for end in settlements if (row := self._held(end.id, end.fence)) is not None]
        late = [row for end, row in held if end.was_passed and end.status is Status.DELIVERED]
        if late:
            self.follow(late, "passed by later messages")
        ended = [row for end, row in held if self._ends(end)]
        behind = claims.behind(ended, self.rows.values(), self._clock())
        results = [self._settle_one(settlement) for settlement in settlements]
        claims.wake(behind, self._clock())
        return results

    def _ends(self, end: Settlement) -> bool:
        """Whether later messages of the key need not wait any longer."""
        passed = end.status is Status.FAILED and end.permanent and not self._holds_permanent
        return passed or end.status in (Status.DELIVERED, Status.DEAD_LETTER)

    def _settle_one(self, end: Settlement) -> bool:
        if end.status is Status.TRANSFORMING:
            raise Problem(Category.INTERNAL, "a message cannot be settled as TRANSFORMING")
        row, now = self._held(end.id, end.fence), self._clock()
        if row is None:
            return False
        row.status, row.claimed_by, row.leased_at, row.ready_at = end.status, None, None, now
        row.map_url = end.map_url or row.map_url
        row.transform_ms = end.transform_ms if end.transform_ms is not None else row.transform_ms
        self.noted += [(row, one, now) for one in dict.fromkeys(end.unmapped)]
        row.next_attempt_at = end.next_attempt_at if end.status is Status.FAILED else None
        if end.status in (Status.FAILED, Status.DEAD_LETTER):
            row.attempt_count, row.last_error = end.attempt_count, end.error or ""
            row.ready_at = row.next_attempt_at or now
        if end.conflict is not None:
            self._note_conflict(end.id, end.conflict)
        if end.status is Status.DELIVERED:
            row.last_error, row.delivered_at = None, now
            for conflict in self._conflicts_of(row.id):
                conflict.status = ConflictStatus.CLOSED
        if end.status is not Status.RECEIVED:
            row.last_attempt_at, row.permanent = now, end.permanent
        return True

    def _conflicts_of(self, state_id: int) -> list[Conflict]:
        """The rows that are not closed."""
        rows = [one for one in self.conflicts if one.state_id == state_id]
        return [one for one in rows if one.status is not ConflictStatus.CLOSED]

    def _note_conflict(self, state_id: int, finding: IdentityFinding) -> None:
        known = None
        for one in self._conflicts_of(state_id):
            if one.finding.slot == finding.slot:
                known = one
            elif one.status is ConflictStatus.OPEN:
                one.status = ConflictStatus.CLOSED
        fresh = Conflict(len(self.conflicts) + 1, state_id, finding, self._clock())
        if known is None:
            self.conflicts.append(fresh)
        else:
            self.conflicts[self.conflicts.index(known)] = replace(fresh, id=known.id)

    def now(self) -> datetime:
        """The time of the clock."""
        return self._clock()

    async def recover_stale(self, older_than_seconds: float, backoff: Backoff) -> list[StaleRecovery]:
        """See `ports.Inbox.recover_stale`."""
        now = self._clock()
        longest = now + timedelta(seconds=max(backoff.max_ms / 1000, DEFER_SECONDS) + 10)
        for row in self.rows.values():
            if row.status in claims.WAITING and row.ready_at > longest:  # the clock was set back
                row.ready_at, row.next_attempt_at = now, now if row.status is Status.FAILED else None
        limit = now - timedelta(seconds=older_than_seconds)
        return self._recover(lambda row: row.leased_at is not None and row.leased_at < limit, backoff)

    async def recover_worker(self, worker: str, backoff: Backoff) -> list[StaleRecovery]:
        """See `ports.Inbox.recover_worker`."""
        return self._recover(lambda row: row.claimed_by == worker, backoff)

    async def holders(self) -> list[str]:
        """See `ports.Inbox.holders`."""
        self._check()
        held = {row.claimed_by for row in self.rows.values() if row.status is Status.TRANSFORMING}
        return sorted(worker for worker in held if worker is not None)

    def _recover(self, lost: Callable[[Row], bool], backoff: Backoff) -> list[StaleRecovery]:
        self._check()
        now, found = self._clock(), []
        held = [row for row in self.rows.values() if row.status is Status.TRANSFORMING and lost(row)]
        ended = [row for row in held if row.attempt_count + 1 >= backoff.max_attempts]
        behind = claims.behind(ended, self.rows.values(), now)
        for row in held:
            row.attempt_count += 1
            due = now + timedelta(milliseconds=backoff.delay_ms(row.attempt_count))
            dead = row.attempt_count >= backoff.max_attempts
            row.status = Status.DEAD_LETTER if dead else Status.FAILED
            row.next_attempt_at, row.ready_at, row.last_attempt_at = None if dead else due, due, now
            row.last_error, row.claimed_by, row.leased_at = "the worker that held this message was lost", None, None
            row.permanent = False
            message = row.message
            names = (message.source_system, message.source_id, message.message_type)
            recovered = StaleRecovery(
                row.id, message.correlation_id, *names, row.attempt_count, row.status, message.source_protocol
            )
            found.append(recovered)
        claims.wake(behind, now)
        return found

    async def page(self, wanted: MessageFilter, limit: int, offset: int) -> MessagePage:
        """See `ports.Inbox.page`."""
        self._check()
        rows = [row for row in self.rows.values() if row.original_id is None and selected(row, wanted)]
        rows.sort(key=lambda row: (row.message.received_at, row.id), reverse=True)
        return MessagePage(len(rows), tuple(_shown(row) for row in rows[offset : offset + limit]))

    async def get(self, message_id: int) -> MessageRow | None:
        """See `ports.Inbox.get`."""
        self._check()
        row = self.rows.get(message_id)
        return None if row is None or row.original_id is not None else _full(row)

    async def retry(self, message_id: int) -> MessageRow:
        """See `ports.Inbox.retry`."""
        row = self._in_state(message_id, Status.FAILED, Status.DEAD_LETTER)
        self.put_back(row)
        return _full(row)

    def put_back(self, row: Row) -> None:
        """To RECEIVED, as if it had never been tried."""
        row.status, row.attempt_count, row.ready_at = Status.RECEIVED, 0, self._clock()
        row.next_attempt_at, row.last_error, row.permanent = None, None, False

    async def delete(self, message_id: int) -> None:
        """See `ports.Inbox.delete`."""
        gone = self._in_state(message_id, Status.DEAD_LETTER).id
        for row in [row for row in self.rows.values() if gone in (row.id, row.original_id)]:
            del self.rows[row.id]

    async def counts(self) -> dict[Status, int]:
        """See `ports.Inbox.counts`."""
        self._check()
        rows = [row for row in self.rows.values() if row.original_id is None]
        return {status: sum(row.status is status for row in rows) for status in Status}

    def convert_again(self, row: Row, epoch: int, reason: str) -> Row:
        """A further conversion, behind everything that is known."""
        self._last_id += 1
        now = self._clock()
        made = Row(
            self._last_id, row.message, now, original_id=row.id, mapping_epoch=epoch, requested_at=now, reason=reason
        )
        self.rows[made.id] = made
        return made

    def follow(self, late: Sequence[Row], reason: str) -> None:
        """Convert again, in order, what was converted before an earlier row of its key: `store/inbox/following.py`."""
        for key in {
            (row.message.tenant, row.message.ordering_key) for row in late if row.message.ordering_key is not None
        }:
            of_key = [row for row in self.rows.values() if (row.message.tenant, row.message.ordering_key) == key]
            first = min(row.id for row in late if row in of_key)
            done = [
                row.id for row in of_key if row.id > first and row.status in (Status.DELIVERED, Status.TRANSFORMING)
            ]
            places: dict[int, int] = {}
            for row in of_key if done else ():
                if row.id >= min(done) and (row.status is not Status.DEAD_LETTER or row in late):
                    original = row.original_id or row.id
                    places[original] = max(places.get(original, 0), row.id)
            for original in sorted(places, key=places.__getitem__):
                self.convert_again(self.rows[original], 1, reason)

    async def unfinished(self) -> dict[Status, int]:
        """See `ports.Inbox.unfinished`."""
        return {status: count for status, count in (await self.counts()).items() if status is not Status.DELIVERED}

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken

    def _held(self, message_id: int, fence: int) -> Row | None:
        row = self.rows.get(message_id)
        held = row is not None and row.status is Status.TRANSFORMING and row.fence == fence
        return row if held else None

    def _in_state(self, message_id: int, *allowed: Status) -> Row:
        self._check()
        row = self.rows.get(message_id)
        if row is None or row.original_id is not None:
            raise Problem(Category.NOT_FOUND, f"there is no message {message_id}")
        if row.status not in allowed:
            raise WrongState(message_id, row.status)
        return row


def _claimed(row: Row) -> Claimed:
    message = row.message
    return Claimed(
        row.id, row.fence, message.correlation_id, row.requested_at or message.received_at, message.source_system,
        message.source_id, message.message_type, message.raw, message.charset, row.attempt_count, message.ordering_key,
        message.tenant, row.original_id, row.mapping_epoch, message.listener, row.permanent,
        message.source_protocol,
    )  # fmt: skip


def _shown(row: Row) -> MessageRow:
    message = row.message
    return MessageRow(
        row.id, message.received_at, message.source_protocol, message.source_system, message.source_id,
        message.message_type, row.status, row.attempt_count, row.last_attempt_at, row.last_error, row.delivered_at,
        message.correlation_id, message.tenant, row.permanent,
    )  # fmt: skip


def _full(row: Row) -> MessageRow:
    message = row.message
    return replace(
        _shown(row), next_attempt_at=row.next_attempt_at, raw=message.raw, charset=message.charset,
        raw_content_type=message.raw_content_type, listener=message.listener, transform_ms=row.transform_ms,
    )  # fmt: skip


def selected(row: Row, wanted: MessageFilter) -> bool:
    """Whether a filter finds it."""
    message = row.message
    pairs = (
        (wanted.status, row.status), (wanted.source_id, message.source_id),
        (wanted.source_system, message.source_system), (wanted.message_type, message.message_type),
        (wanted.correlation_id, message.correlation_id),
        (None if wanted.tenant == EVERY_TENANT else wanted.tenant, message.tenant),
    )  # fmt: skip
    received, error = message.received_at, row.last_error or ""
    return (
        all(wanted is None or wanted == found for wanted, found in pairs)
        and (wanted.received_from is None or received >= wanted.received_from)
        and (wanted.received_to is None or received < wanted.received_to)
        and (wanted.permanent is None or (bool(error) and wanted.permanent == row.permanent))
        and (not wanted.error or wanted.error.lower() in error.lower())
        and (not wanted.patient or folded(wanted.patient) in patients_of(message.raw, message.charset))
        and (not wanted.text or _contains(words_of(message.raw, message.charset), query_words(wanted.text)))
    )


def _contains(words: set[str], query: list[str]) -> bool:
    return all(
        any(one.startswith(word[:-1]) for one in words) if word.endswith("*") else word in words for word in query
    )


_: type[Inbox] = MemoryInbox
