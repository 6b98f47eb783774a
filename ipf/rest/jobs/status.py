"""[base]/$job-status/[job] and [base]/$job-file/[job]/[number], for the client that asked for the job.

GET returns 202 with `X-Progress` while the job runs, then 200 with its answer; DELETE cancels it and removes its
answer.  Whoever else asks is told that there is none.  A client whose grants are others than those the job ran
with may cancel it, but does not get its answer.

Source: https://hl7.org/fhir/R5/async-bundle.html
"""

from __future__ import annotations

from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import http_date
from ipf.fhir.model.json import dumps, loads
from ipf.ports import Answer, Caller, Json, Request, Version
from ipf.ports.jobs import Job
from ipf.rest.jobs.jobs import jobs_of
from ipf.rest.write.repository import Repository
from ipf.rest.write.visibility import visible_now
from ipf.security.access import limits

NDJSON = "application/fhir+ndjson"
_PLAIN = frozenset({"import"})
"""Kinds whose answer is no resource."""


async def job_status(request: Request, repository: Repository) -> Answer:
    """202 while the job runs, 200 with its answer when it is done."""
    job = await _own_job(request, repository)
    if job.status == "running":
        return Answer(202, b"", [("X-Progress", job.progress or "accepted"), ("Retry-After", "1")])
    _check_grants(job, request.caller)
    body = await _visible(job.answer, request, repository)
    headers = [("Expires", http_date(job.expires_at))]
    return Answer(200, body, headers, "application/json") if job.kind in _PLAIN else Answer(200, body, headers)


async def job_cancel(request: Request, repository: Repository) -> Answer:
    """202; the job, its answer and its files are deleted.  What it has committed stays."""
    job = await _own_job(request, repository)
    await jobs_of(repository).remove(job.tenant, job.id)
    return Answer(202)


async def job_file(request: Request, repository: Repository) -> Answer:
    """One file of a job."""
    job = await _own_job(request, repository)
    _check_grants(job, request.caller)
    number = request.path[2]
    wanted = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0
    body = await jobs_of(repository).file(job.tenant, job.id, wanted)
    if body is None:
        raise Problem(Category.NOT_FOUND, "the file does not exist")
    return Answer(200, body, content_type=NDJSON)


async def _own_job(request: Request, repository: Repository) -> Job:
    job = await jobs_of(repository).get(request.tenant, request.path[1][:100])
    if job is None or _client(job.caller) != _client(request.caller):
        raise Problem(Category.NOT_FOUND, "the job does not exist")
    return job


def _client(caller: Caller) -> tuple[Any, ...]:
    return caller.is_unlimited, caller.issuer, caller.client, caller.subject


def _check_grants(job: Job, caller: Caller) -> None:
    """Problem FORBIDDEN: nobody can tell what of the answer the caller may see with these grants."""
    ran, now = job.caller, caller
    if (set(ran.scopes), ran.patient, ran.user, ran.tenant) != (set(now.scopes), now.patient, now.user, now.tenant):
        raise Problem(Category.FORBIDDEN, "the answer is for the grants with which the job was asked for")


async def _visible(answer: bytes, request: Request, repository: Repository) -> bytes:
    """The answer without what labels and Consents hide by now."""
    if not limits(request.caller):
        return answer
    found: Json = loads(answer)
    return dumps(await _without_hidden(found, request, repository))


async def _without_hidden(bundle: Json, request: Request, repository: Repository) -> Json:
    kept = []
    for entry in bundle.get("entry", ()):
        resource = entry.get("resource")
        if isinstance(resource, dict) and resource.get("resourceType") == "Bundle" and "entry" in resource:
            entry = {**entry, "resource": await _without_hidden(resource, request, repository)}
        elif isinstance(resource, dict) and not await _sees(resource, request, repository):
            if "response" not in entry:
                continue
            entry = {"response": {"status": entry["response"]["status"]}}
        kept.append(entry)
    if len(kept) < len(bundle.get("entry", ())):
        bundle = {name: value for name, value in bundle.items() if name != "total"}
    return {**bundle, "entry": kept} if kept else {name: value for name, value in bundle.items() if name != "entry"}


async def _sees(resource: Json, request: Request, repository: Repository) -> bool:
    """Whether the caller may see the resource as it is now; a resource without a version is none of the store's."""
    kind, id, number = resource.get("resourceType"), resource.get("id"), resource.get("meta", {}).get("versionId")
    if not (isinstance(kind, str) and isinstance(id, str) and isinstance(number, str) and number.isdigit()):
        return True
    tenant, store = request.tenant, repository.store
    version: Version | None = await store.read_version(tenant, kind, id, int(number))
    return version is None or bool(await visible_now([version], request.caller, tenant, store))
