"""Bulk export: jobs, and the parts they write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.resources import Version


@dataclass(frozen=True, slots=True)
class ExportJob:
    """What is to be exported, and how far it is.

    `level`: `system`, `patient`, or `group:` and the id of a Group.  `types`: in the order of the export; `type_number`
    is the place of the next one, `after_rid` the last resource of it that was looked at.  `status`: running, done or
    failed.  `token` fences: a worker that lost its lease can no longer write.
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

    @property
    def resource_type(self) -> str | None:
        """The type that is next; None at the end."""
        return self.types[self.type_number] if self.type_number < len(self.types) else None


@dataclass(frozen=True, slots=True)
class ExportPart:
    """One file: `count` resources of one type, one JSON text a line."""

    resource_type: str
    count: int
    body: bytes


class Exports(Protocol):
    """Jobs and parts as rows: what was written survives everything; a job whose worker died is leased again."""

    async def create(self, job: ExportJob) -> None:
        """Keep a new job."""

    async def get(self, tenant: str, id: str) -> ExportJob | None:
        """A job; None when there is none, or when it was removed."""

    async def remove(self, tenant: str, id: str) -> bool:
        """Forget a job and its parts; whoever works on it finds its lease gone.  False when there is none."""

    async def lease(self, seconds: float) -> ExportJob | None:
        """A running job that nobody holds, held for so long; None when there is none."""

    async def page(self, job: ExportJob, limit: int) -> list[Version]:
        """The next resources of the job's next type in order of rid: each in the version of the transaction time.

        Only those not older than `since`, and not deleted.
        """

    async def write(self, job: ExportJob, part: ExportPart | None) -> bool:
        """Store a part and the job's progress, status and error, whole; give the lease back.  False: it was lost."""

    async def parts(self, tenant: str, id: str) -> Sequence[tuple[int, str, int]]:
        """(number, resource type, count) of what is there, in order."""

    async def part(self, tenant: str, id: str, number: int) -> ExportPart | None:
        """One part."""

    async def expire(self) -> int:
        """Remove jobs whose time is over; how many."""
