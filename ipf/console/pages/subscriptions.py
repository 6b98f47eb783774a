"""`/subscriptions`: health of all; one with its attempts, events and resource, a test notification and a dry run."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from ipf.console.content.attempts import buckets, dry_run_of, events
from ipf.console.pages.overview import all_of
from ipf.console.serving.backend import BackendRefused
from ipf.console.serving.lists import number_of
from ipf.console.serving.web import Route, View, redirect
from ipf.ports import Answer
from ipf.wire.admin.route import Role

STATUSES = ("active", "off", "error", "requested")
TABS = ("history", "events", "dry_run", "resource")
SIZE, MOST_CHARTED, EVENTS = 50, 500, 50
_DAYS, _EXAMPLES = 7, 20


async def subscriptions(view: View) -> Answer:
    """All subscriptions, those in error first."""
    found = await view.get("/admin/subscriptions/health", {"tenant": view.parameters.get("tenant")})
    items: list[dict[str, Any]] = sorted(found["items"], key=lambda one: (one["status"] != "error", one["id"]))
    return view.page("subscriptions.html", items=items, total=found["total"])


async def subscription(view: View) -> Answer:
    """One subscription; `tab` selects what is shown below its head."""
    id, given = view.parts["id"], view.parameters
    state = await view.get(_path(id, "health"), _tenant(view))
    tab = given.get("tab", "history")
    tab = tab if tab in TABS else "history"
    values: dict[str, Any] = {"id": id, "state": state, "statuses": STATUSES, "tab": tab, "tabs": TABS}
    if tab == "history":
        values |= await _history(view, id)
    elif tab == "events":
        values |= await _events(view, id, state)
    else:
        values["resource"] = await view.get(_path(id, "resource"), _tenant(view))
        values["filters"] = filters_of(values["resource"])
    return view.page("subscription.html", days=_DAYS, link=view.link, **values)


async def _history(view: View, id: str) -> dict[str, Any]:
    """A page of attempts, and the newest ones by time."""
    offset = number_of(view.parameters.get("offset", ""))
    page, newest = await all_of(
        view.get(_path(id, "history"), {"limit": SIZE, "offset": offset, **_tenant(view)}),
        view.get(_path(id, "history"), {"limit": MOST_CHARTED, **_tenant(view)}),
    )
    return {"history": page, "buckets": buckets(newest["items"]), "charted": len(newest["items"])}


async def _events(view: View, id: str, state: dict[str, Any]) -> dict[str, Any]:
    """Events with their deliveries, newest first; `until` selects the page.  Problem texts instead of a refusal."""
    last = min(number_of(view.parameters.get("until", "")) or state["last_event_number"], state["last_event_number"])
    first = max(1, last - EVENTS + 1)
    if not last:
        return {"events": [], "first": 0, "last": 0, "reason": ""}
    query = [("eventsSinceNumber", str(first)), ("eventsUntilNumber", str(last)), ("content", "id-only")]
    newest = await view.get(_path(id, "history"), {"limit": MOST_CHARTED, **_tenant(view)})
    try:
        bundle = await view.fhir(f"/Subscription/{quote(id, safe='')}/$events", query)
    except BackendRefused as refused:  # the person's token may not read these resources
        return {"events": [], "first": first, "last": last, "reason": str(refused)}
    delivered = state["last_event_number"] - state["pending_count"]
    return {"events": events(bundle, newest["items"], delivered), "first": first, "last": last, "reason": ""}


async def change_status(view: View) -> Answer:
    """`POST /subscriptions/{id}/status`."""
    id = view.parts["id"]
    await view.send("PATCH", _path(id, "status") + _query(view), {"status": view.form.get("status", "")})
    return redirect(f"/subscriptions/{quote(id)}{_query(view)}")


async def test(view: View) -> Answer:
    """`POST /subscriptions/{id}/test`: a part of the page: how the endpoint answered."""
    try:
        attempt, reason = await view.send("POST", _path(view.parts["id"], "test") + _query(view)), ""
    except BackendRefused as refused:  # a websocket, or a channel that is not configured
        attempt, reason = None, str(refused)
    return view.page("subscription_test.html", attempt=attempt, reason=reason)


async def dry_run(view: View) -> Answer:
    """`POST /subscriptions/{id}/dry-run`: a part of the page: which changes these criteria would have matched."""
    id, form = view.parts["id"], view.form
    if view.is_masked:
        return view.page("subscription_dry_run.html", found=None, reason="", is_refused=True)
    resource = await view.get(_path(id, "resource"), _tenant(view))
    candidate = {name: value for name, value in resource.items() if name not in ("id", "meta", "error", "_criteria")}
    candidate |= {"criteria": form.get("criteria", "").strip(), "status": "requested"}
    filters = [line.strip() for line in form.get("filters", "").splitlines() if line.strip()]
    if filters:
        candidate["_criteria"] = {"extension": [{"url": FILTER, "valueString": one} for one in filters]}
    parameters = [
        {"name": "resource", "resource": candidate},
        {"name": "days", "valueInteger": max(1, min(number_of(form.get("days", "")) or _DAYS, 366))},
        {"name": "examples", "valueInteger": _EXAMPLES},
    ]
    try:
        body = {"resourceType": "Parameters", "parameter": parameters}
        found = dry_run_of(await view.operation("/Subscription/$dry-run", body))
    except BackendRefused as refused:  # the criteria cannot be served: the reason is what the person wants
        return view.page("subscription_dry_run.html", found=None, reason=str(refused), is_refused=False)
    return view.page("subscription_dry_run.html", found=found, reason="", is_refused=False)


FILTER = "http://hl7.org/fhir/uv/subscriptions-backport/StructureDefinition/backport-filter-criteria"


def filters_of(resource: dict[str, Any]) -> list[str]:
    """The filters of a subscription by topic."""
    extensions = (resource.get("_criteria") or {}).get("extension", ())
    return [one["valueString"] for one in extensions if one.get("url") == FILTER]


def _path(id: str, part: str) -> str:
    return f"/admin/subscriptions/{quote(id, safe='')}/{part}"


def _tenant(view: View) -> dict[str, str | None]:
    return {"tenant": view.parameters.get("tenant")}


def _query(view: View) -> str:
    tenant = view.parameters.get("tenant")
    return f"?tenant={quote(tenant)}" if tenant else ""


ROUTES = (
    Route("GET", "/", Role.VIEWER, subscriptions),
    Route("GET", "/<id>", Role.VIEWER, subscription),
    Route("POST", "/<id>/status", Role.OPERATOR, change_status),
    Route("POST", "/<id>/test", Role.OPERATOR, test),
    Route("POST", "/<id>/dry-run", Role.VIEWER, dry_run),
)
