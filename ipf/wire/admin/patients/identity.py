"""Identity conflicts: the review queue, answers of operators, and the messages that an answer releases.

Functions on values.  `/admin/identity-conflicts` lists matches that conversions did not make; an answer (merge, apart,
take) is stored with the FHIR resources, where every later message with the same identifier finds it, and the messages
that wait are retried in order.  `/admin/identity-answers` lists and revokes answers.

The steps of an answer are a transaction each: merge, store the answer, release.  After a crash between them the row is
still open, and the same answer, given again, completes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from twisted.logger import Logger

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.ports import Answer, FhirStore, Notifier, Request
from ipf.ports.identity import (
    AnswerKind,
    ConflictFilter,
    ConflictRow,
    ConflictStatus,
    IdentityAnswer,
    IdentityAnswers,
    IdentityConflicts,
)
from ipf.telemetry.logs import event_line
from ipf.wire.admin.access import author_of
from ipf.wire.admin.messages import INBOX, InvalidStatus, answer, json_body, parameters_of, row_id, tenant_of, window
from ipf.wire.admin.patients.items import answer_item, candidate_item, conflict_item
from ipf.wire.admin.route import TENANT, Mounted, Role, Route, WhenMasked, query
from ipf.wire.admin.schemas.base import COUNT, TEXT
from ipf.wire.admin.schemas.identity import STATUSES

log = Logger()

_MEMBERS = frozenset(("answer", "target", "reason"))
_LONGEST = 1000
DELIVERY = "delivery"

MergePatients = Callable[[str, str, str, str, str, str], Awaitable[object]]
"""(tenant, id of the source, id of the target, who, reason, correlation id).

