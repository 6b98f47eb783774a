"""Message administration as functions on values: a Request in, an Answer out, no socket.

Rows of the inbox are shown, retried and deleted exactly as the interface specification says ("Message administration",
"Limits", "Conflict body"); where it is silent decisions section 3 holds: every key is always present, absent values are
null, filters combine, a blank filter is none, errors are `{"error", "message"}`.  Failures leave as `Problem` or
`WrongState`; `refusal` and `conflict` are the only places that render them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.ports import (
    DEFAULT_TENANT,
    Answer,
    Inbox,
    MessageFilter,
    MessagePage,
    MessageRow,
    Notifier,
    Request,
    Status,
    WrongState,
)
from ipf.ports.messages.inbox import passed_through
from ipf.wire.admin.route import CONFLICT, TENANT, WRONG_STATE, Role, Route, query
from ipf.wire.admin.schemas.base import STATES, TEXT
from ipf.wire.http.serving import JSON
from ipf.wire.http.serving import refusal as engine_refusal

INBOX = "inbox"  # the topic of the notifier
DEFAULT_LIMIT = 50
HIGHEST_LIMIT = 500
HIGHEST_OFFSET = 2**53
HIGHEST_ID = 2**63 - 1
MOST_VALUES = 20_000
"""Commas, brackets and braces of a body: twice the ids that a request may name."""
MOST_VALUES_WITH_TEXTS = 100_000
"""Of a body with the text of a map, which has such signs of its own."""
TEXT_FILTERS = ("patient", "text", "error")
TIME_FILTERS = ("received_from", "received_to")
EXACT_FILTERS = ("source_id", "source_system", "message_type", "correlation_id", "tenant")

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_RETRYABLE = "FAILED or DEAD_LETTER"
_DELETABLE = "DEAD_LETTER"


def parameters_of(request: Request) -> dict[str, str]:
    """Query parameters, stripped; the first of a name counts."""
    return {name: value.strip() for name, value in reversed(request.query)}


def json_body(request: Request, default: Any, most_values: int = MOST_VALUES) -> Any:
    """The JSON value of a body, which is read at once, between other requests; `default` without one.

    Problem MALFORMED; TOO_LARGE for a body that takes long to read.
    """
    return loads(request.body, most_values) if request.body.strip() else default


async def list_messages(inbox: Inbox, request: Request) -> Answer:
    """`GET /admin/messages`: one page, newest first.  Problem VALUE for a bad status, limit or offset."""
    parameters = parameters_of(request)
    limit, offset = window(parameters)
    wanted = filter_of(parameters)
    page = MessagePage(0, ()) if wanted is None else await inbox.page(wanted, limit, offset)
    items = [list_item(row) for row in page.rows]
    body: dict[str, Any] = {"total": page.total, "limit": limit, "offset": offset, "items": items}
    if wanted is not None and (wanted.text or wanted.patient):
        body |= {"total_is_exact": page.is_exact, "index_lag": page.index_lag}
    return answer(200, body)


async def get_message(inbox: Inbox, message_id: str) -> Answer:
    """`GET /admin/messages/{id}`: the full row."""
    number = row_id(message_id)
    row = await inbox.get(number)
    if row is None:
        raise _unknown(number)
    return answer(200, full_row(row))


async def retry_message(inbox: Inbox, notifier: Notifier, message_id: str) -> Answer:
    """`POST /admin/messages/{id}/retry`: back to RECEIVED; the worker is notified."""
    number = row_id(message_id)
    try:
        row = await inbox.retry(number)
    except WrongState as wrong:
        return conflict("retry", _RETRYABLE, wrong)
    notifier.notify(INBOX)
    return answer(200, full_row(row))


async def delete_message(inbox: Inbox, message_id: str) -> Answer:
    """`DELETE /admin/messages/{id}`: a dead letter is removed."""
    try:
        await inbox.delete(row_id(message_id))
    except WrongState as wrong:
        return conflict("delete", _DELETABLE, wrong)
    return Answer(204, b"", (), "")


def window(parameters: Mapping[str, str]) -> tuple[int, int]:
    """`limit` and `offset` as used: limit in [1,500], offset not negative and a multiple of limit."""
    limit = min(max(_number(parameters, "limit", DEFAULT_LIMIT), 1), HIGHEST_LIMIT)
    offset = min(max(_number(parameters, "offset", 0), 0), HIGHEST_OFFSET)
    return limit, offset - offset % limit


def tenant_of(parameters: Mapping[str, str]) -> str:
    """The tenant of a list: parameter `tenant`, `*` for all; without it the tenant `default`."""
    tenant = parameters.get("tenant", "") or DEFAULT_TENANT
    if not tenant.isprintable():
        raise Problem(Category.VALUE, "tenant must be the name of a tenant, or *")
    return tenant


def list_item(row: MessageRow) -> dict[str, Any]:
    """The fields of a list item in the specification's order, then the tenant and whether no retry mends the error."""
    return {
        "id": row.id,
        "received_at": timestamp(row.received_at),
        "source_protocol": row.source_protocol,
        "source_system": row.source_system,
        "source_id": row.source_id,
        "message_type": row.message_type,
        "status": str(row.status),
        "attempt_count": row.attempt_count,
        "last_attempt_at": timestamp(row.last_attempt_at),
        "last_error": row.last_error,
        "delivered_at": timestamp(row.delivered_at),
        "correlation_id": row.correlation_id,
        "tenant": row.tenant,
        "permanent": row.permanent,
    }


