"""`/admin/mapping/source`, `/try`, `/compare`, `/install`, `/remove`: a map is tried, then installed.

Functions on values.

Source: docs/reference/mapping.md "Workbench".
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.ports import Answer, Json, Notifier, Request
from ipf.ports.messages.mapping_admin import MapWorkbench
from ipf.wire.admin.mapping.maps import MAPPING
from ipf.wire.admin.messages import MOST_VALUES_WITH_TEXTS, json_body, parameters_of
from ipf.wire.admin.route import Mounted, Role, Route, WhenMasked, query
from ipf.wire.admin.schemas.base import TEXT
from ipf.wire.http.serving import JSON

_MOST_COMPARED = 50


class MapTrials(NamedTuple):
    """What the operations use."""

    workbench: MapWorkbench
    notifier: Notifier


def routes(workbench: MapWorkbench, notifier: Notifier) -> Mounted[MapTrials]:
    """The paths of the workbench."""
    return Mounted(ROUTES, MapTrials(workbench, notifier))


async def get_source(workbench: MapWorkbench, request: Request) -> Answer:
    """`GET /admin/mapping/source?url=`: the text of an installed map."""
    url = parameters_of(request).get("url", "")
    if not url:
        raise Problem(Category.VALUE, "the parameter url is required")
    return _answer(await workbench.source(url))


async def try_map(workbench: MapWorkbench, request: Request) -> Answer:
    """`POST /admin/mapping/try`: `map`, and `message` or `message_id`; without `map` the installed one runs."""
    body = _body(request, {"map", "message", "message_id"})
    message_id = body.get("message_id")
    if message_id is not None and (not isinstance(message_id, int) or isinstance(message_id, bool)):
        raise Problem(Category.VALUE, "message_id must be a number")
    message, text = _text(body, "message"), _text(body, "map")
    raw = None if message is None else message.replace("\r\n", "\r").replace("\n", "\r").encode()
    return _answer(await workbench.attempt(text, raw, message_id))


async def compare_maps(workbench: MapWorkbench, request: Request) -> Answer:
    """`POST /admin/mapping/compare`: `{"map": "...", "message_type": "ADT_A01", "limit": 50}`."""
    body = _body(request, {"map", "message_type", "limit"})
    text, message_type, limit = _text(body, "map"), _text(body, "message_type"), body.get("limit", _MOST_COMPARED)
    if text is None or not message_type or not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise Problem(Category.VALUE, "map and message_type are required; limit is a number from 1")
    return _answer(await workbench.compare(text, message_type, limit))


async def install_map(workbench: MapWorkbench, notifier: Notifier, request: Request) -> Answer:
    """`POST /admin/mapping/install`: `{"map": "..."}`; 422 with its place when it does not compile with all others."""
    text = _text(_body(request, {"map"}), "map")
    if not text:
        raise Problem(Category.VALUE, "map is required: the text of a map")
    made = await workbench.install(text)
    notifier.notify(MAPPING)
    return _answer(made)


async def remove_map(workbench: MapWorkbench, notifier: Notifier, request: Request) -> Answer:
    """`POST /admin/mapping/remove`: `{"url": "..."}`; 404 when it was not installed over HTTP."""
    url = _text(_body(request, {"url"}), "url")
    if not url:
        raise Problem(Category.VALUE, "url is required: the canonical of a map")
    made = await workbench.remove(url)
    notifier.notify(MAPPING)
    return _answer(made)


def _body(request: Request, known: set[str]) -> dict[str, Any]:
    """The JSON object of a request.  Problem VALUE, MALFORMED."""
    body = json_body(request, {}, MOST_VALUES_WITH_TEXTS)
    if not isinstance(body, dict) or set(body) - known:
        raise Problem(Category.VALUE, f"the body is an object with {', '.join(sorted(known))}")
    return body


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise Problem(Category.VALUE, f"{name} must be text")
    return value


def _answer(body: Json) -> Answer:
    return Answer(200, dumps(body), (), JSON)


_URL = query("url", TEXT, "canonical of the map") | {"required": True}
ROUTES: tuple[Route[MapTrials], ...] = (
    Route(
        "GET", "/mapping/source", "mapSource", "The text of a map",
        lambda of, request, _: get_source(of.workbench, request), "Any", parameters=[_URL], refusals=["404"],
    ),
    Route(
        "POST", "/mapping/try", "tryMap", "What a map makes of a message",
        lambda of, request, _: try_map(of.workbench, request), "Any", masked=WhenMasked.NO, body="MapTrialRequest",
        refusals=["404"],
    ),
    Route(
        "POST", "/mapping/compare", "compareMap", "A map against the installed one, on stored messages",
        lambda of, request, _: compare_maps(of.workbench, request), "Any", masked=WhenMasked.NO,
        body="MapCompareRequest",
    ),
    Route(
        "POST", "/mapping/install", "installMap", "Install a map",
        lambda of, request, _: install_map(of.workbench, of.notifier, request), "Any", Role.ADMIN, WhenMasked.PAGE,
        body="MapInstallRequest", refusals=["422"],
    ),
    Route(
        "POST", "/mapping/remove", "removeMap", "Remove an installed map",
        lambda of, request, _: remove_map(of.workbench, of.notifier, request), "Any", Role.ADMIN, WhenMasked.PAGE,
        body="MapRemoveRequest", refusals=["404"],
    ),
)  # fmt: skip
