"""The kinds of jobs, and what runs their steps."""

from __future__ import annotations

from collections.abc import Callable

from ipf.errors import Problem, StoreUnreachable
from ipf.ports import Request
from ipf.ports.jobs import Job
from ipf.rest.http.exchange import Observe
from ipf.rest.http.outcome import refuse
from ipf.rest.imports.bulk_import import IMPORT, import_step
from ipf.rest.interactions.delete_many import DELETE_MANY, delete_step
from ipf.rest.jobs.jobs import Kind, Step
from ipf.rest.jobs.runner import JobRunner, answered
from ipf.rest.router import REQUEST, perform_entry, redacted
from ipf.rest.write.repository import Repository
from ipf.security.audit.draft import NewDraft


async def perform_request(job: Job, request: Request, repository: Repository) -> Step:
    """A search, batch or transaction, as if it were sent now; its only step."""
    try:
        answer = redacted(await perform_entry(request, repository))
    except StoreUnreachable:
        raise
    except Problem as problem:
        answer = refuse(problem)
    return answered(job, answer)


KINDS: dict[str, Kind] = {DELETE_MANY: delete_step, REQUEST: perform_request, IMPORT: import_step}


def job_runner(
    repository: Repository,
    observe: Observe | None = None,
    draft: NewDraft | None = None,
    wrote: Callable[[], None] = lambda: None,
) -> JobRunner:
    """Runs the jobs that the interactions of this server start."""
    return JobRunner(repository, KINDS, observe, draft, wrote)
