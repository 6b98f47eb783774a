"""`/`: what is going on now: queue states, throughput, dead letters by cause, subscriptions in error, components."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred, DeferredList

from ipf.console.backend import Backend
from ipf.console.sessions import Role
from ipf.console.web import Route, View
from ipf.ports import Answer

STATES = ("received", "transforming", "failed", "dead_letter", "delivered")


async def overview(view: View) -> Answer:
    """The page; the script of the page keeps it up to date (`live.py`)."""
    system, throughput, errors, subscriptions = await all_of(
        view.get("/admin/observe/system"),
        view.get("/admin/observe/throughput", {"window": "24h"}),
        view.get("/admin/dead-letters/errors", {"limit": 8}),
        view.get("/admin/subscriptions/health"),
    )
    failing = [one for one in subscriptions["items"] if one.get("status") == "error"]
    components = [*system["components"], *({"name": name, **one} for name, one in system["downstream"].items())]
    return view.page(
        "overview.html", system=system, states=STATES, queue=system["queue"], components=components,
        buckets=throughput["buckets"], errors=errors, failing=failing, subscriptions=subscriptions,
    )  # fmt: skip


async def all_of(*reads: Coroutine[Any, Any, Any]) -> list[Any]:
    """The results of several reads that run at once, in order; a failure is raised when all have ended."""
    results = await DeferredList([Deferred.fromCoroutine(read) for read in reads], consumeErrors=True)
    for succeeded, result in results:
        if not succeeded:
            result.raiseException()
    return [result for _, result in results]


async def live_state(backend: Backend) -> dict[str, Any]:
    """What the overview shows live, in one read."""
    system = await backend.get("/admin/observe/system")
    states = {one["name"]: one["status"] for one in system["components"]}
    return {"queue": system["queue"], "components": states, "uptime_seconds": int(system["uptime_seconds"])}


ROUTES = (Route("GET", "/", Role.VIEWER, overview),)
