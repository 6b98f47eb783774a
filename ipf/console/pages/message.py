"""`/messages/{id}`: one message: fields, timeline, effects, trace; retry, replay, delete."""

from __future__ import annotations

from typing import Any

from ipf.console.content.effects import groups, timeline
from ipf.console.content.fields import MOST, fields_view
from ipf.console.content.trace import is_json, trace_view
from ipf.console.serving.backend import BackendRefused
from ipf.console.serving.web import Route, View, redirect
from ipf.ports import Answer
from ipf.wire.admin.route import Role

TABS = ("fields", "raw", "effects", "trace", "replay")


async def message(view: View) -> Answer:
    """The page of a message; `tab` selects what is shown below its head."""
    id = view.parts["id"]
    found = await view.get(f"/admin/messages/{id}")
    tab = view.parameters.get("tab", "fields")
    tab = tab if tab in TABS else "fields"
    values: dict[str, Any] = {"message": found, "tab": tab, "tabs": TABS}
    if tab == "fields":
        values |= _fields(view, found["raw_message"])
    elif tab == "effects":
        effects = await view.get(f"/admin/messages/{id}/effects")
        tree, others = groups(effects)
        values |= {"effects": effects, "moments": timeline(found, effects), "groups": tree, "other_events": others}
    elif tab == "replay" and view.may(Role.OPERATOR):
        values |= await _replayed(view, id)
    return view.page("message.html", **values)


def _fields(view: View, raw: str) -> dict[str, Any]:
    """Some of the segments: a long message has pages."""
    given = view.parameters.get("from", "")
    start = int(given) if given.isascii() and given.isdigit() and len(given) < 9 else 0
    segments, total = fields_view(raw, start)
    return {"segments": segments, "total": total, "start": start, "most": MOST, "is_json": is_json(raw)}


async def trace(view: View) -> Answer:
    """`GET /messages/{id}/trace`: a part of the page, fetched after it: the trace of a long message takes a second."""
    id = view.parts["id"]
    found = await view.get(f"/admin/messages/{id}")
    try:
        made = await view.get(f"/admin/messages/{id}/trace")
    except BackendRefused as refused:  # no map, or the map fails: the reason is what the operator wants
        return view.page("message_trace.html", message=found, trace=None, reason=str(refused))
    both = trace_view(found["raw_message"], made)
    return view.page("message_trace.html", message=found, trace=made, both=both, reason="")


async def _replayed(view: View, id: int) -> dict[str, Any]:
    """What a replay with the installed maps would change; nothing is changed."""
    asked = {"ids": [id], "dry_run": True, "following": False}
    try:
        found = await view.send("POST", "/admin/messages/replay", asked)
    except BackendRefused as refused:
        return {"item": None, "reason": str(refused)}
    return {"item": next(iter(found["items"]), None), "reason": ""}


async def replay(view: View) -> Answer:
    """`POST /messages/{id}/replay`: begins the job, and shows its progress."""
    job = await view.send("POST", "/admin/messages/replay", {"ids": [view.parts["id"]]})
    return redirect(f"/jobs/{job['id']}")


async def ask_discard(view: View) -> Answer:
    """`GET /messages/{id}/discard`: asks before a dead letter is removed."""
    return view.page("message_discard.html", message=await view.get(f"/admin/messages/{view.parts['id']}"))


async def discard(view: View) -> Answer:
    """`POST /messages/{id}/discard`: removes a dead letter."""
    await view.send("DELETE", f"/admin/messages/{view.parts['id']}")
    return redirect("/messages?status=DEAD_LETTER")


async def retry(view: View) -> Answer:
    """`POST /messages/{id}/retry`."""
    id = view.parts["id"]
    await view.send("POST", f"/admin/messages/{id}/retry")
    return redirect(f"/messages/{id}")


ROUTES = (
    Route("GET", "/<int:id>", Role.VIEWER, message),
    Route("GET", "/<int:id>/trace", Role.VIEWER, trace),
    Route("POST", "/<int:id>/retry", Role.OPERATOR, retry),
    Route("POST", "/<int:id>/replay", Role.OPERATOR, replay),
    Route("GET", "/<int:id>/discard", Role.OPERATOR, ask_discard),
    Route("POST", "/<int:id>/discard", Role.OPERATOR, discard),
)