def full_row(row: MessageRow) -> dict[str, Any]:
    """A list item and the fields of the single row."""
    return list_item(row) | {
        "next_attempt_at": timestamp(row.next_attempt_at),
        "raw_message": None if row.raw is None else readable(row.raw, row.charset),
        "raw_content_type": row.raw_content_type,
        "passed_through": passed_through(row.status, row.transform_ms),
    }


def readable(raw: bytes, charset: str | None) -> str:
    """The message as text; bytes outside its charset become U+FFFD."""
    try:
        return raw.decode(charset or "utf-8", "replace")
    except (LookupError, ValueError):  # no such charset, or a codec that is not for text
        return raw.decode("utf-8", "replace")


def timestamp(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC with `Z` and microseconds, so that a value sorts as the rows do."""
    if moment is None:
        return None
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def answer(status: int, body: Mapping[str, Any], *headers: tuple[str, str]) -> Answer:
    """A JSON answer."""
    return Answer(status, orjson.dumps(body), headers, JSON)


def refusal(problem: Problem) -> Answer:
    """The admin error body of a Problem: `{"error": code, "message": text}`."""
    if isinstance(problem, InvalidStatus):
        return answer(400, {"error": "invalid_status", "message": problem.text})
    return engine_refusal(problem)


def conflict(action: str, required: str, wrong: WrongState) -> Answer:
    """The 409 body: names the required states and the current one."""
    return answer(
        409,
        {
            "error": f"invalid_state_for_{action}",
            "message": f"{action} needs status {required}; message {wrong.message_id} is {wrong.current}",
            "id": wrong.message_id,
            "currentStatus": str(wrong.current),
        },
    )


class InvalidStatus(Problem):
    """A `status` that is none of the five; the code in its error body is `invalid_status`."""


def filter_of(parameters: Mapping[str, str]) -> MessageFilter | None:
    """The filter that parameters name; None: no row can match.  Problem VALUE for a bad status or time."""
    exact = {name: parameters[name] for name in EXACT_FILTERS if parameters.get(name)}
    texts = {name: parameters[name] for name in TEXT_FILTERS if parameters.get(name)}
    status = _status(parameters.get("status", ""))
    times = {name: _moment(parameters, name) for name in TIME_FILTERS}
    if any(mark in value for value in (*exact.values(), *texts.values()) for mark in "\0\x1e\x1f"):
        return None
    if "correlation_id" in exact:
        if not _UUID.fullmatch(exact["correlation_id"]):
            return None
        exact["correlation_id"] = exact["correlation_id"].lower()
    permanent = _flag(parameters, "permanent")
    return MessageFilter(status=status, permanent=permanent, **exact, **texts, **times)  # type: ignore[arg-type]  # by name


def _flag(parameters: Mapping[str, str], name: str) -> bool | None:
    text = parameters.get(name, "")
    if text not in ("", "true", "false"):
        raise Problem(Category.VALUE, f"{name} must be true or false")
    return None if not text else text == "true"


def _moment(parameters: Mapping[str, str], name: str) -> datetime | None:
    text = parameters.get(name, "")
    if not text:
        return None
    try:
        # A plus sign in a query arrives as a blank.
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Problem(Category.VALUE, f"{name} must be a date or time of ISO 8601, such as 2026-01-31T08:00Z") from None


def _status(text: str) -> Status | None:
    if not text:
        return None
    try:
        return Status(text)
    except ValueError:
        states = ", ".join(Status)
        raise InvalidStatus(Category.VALUE, f"status must be one of {states}") from None


def _number(parameters: Mapping[str, str], name: str, default: int) -> int:
    text = parameters.get(name, "")
    if not text:
        return default
    if not _WHOLE_NUMBER.fullmatch(text):
        raise Problem(Category.VALUE, f"{name} must be a whole number")
    if len(text) > 18:  # out of every range; avoids arithmetic on thousands of digits
        return -1 if text.startswith("-") else HIGHEST_OFFSET
    return int(text)


def row_id(text: str) -> int:
    """The row number in a path.  Problem VALUE: not a number; NOT_FOUND: out of range."""
    if not _WHOLE_NUMBER.fullmatch(text):
        raise Problem(Category.VALUE, "the id must be a whole number")
    number = int(text) if len(text) <= 19 else HIGHEST_ID + 1
    if not 0 <= number <= HIGHEST_ID:
        raise Problem(Category.NOT_FOUND, "there is nothing with this id")
    return number


def _unknown(number: int) -> Problem:
    return Problem(Category.NOT_FOUND, f"there is no message with id {number}")


class Messages(NamedTuple):
    """What the operations use."""

    inbox: Inbox
    notifier: Notifier


_EXACTLY = ("source_id", "source_system", "message_type", "correlation_id")
MESSAGE_FILTERS = (
    query("status", {"enum": STATES}, "one of the five states"),
    *(query(name, TEXT, "exactly") for name in _EXACTLY),
    TENANT,
    query("patient", TEXT, "an identifier of PID-3 or MRG-1: value, or authority|value"),
    query("text", TEXT, "words inside the message, all of them; name* = every word that begins so"),
    query("error", TEXT, "a part of the last error"),
    query("permanent", {"enum": ["true", "false"]}, "the last error is (not) one that no retry mends"),
    query("received_from", TEXT, "ISO 8601 date or time, included"),
    query("received_to", TEXT, "ISO 8601 date or time, excluded"),
)
ROUTES: tuple[Route[Messages], ...] = (
    Route(
        "GET", "/messages", "listMessages", "Messages, newest first",
        lambda of, request, _: list_messages(of.inbox, request), "MessageList", parameters=MESSAGE_FILTERS,
        is_page=True,
    ),
    Route(
        "GET", "/messages/{id}", "getMessage", "One message with what was received",
        lambda of, _, id: get_message(of.inbox, id), "FullMessage", refusals=["404"],
    ),
    Route(
        "DELETE", "/messages/{id}", "deleteMessage", "Remove a dead letter",
        lambda of, _, id: delete_message(of.inbox, id), role=Role.OPERATOR, refusals=["404"], conflict=WRONG_STATE,
        conflict_body=CONFLICT,
    ),
    Route(
        "POST", "/messages/{id}/retry", "retryMessage", "FAILED or DEAD_LETTER back to RECEIVED",
        lambda of, _, id: retry_message(of.inbox, of.notifier, id), "FullMessage", Role.OPERATOR, refusals=["404"],
        conflict=WRONG_STATE, conflict_body=CONFLICT,
    ),
)  # fmt: skip
