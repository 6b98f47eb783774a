"""Saved views of the console: `/admin/views`; functions on values, and the paths.

A person has the views that he saved: who asks is the person of X-Ipf-Actor, or the token.  They are stored beside the
messages, so that an erasure finds those that name a patient.  Errors and authentication are those of `/admin/messages`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ipf.errors import Category, Problem
from ipf.ports import Answer, Request
from ipf.ports.messages.saved_views import LONGEST_NAME, LONGEST_QUERY, SavedView, SavedViews
from ipf.wire.admin.access import author_of
from ipf.wire.admin.messages import answer, json_body, parameters_of, row_id
from ipf.wire.admin.route import Mounted, Route, WhenMasked, query
from ipf.wire.admin.schemas.base import TEXT

_MEMBERS = {"area": LONGEST_NAME, "name": LONGEST_NAME, "query": LONGEST_QUERY}


class Views(NamedTuple):
    """What the operations use.  `actor`: whose views they are where no person is named."""

    store: SavedViews
    actor: str


def routes(views: SavedViews, actor: str) -> Mounted[Views]:
    """The paths below `/admin/views`."""
    return Mounted(ROUTES, Views(views, actor))


async def list_views(views: SavedViews, actor: str, request: Request) -> Answer:
    """`GET /admin/views?area=messages`: the views of one list, by name."""
    area = parameters_of(request).get("area", "")
    found = await views.of(author_of(request, actor), area)
    return answer(200, {"items": [view_item(one) for one in found]})


async def save_view(views: SavedViews, actor: str, request: Request) -> Answer:
    """`POST /admin/views`: `{"area": "messages", "name": "...", "query": "status=FAILED"}`.  409: too many."""
    body = json_body(request, {})
    if not isinstance(body, dict) or set(body) != set(_MEMBERS):
        raise Problem(Category.VALUE, f"the body is a JSON object with {', '.join(_MEMBERS)}")
    for name, longest in _MEMBERS.items():
        value = body[name]
        if not isinstance(value, str) or not value.isprintable() or len(value) > longest:
            raise Problem(Category.VALUE, f"{name} has at most {longest} printable characters")
        if name != "query" and not value.strip():
            raise Problem(Category.VALUE, f"{name} is empty")
    return answer(200, view_item(await views.save(author_of(request, actor), SavedView(**body))))


async def remove_view(views: SavedViews, actor: str, number: str, request: Request) -> Answer:
    """`DELETE /admin/views/{id}`: 404 also for a view of another person."""
    await views.remove(author_of(request, actor), row_id(number))
    return Answer(204, b"", (), "")


def view_item(view: SavedView) -> dict[str, Any]:
    """One view."""
    return {"id": view.id, "area": view.area, "name": view.name, "query": view.query}


ROUTES: tuple[Route[Views], ...] = (
    Route(
        "GET", "/views", "listViews", "Saved views of a list",
        lambda of, request, _: list_views(of.store, of.actor, request), "SavedViewList",
        parameters=[query("area", TEXT, "the list")],
    ),
    Route(
        "POST", "/views", "saveView", "Save a view",
        lambda of, request, _: save_view(of.store, of.actor, request), "SavedView", masked=WhenMasked.PAGE,
        body="NewView", conflict="the person has too many views",
    ),
    Route(
        "DELETE", "/views/{id}", "removeView", "Remove a view",
        lambda of, request, id: remove_view(of.store, of.actor, id, request), refusals=["404"],
    ),
)  # fmt: skip
