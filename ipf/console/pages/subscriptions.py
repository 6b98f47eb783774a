"""`/subscriptions`: health of all, one with its history and resource, change of its status."""

from __future__ import annotations

from typing import Any

from ipf.console.lists import number_of
from ipf.console.pages.overview import all_of
from ipf.console.sessions import Role
from ipf.console.web import Route, View, redirect
from ipf.ports import Answer

STATUSES = ("active", "off", "error", "requested")
SIZE = 50


async def subscriptions(view: View) -> Answer:
    """All subscriptions, those in error first."""
    found = await view.get("/admin/subscriptions/health", {"tenant": view.parameters.get("tenant")})
    items: list[dict[str, Any]] = sorted(found["items"], key=lambda one: (one["status"] != "error", one["id"]))
    return view.page("subscriptions.html", items=items, total=found["total"])


async def subscription(view: View) -> Answer:
    """One subscription: its attempts, newest first, and the resource."""
    id, offset = view.parts["id"], number_of(view.parameters.get("offset", ""))
    health, history, resource = await all_of(
        view.get("/admin/subscriptions/health"),
        view.get(f"/admin/subscriptions/{id}/history", {"limit": SIZE, "offset": offset}),
        view.get(f"/admin/subscriptions/{id}/resource"),
    )
    state = next((one for one in health["items"] if one["id"] == f"Subscription/{id}"), None)
    return view.page("subscription.html", id=id, state=state, history=history, resource=resource, statuses=STATUSES)


async def change_status(view: View) -> Answer:
    """`POST /subscriptions/{id}/status`."""
    id = view.parts["id"]
    await view.send("PATCH", f"/admin/subscriptions/{id}/status", {"status": view.form.get("status", "")})
    return redirect(f"/subscriptions/{id}")


ROUTES = (
    Route("GET", "/", Role.VIEWER, subscriptions),
    Route("GET", "/<id>", Role.VIEWER, subscription),
    Route("POST", "/<id>/status", Role.OPERATOR, change_status),
)
