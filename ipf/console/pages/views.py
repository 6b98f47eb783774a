"""`/views`: a person saves the filters and columns of a list under a name, and removes what he saved."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from ipf.console.pages.messages import MESSAGES
from ipf.console.pages.operations import LISTS
from ipf.console.people.saved_views import SavedView
from ipf.console.people.sessions import Role
from ipf.console.serving.web import Route, View, problem_page, redirect
from ipf.errors import Problem
from ipf.ports import Answer

AREAS = frozenset(one.area for one in (MESSAGES, *LISTS))
_NOT_KEPT = ("offset", "live")


async def save(view: View) -> Answer:
    """`POST /views`: `area`, `name` and the `query` of the page."""
    form = view.form
    kept = [(name, text) for name, text in parse_qsl(form.get("query", "")) if name not in _NOT_KEPT]
    saved = SavedView(form.get("area", ""), form.get("name", "").strip(), urlencode(kept))
    if saved.area not in AREAS:
        return problem_page(view, 404, "missing")
    try:
        view.console.views.save(view.session.person, saved)
    except Problem as problem:
        return problem_page(view, problem.rendering.http_status, "refused", problem.text)
    return redirect(f"/{saved.area}?{saved.query}" if saved.query else f"/{saved.area}")


async def remove(view: View) -> Answer:
    """`POST /views/remove`: `area` and `name`."""
    form = view.form
    area = form.get("area", "")
    if area not in AREAS:
        return problem_page(view, 404, "missing")
    try:
        view.console.views.remove(view.session.person, area, form.get("name", ""))
    except Problem as problem:
        return problem_page(view, problem.rendering.http_status, "refused", problem.text)
    return redirect(f"/{area}")


ROUTES = (Route("POST", "/", Role.VIEWER, save), Route("POST", "/remove", Role.VIEWER, remove))
