"""`POST /admin/ingest`: an HL7 v2 message or a batch, received by the rules of the MLLP listeners; functions on values.

What arrives: the text of a message, or of a batch (FHS, BHS), with any line ends.  What leaves: the acknowledgement
and, for each message, what became of it.  It is durable before it is acknowledged, as over MLLP.
Source: docs/reference/admin-api.md "Send a message".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from ipf.errors import Category, Problem
from ipf.hl7.answers import AckAnswer, answers_of
from ipf.hl7.batches import content_of, is_batch
from ipf.hl7.header import scan_header
from ipf.ports import DEFAULT_TENANT, Answer, Inbox, MessageFilter, Request
from ipf.wire.admin.messages import answer, list_item, parameters_of
from ipf.wire.admin.route import TENANT, Mounted, Role, Route, WhenMasked
from ipf.wire.admin.schemas.base import TEXT

Receive = Callable[[bytes, str, str], Awaitable[bytes | None]]
"""(message, tenant, address of the sender): the acknowledgement, None = none is due."""
_NONE = AckAnswer("", "")


class Ingest(NamedTuple):
    """What the operation uses."""

    receive: Receive
    inbox: Inbox


def routes(receive: Receive, inbox: Inbox) -> Mounted[Ingest]:
    """The path for sending."""
    return Mounted(ROUTES, Ingest(receive, inbox))


async def send(receive: Receive, inbox: Inbox, request: Request) -> Answer:
    """200 with `code` (AA, AE, AR; null for an acknowledgement), `text`, `acknowledgement` and `messages`.

    `code`, `text`: of the first message that was not accepted, else of the first one.  `messages`: for each its
    `source_id`, `code`, `text` and `message`, its row; null when it was not stored.  A repeated message is AA with the
    row of before.  A batch that is cut off is AR as a whole.
    """
    raw = request.body.strip(b"\r\n\x0b\x1c").replace(b"\r\n", b"\r").replace(b"\n", b"\r")
    if not raw:
        raise Problem(Category.VALUE, "the body must be an HL7 v2 message or a batch")
    tenant = parameters_of(request).get("tenant") or DEFAULT_TENANT
    if not tenant.isprintable() or tenant == "*":
        raise Problem(Category.VALUE, "tenant must name one tenant")
    acknowledgement = await receive(raw + b"\r", tenant, request.address or "admin")
    text = None if acknowledgement is None else acknowledgement.decode("utf-8", "replace").replace("\r", "\n")
    answers = {one.control_id: one for one in answers_of(acknowledgement or b"")}
    messages = [await _sent(inbox, one, tenant, answers) for one in _messages(raw + b"\r")]
    first = next((one for one in answers.values() if not one.is_good), next(iter(answers.values()), _NONE))
    found = {"code": first.code or None, "text": first.text, "acknowledgement": text, "messages": messages}
    return answer(200, found)


def _messages(raw: bytes) -> list[bytes]:
    if not is_batch(raw):
        return [raw]
    try:
        return content_of(raw).messages
    except Problem:  # the receiver has refused it as a whole
        return []


async def _sent(inbox: Inbox, raw: bytes, tenant: str, answers: Mapping[str, AckAnswer]) -> dict[str, Any]:
    try:
        header = scan_header(raw)
    except Problem:
        header = None
    id = header.source_id if header is not None else ""
    found = answers.get(header.field(10) if header is not None else "", _NONE)
    row = None
    if header is not None and found.is_good:
        wanted = MessageFilter(source_id=id, source_system=header.source_system, tenant=tenant)
        page = await inbox.page(wanted, 1, 0)
        row = list_item(page.rows[0]) if page.rows else None
    return {"source_id": id, "code": found.code or None, "text": found.text, "message": row}


ROUTES: tuple[Route[Ingest], ...] = (
    Route(
        "POST", "/ingest", "ingest", "Receive HL7 v2 messages, as over MLLP",
        lambda of, request, _: send(of.receive, of.inbox, request), "Acknowledged", Role.OPERATOR, WhenMasked.PAGE,
        parameters=[TENANT], sends=("text/plain", TEXT),
    ),
)  # fmt: skip
