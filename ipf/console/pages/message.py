"""`/messages/{id}`: one message: fields, timeline, effects, trace; retry, replay, delete."""

from __future__ import annotations

from typing import Any

from ipf.console.backend import BackendRefused
from ipf.console.sessions import Role
from ipf.console.trace import segments_of, trace_view
from ipf.console.web import Route, View, redirect
from ipf.ports import Answer

TABS = ("fields", "raw", "effects", "trace")


async def message(view: View) -> Answer:
    """The page of a message; `tab` selects what is shown below its head."""
    id = view.parts["id"]
    found = await view.get(f"/admin/messages/{id}")
    tab = view.parameters.get("tab", "fields")
    tab = tab if tab in TABS else "fields"
    values: dict[str, Any] = {"message": found, "tab": tab, "tabs": TABS}
    if tab == "fields":
        values["segments"] = segments_of(found["raw_message"])
    elif tab == "effects":
        values["effects"] = await view.get(f"/admin/messages/{id}/effects")
    elif tab == "trace":
        values |= await _trace(view, id, found["raw_message"])
    return view.page("message.html", **values)


async def _trace(view: View, id: int, raw: str) -> dict[str, Any]:
    try:
        trace = await view.get(f"/admin/messages/{id}/trace")
        return {"trace": trace, "both": trace_view(raw, trace), "reason": ""}
    except BackendRefused as refused:  # no map, or the map fails: the reason is what the operator wants
        return {"trace": None, "reason": str(refused)}


async def retry(view: View) -> Answer:
    """`POST /messages/{id}/retry`."""
    id = view.parts["id"]
    await view.send("POST", f"/admin/messages/{id}/retry")
    return redirect(f"/messages/{id}")


ROUTES = (
    Route("GET", "/<int:id>", Role.VIEWER, message),
    Route("POST", "/<int:id>/retry", Role.OPERATOR, retry),
)
