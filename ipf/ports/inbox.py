"""The inbox: messages as they came, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from ipf.ports.base import DEFAULT_TENANT


class Status(StrEnum):
    """States of an ingested message, as the interface specification lists them."""

    RECEIVED = "RECEIVED"
    TRANSFORMING = "TRANSFORMING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"
    DEAD_LETTER = "DEAD_LETTER"


OPEN_STATES = (Status.RECEIVED, Status.TRANSFORMING, Status.FAILED)


@dataclass(slots=True)
class Received:
    """A message that was read from a sender and is about to be stored.  `raw` is what came, byte for byte."""

    correlation_id: str
    received_at: datetime
    source_system: str
    source_id: str
    message_type: str
    raw: bytes
    charset: str = "utf-8"
    raw_content_type: str = "x-application/hl7-v2+er7"
    source_protocol: str = "HL7V2_MLLP"
    listener: str = ""
    tenant: str = DEFAULT_TENANT
    ordering_key: int | None = None


class Outcome(StrEnum):
    """The result of storing one message."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    CONFLICTING_DUPLICATE = "conflicting_duplicate"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A frame that is no message of ours, kept for the operator; `raw` is cut to a bound, `size` is not."""

    received_at: datetime
    correlation_id: str
    listener: str
    peer: str
    reason: str
    raw: bytes
    size: int
    tenant: str = DEFAULT_TENANT


@dataclass(slots=True)
class Claimed:
    """A message that this worker holds: status TRANSFORMING, committed.  `fence` proves the lease when it ends.

    `original_id`: the message that is converted again; None: this is its first conversion.  `mapping_epoch`: what
    operators answered up to then must be known to a further conversion.
    """

    id: int
    fence: int
    correlation_id: str
    received_at: datetime
    source_system: str
    source_id: str
    message_type: str
    raw: bytes
    charset: str
    attempt_count: int
    ordering_key: int | None = None
    tenant: str = DEFAULT_TENANT
    original_id: int | None = None
    mapping_epoch: int | None = None
    listener: str = ""


@dataclass(frozen=True, slots=True)
class UnmappedCode:
    """A code that a ConceptMap did not have.  `code` is data of a message: it goes to operators, not to logs."""

    concept_map: str
    code: str


@dataclass(slots=True)
class Settlement:
    """How a claimed message ended.

    status DELIVERED: done.  FAILED: `attempt_count`, `error` and `next_attempt_at` are written.  DEAD_LETTER: as
    FAILED, never claimed again.  RECEIVED: handed back untried (no attempt counted), e.g. at shutdown.
    `unmapped`: codes of it that no table had; they are recorded together with the end.
    """

    id: int
    fence: int
    status: Status
    attempt_count: int = 0
    error: str | None = None
    next_attempt_at: datetime | None = None
    map_url: str | None = None
    transform_ms: float | None = None
    unmapped: tuple[UnmappedCode, ...] = ()


@dataclass(frozen=True, slots=True)
class StaleRecovery:
    """A message that a lost worker held; it was settled as a failed attempt.  `settled` is FAILED or DEAD_LETTER."""

    id: int
    correlation_id: str
    source_system: str
    source_id: str
    message_type: str
    attempt_count: int
    settled: Status


