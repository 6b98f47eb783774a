"""The inbox: received messages and their states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from ipf.ports.base import DEFAULT_TENANT
from ipf.ports.identity import IdentityFinding
from ipf.ports.messages.sources import JSON_PROTOCOLS, MLLP


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
    """A received message to be stored.  `raw`: the bytes from the sender, unchanged."""

    correlation_id: str
    received_at: datetime
    source_system: str
    source_id: str
    message_type: str
    raw: bytes
    charset: str = "utf-8"
    raw_content_type: str = "x-application/hl7-v2+er7"
    source_protocol: str = MLLP
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
    """A refused frame, stored for operators.  `raw` is truncated; `size` is the full size in bytes.

    `is_own`: it comes from a file or an operator, not from a sender on the network.
    """

    received_at: datetime
    correlation_id: str
    listener: str
    peer: str
    reason: str
    raw: bytes
    size: int
    tenant: str = DEFAULT_TENANT
    is_own: bool = False


@dataclass(slots=True)
class Claimed:
    """A message leased by this worker, in status TRANSFORMING.  `fence`: fencing token of the lease.

    `original_id`: the message that is converted again; None: its first conversion.  `mapping_epoch`: a further
    conversion requires the overrides and maps of this epoch.  `permanent`: so was the error of the last attempt.
    `source_protocol`: tells HL7 v2 from the JSON of a polled source (`sources.JSON_PROTOCOLS`).
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
    permanent: bool = False
    source_protocol: str = MLLP

    @property
    def is_json(self) -> bool:
        """Whether `raw` is JSON of a polled source."""
        return self.source_protocol in JSON_PROTOCOLS


@dataclass(frozen=True, slots=True)
class UnmappedCode:
    """A code that a ConceptMap does not contain.  `code` is message data and must not be logged."""

    concept_map: str
    code: str


@dataclass(slots=True)
class Settlement:
    """The result of a claimed message.

    status DELIVERED: done.  FAILED: `attempt_count`, `error` and `next_attempt_at` are written.  DEAD_LETTER: as
    FAILED, never claimed again.  RECEIVED: returned without an attempt, e.g. at shutdown.
    `unmapped`: unmapped codes of the message, recorded in the same transaction.  `permanent`: no retry mends the error.
    `conflict`: the match that was not made; it enters the review queue in the same transaction.  Of a delivered
    message: the match that was made with a warning; its row is closed.  `was_passed`: later messages of the key may
    have been delivered before; after a delivery they are converted again, in order.
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
    permanent: bool = False
    conflict: IdentityFinding | None = None
    was_passed: bool = False


@dataclass(frozen=True, slots=True)
class PermanentErrors:
    """What happens to messages with errors that no retry mends.

    `dead_letter`: they end at the first attempt.  `hold`: while one is FAILED, later messages of its patient wait.
    """

    dead_letter: bool = False
    hold: bool = True


@dataclass(frozen=True, slots=True)
class StaleRecovery:
    """A message of a lost worker, settled as a failed attempt.  `settled`: FAILED or DEAD_LETTER."""

    id: int
    correlation_id: str
    source_system: str
    source_id: str
    message_type: str
    attempt_count: int
    settled: Status
    source_protocol: str = MLLP


@dataclass(frozen=True, slots=True)
class Backoff:
    """`delay = min(base_ms * factor ** (n - 1), max_ms)` after failure number n; dead letter after `max_attempts`."""

    base_ms: int
    factor: float
    max_ms: int
    max_attempts: int

    def delay_ms(self, attempt: int) -> int:
        """Milliseconds to wait after failure number `attempt` (from 1)."""
        return int(min(self.base_ms * self.factor ** min(attempt - 1, 64), self.max_ms))


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A stored message in the admin API.  The last six fields are None in lists.

    `permanent`: no retry mends the last error.  `transform_ms`: how long its conversion took; None: it was not mapped.
    """

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
    permanent: bool = False
    next_attempt_at: datetime | None = None
    raw: bytes | None = None
    charset: str | None = None
    raw_content_type: str | None = None
    listener: str | None = None
    transform_ms: float | None = None


PASSTHROUGH_SETTING = "IPF_PASSTHROUGH_TYPES"


