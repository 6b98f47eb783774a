"""Runs the steps of jobs, each under a lease.

What arrives: a job as a row.  What leaves: what its step wrote, its progress, and at the end its answer.  What survives
a crash: all committed parts; the lease of a dead worker is free at once, and the job continues from its last state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from time import perf_counter

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from ipf.errors import Category, Problem, StoreUnreachable
from ipf.ports import Answer, Request
from ipf.ports.jobs import Job
from ipf.rest.http.exchange import Observe
from ipf.rest.http.outcome import refuse
from ipf.rest.jobs.jobs import Kind, Step, finished, jobs_of, request_of, response_bundle
from ipf.rest.write.repository import Repository
from ipf.security.access import refresh_access
from ipf.security.audit.draft import NewDraft

log = Logger()

LEASE_SECONDS = 600.0
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class JobRunner:
    """The stage; `step` does one step of one job.

    `kinds`: what runs a step, by kind.  `observe`, `draft`: as in `router.handler`.  `wrote`: is called after a step.
    """

    def __init__(
        self,
        repository: Repository,
        kinds: Mapping[str, Kind],
        observe: Observe | None = None,
        draft: NewDraft | None = None,
        wrote: Callable[[], None] = lambda: None,
    ) -> None:
        self._repository = repository
        self._kinds = kinds
        self._observe = observe
        self._draft = draft
        self._wrote = wrote

    async def step(self) -> bool:
        """True when there was a job to work on.  StoreUnreachable passes through."""
        jobs = jobs_of(self._repository)
        job = await jobs.lease(LEASE_SECONDS)
        if job is None:
            await jobs.expire()
            return False
        began = perf_counter()
        try:
            request = request_of(job)
        except Exception:
            log.failure("event=job_failed job={job}", event="job_failed", job=job.id[:8])
            await self._write(answered(job, refuse(Problem(Category.INTERNAL, "the job cannot be read"))))
            return True
        if self._draft is not None and request.method in _WRITES:
            request.draft = self._draft(request, began)
        done = await self._performed(job, request)
        if self._observe is not None:
            self._observe(request, done.answer, began)
        if done.job.status != "running":
            expires_at = self._repository.clock() + timedelta(hours=self._repository.export_hours)
            done = replace(done, job=replace(done.job, expires_at=expires_at))
        await self._write(done)
        self._wrote()
        return True

    async def _write(self, done: Step) -> None:
        """Write what a step did.  When the store refuses that, the job ends: else it would run for ever."""
        jobs, job = jobs_of(self._repository), done.job
        try:
            is_held = await jobs.write(job, done.file)
        except (StoreUnreachable, CancelledError):
            raise
        except Exception:
            log.failure("event=job_failed job={job}", event="job_failed", job=job.id[:8])
            expires_at = self._repository.clock() + timedelta(hours=self._repository.export_hours)
            ended = answered(job, refuse(Problem(Category.INTERNAL, "what the job did could not be written")))
            is_held = await jobs.write(replace(ended.job, state="{}", progress="", expires_at=expires_at))
        if not is_held:
            log.info("event=job_lost job={job}", event="job_lost", job=job.id[:8])

    async def _performed(self, job: Job, request: Request) -> Step:
        """The step, or the end of a job that fails."""
        repository = replace(self._repository, tenant=job.tenant)
        try:
            await refresh_access()
            if repository.conformance is not None:
                await repository.conformance.prepare(request)
            return await self._kinds[job.kind](job, request, repository)
        except StoreUnreachable:
            raise
        except Problem as problem:
            answer = refuse(problem)
        except Exception:
            log.failure("event=job_failed job={job}", event="job_failed", job=job.id[:8])
            answer = refuse(Problem(Category.INTERNAL, f"internal error; correlation id {request.correlation_id}"))
        return Step(finished(job, response_bundle(answer)), answer)


def answered(job: Job, answer: Answer) -> Step:
    """The end of a job whose request is answered as a whole."""
    return Step(finished(job, response_bundle(answer)), answer)
