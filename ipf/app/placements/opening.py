"""Opens one placement: its pair of databases, what the roles of the process do on it, and what answers its requests.

A frozen placement has no stage and no maintenance: nothing is written but the audit records of what is read.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

from ipf.app.listeners.access import Access
from ipf.app.listeners.audit import open_sender_audit
from ipf.app.maps.profiles import OpenListener
from ipf.app.placements.directory import Directory, Placement, Serving
from ipf.app.placements.health import others
from ipf.app.roles.api import open_api
from ipf.app.roles.background import start_background
from ipf.app.roles.pair import Pair, open_pair
from ipf.app.roles.process import Process
from ipf.app.stages.processes import ConverterProcesses
from ipf.config.placements import DEFAULT, PairSettings, pair_settings
from ipf.config.roles import ADMIN, FHIR, MAPPING, RECEIVE
from ipf.wire.admin.actuator import Component, Health

_CHECK_SECONDS = 1.5  # less than a check of the health of the process may take


@dataclass(frozen=True, slots=True)
class Opened:
    """An open placement.  `converters`: its converter processes, if it has any."""

    pair: Pair
    serving: Serving
    converters: ConverterProcesses | None


@dataclass(slots=True)
class Shared:
    """What the placements of a process share.  `open_listener`: opens a port that a vendor profile names."""

    process: Process
    access: Access
    directory: Directory
    open_listener: OpenListener | None = None


async def open_placement(shared: Shared, placement: Placement, stack: AsyncExitStack) -> Opened:
    """Open it; what is opened is closed with the stack.  Problem names what keeps it from being opened."""
    process, directory, settings = shared.process, shared.directory, _settings(shared.process, placement)
    own = replace(process, settings=settings, stack=stack, health=Health({}, process.reactor, _CHECK_SECONDS))
    pair = await open_pair(own, settings, lambda tenant: directory.of(tenant).name == placement.name)
    pair.receiver.of_tenant = directory.receiver
    converters = None if placement.is_frozen else await start_background(own, pair)
    if placement.name == DEFAULT:
        own.health.add("placements", Component(partial(others, directory), required=False))
        if shared.open_listener is not None:  # the ports of the profiles of all tenants
            stack.push_async_callback(pair.profiles.stop)
            await pair.profiles.start(shared.open_listener)
    refused = open_sender_audit(settings, pair.stores, process.reactor, stack) if settings.runs(RECEIVE) else None
    api = open_api(own, pair, shared.access, is_frozen=placement.is_frozen)
    return Opened(pair, Serving(pair.receiver, api, own.health, refused), converters)


def _settings(process: Process, placement: Placement) -> PairSettings:
    settings = pair_settings(process.settings, placement.settings)
    if placement.is_frozen:
        reading = tuple(role for role in settings.roles if role in (FHIR, MAPPING, ADMIN, RECEIVE))
        return replace(settings, roles=reading)
    return settings
