"""`/`: what is going on now: queue states, throughput, senders, dead letters by cause, subscriptions, components."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, DeferredList

from ipf.console.pages import interfaces
from ipf.console.serving.backend import Backend
from ipf.console.serving.live import Row
from ipf.console.serving.web import Route, View
from ipf.ports import Answer
from ipf.wire.admin.route import Role

STATES = ("received", "transforming", "failed", "dead_letter", "delivered")
MOST_SENDERS = 8
_LIVE = "/admin/observe/live"


async def overview(view: View) -> Answer:
    """The page.  Its script follows the figures (`live_state`), and asks for the parts when they change."""
    if view.is_part:
        return view.page("overview_parts.html", **await _parts(view), is_part=True)
    parts, live, throughput = await all_of(
        _parts(view),
        view.shared(_LIVE),
        view.shared("/admin/observe/throughput", {"window": "24h"}, 10.0),
    )
    return view.page(
        "overview.html", states=STATES, live=live, queue=live["queue"], buckets=throughput["buckets"], is_part=False,
        **parts,
    )  # fmt: skip


async def _parts(view: View) -> dict[str, Any]:
    """What the page shows below the figures; pages that are open share the reads."""
    system, errors, subscriptions, senders = await all_of(
        view.shared("/admin/observe/system"),
        view.shared("/admin/dead-letters/errors", {"limit": 8}),
        view.shared("/admin/subscriptions/health"),
        view.shared(interfaces.PATH, seconds=interfaces.SECONDS),
    )
    failing = [one for one in subscriptions["items"] if one.get("status") == "error"]
    components = [*system["components"], *({"name": name, **one} for name, one in system["downstream"].items())]
    return {
        "system": system, "components": components, "errors": errors, "failing": failing,
        "subscriptions": subscriptions, "senders": senders, "shown": senders["items"][:MOST_SENDERS],
        "per_minute": _rate(senders), "wrong": wrong(system["queue"], components, failing, senders),
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wrong:
    """Something that needs a person.  `name`: of its text `overview.wrong_NAME`; `is_bad`: not only to be looked at."""

    name: str
    count: int
    url: str
    is_bad: bool = True


def wrong(
    queue: Mapping[str, Any],
    components: Sequence[Mapping[str, Any]],
    failing: Sequence[object],
    senders: Mapping[str, Any],
) -> list[Wrong]:
    """What needs a person, the worst first."""
    found = (
        Wrong("components", sum(one["status"] not in ("UP", "UNKNOWN") for one in components), "/system"),
        Wrong("subscriptions", len(failing), "/subscriptions"),
        Wrong("dead_letters", queue["dead_letter"] or 0, "/dead-letters"),
        Wrong("silent", senders["silent"], "/interfaces", is_bad=False),
        Wrong("failed", queue["failed"] or 0, "/messages?status=FAILED", is_bad=False),
    )
    return [one for one in found if one.count]


async def all_of(*reads: Coroutine[Any, Any, Any]) -> list[Any]:
    """The results of several reads that run at once, in order; a failure is raised when all have ended."""
    results = await DeferredList([Deferred.fromCoroutine(read) for read in reads], consumeErrors=True)
    for succeeded, result in results:
        if not succeeded:
            result.raiseException()
    return [result for _, result in results]


async def live_state(backend: Backend, rows: int) -> tuple[Mapping[str, Any], Sequence[Row]]:
    """What the overview shows live, and so many of the newest messages."""
    live, senders = await all_of(
        backend.get(_LIVE, {"limit": rows}), backend.shared(interfaces.PATH, seconds=interfaces.SECONDS)
    )
    state = {name: live[name] for name in ("queue", "components", "oldest_waiting_at")}
    return {**state, "per_minute": _rate(senders), "silent": senders["silent"]}, live["newest"]


def _rate(senders: Mapping[str, Any]) -> float:
    """Messages a minute of all senders."""
    return round(sum(float(one["per_minute"]) for one in senders["items"]), 1)


ROUTES = (Route("GET", "/", Role.VIEWER, overview),)
