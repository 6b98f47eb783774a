"""`/system`: components, versions, settings in effect, maps and profiles."""

from __future__ import annotations

from ipf.console.pages.overview import all_of
from ipf.console.sessions import Role
from ipf.console.web import Route, View
from ipf.ports import Answer


async def system(view: View) -> Answer:
    """What this engine is, and how it is set."""
    state, config, profiles = await all_of(
        view.get("/admin/observe/system"), view.get("/admin/config"), view.get("/admin/api/profiles")
    )
    components = [*state["components"], *({"name": name, **one} for name, one in state["downstream"].items())]
    settings = config["settings"]
    if view.parameters.get("changed"):
        settings = [one for one in settings if not one["defaulted"]]
    values = {"state": state, "components": components, "settings": settings, "profiles": profiles}
    return view.page("system.html", link=view.link, **values)


ROUTES = (Route("GET", "/", Role.VIEWER, system),)
