"""`/workbench`: try a map on a message before it is installed: errors at their place, result, trace, unread fields.

A map is chosen or written, a message pasted or picked; each pause in typing runs the map.  While others' trials take
all places, the page asks again every two seconds.  `compare` runs it on the
newest messages of a type and shows what would change.  `install` stores the map, and every process uses it at once;
`remove` takes it away, and the map that it replaced is used again.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from ipf.console.content.coverage import coverage, coverage_of
from ipf.console.content.elements import Change, changes
from ipf.console.content.trace import trace_view
from ipf.console.pages.overview import all_of
from ipf.console.serving.backend import BackendRefused
from ipf.console.serving.lists import number_of
from ipf.console.serving.web import Route, View, redirect
from ipf.ports import Answer
from ipf.wire.admin.route import Role

SERVICE_UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE
MOST_SHOWN, MOST_CHANGES, MOST_COMPARED, NEWEST = 20, 200, 200, 30
NEW_MAP = """/// url = "http://example.org/StructureMap/ADT_A01"
/// name = "ADT_A01"
/// status = "draft"
/// types = "ADT_A01"

uses "urn:ipf:v2:ADT_A01" alias ADT_A01 as source
uses "http://hl7.org/fhir/StructureDefinition/Bundle" alias Bundle as target

group ADT_A01(source src : ADT_A01, target bundle : Bundle) {
  src.PID as pid -> bundle.entry as entry, entry.resource = create('Patient') as patient then {
    pid.PID_3 as number -> patient.identifier as identifier then {
      number.CX_1 as value -> identifier.value = value;
    };
  };
}
"""
"""What a new map begins with: it compiles, and makes a Patient."""


async def workbench(view: View) -> Answer:
    """The page; `map` and `message` choose what it begins with."""
    given = view.parameters
    maps = await view.get("/admin/mapping")
    url, id = given.get("map", ""), number_of(given.get("message", ""))
    message = await view.get(f"/admin/messages/{id}") if id else None
    types = {one["message_type"]: one["map_url"] for one in maps["message_types"]}
    if message is not None and "map" not in dict(view.request.query):  # blank: a new map for this message
        url = types.get(message["message_type"], "")
    of_map = [name for name, one in types.items() if one == url]
    mistake = next((one["mistake"] for one in maps["maps"] if one["url"] == url), None)
    source, newest = await all_of(_source(view, url), _newest(view, of_map))
    return view.page(
        "workbench.html", maps=maps["maps"], url=url, source=source, message=message, types=list(types), newest=newest,
        chosen_type=message["message_type"] if message else of_map[0] if of_map else "",
        tables=coverage_of(source["file"] or ""), most_compared=MOST_COMPARED, mistake=mistake,
    )  # fmt: skip


async def _source(view: View, url: str) -> dict[str, Any]:
    """The text of a map, or what a new one begins with."""
    if not url:
        return {"text": NEW_MAP, "file": None, "is_original": True, "is_removable": False}
    found: dict[str, Any] = await view.get("/admin/mapping/source", {"url": url})
    return found


async def _newest(view: View, types: list[str]) -> list[dict[str, Any]]:
    """The newest messages to pick from: of the first type of the map, else of all."""
    parameters = {"limit": NEWEST, "message_type": types[0] if types else None}
    page = await view.get("/admin/messages", parameters)
    if not page["items"] and types:
        page = await view.get("/admin/messages", {"limit": NEWEST})
    found: list[dict[str, Any]] = page["items"]
    return found


async def run(view: View) -> Answer:
    """`POST /workbench/run`: a part of the page: the result, or the mistake."""
    if view.is_masked:
        return _refused(view)
    form = view.form
    raw = form.get("message", "").replace("\r\n", "\n")
    if not raw.strip():
        return view.page("workbench_result.html", found=None, both=None, reason="", again=False)
    body = {"map": form.get("map") or None, "message": raw}
    try:
        found = await view.send("POST", "/admin/mapping/try", {name: text for name, text in body.items() if text})
    except BackendRefused as refused:  # the text is no message: the reason belongs to the page, not to an error page
        is_busy = refused.status == SERVICE_UNAVAILABLE  # other trials run: the page asks again
        return view.page("workbench_result.html", found=None, both=None, reason=str(refused), again=is_busy)
    both = None if found["mistake"] else trace_view(raw, found)
    unread = [] if both is None else [one for one in found["unread"] if one["kind"] != "declared"]
    return view.page("workbench_result.html", found=found, both=both, unread=unread, reason="", again=False)


async def compare(view: View) -> Answer:
    """`POST /workbench/compare`: a part of the page: what would change for the newest messages of a type."""
    if view.is_masked:
        return _refused(view)
    form = view.form
    limit = max(1, min(number_of(form.get("limit", "")) or 50, MOST_COMPARED))
    body = {"map": form.get("map", ""), "message_type": form.get("message_type", ""), "limit": limit}
    found = await view.send("POST", "/admin/mapping/compare", body)
    differing = [(one["id"], differences(one["before"], one["after"])) for one in found["differing"][:MOST_SHOWN]]
    return view.page("workbench_compare.html", found=found, differing=differing, most=MOST_SHOWN)


def _refused(view: View) -> Answer:
    """A map that the caller writes can copy what is masked to an element that is not."""
    return view.page("workbench_refused.html")


async def install(view: View) -> Answer:
    """`POST /workbench/install`: a part of the page: what is installed now, or why it is not."""
    try:
        made, reason = await view.send("POST", "/admin/mapping/install", {"map": view.form.get("map", "")}), ""
    except BackendRefused as refused:
        made, reason = None, str(refused)
    return view.page("workbench_installed.html", made=made, reason=reason)


async def remove(view: View) -> Answer:
    """`POST /workbench/remove`: takes away a map that was installed here; the page shows the one before."""
    url = view.form.get("url", "")
    found = await view.send("POST", "/admin/mapping/remove", {"url": url})
    return redirect(view.address("/workbench", [("map", url)] if found["is_installed"] else []))


async def guide(view: View) -> Answer:
    """`/workbench/coverage`: the tables of the v2-to-FHIR guide, and what of them the maps of ipf cover."""
    return view.page("workbench_coverage.html", tables=coverage())


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """What differs between two Bundles, entry by entry."""
    return changes(before, after)[:MOST_CHANGES]


ROUTES = (
    Route("GET", "/", Role.VIEWER, workbench),
    Route("GET", "/coverage", Role.VIEWER, guide),
    Route("POST", "/run", Role.VIEWER, run),
    Route("POST", "/compare", Role.VIEWER, compare),
    Route("POST", "/install", Role.ADMIN, install),
    Route("POST", "/remove", Role.ADMIN, remove),
)
