"""Forwarding of received HL7 v2 messages to other systems: the destinations, and the ledger of what each was sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from ipf.ports.base import DEFAULT_TENANT


class NotSent(Exception):
    """There is no acknowledgement; the text says why.  Whether the receiver has the message is not known."""


class ForwardStatus(StrEnum):
    """`PENDING`: to be sent, in order.  `SENT`: acknowledged.  `DEAD_LETTER`: refused, or given up by an operator."""

    PENDING = "PENDING"
    SENT = "SENT"
    DEAD_LETTER = "DEAD_LETTER"


@dataclass(frozen=True, slots=True)
class Destination:
    """A system that gets messages over MLLP.  An empty filter matches everything.

    `senders`: MSH-3.1; `facilities`: MSH-4.1; `types`: `ADT_A01`, or `ADT_*`; `listeners`: names; `where`: FHIRPath.
    `changes`: field and value, such as (`MSH-5`, `LAB`); `computed`: field and FHIRPath.  `remove`: names of segments,
    or `Z*`.  `since`: messages before it are not sent.
    `ca`, `certificate`, `key`: PEM files; with `tls` only.  `max_attempts`: 0 = until it is acknowledged.
    """

    name: str
    host: str
    port: int
    tls: bool = False
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    tenant: str = DEFAULT_TENANT
    senders: frozenset[str] = frozenset()
    facilities: frozenset[str] = frozenset()
    types: tuple[str, ...] = ()
    listeners: frozenset[str] = frozenset()
    where: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    computed: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()
    ack_seconds: float = 30.0
    max_attempts: int = 0
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stored message, as filters see it.  `raw`: its first bytes, or the whole message when it was asked for."""

    id: int
    received_at: datetime
    tenant: str
    source_system: str
    message_type: str
    listener: str
    charset: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class Pending:
    """The next message of a destination.  `wait_seconds`: until its next attempt."""

    message_id: int
    raw: bytes
    charset: str
    attempts: int
    wait_seconds: float
    correlation_id: str


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The end of an attempt.  PENDING: it failed, and is due again after `retry_seconds`."""

    message_id: int
    status: ForwardStatus
    code: str = ""
    text: str = ""
    retry_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DestinationRow:
    """A destination as operators see it.  Times are None before there is any."""

    name: str
    is_paused: bool
    pending: int
    dead: int
    sent: int
    oldest_pending_at: datetime | None
    last_sent_at: datetime | None
    last_error: str | None
    head_id: int | None
    head_attempts: int


@dataclass(frozen=True, slots=True)
class ForwardRow:
    """One message of a destination in the admin API."""

    message_id: int
    status: ForwardStatus
    attempts: int
    code: str | None
    text: str | None
    ended_at: datetime | None
    message_type: str
    source_id: str


Matches = Callable[[Candidate], bool]
"""Whether a destination gets a message."""


class ForwardStore(Protocol):
    """The ledger, beside the inbox.  Every method is one transaction.

    Each message is in the ledger of a destination at most once, in the order of receipt.  A lease has a fencing token.
    """

    async def begin(self, name: str, worker: str, seconds: float, since: datetime | None) -> int | None:
        """Lease a destination; its fencing token.  None: another worker has it, or it is paused.

        A worker that has the lease already gets a new one: it lost the database, and begins again.
        A new destination begins with the messages that were received since then; None: from now on.
        """

    async def renew(self, name: str, fence: int, seconds: float) -> bool:
        """Renew the lease; False: it was lost."""

    async def fill(self, name: str, fence: int, matches: Matches, limit: int, *, whole: bool = False) -> int | None:
        """Put the next messages that match into the ledger; how many were looked at.  None: the lease was lost.

        `whole`: the filter needs whole messages.
        """

    async def next(self, name: str) -> Pending | None:
        """The first pending message; None: there is none."""

    async def settle(self, name: str, fence: int, end: Forwarded, seconds: float) -> bool:
        """Write the end of an attempt and renew the lease; False: the lease was lost, and nothing changed."""

    async def release(self, worker: str) -> None:
        """End the leases of a worker."""

    async def holders(self) -> Sequence[str]:
        """Names of the workers that have leases."""

    async def destinations(self) -> Sequence[DestinationRow]:
        """All destinations that were ever used."""

    async def messages(
        self, name: str, status: ForwardStatus | None, limit: int, offset: int
    ) -> tuple[int, Sequence[ForwardRow]]:
        """Number and one page of the messages of a destination, oldest first."""

    async def retry(self, name: str, message_id: int | None) -> int:
        """Send a dead letter again (None: all of them), in order before what waits; their number."""

    async def skip(self, name: str, message_id: int) -> None:
        """Make a pending message a dead letter.  Problem NOT_FOUND."""

    async def pause(self, name: str, *, paused: bool) -> None:
        """Send nothing until it is resumed; messages wait.  Resumed: the first one is tried at once; one that
        is not paused goes on with its lease.

        Problem NOT_FOUND.
        """
