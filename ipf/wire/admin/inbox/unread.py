"""Fields that conversions did not take over: `/admin/unread-fields`; functions on values, and the paths.

`GET` lists them by sender, message type and path; `DELETE` forgets a row, or all rows of a sender, after the map was
mended: a field that is still not read comes back with the next message.  Errors, paging and authentication are those of
`/admin/messages`.
"""

from __future__ import annotations

from typing import Any

from ipf.errors import Category, Problem
from ipf.ports import Answer, Request, UnreadFields, UnreadFilter, UnreadRow
from ipf.ports.messages.mapping import DECLARED, DROPPED, INVALID, UNREAD
from ipf.wire.admin.messages import answer, parameters_of, row_id, tenant_of, timestamp, window
from ipf.wire.admin.route import TENANT, Mounted, Role, Route, query
from ipf.wire.admin.schemas.base import TEXT

KINDS = (UNREAD, DECLARED, DROPPED, INVALID)


def routes(unread: UnreadFields) -> Mounted[UnreadFields]:
    """The paths below `/admin/unread-fields`."""
    return Mounted(ROUTES, unread)


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


_FILTERS = (
    TENANT,
    *(query(name, TEXT, "exactly") for name in ("source_system", "message_type", "path")),
    query("kind", {"enum": ["unread", "declared", "dropped", "invalid"]}, "of this kind"),
)
ROUTES: tuple[Route[UnreadFields], ...] = (
    Route(
        "GET", "/unread-fields", "listUnreadFields", "Fields that conversions did not take over",
        lambda unread, request, _: list_fields(unread, request), "UnreadFieldList", parameters=_FILTERS, is_page=True,
    ),
    Route(
        "DELETE", "/unread-fields", "forgetUnreadFields", "Forget the rows of a sender",
        lambda unread, request, _: forget_fields(unread, request), "Forgotten", Role.OPERATOR, parameters=_FILTERS,
        refusals=["422"],
    ),
    Route(
        "DELETE", "/unread-fields/{id}", "forgetUnreadField", "Forget one row",
        lambda unread, _, id: forget_field(unread, id), role=Role.OPERATOR, refusals=["404"],
    ),
)  # fmt: skip
