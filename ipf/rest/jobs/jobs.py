"""Work after the answer: how an interaction starts a job, and what runs its steps.

An interaction calls `start_job`, which stores the request as a row and answers 202 with the URL of the status.
`runner.py` leases the row and calls the function of its kind (`rest/background.py`) until that returns a finished job:

    async def delete_many(job: Job, request: Request, repository: Repository) -> Step:
        state = job_state(job)
        ... look in `jobs_of(repository).results`; write with `unit_for(request, *entries, part=(job.id, number))` ...
        return Step(advanced(job, {"number": number + 1}, f"{count} resources"), Answer(200, about=versions))

A function gets the request as it was sent, with its caller.  It may run again from the same state after a crash: what
must happen once is a `Unit` with a `part`, whose result is stored in its transaction.  A Problem ends the job.

Source: https://hl7.org/fhir/R4/async.html, https://hl7.org/fhir/R5/async-bundle.html, RFC 7240
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from http import HTTPStatus

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import ResponseEntry, response
from ipf.fhir.model.json import dumps, loads
from ipf.ports import Answer, Json, Request
from ipf.ports.jobs import Job, JobFile, Jobs
from ipf.rest.http.exchange import preference
from ipf.rest.write.repository import Repository

_HEADERS = ("content-type", "prefer", "x-provenance")
"""What a job keeps of the headers of its request."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a step did.  `answer`: for the audit trail; `file`: lines that it reports."""

    job: Job
    answer: Answer
    file: JobFile | None = None


Kind = Callable[[Job, Request, Repository], Awaitable[Step]]
"""Runs one step of a job."""


def wants_async(request: Request) -> bool:
    """Whether the client prefers an answer at once with a status URL."""
    return preference(request, "respond-async") is not None


def jobs_of(repository: Repository) -> Jobs:
    """The jobs of a server that has some."""
    if repository.jobs is None:
        raise Problem(Category.NOT_SUPPORTED, "this server does not support jobs")
    return repository.jobs


async def start_job(request: Request, repository: Repository, kind: str, state: Json | None = None) -> Answer:
    """Store a request as a job; 202 with the URL of its status.  `state`: where its first step begins."""
    if repository.job_limit is not None:
        repository.job_limit.check(request)
    id = secrets.token_urlsafe(24).replace("_", "-")
    expires_at = repository.clock() + timedelta(hours=repository.export_hours)
    text, asked = dumps(state or {}).decode(), _written(request)
    job = Job(request.tenant, id, kind, asked, expires_at, request.body, request.caller, state=text)
    await jobs_of(repository).create(job)
    headers = [("Content-Location", f"{request.base_url}/$job-status/{id}"), ("Preference-Applied", "respond-async")]
    return Answer(202, b"", headers)


def job_state(job: Job) -> Json:
    """Where the next step begins."""
    found: Json = loads(job.state.encode())
    return found


def advanced(job: Job, state: Json, progress: str) -> Job:
    """The job after a step that is not its last."""
    return replace(job, state=dumps(state).decode(), progress=progress)


def finished(job: Job, answer: bytes) -> Job:
    """The job after its last step.  `answer`: JSON, what its status URL returns from now on."""
    return replace(job, status="done", answer=answer)


def response_bundle(answer: Answer) -> bytes:
    """The `batch-response` whose only entry holds the answer to the request."""
    status, headers = f"{answer.status} {HTTPStatus(answer.status).phrase}", dict(answer.headers)
    location, etag = headers.get("Location"), headers.get("ETag")
    has_failed = answer.status >= 400
    entry = ResponseEntry(
        status,
        location,
        etag,
        resource=b"" if has_failed else answer.body,
        outcome=answer.body if has_failed else b"",
    )
    return response("batch-response", [entry])


def _written(request: Request) -> str:
    """A request without its body and caller."""
    headers = {name: request.headers[name] for name in _HEADERS if name in request.headers}
    return dumps({
        "method": request.method, "path": list(request.path), "query": [list(pair) for pair in request.query],
        "headers": headers, "base_url": request.base_url, "correlation_id": request.correlation_id,
        "address": request.address, "request_id": request.request_id,
    }).decode()  # fmt: skip


def request_of(job: Job) -> Request:
    """The request of a job, which is performed now."""
    kept: Json = loads(job.asked.encode())
    query = tuple((name, value) for name, value in kept.pop("query"))
    path, body = tuple(kept.pop("path")), job.body
    return Request(path=path, query=query, body=body, tenant=job.tenant, caller=job.caller, job=job.id, **kept)
