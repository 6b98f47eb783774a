"""Jobs in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from ipf.ports.jobs import Job, JobFile, Jobs
from tests.fakes.resources import MemoryFhirStore

Key = tuple[str, str]


class MemoryJobs:
    """See `ports.Jobs`.  The store has the results."""

    def __init__(self, store: MemoryFhirStore, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._jobs: dict[Key, Job] = {}
        self._files: dict[Key, list[JobFile]] = {}
        self._leases: dict[Key, datetime] = {}
        self._moved: dict[Key, datetime] = {}  # when it was created, or got on

    async def create(self, job: Job) -> None:
        """See `ports.Jobs.create`."""
        self._jobs[job.tenant, job.id], self._moved[job.tenant, job.id] = job, self._now()
        self._files[job.tenant, job.id] = []
        self._store.jobs.add((job.tenant, job.id))

    async def get(self, tenant: str, id: str) -> Job | None:
        """See `ports.Jobs.get`."""
        job = self._jobs.get((tenant, id))
        return replace(job, body=b"") if job and (job.status == "running" or job.expires_at > self._now()) else None

    async def remove(self, tenant: str, id: str) -> bool:
        """See `ports.Jobs.remove`."""
        self._files.pop((tenant, id), None)
        self._leases.pop((tenant, id), None)
        self._store.jobs.discard((tenant, id))
        return self._jobs.pop((tenant, id), None) is not None

    async def lease(self, seconds: float) -> Job | None:
        """See `ports.Jobs.lease`."""
        free = [key for key, job in self._jobs.items() if job.status == "running" and self._is_free(key)]
        for key in sorted(free, key=lambda key: (key in self._leases, self._leases.get(key, 0), self._moved[key]))[:1]:
            self._jobs[key] = leased = replace(self._jobs[key], token=self._jobs[key].token + 1)
            self._leases[key] = self._now() + timedelta(seconds=seconds)
            return leased
        return None

    def _is_free(self, key: Key) -> bool:
        return key not in self._leases or self._leases[key] < self._now()

    async def renew(self, job: Job, seconds: float, progress: str) -> bool:
        """See `ports.Jobs.renew`."""
        key = (job.tenant, job.id)
        known = self._jobs.get(key)
        if known is None or known.token != job.token:
            return False
        self._jobs[key] = replace(known, progress=progress)
        self._leases[key] = self._now() + timedelta(seconds=seconds)
        return True

    async def write(self, job: Job, file: JobFile | None = None) -> bool:
        """See `ports.Jobs.write`."""
        key = (job.tenant, job.id)
        known = self._jobs.get(key)
        if known is None or known.token != job.token:
            return False
        self._jobs[key], self._moved[key] = job, self._now()
        self._leases.pop(key, None)
        if file is not None:
            self._files[key].append(file)
        return True

    async def results(self, tenant: str, id: str, first: int = 0, last: int = 2**31 - 1) -> Mapping[int, str]:
        """See `ports.Jobs.results`."""
        found = self._store.job_results.items()
        return {
            number: result
            for (of, job, number), result in found
            if (of, job) == (tenant, id) and first <= number <= last
        }

    async def files(self, tenant: str, id: str) -> Sequence[tuple[int, str, int]]:
        """See `ports.Jobs.files`."""
        found = enumerate(self._files.get((tenant, id), ()), 1)
        return [(number, file.name, file.count) for number, file in found]

    async def file(self, tenant: str, id: str, number: int) -> bytes | None:
        """See `ports.Jobs.file`."""
        files = self._files.get((tenant, id), [])
        return files[number - 1].body if 0 < number <= len(files) else None

    def names(self, tenant: str, resource_type: str, id: str) -> bool:
        """Whether the answer of a job, or the results of a running one, name a resource."""
        whole = re.compile(f"[^A-Za-z]{resource_type}/{re.escape(id)}[^A-Za-z0-9.-]")
        stamped = f'"resourceType":"{resource_type}","id":"{id}"'
        for key, job in self._jobs.items():
            answer = job.answer.decode()
            if key[0] == tenant and (stamped in answer or whole.search(answer)):
                return True
        running = {key for key, job in self._jobs.items() if job.status == "running"}
        results = [text for (of, job_id, _), text in self._store.job_results.items() if (of, job_id) in running
                   and of == tenant]  # fmt: skip
        return any(f'"{resource_type}","{id}",' in text for text in results)

    async def expire(self) -> int:
        """See `ports.Jobs.expire`."""
        gone = [key for key, job in self._jobs.items() if job.status != "running" and job.expires_at < self._now()]
        for key in gone:
            await self.remove(*key)
        return len(gone)


_: type[Jobs] = MemoryJobs
