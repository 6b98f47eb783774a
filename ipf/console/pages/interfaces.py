"""`/interfaces`: the senders: rate, last message, share of errors, what waits, and who is silent for too long."""

from __future__ import annotations

from typing import Any

from ipf.console.serving.web import Route, View
from ipf.ports import Answer
from ipf.wire.admin.route import Role

PATH, SECONDS = "/admin/observe/interfaces", 5.0


async def interfaces(view: View) -> Answer:
    """The page; a script asks for its table every few seconds."""
    found = await view.shared(PATH, seconds=SECONDS)
    tenants = {one["tenant"] for one in found["items"]}
    values: dict[str, Any] = {"found": found, "has_tenants": len(tenants) > 1}
    return view.page("interfaces_table.html" if view.is_part else "interfaces.html", **values)


ROUTES = (Route("GET", "/", Role.VIEWER, interfaces),)
