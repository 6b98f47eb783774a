"""Jobs: work that is done after its request was answered with 202."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ipf.ports.caller import OPEN, Caller


@dataclass(frozen=True, slots=True)
class Job:
    """A job and its progress.

    `kind`: names the function that runs its steps (`rest/background.py`).  `asked`: the request without its body, JSON.
    `body`: only what `lease` returns has it.  `state`: where the next step begins, JSON.  `progress`: for people.
    `status`: running or done.  `answer`: what the client gets at the end, JSON.  `token`: fencing token; a worker that
    lost its lease can no longer write.
    """

    tenant: str
    id: str
    kind: str
    asked: str
    expires_at: datetime
    body: bytes = b""
    caller: Caller = OPEN
    status: str = "running"
    state: str = "{}"
    progress: str = ""
    answer: bytes = b""
    token: int = 0


@dataclass(frozen=True, slots=True)
class JobResult:
    """What one part of a job wrote, stored in the transaction that writes it: see `Unit.part`."""

    tenant: str
    job_id: str
    number: int
    result: str


@dataclass(frozen=True, slots=True)
class JobFile:
    """Lines of NDJSON that a step reports.  `name`: what they are about."""

    name: str
    count: int
    body: bytes


class Jobs(Protocol):
    """Stored jobs.  Every call is durable on return; the job of a dead worker can be leased again."""

    async def create(self, job: Job) -> None:
        """Store a new job.  Problem MALFORMED: its body cannot be stored."""

    async def get(self, tenant: str, id: str) -> Job | None:
        """A job without its body; None when it does not exist, was removed or has expired."""

    async def remove(self, tenant: str, id: str) -> bool:
        """Delete a job: what it has not committed will not be.  False when there is none."""

    async def lease(self, seconds: float) -> Job | None:
        """Lease a running, unleased job for `seconds`, the longest waiting first; None when there is none."""

    async def renew(self, job: Job, seconds: float, progress: str) -> bool:
        """Extend the lease from now, and store `progress`.  False: the lease was lost, or the job removed."""

    async def write(self, job: Job, file: JobFile | None = None) -> bool:
        """Store status, state, progress and answer, and a file; release the lease.  False: the lease was lost."""

    async def results(self, tenant: str, id: str, first: int = 0, last: int = 2**31 - 1) -> Mapping[int, str]:
        """The results of the parts of a job from `first` to `last`, by number."""

    async def files(self, tenant: str, id: str) -> Sequence[tuple[int, str, int]]:
        """(number, name, count) of the files, in order."""

    async def file(self, tenant: str, id: str, number: int) -> bytes | None:
        """The lines of a file; None when it does not exist."""

    async def expire(self) -> int:
        """Delete expired jobs.  Returns their number."""
