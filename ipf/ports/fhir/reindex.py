"""Jobs that rebuild the search index after a search parameter was added, changed or removed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ReindexJob:
    """A job and its progress.

    `done_count` of about `of_count` resources are processed.  `status`: requested, running, done or failed.
    """

    id: int
    reason: str
    resource_types: tuple[str, ...]
    status: str
    done_count: int
    of_count: int
    error: str | None
    created_at: datetime
    updated_at: datetime


class ReindexQueue(Protocol):
    """Stored jobs.  One transaction commits a batch and the progress, so a killed process loses at most one batch."""

    async def is_open(self) -> bool:
        """Whether a job is unfinished."""

    async def run_batch(self, limit: int) -> bool:
        """Process one batch of the oldest open job.  False: no open job, or another process works on it."""

    async def request(self, tenant: str, types: tuple[str, ...], reason: str) -> ReindexJob:
        """Create a job that reindexes these types."""

    async def jobs(self, tenant: str, limit: int) -> list[ReindexJob]:
        """The newest jobs, newest first."""
