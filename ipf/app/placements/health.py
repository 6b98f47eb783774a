"""Health of a process with several placements.

`placement:NAME` is a component for each, which makes the process neither DOWN nor unready: it goes on serving the
others.  `placements` is the one that does: it is DOWN when no placement works.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, DeferredList

from ipf.app.placements.directory import Directory, Placement
from ipf.config.placements import DEFAULT
from ipf.ports import Json
from ipf.wire.admin.actuator import UP


async def check(placement: Placement) -> Json:
    """The state of a placement, and which of its parts do not work.  RuntimeError when it does not work itself."""
    serving = placement.serving
    if serving is None:
        raise RuntimeError(placement.reason)
    states = await serving.health.states()
    down = {name: one.get("details", {}) for name, one in states.items() if one["status"] != UP}
    if failed := [f"{name}: {down[name].get('error')}" for name in sorted(serving.health.required & down.keys())]:
        raise RuntimeError("; ".join(failed))
    return {"state": placement.settings.state, "down": sorted(down)}


async def others(directory: Directory) -> Json:
    """The states of the placements beside the default.  RuntimeError names those that are not open."""
    found = [one for one in directory.all if one.name != DEFAULT]
    if away := [f"{one.name}: {one.reason}" for one in found if one.serving is None]:
        raise RuntimeError("; ".join(away))
    return {one.name: one.settings.state for one in found}


async def any_works(directory: Directory) -> Json:
    """Nothing, as soon as one placement works.  RuntimeError when none does."""
    checks = [Deferred.fromCoroutine(check(one)) for one in directory.all]
    found = await DeferredList(checks, fireOnOneCallback=True, consumeErrors=True)
    if isinstance(found, list):
        raise RuntimeError("no placement works")
    return {}
