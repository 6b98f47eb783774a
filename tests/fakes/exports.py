"""`ports.Exports` in memory, on the versions of a MemoryFhirStore.  `now` moves leases and expiry."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from ipf.ports.fhir.exports import ExportJob, ExportPart, Exports
from ipf.ports.fhir.resources import Version
from tests.fakes.resources import MemoryFhirStore

Key = tuple[str, str]


class MemoryExports:
    """See `ports.Exports`."""

    def __init__(self, store: MemoryFhirStore, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._jobs: dict[Key, ExportJob] = {}
        self._parts: dict[Key, list[ExportPart]] = {}
        self._leases: dict[Key, datetime] = {}

    async def create(self, job: ExportJob) -> None:
        """See `ports.Exports.create`."""
        self._jobs[job.tenant, job.id] = job
        self._parts[job.tenant, job.id] = []

    async def get(self, tenant: str, id: str) -> ExportJob | None:
        """See `ports.Exports.get`."""
        job = self._jobs.get((tenant, id))
        return job if job is not None and job.expires_at > self._now() else None

    async def remove(self, tenant: str, id: str) -> bool:
        """See `ports.Exports.remove`."""
        self._parts.pop((tenant, id), None)
        return self._jobs.pop((tenant, id), None) is not None

    async def lease(self, seconds: float) -> ExportJob | None:
        """See `ports.Exports.lease`."""
        for key, job in self._jobs.items():
            if job.status == "running" and self._leases.get(key, self._now()) <= self._now():
                self._jobs[key] = leased = replace(job, token=job.token + 1)
                self._leases[key] = self._now() + timedelta(seconds=seconds)
                return leased
        return None

    async def page(self, job: ExportJob, limit: int) -> list[Version]:
        """See `ports.Exports.page`."""
        found = [one for one in self._of_type(job) if one.rid > job.after_rid]
        return sorted(found, key=lambda version: version.rid)[:limit]

    async def places(self, job: ExportJob, seed: int, limit: int) -> Sequence[tuple[int, int]]:
        """See `ports.Exports.places`."""
        every = {versions[-1].rid for key, versions in self._store.versions.items()
                 if key[:2] == (job.tenant, job.resource_type) and not versions[-1].deleted}  # fmt: skip
        found = sorted((place, rid) for rid in every if (place := _place(seed, rid)) > job.after_rid)
        last = found[:limit][-1:]
        return [one for one in found if one[0] <= last[0][0]]

    async def versions(self, job: ExportJob, rids: Sequence[int]) -> list[Version]:
        """See `ports.Exports.versions`."""
        found = {one.rid: one for one in self._of_type(job)}
        return [found[rid] for rid in rids if rid in found]

    def _of_type(self, job: ExportJob) -> Iterator[Version]:
        for key, versions in self._store.versions.items():
            if key[:2] != (job.tenant, job.resource_type) or versions[-1].deleted:
                continue
            then = [version for version in versions if version.last_updated <= job.transaction_time]
            if then and not then[-1].deleted and (job.since is None or then[-1].last_updated >= job.since):
                yield then[-1]

    def running(self, tenant: str) -> Iterator[Version]:
        """The versions that the running jobs of a tenant may read."""
        for job in self._jobs.values():
            for key, versions in (
                self._store.versions.items() if (job.tenant, job.status) == (tenant, "running") else ()
            ):
                then = [version for version in versions if version.last_updated <= job.transaction_time]
                if key[0] == tenant and then:
                    yield then[-1]

    async def write(self, job: ExportJob, part: ExportPart | None) -> bool:
        """See `ports.Exports.write`."""
        key = (job.tenant, job.id)
        known = self._jobs.get(key)
        if known is None or known.token != job.token:
            return False
        self._jobs[key] = job
        self._leases.pop(key, None)
        if part is not None:
            self._parts[key].append(part)
        return True

    async def parts(self, tenant: str, id: str) -> Sequence[tuple[int, str, int]]:
        """See `ports.Exports.parts`."""
        found = enumerate(self._parts.get((tenant, id), ()), 1)
        return [(number, part.resource_type, part.count) for number, part in found]

    async def part(self, tenant: str, id: str, number: int) -> ExportPart | None:
        """See `ports.Exports.part`."""
        found = self._parts.get((tenant, id), [])
        return found[number - 1] if 0 < number <= len(found) else None

    async def expire(self) -> int:
        """See `ports.Exports.expire`."""
        over = [key for key, job in self._jobs.items() if job.expires_at < self._now()]
        for key in over:
            await self.remove(*key)
        return len(over)


def _place(seed: int, rid: int) -> int:
    """A few places only, so that equal ones are tested."""
    return int.from_bytes(hashlib.sha256(f"{seed} {rid}".encode()).digest()[:8]) % 5 + 1


_: type[Exports] = MemoryExports
