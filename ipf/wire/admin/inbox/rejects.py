"""Frames that were refused (`AR`), and the settings in effect.  Functions on values."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Any, NamedTuple

from ipf.config.settings import Settings, Variable
from ipf.errors import Category, Problem
from ipf.ports import Answer, MessageAdmin, RejectRow, Request
from ipf.wire.admin.messages import answer, parameters_of, readable, row_id, tenant_of, timestamp, window
from ipf.wire.admin.route import TENANT, Role, Route, WhenMasked

MASK = "********"


async def list_rejects(admin: MessageAdmin, request: Request) -> Answer:
    """`GET /admin/rejects`: one page, newest first."""
    parameters = parameters_of(request)
    limit, offset = window(parameters)
    total, rows = await admin.rejects(tenant_of(parameters), limit, offset)
    items = [reject_item(row) for row in rows]
    return answer(200, {"total": total, "limit": limit, "offset": offset, "items": items})


async def get_reject(admin: MessageAdmin, number: str) -> Answer:
    """`GET /admin/rejects/{id}`: with the stored bytes; bytes that are no UTF-8 become U+FFFD."""
    row = await admin.get_reject(row_id(number))
    if row is None:
        raise Problem(Category.NOT_FOUND, f"there is no reject with id {row_id(number)}")
    return answer(200, reject_item(row) | {"raw": readable(row.raw or b"", "utf-8")})


async def delete_reject(admin: MessageAdmin, number: str) -> Answer:
    """`DELETE /admin/rejects/{id}`."""
    await admin.delete_reject(row_id(number))
    return Answer(204, b"", (), "")


def reject_item(row: RejectRow) -> dict[str, Any]:
    """A refused frame; `size` is of the whole frame, also where only its beginning is stored."""
    return {
        "id": row.id,
        "received_at": timestamp(row.received_at),
        "correlation_id": row.correlation_id,
        "listener": row.listener,
        "peer": row.peer,
        "reason": row.reason,
        "size": row.size,
        "tenant": row.tenant,
    }


def config(settings: Settings, given: Collection[str]) -> Answer:
    """`GET /admin/config`: every setting in effect; `given`: names of the variables that are set."""
    return answer(200, {"settings": [_setting(one.metadata["variable"], getattr(settings, one.name), given)
                                     for one in fields(settings)]})  # fmt: skip


def shown_settings(settings: Settings, given: Collection[str]) -> dict[str, Any]:
    """The settings that are set, by the name of their variable; secrets are masked."""
    rows = (_setting(one.metadata["variable"], getattr(settings, one.name), given) for one in fields(settings))
    return {row["name"]: row["value"] for row in rows if not row["defaulted"]}


def _setting(row: Variable, value: Any, given: Collection[str]) -> dict[str, Any]:
    return {
        "name": row.name,
        "value": MASK if row.secret and value else _shown(value),
        "secret": row.secret,
        "defaulted": not any(name in given for name in (row.name, row.name + "_FILE")),
        "meaning": row.meaning,
    }


def _shown(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(name): _shown(one) for name, one in value.items()}
    if isinstance(value, tuple | list | frozenset | set):
        return [_shown(one) for one in value]
    return str(value)


class Configuration(NamedTuple):
    """What the operation uses.  `given`: names of the environment variables that are set."""

    settings: Settings
    given: Collection[str]


async def _config(of: Configuration, _: Request, __: str) -> Answer:
    return config(of.settings, of.given)


ROUTES: tuple[Route[MessageAdmin], ...] = (
    Route(
        "GET", "/rejects", "listRejects", "Refused frames, newest first",
        lambda admin, request, _: list_rejects(admin, request), "RejectList", parameters=[TENANT], is_page=True,
    ),
    Route(
        "GET", "/rejects/{id}", "getReject", "One, with what came", lambda admin, _, id: get_reject(admin, id),
        "FullReject", masked=WhenMasked.NO, refusals=["404"],
    ),
    Route(
        "DELETE", "/rejects/{id}", "deleteReject", "Remove it", lambda admin, _, id: delete_reject(admin, id),
        role=Role.OPERATOR, masked=WhenMasked.NO, refusals=["404"],
    ),
)  # fmt: skip
CONFIG_ROUTES: tuple[Route[Configuration], ...] = (
    Route("GET", "/config", "config", "Settings in effect; secrets are masked", _config, "Config"),
)
