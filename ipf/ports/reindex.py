"""The jobs that bring the index up to date after a search parameter was added, changed or removed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ReindexJob:
    """A job as its row says.

    `done_count` of about `of_count` resources were looked at.  `status`: requested, running, done or failed.
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
    """Jobs are rows; a batch and how far it got are committed together, so that a killed process loses one batch."""

    async def is_open(self) -> bool:
        """Whether any job is not finished."""

    async def work(self, limit: int) -> bool:
        """Do one batch of the oldest open job; False when there is none, or another process is at it."""

    async def request(self, tenant: str, types: tuple[str, ...], reason: str) -> ReindexJob:
        """Ask for these types to be indexed anew."""

    async def jobs(self, tenant: str, limit: int) -> list[ReindexJob]:
        """The newest jobs first."""
