"""`/system`: components, versions, settings in effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipf.console.pages.overview import all_of
from ipf.console.serving.web import Route, View
from ipf.ports import Answer
from ipf.wire.admin.route import Role


async def system(view: View) -> Answer:
    """What this engine is, and how it is set."""
    state, config = await all_of(view.get("/admin/observe/system"), view.get("/admin/config"))
    components = [*state["components"], *({"name": name, **one} for name, one in state["downstream"].items())]
    components = [{**one, "detail": words_of(one.get("detail"))} for one in components]
    settings = config["settings"]
    is_short = bool(view.parameters.get("changed"))
    if is_short:
        settings = [one for one in settings if not one["defaulted"]]
    return view.page("system.html", link=view.link, state=state, components=components, settings=settings,
                     is_short=is_short)  # fmt: skip


def words_of(detail: Any) -> str:
    """What a component says about itself, for people: `processes 2, queue 0`; empty parts are left out."""
    if isinstance(detail, Mapping):
        parts = ((str(name).replace("_", " ").lower(), words_of(value)) for name, value in detail.items())
        return ", ".join(f"{name} {text}" for name, text in parts if text)
    if isinstance(detail, list):
        return "; ".join(filter(None, map(words_of, detail)))
    return "" if detail is None else str(detail)


ROUTES = (Route("GET", "/", Role.VIEWER, system),)
