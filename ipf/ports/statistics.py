"""Statistics of messages for operators: queue sizes, counts over time, dead letters, traces; and retention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.base import Json
from ipf.ports.inbox import MessageRow, Status


@dataclass(frozen=True, slots=True)
class TracedMessage:
    """A stored message, or a further conversion of one (`original_id`), with what converted it."""

    row: MessageRow
    listener: str
    map_url: str | None
    transform_ms: float | None
    original_id: int | None = None


@dataclass(frozen=True, slots=True)
class TracedResource:
    """One version of a resource; `method`: the HTTP method that made it."""

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
    """One attempt to hand events to a subscriber; `to_event_number`: the last of several in one notification."""

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


class MessageStatistics(Protocol):
    """Reads both databases, all tenants together.  StoreUnreachable: PostgreSQL cannot be reached."""

    async def queue(self) -> Mapping[Status, int]:
        """How many messages are in each state (all five); delivered ones are not counted one by one."""

    async def oldest_waiting(self) -> datetime | None:
        """Receipt of the oldest message that is neither delivered nor a dead letter."""

    async def throughput(
        self, since: datetime, source_system: str | None, unit: str
    ) -> Sequence[tuple[datetime, Status, int]]:
        """(beginning, state, messages received then that are in that state now), from `since` on.

        `unit`: `hour`, or `day` (UTC); `since` is the beginning of one.
        """

    async def dead_letters(self, limit: int) -> tuple[int, Sequence[MessageRow]]:
        """How many there are, and the newest by receipt."""

    async def trace(self, correlation_id: str) -> Trace:
        """Everything that carries this id (a UUID); empty when nothing does."""

    async def count_received(self) -> bool:
        """Bring the counts of `throughput` up to date, one step; True: there is more to be counted."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Days that rows are kept after they are finished; 0 = for ever."""

    delivered_days: int = 0
    dead_letter_days: int = 0
    history_days: int = 0

    def days(self, kind: str) -> int:
        """How long this kind is kept (`Pruner.kinds`)."""
        if kind in ("dead_letters", "rejects"):
            return self.dead_letter_days
        return self.history_days if kind == "versions" else self.delivered_days

    @property
    def prunes(self) -> bool:
        """Whether anything is removed at all."""
        return bool(self.delivered_days or self.dead_letter_days or self.history_days)


@dataclass(frozen=True, slots=True)
class RetentionState:
    """The last run of retention, which one replica at a time holds; `ended_at` None: it runs, or was interrupted."""

    held_by: str | None
    began_at: datetime | None
    ended_at: datetime | None
    result: Json


class Pruner(Protocol):
    """Removes what the policy does not keep, in small batches, each a transaction of its own."""

    kinds: Sequence[str]
    """What can be removed, in the order in which it should be."""

    async def prune(self, kind: str, before: datetime, after: str) -> tuple[int, str | None]:
        """Remove one batch of `kind` older than `before`, looking from cursor `after` (empty at first) on.

        How many went, and the cursor for the next batch; None: there is nothing more.
        """

    async def count(self, kind: str, before: datetime) -> int:
        """How many would go."""

    async def hold_run(self, worker: str, seconds: float, result: Json | None) -> bool:
        """Begin a run (`result` None) or extend it, for so long, and write its result so far.

        False: another worker holds it, or the last run ended too recently to begin another.
        """

    async def end_run(self, worker: str, result: Json) -> None:
        """The run is complete."""

    async def request_run(self) -> None:
        """Allow the next run to begin at once, however recently the last one ended."""

    async def last_run(self) -> RetentionState:
        """The last run."""
