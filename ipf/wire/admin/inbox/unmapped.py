"""Codes without a ConceptMap entry: the list, overrides, and further conversions; functions on values.

`/admin/unmapped-codes` lists them, `map` stores an override, `requeue` converts the messages again;
`/admin/code-overrides` lists the overrides, `/admin/conversions` the further conversions.  Errors, paging and
authentication are those of `/admin/messages` (`admin_messages`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ipf.errors import Category, Problem
from ipf.ports import (
    ALL_SENDERS,
    Answer,
    Conversion,
    Notifier,
    Override,
    OverrideFilter,
    Request,
    Status,
    UnmappedCodes,
    UnmappedFilter,
    UnmappedRow,
    WrongState,
)
from ipf.wire.admin.messages import (
    INBOX,
    InvalidStatus,
    answer,
    conflict,
    json_body,
    parameters_of,
    row_id,
    tenant_of,
    timestamp,
    window,
)
from ipf.wire.admin.route import CONFLICT, TENANT, WRONG_STATE, Role, Route, WhenMasked, query
from ipf.wire.admin.schemas.base import COUNT, STATES, TEXT

MAPPING = "mapping"
_MOST_MESSAGES = 500
_LONGEST = 1000
_MAP_MEMBERS = frozenset(("system", "code", "display", "scope"))


async def list_codes(codes: UnmappedCodes, request: Request) -> Answer:
    """`GET /admin/unmapped-codes`: one page, the last seen first."""
    parameters = parameters_of(request)
    limit, offset = window(parameters)
    has_override = _has_override(parameters.get("status", ""))
    wanted = UnmappedFilter(**_exact(parameters), has_override=has_override, tenant=tenant_of(parameters))
    total, rows = await codes.unmapped(wanted, limit, offset)
    return _page(total, limit, offset, [code_item(row) for row in rows])


async def get_code(codes: UnmappedCodes, number: str) -> Answer:
    """`GET /admin/unmapped-codes/{id}`: with its messages, the newest 500."""
    row = await _code(codes, number)
    return answer(200, code_item(row) | {"message_ids": await codes.message_ids(row.id, _MOST_MESSAGES)})


async def map_code(codes: UnmappedCodes, notifier: Notifier, number: str, request: Request) -> Answer:
    """`POST /admin/unmapped-codes/{id}/map`: `{"system", "code", "display", "scope": "sender" | "all"}`.

    `code` null: the code has no target, and that is right so.
    """
    row, body = await _code(codes, number), _body(request)
    unknown = sorted(set(body) - _MAP_MEMBERS)
    if unknown or "code" not in body:
        raise Problem(Category.VALUE, "the body has 'code' (null: no target), and may have system, display and scope")
    scope = body.get("scope", "sender")
    if scope not in ("sender", "all"):
        raise Problem(Category.VALUE, "scope must be sender or all")
    system, code, display = (_text(body, name) for name in ("system", "code", "display"))
    if code is None and (system or display):
        raise Problem(Category.VALUE, "system and display need a code")
    sender = row.source_system if scope == "sender" else ALL_SENDERS
    made = await codes.set_override(Override(sender, row.concept_map, row.code, system, code, display, row.tenant))
    notifier.notify(MAPPING)
    return answer(200, override_item(made))


async def requeue_code(codes: UnmappedCodes, notifier: Notifier, number: str, request: Request) -> Answer:
    """`POST /admin/unmapped-codes/{id}/requeue`: its messages are converted again.

    Body, optional: `{"following": false}` leaves out later messages of the same patients.
    """
    body = _body(request)
    following = body.get("following", True)
    if set(body) - {"following"} or not isinstance(following, bool):
        raise Problem(Category.VALUE, "the body may only have 'following': true or false")
    row = await _code(codes, number)
    done = await codes.requeue(row.id, following=following)
    notifier.notify(INBOX)
    counts = {"converted_again": done.converted_again, "following": done.following, "retried": done.retried}
    return answer(200, {"id": row.id} | counts)


async def list_overrides(codes: UnmappedCodes, request: Request) -> Answer:
    """`GET /admin/code-overrides`: one page, the last changed first."""
    parameters = parameters_of(request)
    limit, offset = window(parameters)
    wanted = OverrideFilter(**_exact(parameters), tenant=tenant_of(parameters))
    total, rows = await codes.overrides(wanted, limit, offset)
    return _page(total, limit, offset, [override_item(row) for row in rows])


async def get_override(codes: UnmappedCodes, number: str) -> Answer:
    """`GET /admin/code-overrides/{id}`."""
    found = await codes.override(row_id(number))
    if found is None:
        raise Problem(Category.NOT_FOUND, f"there is no override with id {row_id(number)}")
    return answer(200, override_item(found))


async def delete_override(codes: UnmappedCodes, notifier: Notifier, number: str) -> Answer:
    """`DELETE /admin/code-overrides/{id}`: the ConceptMap applies again."""
    await codes.delete_override(row_id(number))
    notifier.notify(MAPPING)
    return Answer(204, b"", (), "")


async def list_conversions(codes: UnmappedCodes, request: Request) -> Answer:
    """`GET /admin/conversions`: further conversions, the newest first."""
    parameters = parameters_of(request)
    limit, offset = window(parameters)
    message = parameters.get("message_id", "")
    status = parameters.get("status", "")
    if status and status not in set(Status):
        raise InvalidStatus(Category.VALUE, f"status must be one of {', '.join(Status)}")
    number, state = row_id(message) if message else None, Status(status) if status else None
    total, rows = await codes.conversions(tenant_of(parameters), number, state, limit, offset)
    return _page(total, limit, offset, [conversion_item(row) for row in rows])


async def retry_conversion(codes: UnmappedCodes, notifier: Notifier, number: str) -> Answer:
    """`POST /admin/conversions/{id}/retry`."""
    try:
        row = await codes.retry_conversion(row_id(number))
    except WrongState as wrong:
        return conflict("retry", "FAILED or DEAD_LETTER", wrong)
    notifier.notify(INBOX)
    return answer(200, conversion_item(row))


async def delete_conversion(codes: UnmappedCodes, number: str) -> Answer:
    """`DELETE /admin/conversions/{id}`: a dead letter is removed."""
    try:
        await codes.delete_conversion(row_id(number))
    except WrongState as wrong:
        return conflict("delete", "DEAD_LETTER", wrong)
    return Answer(204, b"", (), "")


def code_item(row: UnmappedRow) -> dict[str, Any]:
    """An unmapped code."""
    return {
        "id": row.id,
        "source_system": row.source_system,
        "concept_map": row.concept_map,
        "code": row.code,
        "status": "open" if row.override_id is None else "mapped",
        "first_seen": timestamp(row.first_seen),
        "last_seen": timestamp(row.last_seen),
        "count": row.occurrences,
        "messages": row.messages,
        "override_id": row.override_id,
        "tenant": row.tenant,
    }


def override_item(row: Override) -> dict[str, Any]:
    """A code override; `source_system` null: for all senders."""
    return {
        "id": row.id,
        "source_system": row.source_system or None,
        "concept_map": row.concept_map,
        "source_code": row.code,
        "system": row.target_system,
        "code": row.target_code,
        "display": row.target_display,
        "created_at": timestamp(row.created_at),
        "updated_at": timestamp(row.updated_at),
        "tenant": row.tenant,
    }


def conversion_item(row: Conversion) -> dict[str, Any]:
    """A further conversion."""
    moments: dict[str, datetime | None] = {
        "last_attempt_at": row.last_attempt_at,
        "next_attempt_at": row.next_attempt_at,
        "delivered_at": row.delivered_at,
    }
    return {
        "id": row.id,
        "message_id": row.message_id,
        "asked_at": timestamp(row.requested_at),
        "reason": row.reason,
        "status": str(row.status),
        "attempt_count": row.attempt_count,
        "last_error": row.last_error,
        "correlation_id": row.correlation_id,
        "tenant": row.tenant,
        "permanent": row.permanent,
    } | {name: timestamp(moment) for name, moment in moments.items()}


async def _code(codes: UnmappedCodes, number: str) -> UnmappedRow:
    found = await codes.unmapped_code(row_id(number))
    if found is None:
        raise Problem(Category.NOT_FOUND, f"there is no unmapped code with id {row_id(number)}")
    return found


def _page(total: int, limit: int, offset: int, items: list[dict[str, Any]]) -> Answer:
    return answer(200, {"total": total, "limit": limit, "offset": offset, "items": items})


def _exact(parameters: Mapping[str, str]) -> dict[str, str]:
    names = ("source_system", "concept_map", "code")
    return {name: parameters[name].replace("\0", " ") for name in names if parameters.get(name)}


def _has_override(status: str) -> bool | None:
    if status not in ("", "open", "mapped"):
        raise InvalidStatus(Category.VALUE, "status must be open or mapped")
    return None if not status else status == "mapped"


def _body(request: Request) -> dict[str, Any]:
    body = json_body(request, {})
    if not isinstance(body, dict):
        raise Problem(Category.VALUE, "the body must be a JSON object")
    return body


def _text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST or not value.isprintable():
        raise Problem(Category.VALUE, f"{name} must be a text of at most {_LONGEST} characters, or null")
    return value.strip()


class Codes(NamedTuple):
    """What the operations use."""

    codes: UnmappedCodes
    notifier: Notifier


_EXACTLY = (TENANT, *(query(name, TEXT, "exactly") for name in ("source_system", "concept_map", "code")))
_OF_CONVERSION = (
    query("message_id", COUNT, "of this message"), query("status", {"enum": STATES}, "in this state"), TENANT
)  # fmt: skip
ROUTES: tuple[Route[Codes], ...] = (
    Route(
        "GET", "/unmapped-codes", "listUnmappedCodes", "Codes that no table had",
        lambda of, request, _: list_codes(of.codes, request), "List",
        parameters=[*_EXACTLY, query("status", TEXT, "open or mapped")], is_page=True,
    ),
    Route(
        "GET", "/unmapped-codes/{id}", "getUnmappedCode", "One code", lambda of, _, id: get_code(of.codes, id), "Any",
        refusals=["404"],
    ),
    Route(
        "POST", "/unmapped-codes/{id}/map", "mapCode", "Keep an answer",
        lambda of, request, id: map_code(of.codes, of.notifier, id, request), "Any", Role.OPERATOR, WhenMasked.PAGE,
        body="MapCodeRequest", refusals=["404"],
    ),
    Route(
        "POST", "/unmapped-codes/{id}/requeue", "requeueCode", "Convert its messages again",
        lambda of, request, id: requeue_code(of.codes, of.notifier, id, request), "Requeued", Role.OPERATOR,
        body="RequeueRequest", refusals=["404"],
    ),
    Route(
        "GET", "/code-overrides", "listOverrides", "Answers of operators",
        lambda of, request, _: list_overrides(of.codes, request), "List", parameters=_EXACTLY, is_page=True,
    ),
    Route(
        "GET", "/code-overrides/{id}", "getOverride", "One answer", lambda of, _, id: get_override(of.codes, id),
        "Any", masked=WhenMasked.NO, refusals=["404"],
    ),
    Route(
        "DELETE", "/code-overrides/{id}", "deleteOverride", "Take it back",
        lambda of, _, id: delete_override(of.codes, of.notifier, id), role=Role.OPERATOR, masked=WhenMasked.NO,
        refusals=["404"],
    ),
    Route(
        "GET", "/conversions", "listConversions", "Further conversions",
        lambda of, request, _: list_conversions(of.codes, request), "ConversionList", masked=WhenMasked.NO,
        parameters=_OF_CONVERSION, refusals=["404"], is_page=True,
    ),
    Route(
        "POST", "/conversions/{id}/retry", "retryConversion", "Try it again",
        lambda of, _, id: retry_conversion(of.codes, of.notifier, id), "Conversion", Role.OPERATOR, WhenMasked.NO,
        refusals=["404"], conflict=WRONG_STATE, conflict_body=CONFLICT,
    ),
    Route(
        "DELETE", "/conversions/{id}", "deleteConversion", "Remove a dead letter",
        lambda of, _, id: delete_conversion(of.codes, id), role=Role.OPERATOR, masked=WhenMasked.NO,
        refusals=["404"], conflict=WRONG_STATE, conflict_body=CONFLICT,
    ),
)  # fmt: skip
