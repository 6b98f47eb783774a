"""DELETE [base]/[type]?[search] of all matches, where the server allows it (`IPF_FHIR_CONDITIONAL_DELETE=multiple`).

Up to BATCH matches are deleted in one transaction, before the answer.  More, or with `Prefer: respond-async`, are
deleted by a job: batch after batch, each a transaction.  A crash loses nothing and deletes nothing twice, since each
step searches again.  The job deletes what was stored when it was asked for: what is written later stays.

As an entry of a Bundle, such a delete deletes up to BATCH matches in the transaction of the entry, or is refused.

Source: https://hl7.org/fhir/R4/http.html#3.1.0.7.1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from ipf.errors import Category, Problem
from ipf.fhir.model.bundle import instant
from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Request, Version
from ipf.ports.jobs import Job
from ipf.ports.queries.search import Query, Sort
from ipf.rest.http.exchange import applied, condition, preference
from ipf.rest.http.outcome import success
from ipf.rest.jobs.jobs import Step, advanced, finished, job_state, response_bundle, start_job, wants_async
from ipf.rest.write.prefetch import prepare
from ipf.rest.write.repository import Repository
from ipf.rest.write.unit import Entry, Method, unit_for

DELETE_MANY = "delete"
BATCH = 1000
OLDEST_FIRST = (Sort("_lastUpdated", "last_updated"),)
ATTEMPTS = 16


async def delete_many(request: Request, repository: Repository) -> Answer:
    """204, or 200 with `Prefer: return=OperationOutcome`; 202 with a job for more than BATCH matches."""
    _query(request)  # before a job begins that cannot search
    if not wants_async(request):
        deleted = await _delete_batch(request, repository)
        if deleted is not None:
            return _answer(request, deleted)
    return await start_job(request, repository, DELETE_MANY, {"until": instant(repository.clock()), "count": 0})


async def delete_step(job: Job, request: Request, repository: Repository) -> Step:
    """Delete one batch; the job is done when nothing matches any more."""
    state = job_state(job)
    deleted = await _delete_batch(request, repository, datetime.fromisoformat(state["until"])) or []
    count = state["count"] + len(deleted)
    if deleted:
        after = advanced(job, {**state, "count": count}, f"{count} resources deleted")
        return Step(after, Answer(204, about=deleted))
    done = Answer(200, dumps(success(f"{count} resources deleted")))
    return Step(finished(job, response_bundle(done)), replace(done, status=204))


async def _delete_batch(
    request: Request, repository: Repository, until: datetime | None = None
) -> list[Version] | None:
    """Delete up to BATCH matches in one transaction; the deletions.  `until`: of those that were not written later.

    Without `until`, None and no deletion when there are more.  Each is deleted in the version that matched.  When
    others were written meanwhile, the search is repeated.
    """
    query = _query(request)
    for _ in range(ATTEMPTS):
        page = await repository.store.search(request.tenant, query)
        found = [one for one in page.matches if until is None or one.last_updated <= until]
        if until is None and len(found) > BATCH:
            return None
        try:
            return await _delete(found[:BATCH], request, repository) if found else []
        except Problem as problem:
            if problem.category is not Category.PRECONDITION:
                raise
    raise kept_changing()


def kept_changing() -> Problem:
    """What is answered when no attempt deleted the versions that it had found."""
    return Problem(Category.CONFLICT, "others kept changing the resources that match")


async def deletions(entries: Mapping[int, Entry], request: Request, repository: Repository) -> dict[int, list[Entry]]:
    """The deletions of all matches of conditional deletes in a Bundle, each in the version that matches now.

    Problem COSTLY, with the place of the entry, when they are more than BATCH together.
    """
    found: dict[int, list[Entry]] = {}
    left = BATCH
    for number, entry in entries.items():
        page = await repository.store.search(request.tenant, _query_of(entry, request))
        left -= len(page.matches)
        if left < 0:
            text = f"the conditional deletes of a transaction delete at most {BATCH} resources; send it alone for more"
            raise Problem(Category.COSTLY, text, f"{entry.place}.request.url")
        found[number] = [replace(entry, id=one.id, condition=None, if_match=one.version_id) for one in page.matches]
    return found


def _query(request: Request) -> Query:
    """The search of a request; see `_query_of`."""
    (resource_type,) = request.path
    query = condition(resource_type, request.query, request.base_url)
    return _query_of(Entry(Method.DELETE, resource_type, condition=query), request)


def _query_of(entry: Entry, request: Request) -> Query:
    """The search within the limits of the caller, oldest first.  Problem NOT_SUPPORTED for a chain."""
    prepared = prepare(unit_for(request, entry))
    query = prepared.unit.entries[0].condition
    if prepared.problem is not None or query is None:
        raise prepared.problem or Problem(Category.INTERNAL, "the condition was lost")
    return replace(query, count=BATCH + 1, total="none", sort=OLDEST_FIRST)


async def _delete(found: Sequence[Version], request: Request, repository: Repository) -> list[Version]:
    entries = [Entry(Method.DELETE, one.resource_type, one.id, if_match=one.version_id) for one in found]
    result = await repository.commit_one(unit_for(request, *entries))
    return [end.version for end in result.entries if end.version is not None]


def _answer(request: Request, deleted: Sequence[Version]) -> Answer:
    headers = applied(request, "return", "minimal", "OperationOutcome")
    if preference(request, "return") == "OperationOutcome":
        return Answer(200, dumps(success(f"{len(deleted)} resources deleted")), headers, about=deleted)
    return Answer(204, b"", headers, about=deleted)
