"""Fields that conversions did not take over: `/admin/unread-fields`; functions on values, and the paths.

`GET` lists them by sender, message type and path; `DELETE` forgets a row, or all rows of a sender, after the map was
mended: a field that is still not read comes back with the next message.  Errors, paging and authentication are those of
`/admin/messages`.
"""

from __future__ import annotations

from typing import Any

from klein import Klein
from twisted.web.iweb import IRequest

from ipf.errors import Category, Problem
from ipf.ports import Answer, Request, UnreadFields, UnreadFilter, UnreadRow
from ipf.ports.messages.mapping import DECLARED, DROPPED, INVALID, UNREAD
from ipf.wire.admin.klein_app import Routes, Run
from ipf.wire.admin.messages import answer, parameters_of, row_id, tenant_of, timestamp, window

KINDS = (UNREAD, DECLARED, DROPPED, INVALID)


def routes(unread: UnreadFields) -> Routes:
    """The paths below `/admin/unread-fields`."""

    def add(app: Klein, run: Run) -> None:
        @app.route("/unread-fields", methods=["GET"])
        async def listed(web: IRequest) -> bytes:
            return await run(web, lambda request: list_fields(unread, request))

        @app.route("/unread-fields", methods=["DELETE"])
        async def forgotten(web: IRequest) -> bytes:
            return await run(web, lambda request: forget_fields(unread, request))

        @app.route("/unread-fields/<number>", methods=["DELETE"])
        async def one_forgotten(web: IRequest, number: str) -> bytes:
            return await run(web, lambda _: forget_field(unread, number))

    return add


async def list_fields(unread: UnreadFields, request: Request) -> Answer:
    """`GET /admin/unread-fields`: one page, the most frequent first, then what maps ignore on purpose."""
    parameters = parameters_of(request)
    limit, offset = window(parameters)
    total, rows = await unread.fields(_filter(parameters), limit, offset)
    return answer(200, {"total": total, "limit": limit, "offset": offset, "items": [item(row) for row in rows]})


async def forget_fields(unread: UnreadFields, request: Request) -> Answer:
    """`DELETE /admin/unread-fields?source_system=LAB`: all rows that the filters select; the sender is required."""
    wanted = _filter(parameters_of(request))
    if wanted.source_system is None:
        raise Problem(Category.REQUIRED, "source_system says whose rows are forgotten")
    return answer(200, {"forgotten": await unread.forget_all(wanted)})


async def forget_field(unread: UnreadFields, number: str) -> Answer:
    """`DELETE /admin/unread-fields/{id}`."""
    await unread.forget(row_id(number))
    return Answer(204, b"", (), "")


def _filter(parameters: dict[str, str]) -> UnreadFilter:
    exact = {name: parameters.get(name) or None for name in ("source_system", "message_type", "kind", "path")}
    if exact["kind"] not in (None, *KINDS):
        raise Problem(Category.VALUE, f"kind must be one of {', '.join(KINDS)}")
    return UnreadFilter(**exact, tenant=tenant_of(parameters))


def item(row: UnreadRow) -> dict[str, Any]:
    """One row; `message_id` is null when retention has removed the message."""
    return {
        "id": row.id,
        "source_system": row.source_system,
        "message_type": row.message_type,
        "kind": row.kind,
        "path": row.path,
        "reason": row.reason or None,
        "occurrences": row.occurrences,
        "message_id": row.message_id,
        "first_seen": timestamp(row.first_seen),
        "last_seen": timestamp(row.last_seen),
        "tenant": row.tenant,
    }
