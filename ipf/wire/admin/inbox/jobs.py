"""Work on many messages: replay with its preview, retry and discard of dead letters, and the jobs that do it.

Functions on values.  A request names messages by `ids` or by a `filter` (parameters of `GET /admin/messages`), dead
letters by the `fingerprint` of their error.  The answer is a job, done in batches in the background; or, with
`dry_run`, what the job would do, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ipf.errors import Category, Problem
from ipf.ports import (
    Answer,
    ErrorGroup,
    Job,
    MessageAdmin,
    MessageFilter,
    NewJob,
    ReplayPreview,
    Request,
    Selection,
    Status,
)
from ipf.ports.messages.inbox import EVERY_TENANT
from ipf.wire.admin.messages import (
    EXACT_FILTERS,
    HIGHEST_ID,
    TEXT_FILTERS,
    TIME_FILTERS,
    InvalidStatus,
    answer,
    filter_of,
    json_body,
    parameters_of,
    row_id,
    tenant_of,
    timestamp,
    window,
)
from ipf.wire.admin.route import TENANT, Role, Route, WhenMasked, query
from ipf.wire.admin.schemas.base import TEXT, Schema, ref

MOST = 100_000
MOST_IDS = 10_000
PREVIEWED = 20
PER_SECOND = 100
HIGHEST_PER_SECOND = 5_000
JOB_STATES = ("requested", "running", "done", "cancelled", "failed")

_FILTERS = frozenset(("status", "permanent", *EXACT_FILTERS, *TEXT_FILTERS, *TIME_FILTERS))
_COMMON = frozenset(("ids", "filter", "per_second", "dry_run"))


async def replay(admin: MessageAdmin, preview: ReplayPreview, request: Request) -> Answer:
    """`POST /admin/messages/replay`: convert stored messages again with the installed maps.

    202 with the job.  `dry_run`: 200 with what would become of each resource, for the first 20 messages (`limit`).
    """
    body = _body(request, _COMMON | {"following", "limit"})
    job = _job_of(body, "replay")
    if job.selection.ids is None and not _narrowing(body):
        raise Problem(Category.VALUE, "name ids, or at least one condition in filter")
    if not _flag(body, "dry_run", default=False):
        return answer(202, job_item(await admin.start_job(job, MOST)))
    limit = _whole(body, "limit", PREVIEWED, 1, PREVIEWED)
    ids = await admin.select(job.selection, MOST + 1)
    items = [await preview.preview(one) for one in ids[:limit]]
    return answer(200, {"dry_run": True, "total": min(len(ids), MOST), "limit": limit, "items": items})


async def dead_letters(admin: MessageAdmin, kind: str, request: Request) -> Answer:
    """`POST /admin/dead-letters/retry` and `/discard`: 202 with the job; `dry_run`: 200 with the first ids."""
    body = _body(request, _COMMON | {"fingerprint"})
    job = _job_of(body, kind)
    if job.selection.ids is None and not _narrowing(body) and job.selection.fingerprint is None:
        raise Problem(Category.VALUE, "name ids, a fingerprint, or at least one condition in filter")
    wanted = job.selection.wanted
    if wanted.status not in (None, Status.DEAD_LETTER):
        raise Problem(Category.VALUE, "dead letters have status DEAD_LETTER")
    job = replace(job, selection=replace(job.selection, wanted=replace(wanted, status=Status.DEAD_LETTER)))
    if not _flag(body, "dry_run", default=False):
        return answer(202, job_item(await admin.start_job(job, MOST)))
    ids = await admin.select(job.selection, MOST + 1)
    return answer(200, {"dry_run": True, "total": min(len(ids), MOST), "ids": ids[:100]})


async def error_groups(admin: MessageAdmin, request: Request) -> Answer:
    """`GET /admin/dead-letters/errors`: dead letters by the fingerprint of their error, the largest group first."""
    parameters = parameters_of(request)
    limit, offset = window(parameters)
    total, groups = await admin.error_groups(tenant_of(parameters), limit, offset)
    return answer(200, _page(total, limit, offset, [group_item(one) for one in groups]))


async def list_jobs(admin: MessageAdmin, request: Request) -> Answer:
    """`GET /admin/jobs`: newest first; filter `status`."""
    parameters = parameters_of(request)
    limit, offset = window(parameters)
    status = parameters.get("status") or None
    if status is not None and status not in JOB_STATES:
        raise InvalidStatus(Category.VALUE, f"status must be one of {', '.join(JOB_STATES)}")
    total, jobs = await admin.jobs(tenant_of(parameters), status, limit, offset)
    return answer(200, _page(total, limit, offset, [job_item(one) for one in jobs]))


async def get_job(admin: MessageAdmin, number: str) -> Answer:
    """`GET /admin/jobs/{id}`."""
    job = await admin.job(row_id(number))
    if job is None:
        raise Problem(Category.NOT_FOUND, f"there is no job {row_id(number)}")
    return answer(200, job_item(job))


async def cancel_job(admin: MessageAdmin, number: str) -> Answer:
    """`POST /admin/jobs/{id}/cancel`: finished batches stay.  409 when the job has ended."""
    return answer(200, job_item(await admin.cancel_job(row_id(number))))


def job_item(job: Job) -> dict[str, Any]:
    """A job and its progress."""
    return {
        "id": job.id,
        "kind": job.kind,
        "status": job.status,
        "selection": job.selection,
        "following": job.following,
        "per_second": job.per_second,
        "total": job.total,
        "done": job.done_count,
        "changed": job.changed_count,
        "following_changed": job.following_count,
        "skipped": job.skipped_count,
        "error": job.error,
        "created_at": timestamp(job.created_at),
        "updated_at": timestamp(job.updated_at),
        "tenant": job.tenant,
    }


def group_item(group: ErrorGroup) -> dict[str, Any]:
    """A group of errors; `sample` is one of them."""
    return {
        "fingerprint": group.fingerprint,
        "count": group.count,
        "sample": group.sample,
        "newest_id": group.newest_id,
        "first_received_at": timestamp(group.first_received_at),
        "last_received_at": timestamp(group.last_received_at),
    }


def _job_of(body: Mapping[str, Any], kind: str) -> NewJob:
    """Ids may be of any tenant, unless the filter names one."""
    ids, wanted = _ids(body), _filter(body)
    if ids is not None and "tenant" not in _conditions(body):
        wanted = replace(wanted, tenant=EVERY_TENANT)
    shown = {name: body[name] for name in ("ids", "filter", "fingerprint") if body.get(name) is not None}
    return NewJob(
        kind,
        Selection(ids, wanted, _fingerprint(body)),
        shown,
        _flag(body, "following", default=True) if kind == "replay" else False,
        _whole(body, "per_second", PER_SECOND, 1, HIGHEST_PER_SECOND),
    )


def _ids(body: Mapping[str, Any]) -> tuple[int, ...] | None:
    ids = body.get("ids")
    if ids is None:
        return None
    if not isinstance(ids, list) or not 0 < len(ids) <= MOST_IDS or not all(_is_id(one) for one in ids):
        raise Problem(Category.VALUE, f"ids must be a list of one to {MOST_IDS} numbers of messages")
    return tuple(ids)


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value <= HIGHEST_ID


def _conditions(body: Mapping[str, Any]) -> dict[str, str]:
    given = body.get("filter")
    if given is None:
        return {}
    if not isinstance(given, dict) or not set(given) <= _FILTERS:
        raise Problem(Category.VALUE, f"filter may have {', '.join(sorted(_FILTERS))}")
    if not all(isinstance(value, str | None) for value in given.values()):
        raise Problem(Category.VALUE, "the values of filter are texts")
    return {name: value.strip() for name, value in given.items() if value is not None and value.strip()}


def _narrowing(body: Mapping[str, Any]) -> dict[str, str]:
    """The conditions, without those that hold for every message."""
    return {name: value for name, value in _conditions(body).items() if (name, value) != ("tenant", EVERY_TENANT)}


def _filter(body: Mapping[str, Any]) -> MessageFilter:
    found = filter_of(_conditions(body))
    if found is None:
        raise Problem(Category.VALUE, "no message can match this filter")
    return found


def _fingerprint(body: Mapping[str, Any]) -> str | None:
    value = body.get("fingerprint")
    if value is not None and not (isinstance(value, str) and value.isalnum() and value.isascii() and len(value) <= 64):
        raise Problem(Category.VALUE, "fingerprint must be one of GET /admin/dead-letters/errors")
    return value


def _flag(body: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = body.get(name, default)
    if not isinstance(value, bool):
        raise Problem(Category.VALUE, f"{name} must be true or false")
    return value


def _whole(body: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = body.get(name, default)
    if type(value) is not int or not low <= value <= high:
        raise Problem(Category.VALUE, f"{name} must be a whole number from {low} to {high}")
    return value


def _body(request: Request, members: frozenset[str]) -> dict[str, Any]:
    body = json_body(request, {})
    if not isinstance(body, dict) or not set(body) <= members:
        raise Problem(Category.VALUE, f"the body must be a JSON object; it may have {', '.join(sorted(members))}")
    return body


def _page(total: int, limit: int, offset: int, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"total": total, "limit": limit, "offset": offset, "items": items}


class Jobs(NamedTuple):
    """What the operations use."""

    messages: MessageAdmin
    preview: ReplayPreview


def _started(dry_run: str) -> dict[str, tuple[str, Schema]]:
    """A job (202), or what it would do (200)."""
    either = {"oneOf": [ref("Job"), ref(dry_run)]}
    return {"200": ("a dry run", either), "202": ("the job", either)}


ROUTES: tuple[Route[Jobs], ...] = (
    Route(
        "POST", "/messages/replay", "replay", "Convert stored messages again with the installed maps",
        lambda of, request, _: replay(of.messages, of.preview, request), role=Role.OPERATOR, masked=WhenMasked.PAGE,
        body="ReplayRequest", statuses=_started("ReplayDryRun"),
    ),
    Route(
        "GET", "/dead-letters/errors", "errorGroups", "Dead letters by what is alike in their errors",
        lambda of, request, _: error_groups(of.messages, request), "ErrorGroupList", parameters=[TENANT], is_page=True,
    ),
    Route(
        "POST", "/dead-letters/retry", "retryDeadLetters", "Try dead letters again",
        lambda of, request, _: dead_letters(of.messages, "retry", request), role=Role.OPERATOR, masked=WhenMasked.PAGE,
        body="DeadLettersRequest", statuses=_started("DeadLettersDryRun"),
    ),
    Route(
        "POST", "/dead-letters/discard", "discardDeadLetters", "Remove dead letters",
        lambda of, request, _: dead_letters(of.messages, "discard", request), role=Role.OPERATOR,
        masked=WhenMasked.PAGE, body="DeadLettersRequest", statuses=_started("DeadLettersDryRun"),
    ),
    Route(
        "GET", "/jobs", "listJobs", "Jobs, newest first", lambda of, request, _: list_jobs(of.messages, request),
        "JobList", parameters=[query("status", TEXT, "of a job"), TENANT], is_page=True,
    ),
    Route(
        "GET", "/jobs/{id}", "getJob", "One job", lambda of, _, id: get_job(of.messages, id), "Job", refusals=["404"],
    ),
    Route(
        "POST", "/jobs/{id}/cancel", "cancelJob", "Do no more of it", lambda of, _, id: cancel_job(of.messages, id),
        "Job", Role.OPERATOR, refusals=["404"], conflict="it has ended",
    ),
)  # fmt: skip
