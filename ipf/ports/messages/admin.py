"""Message administration: effects of a message, rejects, error groups and jobs on many messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.base import Json
from ipf.ports.messages.inbox import MessageFilter


@dataclass(frozen=True, slots=True)
class WrittenVersion:
    """A resource version that a message created.  `action`: created, updated or deleted.

    Of a FHIR server elsewhere: what its transaction-response names; `found`: the resource was there already.
    """

    resource_type: str
    id: str
    version_id: int | str
    action: str
    written_at: datetime


@dataclass(frozen=True, slots=True)
class FiredEvent:
    """An event that a message fired.  `status`: of the subscription.  `delivered`: the event is acknowledged."""

    subscription_id: str
    status: str
    event_number: int
    matched_resource: str
    channel_type: str
    endpoint: str | None
    criteria: str
    delivered: bool


@dataclass(frozen=True, slots=True)
class FiredNotification:
    """One attempt to send a notification of such an event."""

    subscription_id: str
    event_number: int
    attempted_at: datetime
    succeeded: bool
    http_status: int | None
    duration_ms: int
    error: str | None


@dataclass(frozen=True, slots=True)
class FhirEffects:
    """The rows with one correlation id in the FHIR database, oldest first."""

    versions: Sequence[WrittenVersion]
    events: Sequence[FiredEvent]
    notifications: Sequence[FiredNotification]


class EffectsStore(Protocol):
    """The effects of a message in the FHIR database."""

    async def effects(self, tenant: str, correlation_id: str) -> FhirEffects:
        """At most 1,000 rows of each kind."""


@dataclass(frozen=True, slots=True)
class Transformed:
    """The map and duration of the last conversion of a message; None: not converted by this service."""

    map_url: str | None
    duration_ms: float | None


@dataclass(frozen=True, slots=True)
class RejectRow:
    """A refused frame.  `raw` is truncated, and None in lists; `size` is the full size in bytes."""

    id: int
    received_at: datetime
    correlation_id: str
    listener: str
    peer: str
    reason: str
    size: int
    tenant: str
    raw: bytes | None = None


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Dead letters with the same last error."""

    fingerprint: str
    count: int
    sample: str
    newest_id: int
    first_received_at: datetime
    last_received_at: datetime


@dataclass(frozen=True, slots=True)
class Selection:
    """The messages of a job: those with these ids that match the filter, or all that match it (`ids` None).

    `fingerprint`: only dead letters of this error group.  The tenant of the filter may be EVERY_TENANT.
    """

    ids: tuple[int, ...] | None
    wanted: MessageFilter
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be created.  `kind`: replay, retry or discard.  `shown`: the selection as requested."""

    kind: str
    selection: Selection
    shown: Json
    following: bool
    per_second: int


@dataclass(frozen=True, slots=True)
class Job:
    """A job and its progress.  `status`: requested, running, done, cancelled or failed.

    `tenant`: of its messages; EVERY_TENANT for messages of several tenants.
    """

    id: int
    kind: str
    selection: Json
    following: bool
    per_second: int
    status: str
    total: int
    done_count: int
    changed_count: int
    following_count: int
    skipped_count: int
    error: str | None
    created_at: datetime
    updated_at: datetime
    tenant: str


class MessageAdmin(Protocol):
    """Rejects, error groups and jobs.  Every method is one committed transaction.

    Lists contain rows of one tenant, or of all (EVERY_TENANT); row numbers are unique across tenants.
    """

    async def transformed(self, message_id: int) -> Transformed:
        """The map of the newest successful conversion of a message."""

    async def rejects(self, tenant: str, limit: int, offset: int) -> tuple[int, Sequence[RejectRow]]:
        """Number of rejects and one page, newest first."""

    async def get_reject(self, number: int) -> RejectRow | None:
        """One reject with its bytes; None when there is none."""

    async def delete_reject(self, number: int) -> None:
        """Delete a reject.  Problem NOT_FOUND."""

    async def error_groups(self, tenant: str, limit: int, offset: int) -> tuple[int, Sequence[ErrorGroup]]:
        """Number of groups and one page, largest group first."""

    async def start_job(self, job: NewJob, most: int) -> Job:
        """Select the messages and store the job.  Problem COSTLY: more than `most` messages."""

    async def select(self, selection: Selection, limit: int) -> list[int]:
        """The first messages of a selection, in order of id."""

    async def jobs(self, tenant: str, status: str | None, limit: int, offset: int) -> tuple[int, Sequence[Job]]:
        """Number of jobs and one page, newest first.  Every list includes jobs on messages of several tenants."""

    async def job(self, number: int) -> Job | None:
        """One job; None when there is none."""

    async def cancel_job(self, number: int) -> Job:
        """Stop a job; completed batches stay.  Problem NOT_FOUND; CONFLICT when it has ended."""

    async def run_batch(self, limit: int) -> tuple[int, int] | None:
        """Process the next messages of the oldest open job in one transaction.

        Returns (number of messages, messages per second of the job); None: no open job, or another process works on it.
        """


class ReplayPreview(Protocol):
    """Shows the result of a replay without storing it."""

    async def preview(self, message_id: int) -> Json:
        """Map a stored message with the current maps and compare with the stored resources.

        Problem NOT_FOUND, or the Problem of the mapping.
        """
