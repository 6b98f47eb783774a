"""Bulk export: jobs and their output files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.caller import OPEN, Caller
from ipf.ports.fhir.resources import Version


@dataclass(frozen=True, slots=True)
class ExportJob:
    """An export job and its progress.

    `level`: `system`, `patient`, or `group:` and the id of a Group.  `types`: in the order of the export;
    `type_number`: index of the next type; `after_rid`: the last processed resource of that type, of a de-identified
    export its place.  `status`: running,
    done or failed.  `token`: fencing token; a worker that lost its lease can no longer write.  `caller`: the one who
    asked for it, where labels or Consents limit what it gets.  `deident`: title of the profile by which the resources
    are de-identified; None: they are exported as they are.  `filters`: `Type?query`, of which a resource of this type
    must match one.
    """

    tenant: str
    id: str
    request_url: str
    level: str
    types: tuple[str, ...]
    since: datetime | None
    transaction_time: datetime
    expires_at: datetime
    status: str = "running"
    error: str | None = None
    type_number: int = 0
    after_rid: int = 0
    exported: int = 0
    token: int = 0
    caller: Caller = OPEN
    deident: str | None = None
    filters: tuple[str, ...] = ()

    @property
    def resource_type(self) -> str | None:
        """The next type; None at the end."""
        return self.types[self.type_number] if self.type_number < len(self.types) else None


@dataclass(frozen=True, slots=True)
class ExportPart:
    """One file: `count` resources of one type as NDJSON."""

    resource_type: str
    count: int
    body: bytes


class Exports(Protocol):
    """Stored jobs and parts.  Every call is durable on return; the job of a dead worker can be leased again."""

    async def create(self, job: ExportJob) -> None:
        """Store a new job."""

    async def get(self, tenant: str, id: str) -> ExportJob | None:
        """A job; None when it does not exist or was removed."""

    async def remove(self, tenant: str, id: str) -> bool:
        """Delete a job, its parts and its lease.  False when there is none."""

    async def lease(self, seconds: float) -> ExportJob | None:
        """Lease a running, unleased job for `seconds`; None when there is none."""

    async def page(self, job: ExportJob, limit: int) -> list[Version]:
        """The next resources of the job's next type in order of rid, each in its version at the transaction time.

        Without deleted resources and those older than `since`.
        """

    async def places(self, job: ExportJob, seed: int, limit: int) -> Sequence[tuple[int, int]]:
        """(place, rid) of the resources of the job's next type with the lowest places above `job.after_rid`.

        A place is a hash of `seed` and rid, above 0.  All with the last place are given, so there may be more than
        `limit`.
        """

    async def versions(self, job: ExportJob, rids: Sequence[int]) -> list[Version]:
        """As `page`, of these resources, in their order."""

    async def write(self, job: ExportJob, part: ExportPart | None) -> bool:
        """Store a part and the job progress in one transaction; release the lease.  False: the lease was lost."""

    async def parts(self, tenant: str, id: str) -> Sequence[tuple[int, str, int]]:
        """(number, resource type, count) of the stored parts, in order."""

    async def part(self, tenant: str, id: str, number: int) -> ExportPart | None:
        """One part; None when it does not exist."""

    async def expire(self) -> int:
        """Delete expired jobs.  Returns their number."""
