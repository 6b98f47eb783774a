"""`/views`: a person saves the filters and columns of a list under a name, and removes what he saved."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from ipf.console.pages.messages import MESSAGES
from ipf.console.pages.operations import LISTS
from ipf.console.serving.lists import number_of
from ipf.console.serving.web import Route, View, problem_page, redirect
from ipf.ports import Answer
from ipf.wire.admin.route import Role

AREAS = frozenset(one.area for one in (MESSAGES, *LISTS))
_NOT_KEPT = ("offset", "live")


async def save(view: View) -> Answer:
    """`POST /views`: `area`, `name` and the `query` of the page."""
    form = view.form
    area = form.get("area", "")
    if area not in AREAS:
        return problem_page(view, 404, "missing")
    kept = [(name, text) for name, text in parse_qsl(form.get("query", "")) if name not in _NOT_KEPT]
    query = urlencode(kept)
    await view.send("POST", "/admin/views", {"area": area, "name": form.get("name", "").strip(), "query": query})
    return redirect(f"/{area}?{query}" if query else f"/{area}")


async def remove(view: View) -> Answer:
    """`POST /views/remove`: `area`, and the `id` of the view."""
    form = view.form
    area = form.get("area", "")
    if area not in AREAS:
        return problem_page(view, 404, "missing")
    await view.send("DELETE", f"/admin/views/{number_of(form.get('id', ''))}")
    return redirect(f"/{area}")


ROUTES = (Route("POST", "/", Role.VIEWER, save), Route("POST", "/remove", Role.VIEWER, remove))
