"""Saved views of the console: `/admin/views`; functions on values, and the paths.

A person has the views that he saved: who asks is the person of X-Ipf-Actor, or the token.  They are stored beside the
messages, so that an erasure finds those that name a patient.  Errors and authentication are those of `/admin/messages`.
"""

from __future__ import annotations

from typing import Any

from klein import Klein
from twisted.web.iweb import IRequest

from ipf.errors import Category, Problem
from ipf.ports import Answer, Request
from ipf.ports.messages.saved_views import LONGEST_NAME, LONGEST_QUERY, SavedView, SavedViews
from ipf.wire.admin.access import author_of
from ipf.wire.admin.klein_app import Routes, Run
from ipf.wire.admin.messages import answer, json_body, parameters_of, row_id

_MEMBERS = {"area": LONGEST_NAME, "name": LONGEST_NAME, "query": LONGEST_QUERY}


def routes(views: SavedViews, actor: str) -> Routes:
    """The paths.  `actor`: whose views they are where no person is named."""

    def add(app: Klein, run: Run) -> None:
        @app.route("/views", methods=["GET"])
        async def list_saved(web: IRequest) -> bytes:
            return await run(web, lambda request: list_views(views, actor, request))

        @app.route("/views", methods=["POST"])
        async def save_one(web: IRequest) -> bytes:
            return await run(web, lambda request: save_view(views, actor, request))

        @app.route("/views/<number>", methods=["DELETE"])
        async def remove_one(web: IRequest, number: str) -> bytes:
            return await run(web, lambda request: remove_view(views, actor, number, request))

    return add


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
