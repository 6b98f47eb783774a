"""Statistics of messages for operators: queue sizes, counts over time, dead letters, traces; and retention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from ipf.ports.base import Json
from ipf.ports.identity import ConflictRow
from ipf.ports.messages.inbox import MessageRow, Status


@dataclass(frozen=True, slots=True)
class TracedMessage:
    """A stored message, or a further conversion of one (`original_id`), and its map."""

    row: MessageRow
    listener: str
    map_url: str | None
    transform_ms: float | None
    original_id: int | None = None


@dataclass(frozen=True, slots=True)
class TracedResource:
    """One version of a resource; `method`: the HTTP method that created it."""

    tenant: str
    resource_type: str
    id: str
    version_id: int
    method: str
    written_at: datetime


@dataclass(frozen=True, slots=True)
class TracedEvent:
    """One numbered event of a subscription, and the version that fired it."""

    subscription_id: str
    event_number: int
    resource_type: str
    id: str
    version_id: int
    occurred_at: datetime


@dataclass(frozen=True, slots=True)
class TracedDelivery:
    """One attempt to send events to a subscriber.  `to_event_number`: the last event of the notification."""

    subscription_id: str
    event_number: int
    attempted_at: datetime
    succeeded: bool
    http_status: int | None
    duration_ms: int
    error: str | None
    kind: str
    to_event_number: int


@dataclass(frozen=True, slots=True)
class Trace:
    """All rows of one correlation id, each kind in order of time."""

    messages: Sequence[TracedMessage] = ()
    resources: Sequence[TracedResource] = ()
    events: Sequence[TracedEvent] = ()
    deliveries: Sequence[TracedDelivery] = ()
    identity_conflicts: Sequence[ConflictRow] = ()


@dataclass(frozen=True, slots=True)
class Sender:
    """What a sender does now.

    `listener`, `protocol`: of the last message; None when retention has removed that.  `minutes`: messages received in
    each of the last MINUTES minutes, the present one last.  `received`, `errors`: messages of the last 24 hours (from
    the beginning of an hour), and those of them that failed or are dead letters.  `waiting`, `oldest_waiting`:
    messages that are neither delivered nor dead letters.
    `hours`, `longest_gap`: hours of the last LEARNT_DAYS days with messages, and the longest time between two of them.
    """

    tenant: str
    source_system: str
    listener: str | None
    first_seen: datetime
    last_seen: datetime
    minutes: Sequence[int] = ()
    received: int = 0
    errors: int = 0
    waiting: int = 0
    oldest_waiting: datetime | None = None
    hours: int = 0
    longest_gap: timedelta | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class SendersNow:
    """The senders that were heard last.  `is_exact`: whether `errors` and `waiting` count every message."""

    senders: Sequence[Sender] = ()
    is_exact: bool = True


MINUTES, LEARNT_DAYS = 60, 14


class MessageStatistics(Protocol):
    """Reads both databases, over all tenants.  StoreUnreachable: no connection to PostgreSQL."""

    async def queue(self) -> Mapping[Status, int]:
        """Number of messages in each of the five states.  Does not read every delivered message."""

    async def oldest_waiting(self) -> datetime | None:
        """Receipt of the oldest message that is neither delivered nor a dead letter."""

    async def throughput(
        self, since: datetime, source_system: str | None, unit: str
    ) -> Sequence[tuple[datetime, Status, int]]:
        """(start of the interval, state, number of messages received in it that are in that state), from `since` on.

        `unit`: `hour`, or `day` (UTC); `since` is the start of an interval.
        """

    async def senders(self, now: datetime) -> SendersNow:
        """The senders of all tenants."""

    async def newest(self, limit: int) -> Sequence[MessageRow]:
        """The newest messages by time of receipt."""

    async def dead_letters(self, limit: int) -> tuple[int, Sequence[MessageRow]]:
        """Number of dead letters, and the newest by time of receipt."""

    async def trace(self, correlation_id: str) -> Trace:
        """All rows with this correlation id (a UUID); may be empty."""

    async def count_received(self) -> bool:
        """Update the counts of `throughput` by one step.  True: there is more to count."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Days to keep rows after they are finished; 0 = without limit."""

    delivered_days: int = 0
    dead_letter_days: int = 0
    history_days: int = 0

    def days(self, kind: str) -> int:
        """Days to keep rows of this kind (`Pruner.kinds`)."""
        if kind in ("dead_letters", "rejects"):
            return self.dead_letter_days
        return self.history_days if kind == "versions" else self.delivered_days

    @property
    def prunes(self) -> bool:
        """Whether the policy removes anything."""
        return bool(self.delivered_days or self.dead_letter_days or self.history_days)


@dataclass(frozen=True, slots=True)
class RetentionState:
    """The last retention run; one replica at a time holds it.  `ended_at` None: running or interrupted."""

    held_by: str | None
    began_at: datetime | None
    ended_at: datetime | None
    result: Json


class Pruner(Protocol):
    """Deletes expired rows in small batches; each batch is one transaction."""

    kinds: Sequence[str]
    """Kinds of rows, in the order of deletion."""

    async def prune(self, kind: str, before: datetime, after: str) -> tuple[int, str | None]:
        """Delete one batch of `kind` older than `before`, from cursor `after` ("" at first) on.

        Returns the number of deleted rows and the cursor of the next batch; None: no more rows.
        """

    async def count(self, kind: str, before: datetime) -> int:
        """Number of rows that would be deleted."""

    async def hold_run(self, worker: str, seconds: float, result: Json | None) -> bool:
        """Start a run (`result` None), or renew its lease and write its interim result.

        False: another worker holds the run, or the last run ended too recently.
        """

    async def end_run(self, worker: str, result: Json) -> None:
        """End the run with its result."""

    async def request_run(self) -> None:
        """Allow the next run to start at once."""

    async def last_run(self) -> RetentionState:
        """The last run."""