def passed_through(status: Status, transform_ms: float | None) -> str | None:
    """The setting by which a message was delivered without being mapped; None: it was mapped, or is not delivered."""
    return PASSTHROUGH_SETTING if status is Status.DELIVERED and transform_ms is None else None


EVERY_TENANT = "*"
"""No tenant can have this name."""


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Filters of `GET /admin/messages`; None = not filtered.  They combine with AND.

    The first five are exact.  `patient`: an identifier of PID-3 or MRG-1, `value` or `authority|value`.  `text`: words
    in the message (`hl7/words.py`).  `error`: a substring of the last error.  Times: from inclusive, to exclusive.
    `tenant`: EVERY_TENANT = messages of all tenants.  `permanent`: the last error is (not) one that no
    retry mends.
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
    permanent: bool | None = None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """One page, newest first by (received_at, id); `total`: number of all matching rows.

    `is_exact` False: the search stopped at its limit; there may be more matches.  `index_lag`: number of the newest
    messages that a full-text search read one by one, because they are not indexed yet.
    """

    total: int
    rows: tuple[MessageRow, ...]
    is_exact: bool = True
    index_lag: int | None = None


class MessageStore(Protocol):
    """What the receive stage needs of an Inbox.  StoreUnreachable: no connection to PostgreSQL."""

    async def store(self, batch: Sequence[Received]) -> list[Outcome]:
        """Insert all in one transaction, in order; durable on return.  One outcome for each message, in the same order.

        (source_system, source_id) is unique within a tenant: a repeat, also within `batch`, creates no row.
        """

    async def reject(self, rejected: Rejected) -> None:
        """Store a refused frame."""


class Inbox(MessageStore, Protocol):
    """The durable inbound store.  Every method is one transaction.  StoreUnreachable: no connection to PostgreSQL."""

    async def claim(self, worker: str, limit: int) -> list[Claimed]:
        """Lease up to `limit` due messages, oldest first, and commit them as TRANSFORMING (SKIP LOCKED).

        A message is claimed only in the same claim as all earlier open messages of its ordering_key; with
        `PermanentErrors.hold` False those that are FAILED with a permanent error do not count.  Messages of one key are
        in order of id.  Replicas and processes get disjoint rows.
        """

    async def release_except(self, worker: str, held: Sequence[int]) -> int:
        """Reset to RECEIVED, without an attempt, all messages of `worker` except `held`.  Returns their number.

        For a claim with a lost result, after a lost connection.  Not during another claim of that worker.
        """

    async def renew(self, claims: Sequence[Claimed]) -> None:
        """Renew the leases; leases lost meanwhile do not change."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the results.  False: the lease was lost (the fence differs), and the row does not change."""

    async def recover_stale(self, older_than_seconds: float, backoff: Backoff) -> list[StaleRecovery]:
        """Settle as a failed attempt every TRANSFORMING row not claimed or renewed for this time."""

    async def recover_worker(self, worker: str, backoff: Backoff) -> list[StaleRecovery]:
        """Settle as a failed attempt all rows of a dead worker."""

    async def holders(self) -> list[str]:
        """Names of the workers that hold rows."""

    async def page(self, wanted: MessageFilter, limit: int, offset: int) -> MessagePage:
        """One page of the admin list (limit and offset are already validated)."""

    async def get(self, message_id: int) -> MessageRow | None:
        """The full row with its original bytes; None when there is none."""

    async def retry(self, message_id: int) -> MessageRow:
        """Reset FAILED or DEAD_LETTER to RECEIVED and clear counters.  Problem NOT_FOUND; WrongState otherwise."""

    async def delete(self, message_id: int) -> None:
        """Delete a DEAD_LETTER row.  Problem NOT_FOUND; WrongState otherwise."""

    async def counts(self) -> dict[Status, int]:
        """Number of rows in each of the five states.  Reads an index entry of every row: not for polling."""

    async def unfinished(self) -> dict[Status, int]:
        """Number of rows in each state except DELIVERED.  Does not read delivered rows."""


class WrongState(Exception):
    """A retry or delete of a message in a state that does not allow it."""

    def __init__(self, message_id: int, current: Status) -> None:
        super().__init__(f"message {message_id} is {current}")
        self.message_id = message_id
        self.current = current
