"""Start of a process with several placements: the listeners are open before any database is reached."""

from __future__ import annotations

import os

from twisted.web.resource import IResource

from ipf.app.listeners.access import Access
from ipf.app.placements.admin import PlacedAdmin
from ipf.app.placements.directory import Directory
from ipf.app.placements.fleet import Fleet
from ipf.app.placements.receiving import RefusedSenders, placed_receiver
from ipf.app.placements.requests import placed_handler
from ipf.app.placements.websockets import PlacedHub
from ipf.app.roles.api import admin_access, open_process_access, serve_api
from ipf.app.roles.fhir import fhir_mount, websocket_mount
from ipf.app.roles.process import Process
from ipf.app.roles.receive import open_receivers
from ipf.app.runtime.privacy import install_placed_privacy
from ipf.config.placements import PlacementSettings, placements
from ipf.config.roles import ADMIN, FHIR, MAPPING, RECEIVE
from ipf.rest.http.outcome import refuse
from ipf.store.postgres.hosts import parts_of

CONNECTIONS = 32
"""To the two databases of a placement, and its pipes, at most."""


def read(process: Process) -> tuple[PlacementSettings, ...]:
    """The placements of the file.  Problem VALUE."""
    return placements(process.settings, os.environ, parts_of)


async def start_placements(process: Process, found: tuple[PlacementSettings, ...]) -> Fleet:
    """Open the listeners and all placements.  Problem names the setting of a listener that cannot be opened."""
    settings = process.settings
    install_placed_privacy(settings, process.stack)
    access = open_process_access(process)
    fleet = Fleet(process, access, found)
    process.stack.push_async_callback(fleet.stop)
    await serve_api(process, _mounts(process, access, fleet.directory))
    mllp = None
    if settings.runs(RECEIVE):
        receiver = placed_receiver(fleet.directory, process.reactor)
        mllp = await open_receivers(process, receiver, RefusedSenders(fleet.directory))
    await fleet.start(mllp.open if mllp is not None else None)
    return fleet


def _mounts(process: Process, access: Access, directory: Directory) -> dict[str, IResource]:
    settings, found = process.settings, {}
    runs = settings.runs
    if runs(FHIR):
        hub = PlacedHub(directory)
        fhir = placed_handler(directory, access.identify, lambda api: api.fhir, refuse)
        found["fhir"] = fhir_mount(fhir, settings)
        found["websocket"] = websocket_mount(hub, access, hub.note, process.reactor)
    if runs(MAPPING):
        mapping = placed_handler(directory, access.identify, lambda api: api.mapping, refuse)
        found["mapping"] = fhir_mount(mapping, settings)
    if runs(ADMIN):
        found["admin"] = PlacedAdmin(directory, admin_access(process.settings))
    return found