Problem BUSINESS_RULE when they are merged already.  A merge that was interrupted is completed.
"""


@dataclass(frozen=True, slots=True)
class IdentityAdmin:
    """The parts that these functions use.  `actor`: the author of answers where no person is named."""

    conflicts: IdentityConflicts
    answers: IdentityAnswers
    store: FhirStore
    merge: MergePatients
    notifier: Notifier
    actor: str


async def list_conflicts(admin: IdentityAdmin, request: Request) -> Answer:
    """`GET /admin/identity-conflicts`: one page, newest first."""
    parameters = parameters_of(request)
    limit, offset = window(parameters)
    message = parameters.get("message_id", "")
    wanted = ConflictFilter(
        status=_status(parameters.get("status", "")),
        source_system=_exact(parameters, "source_system"),
        resource_type=_exact(parameters, "resource_type"),
        message_id=row_id(message) if message else None,
        tenant=tenant_of(parameters),
    )
    total, rows = await admin.conflicts.conflicts(wanted, limit, offset)
    return _page(total, limit, offset, [conflict_item(row) for row in rows])


async def get_conflict(admin: IdentityAdmin, number: str) -> Answer:
    """`GET /admin/identity-conflicts/{id}`: with what the candidates are now."""
    row = await _conflict(admin, number)
    resources = [candidate_item(one, await _resource(admin, row.tenant, one)) for one in row.finding.candidates]
    return answer(200, conflict_item(row) | {"candidate_resources": resources})


async def answer_conflict(admin: IdentityAdmin, number: str, request: Request) -> Answer:
    """`POST /admin/identity-conflicts/{id}/answer`: `{"answer": "merge|apart|take", "target": "Patient/x", "reason"}`.

    200 with the row and the numbers of released messages.  409 when the row is closed, or the target is gone.
    """
    row = await _conflict(admin, number)
    if row.status is ConflictStatus.CLOSED:
        raise Problem(Category.CONFLICT, f"identity conflict {row.id} is closed: nothing waits for an answer")
    if not row.finding.keys:
        raise Problem(
            Category.CONFLICT, "the finding has no identifier that an answer could be for: correct the resources"
        )
    kind, target, reason = _decision(row, _body(request))
    who = author_of(request, admin.actor)
    if target is None:
        target = f"{row.finding.resource_type}/{_new_id(row)}"
    else:
        await _check_target(admin, row, target)
    if kind is AnswerKind.MERGE:
        await _merge(admin, row, target, who, reason, request.correlation_id)
        admin.notifier.notify(DELIVERY)
    resource_type, _, resource_id = target.partition("/")
    key = row.finding.keys[0].text
    decided = IdentityAnswer(resource_type, key, resource_id, kind, who, reason, row.tenant)
    await admin.answers.record(decided)
    released = await admin.conflicts.answer(row.id, kind, target, who)
    admin.notifier.notify(INBOX)
    _log_change("identity_conflict_answered", admin, request, conflict_id=row.id, tenant=row.tenant,
                resource_type=resource_type, answer=kind.value, target=target, retried=released.retried)  # fmt: skip
    found = conflict_item(await _conflict(admin, number))
    return answer(200, found | {"retried": released.retried, "converted_again": released.converted_again})


async def list_answers(admin: IdentityAdmin, request: Request) -> Answer:
    """`GET /admin/identity-answers`: one page, newest first."""
    parameters = parameters_of(request)
    limit, offset = window(parameters)
    total, rows = await admin.answers.answers(tenant_of(parameters), limit, offset)
    return _page(total, limit, offset, [answer_item(row) for row in rows])


async def revoke_answer(admin: IdentityAdmin, number: str, request: Request) -> Answer:
    """`DELETE /admin/identity-answers/{id}`: later messages with the key conflict again.  What was written stays."""
    tenant, id_ = tenant_of(parameters_of(request)), row_id(number)
    await admin.answers.revoke(tenant, id_)
    _log_change("identity_answer_revoked", admin, request, answer_id=id_, tenant=tenant)
    return Answer(204, b"", (), "")


def _decision(row: ConflictRow, body: Mapping[str, Any]) -> tuple[AnswerKind, str | None, str]:
    """Kind, target (None: a new resource) and reason.  Problem VALUE names what is wrong with them."""
    finding = row.finding
    try:
        kind = AnswerKind(str(body.get("answer")))
    except ValueError:
        raise Problem(Category.VALUE, f"answer must be one of {', '.join(AnswerKind)}") from None
    target, reason = _text(body, "target"), _text(body, "reason") or ""
    if kind is AnswerKind.APART:
        if target is not None:
            raise Problem(Category.VALUE, "apart has no target: a new resource is created")
        return kind, None, reason
    if kind is AnswerKind.MERGE and finding.resource_type != "Patient":
        raise Problem(Category.VALUE, f"only Patients can be merged, not {finding.resource_type}: answer take or apart")
    if target is None and len(finding.candidates) == 1:
        target = finding.candidates[0]
    if target not in finding.candidates:
        raise Problem(Category.VALUE, f"target must be one of {', '.join(finding.candidates)}")
    return kind, target, reason


def _new_id(row: ConflictRow) -> str:
    """The id of the resource that `apart` creates: the same when the same conflict is answered again after a crash."""
    return str(uuid5(UUID(row.correlation_id), f"{row.finding.resource_type}|{row.finding.keys[0].text}"))


async def _check_target(admin: IdentityAdmin, row: ConflictRow, target: str) -> None:
    """Problem CONFLICT when the target is deleted, or replaced by another Patient."""
    resource = await _resource(admin, row.tenant, target)
    if resource is None:
        raise Problem(Category.CONFLICT, f"{target} does not exist any more")
    replaced_by = _replaced_by(resource)
    if replaced_by is not None:
        raise Problem(Category.CONFLICT, f"{target} was merged into {replaced_by}")


async def _merge(
    admin: IdentityAdmin, row: ConflictRow, target: str, who: str, reason: str, correlation_id: str
) -> None:
    """Merge every other candidate into the target; a deleted one is left out.

    Problem CONFLICT, before anything is merged, when one was merged into another Patient than the target.
    """
    sources: dict[str, str | None] = {}
    for candidate in row.finding.candidates:
        resource = None if candidate == target else await _resource(admin, row.tenant, candidate)
        if resource is not None:
            sources[candidate] = _replaced_by(resource)
    for candidate, replaced_by in sources.items():
        if replaced_by not in (None, target):
            text = f"{candidate} was merged into {replaced_by}: retry the message, so that the conflict is found anew"
            raise Problem(Category.CONFLICT, text)
    for candidate, replaced_by in sources.items():
        source, into = candidate.partition("/")[2], target.partition("/")[2]
        try:
            await admin.merge(row.tenant, source, into, who, reason, correlation_id)
        except Problem as problem:
            if problem.category is not Category.BUSINESS_RULE or replaced_by is None:
                raise  # else: an earlier answer merged them, and moved all that refers to the source


async def _resource(admin: IdentityAdmin, tenant: str, reference: str) -> dict[str, Any] | None:
    """The stored resource; None when there is none, or it is deleted."""
    resource_type, _, id_ = reference.partition("/")
    version = await admin.store.read(tenant, resource_type, id_)
    if version is None or version.deleted:
        return None
    resource: dict[str, Any] = loads(version.body)
    return resource


def _replaced_by(resource: Mapping[str, Any]) -> str | None:
    for link in resource.get("link", ()):
        if link.get("type") == "replaced-by":
            return str(link["other"].get("reference", "another Patient"))
    return None


async def _conflict(admin: IdentityAdmin, number: str) -> ConflictRow:
    found = await admin.conflicts.conflict(row_id(number))
    if found is None:
        raise Problem(Category.NOT_FOUND, f"there is no identity conflict with id {row_id(number)}")
    return found


def _status(text: str) -> ConflictStatus | None:
    if not text:
        return None
    if text not in set(ConflictStatus):
        raise InvalidStatus(Category.VALUE, f"status must be one of {', '.join(ConflictStatus)}")
    return ConflictStatus(text)


def _exact(parameters: Mapping[str, str], name: str) -> str | None:
    text = parameters.get(name) or None
    if text is not None and not text.isprintable():
        raise Problem(Category.VALUE, f"{name} has characters that no {name} has")
    return text


def _body(request: Request) -> Mapping[str, Any]:
    body = json_body(request, {})
    if not isinstance(body, dict) or not set(body) <= _MEMBERS:
        raise Problem(Category.VALUE, "the body is a JSON object with answer, and may have target and reason")
    return body


def _text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
        raise Problem(Category.VALUE, f"{name} must be a text of at most {_LONGEST} characters in one line")
    return value.strip() or None


def _page(total: int, limit: int, offset: int, items: list[dict[str, Any]]) -> Answer:
    return answer(200, {"total": total, "limit": limit, "offset": offset, "items": items})


def _log_change(event: str, admin: IdentityAdmin, request: Request, **fields: Any) -> None:
    """One line for a change by an operator; without the reason, which may name a patient."""
    line = event_line(
        event, name="audit_event", **fields, actor=author_of(request, admin.actor), address=request.address or None
    )
    log.info(line, correlation_id=request.correlation_id)


_CONFLICT_FILTERS = (
    query("status", {"enum": STATUSES}, "of the conflict"),
    query("source_system", TEXT, "exactly"),
    query("resource_type", TEXT, "exactly, such as Patient"),
    query("message_id", COUNT, "of this message"),
    TENANT,
)
ROUTES: tuple[Route[IdentityAdmin], ...] = (
    Route(
        "GET", "/identity-conflicts", "listIdentityConflicts", "Matches that were not made",
        lambda of, request, _: list_conflicts(of, request), "IdentityConflictList", parameters=_CONFLICT_FILTERS,
        refusals=["404"], is_page=True,
    ),
    Route(
        "GET", "/identity-conflicts/{id}", "getIdentityConflict", "One, with its candidates",
        lambda of, _, id: get_conflict(of, id), "FullIdentityConflict", refusals=["404"],
    ),
    Route(
        "POST", "/identity-conflicts/{id}/answer", "answerIdentityConflict", "Decide it and release its messages",
        lambda of, request, id: answer_conflict(of, id, request), "IdentityAnswered", Role.OPERATOR, WhenMasked.PAGE,
        body="IdentityAnswerRequest", refusals=["404", "422"], conflict="it is closed, or the target is gone",
    ),
    Route(
        "GET", "/identity-answers", "listIdentityAnswers", "Answers of operators",
        lambda of, request, _: list_answers(of, request), "IdentityAnswerList", masked=WhenMasked.NO,
        parameters=[TENANT], is_page=True,
    ),
    Route(
        "DELETE", "/identity-answers/{id}", "revokeIdentityAnswer", "Take it back",
        lambda of, request, id: revoke_answer(of, id, request), role=Role.OPERATOR, masked=WhenMasked.NO,
        parameters=[TENANT], refusals=["404"],
    ),
)  # fmt: skip


def routes(admin: IdentityAdmin) -> Mounted[IdentityAdmin]:
    """The paths of conflicts and answers."""
    return Mounted(ROUTES, admin)
