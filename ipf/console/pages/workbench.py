"""`/workbench`: try a map on a message before it is installed: errors at their place, result, trace, unread fields.

A map is chosen or written, a message pasted or picked; each pause in typing runs the map.  `compare` runs it on the
newest messages of a type and shows what would change.  Nothing is stored until the map is installed.
"""

from __future__ import annotations

from typing import Any

from ipf.console.elements import Change, changes
from ipf.console.lists import number_of
from ipf.console.sessions import Role
from ipf.console.trace import trace_view
from ipf.console.web import Route, View
from ipf.ports import Answer

MOST_SHOWN = 20


async def workbench(view: View) -> Answer:
    """The page; `map` and `message` choose what it begins with."""
    given = view.parameters
    maps = await view.get("/admin/mapping")
    url, id = given.get("map", ""), number_of(given.get("message", ""))
    message = await view.get(f"/admin/messages/{id}") if id else None
    if not url and message is not None:
        types = {one["message_type"]: one["map_url"] for one in maps["message_types"]}
        url = types.get(message["message_type"], "")
    source = await view.get("/admin/mapping/source", {"url": url}) if url else {"text": "", "file": None}
    return view.page("workbench.html", maps=maps["maps"], url=url, source=source, message=message,
                     types=[one["message_type"] for one in maps["message_types"]])  # fmt: skip


async def run(view: View) -> Answer:
    """`POST /workbench/run`: a part of the page: the result, or the mistake."""
    form = view.form
    raw = form.get("message", "").replace("\r\n", "\n")
    body = {"map": form.get("map") or None, "message": raw}
    found = await view.send("POST", "/admin/mapping/try", {name: text for name, text in body.items() if text})
    both = None if found["mistake"] else trace_view(raw, found)
    return view.page("workbench_result.html", found=found, both=both)


async def compare(view: View) -> Answer:
    """`POST /workbench/compare`: a part of the page: what would change for the newest messages of a type."""
    form = view.form
    body = {"map": form.get("map", ""), "message_type": form.get("message_type", ""), "limit": 50}
    found = await view.send("POST", "/admin/mapping/compare", body)
    differing = [(one["id"], differences(one["before"], one["after"])) for one in found["differing"][:MOST_SHOWN]]
    return view.page("workbench_compare.html", found=found, differing=differing)


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """What differs between two Bundles, entry by entry."""
    return changes(before, after)[:200]


ROUTES = (
    Route("GET", "/", Role.VIEWER, workbench),
    Route("POST", "/run", Role.VIEWER, run),
    Route("POST", "/compare", Role.VIEWER, compare),
)
