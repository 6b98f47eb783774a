"""`POST /admin/messages`: one HL7 v2 message, received by the rules of the MLLP listeners; functions on values.

What arrives: the message as text, with any line ends.  What leaves: the acknowledgement and, for a message that is
stored, its row.  It is durable before it is acknowledged, as over MLLP.  Source: docs/admin.md "Send a message".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from klein import Klein
from twisted.web.iweb import IRequest

from ipf.errors import Category, Problem
from ipf.hl7.header import scan_header
from ipf.ports import DEFAULT_TENANT, Answer, Inbox, MessageFilter, Request
from ipf.wire.admin.klein_app import Routes, Run
from ipf.wire.admin.messages import answer, list_item, parameters_of

Receive = Callable[[bytes, str, str], Awaitable[bytes | None]]
"""(message, tenant, address of the sender): the acknowledgement, None = none is due."""


def routes(receive: Receive, inbox: Inbox) -> Routes:
    """The path for sending."""

    def add(app: Klein, run: Run) -> None:
        @app.route("/messages", methods=["POST"])
        async def post(web: IRequest) -> bytes:
            return await run(web, lambda request: send(receive, inbox, request))

    return add


async def send(receive: Receive, inbox: Inbox, request: Request) -> Answer:
    """200 with `code` (AA, AE, AR; null where none is due), `text`, `acknowledgement` and `message`.

    `message`: the row; null when nothing was stored.  A repeated message is AA with the row of before.
    """
    raw = request.body.strip(b"\r\n\x0b\x1c").replace(b"\r\n", b"\r").replace(b"\n", b"\r")
    if not raw:
        raise Problem(Category.VALUE, "the body must be one HL7 v2 message")
    tenant = parameters_of(request).get("tenant") or DEFAULT_TENANT
    if not tenant.isprintable() or tenant == "*":
        raise Problem(Category.VALUE, "tenant must name one tenant")
    acknowledgement = await receive(raw + b"\r", tenant, request.address or "admin")
    text = None if acknowledgement is None else acknowledgement.decode("utf-8", "replace").replace("\r", "\n")
    code, said = ("", "") if text is None else _read(text)
    row = await _row(inbox, raw, tenant) if code in ("AA", "CA") else None
    return answer(200, {"code": code or None, "text": said, "acknowledgement": text, "message": row})


def _read(acknowledgement: str) -> tuple[str, str]:
    """Code and text: MSA-1, and the first of ERR-8 and MSA-3 with content."""
    separator = acknowledgement[3:4]
    segments = {line[:3]: line.split(separator) for line in reversed(acknowledgement.split("\n"))}
    code = "".join(segments.get("MSA", ())[1:2])
    texts = [*segments.get("ERR", ())[8:9], *segments.get("MSA", ())[3:4]]
    return code, next((one for one in texts if one), "")


async def _row(inbox: Inbox, raw: bytes, tenant: str) -> dict[str, object] | None:
    header = scan_header(raw)
    wanted = MessageFilter(source_id=header.source_id, source_system=header.source_system, tenant=tenant)
    page = await inbox.page(wanted, 1, 0)
    return list_item(page.rows[0]) if page.rows else None
