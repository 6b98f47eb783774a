"""`POST /admin/ingest`: an HL7 v2 message or a batch, received by the rules of the MLLP listeners; functions on values.

What arrives: the text of a message, or of a batch (FHS, BHS), with any line ends.  What leaves: the acknowledgement
and, for each message, what became of it.  It is durable before it is acknowledged, as over MLLP.
Source: docs/admin.md "Send a message".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from klein import Klein
from twisted.web.iweb import IRequest

from ipf.errors import Category, Problem
from ipf.hl7.batches import content_of, is_batch
from ipf.hl7.header import scan_header
from ipf.ports import DEFAULT_TENANT, Answer, Inbox, MessageFilter, Request
from ipf.wire.admin.klein_app import Routes, Run
from ipf.wire.admin.messages import answer, list_item, parameters_of

Receive = Callable[[bytes, str, str], Awaitable[bytes | None]]
"""(message, tenant, address of the sender): the acknowledgement, None = none is due."""
_GOOD = ("AA", "CA")


def routes(receive: Receive, inbox: Inbox) -> Routes:
    """The path for sending."""

    def add(app: Klein, run: Run) -> None:
        @app.route("/ingest", methods=["POST"])
        async def ingested(web: IRequest) -> bytes:
            return await run(web, lambda request: send(receive, inbox, request))

    return add


async def send(receive: Receive, inbox: Inbox, request: Request) -> Answer:
    """200 with `code` (AA, AE, AR; null where none is due), `text`, `acknowledgement` and `messages`.

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
    answers = _answers(text or "")
    messages = [await _sent(inbox, one, tenant, answers) for one in _messages(raw + b"\r")]
    first = next((one for one in answers.values() if one[0] not in _GOOD), next(iter(answers.values()), ("", "")))
    found = {"code": first[0] or None, "text": first[1], "acknowledgement": text, "messages": messages}
    return answer(200, found)


def _messages(raw: bytes) -> list[bytes]:
    if not is_batch(raw):
        return [raw]
    try:
        return content_of(raw).messages
    except Problem:  # the receiver has refused it as a whole
        return []


def _answers(acknowledgement: str) -> dict[str, tuple[str, str]]:
    """By MSA-2: MSA-1, and the first of ERR-8 and MSA-3 with content; "" for a message without MSH-10."""
    found: dict[str, tuple[str, str]] = {}
    separator, id = "|", ""
    for line in acknowledgement.split("\n"):
        fields = [*line.split(separator), *[""] * 9]
        if line.startswith("MSH"):
            separator = line[3:4]
        elif line.startswith("MSA"):
            id = fields[2]
            found[id] = fields[1], fields[3]
        elif line.startswith("ERR") and id in found:
            found[id] = found[id][0], fields[8] or found[id][1]
    return found


async def _sent(inbox: Inbox, raw: bytes, tenant: str, answers: dict[str, tuple[str, str]]) -> dict[str, Any]:
    try:
        header = scan_header(raw)
    except Problem:
        header = None
    id = header.source_id if header is not None else ""
    code, text = answers.get(header.field(10) if header is not None else "", ("", ""))
    row = None
    if header is not None and code in ("", *_GOOD):
        wanted = MessageFilter(source_id=id, source_system=header.source_system, tenant=tenant)
        page = await inbox.page(wanted, 1, 0)
        row = list_item(page.rows[0]) if page.rows else None
    return {"source_id": id, "code": code or None, "text": text, "message": row}
