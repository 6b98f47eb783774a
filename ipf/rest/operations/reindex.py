"""GET [base]/$reindex lists the jobs; POST [base]/$reindex?type=Patient,Observation requests one (no type: all types).

An operation of this server, named as in HAPI FHIR.  It returns Parameters with one `job` each, newest first.
"""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import instant
from ipf.fhir.model.definitions import definitions
from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Caller, Json, ReindexJob, ReindexQueue, Request
from ipf.rest.http.exchange import selection
from ipf.rest.write.repository import Repository
from ipf.security.access import finds_all

_MOST_JOBS = 100
_NUMBERS = frozenset({"id", "done", "of"})


async def reindex_jobs(request: Request, repository: Repository) -> Answer:
    """The newest jobs and their progress.  Numbers are for callers who may search everything: they count resources."""
    jobs = await _queue(repository).jobs(request.tenant, _MOST_JOBS)
    return Answer(200, dumps(_parameters(jobs, request.caller)))


async def request_reindex(request: Request, repository: Repository) -> Answer:
    """202 with the new job."""
    types: list[str] = []
    for name, value in selection(request.query):
        if name != "type":
            raise Problem(Category.NOT_SUPPORTED, f"$reindex has no parameter {name[:80]}", name[:80])
        types += [one for one in value.split(",") if one]
    for one in types:
        if one not in definitions().resource_types:
            raise Problem(Category.VALUE, f"{one[:60]} is not a resource type of R4", "type")
    wanted = tuple(dict.fromkeys(types)) or tuple(sorted(definitions().resource_types))
    job = await _queue(repository).request(request.tenant, wanted, "request")
    return Answer(202, dumps(_parameters([job], request.caller)))


def _queue(repository: Repository) -> ReindexQueue:
    if repository.reindex is None:
        raise Problem(Category.NOT_SUPPORTED, "this server does not support $reindex")
    return repository.reindex


def _parameters(jobs: list[ReindexJob], caller: Caller) -> Json:
    found: Json = {"resourceType": "Parameters"}
    hidden = frozenset() if finds_all(caller) else _NUMBERS
    if jobs:
        parts = ([one for one in _parts(job) if one["name"] not in hidden] for job in jobs)
        found["parameter"] = [{"name": "job", "part": shown} for shown in parts]
    return found


def _parts(job: ReindexJob) -> list[Json]:
    parts: list[Json] = [
        {"name": "id", "valueString": str(job.id)},
        {"name": "status", "valueCode": job.status},
        {"name": "reason", "valueString": job.reason},
        {"name": "types", "valueInteger": len(job.resource_types)},
        {"name": "done", "valueInteger": job.done_count},
        {"name": "of", "valueInteger": job.of_count},
        {"name": "created", "valueInstant": instant(job.created_at)},
        {"name": "updated", "valueInstant": instant(job.updated_at)},
    ]
    return [*parts, {"name": "error", "valueString": job.error}] if job.error else parts
