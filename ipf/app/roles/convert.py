"""Role `convert`: received messages become FHIR resources, in converter processes or in this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipf.app.roles.pair import Pair
from ipf.app.roles.process import Process
from ipf.app.stages.converters import start_conversion
from ipf.app.stages.processes import ConverterProcesses
from ipf.errors import Category, Problem
from ipf.wire.admin.actuator import Component
from ipf.wire.client.remote_service import RemoteService

_MAPPING_TIMEOUT_SECONDS = 1.5


def start_converting(process: Process, pair: Pair) -> ConverterProcesses | None:
    """Start to convert.  Returns the converter processes; None when there are none."""
    settings = pair.settings
    processes = start_conversion(
        settings, pair.urls, pair.stores, pair.maps, process.output, process.reactor, process.stack
    )

    async def converters() -> Mapping[str, Any]:
        if processes is not None and processes.running < processes.wanted:
            raise RuntimeError(f"{processes.running} of {processes.wanted} converter processes run")
        return {"processes": processes.wanted if processes is not None else 0}

    async def startup() -> None:
        if processes is not None and processes.are_starting:
            raise RuntimeError("converter processes are starting")

    process.health.add("converters", Component(converters, required=False))
    process.health.add("startup", Component(startup))
    if settings.mapping_url is not None:
        process.health.add("mapping", _remote_mapping(settings.mapping_url, process.reactor))
    return processes


def _remote_mapping(url: str, reactor: Any) -> Component:
    """Health of the remote mapping service."""
    remote = RemoteService(reactor, _MAPPING_TIMEOUT_SECONDS, "the mapping service")

    async def check() -> Mapping[str, Any]:
        reply = await remote.get(f"{url.rstrip('/')}/metadata", {"Accept": "application/fhir+json"})
        if reply.status >= 500:
            raise Problem(Category.UPSTREAM, f"the mapping service answers {reply.status}")
        return {"http_status": reply.status}

    return Component(check, required=False)