@dataclass(frozen=True, slots=True)
class Backoff:
    """`delay = min(base_ms * factor ** (n - 1), max_ms)` after the n-th failure; `max_attempts` ends it."""

    base_ms: int
    factor: float
    max_ms: int
    max_attempts: int

    def delay_ms(self, attempt: int) -> int:
        """Milliseconds to wait after failure number `attempt` (from 1)."""
        return int(min(self.base_ms * self.factor ** min(attempt - 1, 64), self.max_ms))


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A stored message as the admin API shows it; the last five fields are None in lists."""

    id: int
    received_at: datetime
    source_protocol: str
    source_system: str
    source_id: str
    message_type: str
    status: Status
    attempt_count: int
    last_attempt_at: datetime | None
    last_error: str | None
    delivered_at: datetime | None
    correlation_id: str
    tenant: str
    next_attempt_at: datetime | None = None
    raw: bytes | None = None
    charset: str | None = None
    raw_content_type: str | None = None
    listener: str | None = None


EVERY_TENANT = "*"
"""No tenant can have this name."""


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Filters of `GET /admin/messages`; None = not filtered.  They combine with AND.

    The first five are exact.  `patient`: an identifier of PID-3 or MRG-1, `value` or `authority|value`.  `text`: words
    that stand in the message (`hl7/words.py`).  `error`: a part of the last error.  Times: from included, to excluded.
    `tenant`: EVERY_TENANT for those of all.
    """

    status: Status | None = None
    source_id: str | None = None
    source_system: str | None = None
    message_type: str | None = None
    correlation_id: str | None = None
    tenant: str = DEFAULT_TENANT
    patient: str | None = None
    text: str | None = None
    error: str | None = None
    received_from: datetime | None = None
    received_to: datetime | None = None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """One page, newest first by (received_at, id); `total` counts all rows that the filter matches.

    `is_exact` False: a search that finds very many was broken off; there may be more.  `index_lag`: of a search inside
    messages, how many of the newest were looked at one by one, since they are not in the index yet.
    """

    total: int
    rows: tuple[MessageRow, ...]
    is_exact: bool = True
    index_lag: int | None = None


class Inbox(Protocol):
    """The durable inbound store.  Every method is one committed transaction; StoreUnreachable: PostgreSQL is away."""

    async def store(self, batch: Sequence[Received]) -> list[Outcome]:
        """Insert all in one transaction, in order; durable when this returns.  One outcome a message, same order.

        The pair (source_system, source_id) is unique within a tenant: a repeat (also inside `batch`) makes no row.
        """

    async def reject(self, rejected: Rejected) -> None:
        """Keep a refused frame for the operator."""

    async def claim(self, worker: str, limit: int) -> list[Claimed]:
        """Take up to `limit` messages that are due, oldest first, and commit them as TRANSFORMING (SKIP LOCKED).

        A message is not taken while an earlier open one with its ordering_key is not in the same claim.  Messages of
        one key come in order of id.  Replicas and processes get disjoint rows.
        """

    async def release_except(self, worker: str, held: Sequence[int]) -> int:
        """Make RECEIVED again what `worker` has claimed but does not hold: the answer to its claim was lost with the
        connection.  No attempt is counted.  How many there were.  Not while a claim of that worker is under way.
        """

    async def renew(self, claims: Sequence[Claimed]) -> None:
        """Put off staleness of rows still held; rows lost meanwhile are left alone."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the ends; False where the lease was lost (fence differs): that row is not touched."""

    async def recover_stale(self, older_than_seconds: float, backoff: Backoff) -> list[StaleRecovery]:
        """Settle as a failed attempt every TRANSFORMING row not claimed or renewed for so long."""

    async def recover_worker(self, worker: str, backoff: Backoff) -> list[StaleRecovery]:
        """The same, at once, for all rows held by a worker that is known to be dead."""

    async def holders(self) -> list[str]:
        """Names of the workers that hold rows now."""

    async def page(self, wanted: MessageFilter, limit: int, offset: int) -> MessagePage:
        """One page of the admin list (limit and offset already clamped and aligned)."""

    async def get(self, message_id: int) -> MessageRow | None:
        """The full row with its original bytes."""

    async def retry(self, message_id: int) -> MessageRow:
        """FAILED or DEAD_LETTER back to RECEIVED, counters cleared.  Problem NOT_FOUND; WrongState otherwise."""

    async def delete(self, message_id: int) -> None:
        """Remove a DEAD_LETTER row.  Problem NOT_FOUND; WrongState otherwise."""

    async def counts(self) -> dict[Status, int]:
        """How many rows are in each state (all five keys present).  Reads an entry of every row: not for polling."""

    async def unfinished(self) -> dict[Status, int]:
        """How many rows are in each state but DELIVERED; costs nothing for delivered ones."""


class WrongState(Exception):
    """A retry or delete of a message in a state that does not allow it."""

    def __init__(self, message_id: int, current: Status) -> None:
        super().__init__(f"message {message_id} is {current}")
        self.message_id = message_id
        self.current = current
