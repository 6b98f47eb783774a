"""What operators see and do beside the list of messages: effects, rejects, errors in groups, work on many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.base import Json
from ipf.ports.inbox import MessageFilter


@dataclass(frozen=True, slots=True)
class WrittenVersion:
    """A resource version that a message made.  `action`: created, updated or deleted."""

    resource_type: str
    id: str
    version_id: int
    action: str
    written_at: datetime


@dataclass(frozen=True, slots=True)
class FiredEvent:
    """An event that a message fired.  `status`: that of the subscription; `delivered`: the event is acknowledged."""

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
    """One try to tell a subscriber of such an event."""

    subscription_id: str
    event_number: int
    attempted_at: datetime
    succeeded: bool
    http_status: int | None
    duration_ms: int
    error: str | None


@dataclass(frozen=True, slots=True)
class FhirEffects:
    """What carries one correlation id in the FHIR database, oldest first."""

    versions: Sequence[WrittenVersion]
    events: Sequence[FiredEvent]
    notifications: Sequence[FiredNotification]


class EffectsStore(Protocol):
    """The effects of a message in the FHIR database."""

    async def effects(self, tenant: str, correlation_id: str) -> FhirEffects:
        """At most 1,000 of each kind."""


@dataclass(frozen=True, slots=True)
class Transformed:
    """Which map converted a message last, and how long that took; None: it was not converted (by us)."""

    map_url: str | None
    duration_ms: float | None


@dataclass(frozen=True, slots=True)
class RejectRow:
    """A frame that was refused.  `raw` is None in lists; it is cut to a bound, `size` is not."""

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
    """Messages that a job is about: those with these ids, or those that the filter finds; `fingerprint`: dead letters
    of this error group.  Always those of the filter's tenant alone, which may be EVERY_TENANT."""

    ids: tuple[int, ...] | None
    wanted: MessageFilter
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class NewJob:
    """Work on many messages.  `kind`: replay, retry or discard.  `shown`: the selection as requested."""

    kind: str
    selection: Selection
    shown: Json
    following: bool
    per_second: int


@dataclass(frozen=True, slots=True)
class Job:
    """A job and how far it is.  `status`: requested, running, done, cancelled or failed.

    `tenant`: of its messages; EVERY_TENANT when they are of several.
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

    Lists are of one tenant, or of all (EVERY_TENANT); a number finds its row in every tenant.
    """

    async def transformed(self, message_id: int) -> Transformed:
        """The map that a message, or its newest further conversion that ended well, was converted with."""

    async def rejects(self, tenant: str, limit: int, offset: int) -> tuple[int, Sequence[RejectRow]]:
        """How many there are, and one page, newest first."""

    async def get_reject(self, number: int) -> RejectRow | None:
        """One, with its bytes."""

    async def delete_reject(self, number: int) -> None:
        """Remove it.  Problem NOT_FOUND."""

    async def error_groups(self, tenant: str, limit: int, offset: int) -> tuple[int, Sequence[ErrorGroup]]:
        """Dead letters in groups, the largest first, and how many groups there are."""

    async def start_job(self, job: NewJob, most: int) -> Job:
        """Select the messages and keep the job.  Problem COSTLY: there are more than `most`."""

    async def select(self, selection: Selection, limit: int) -> list[int]:
        """The first messages of a selection, in order of id."""

    async def jobs(self, tenant: str, status: str | None, limit: int, offset: int) -> tuple[int, Sequence[Job]]:
        """How many there are, and one page, newest first; those on messages of several tenants are in every list."""

    async def job(self, number: int) -> Job | None:
        """One."""

    async def cancel_job(self, number: int) -> Job:
        """Do no more of it; what is done stays done.  Problem NOT_FOUND; CONFLICT when it has ended."""

    async def work(self, limit: int) -> tuple[int, int] | None:
        """Do the next messages of the oldest open job, in one transaction: (how many, its messages a second).

        None: there is no open job, or another process is at it.
        """


class ReplayPreview(Protocol):
    """What a replay would do, without doing it."""

    async def preview(self, message_id: int) -> Json:
        """Map a stored message with the maps of now and compare with what is stored.  Problem NOT_FOUND, or why not."""
