"""What HTTP clients reach: the paths of the roles `fhir`, `mapping` and `admin`; health and metrics in every role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.web.resource import IResource

from ipf.app.listeners.access import AUTH_SANDBOX, Access, open_access
from ipf.app.listeners.audit import open_audit
from ipf.app.listeners.http import open_http
from ipf.app.roles.admin import admin_mount
from ipf.app.roles.fhir import (
    fhir_handler,
    fhir_mount,
    open_repository,
    start_hub,
    start_jobs,
    transform_handler,
    websocket_mount,
)
from ipf.app.roles.pair import Pair
from ipf.app.roles.process import Process
from ipf.app.runtime.process import run_in_thread
from ipf.config.roles import ADMIN, FHIR, MAPPING
from ipf.config.settings import Settings
from ipf.fhir.index import sources as index_sources
from ipf.ports import AuditBinding, Handler, WebsocketHub
from ipf.wire.admin.access import AdminAccess
from ipf.wire.admin.actuator import Component


@dataclass(frozen=True, slots=True)
class Api:
    """What answers requests; None where the process does not have the role.

    `bindings`: records attempts to bind websockets.
    """

    fhir: Handler | None = None
    mapping: Handler | None = None
    admin: IResource | None = None
    sockets: WebsocketHub | None = None
    bindings: AuditBinding | None = None


def open_process_access(process: Process) -> Access:
    """Authentication of the clients of this process."""
    access = open_access(process.settings, process.reactor)
    if access.keys is not None:
        process.health.add("identity_provider", Component(access.keys.check, required=False))
    if process.settings.is_auth_sandbox:
        process.health.add("authentication", Component(_sandbox, required=False))
    return access


async def _sandbox() -> Mapping[str, str]:
    """The details of health where authentication is switched off."""
    return {"warning": AUTH_SANDBOX}


def admin_access(settings: Settings) -> AdminAccess:
    """The tokens of the admin API."""
    return AdminAccess(settings.admin_token, settings.admin_read_token)


def open_api(process: Process, pair: Pair, access: Access) -> Api:
    """What the roles of this process serve."""
    settings, runs = pair.settings, pair.settings.runs
    if not runs(FHIR, MAPPING, ADMIN):
        return Api()
    operators = admin_access(settings)
    audit = open_audit(settings, pair.stores, operators, process.reactor, process.stack)
    repository = open_repository(process, settings, pair.stores, access)
    if runs(FHIR):
        Deferred.fromCoroutine(run_in_thread(index_sources.work_out))
        start_jobs(process, pair, repository, audit)
    return Api(
        fhir_handler(settings, repository, pair.stores, access, audit) if runs(FHIR) else None,
        transform_handler(pair, access, audit, process.reactor) if runs(MAPPING) else None,
        admin_mount(process, pair, repository, operators, audit) if runs(ADMIN) else None,
        start_hub(process, pair) if runs(FHIR) else None,
        audit.bindings,
    )


def mounts_of(settings: Settings, api: Api, access: Access, reactor: Any) -> dict[str, IResource]:
    """The resources of an API by the first segment of their paths."""
    found: dict[str, IResource] = {}
    if api.fhir is not None:
        found["fhir"] = fhir_mount(api.fhir, settings)
    if api.mapping is not None:
        found["mapping"] = fhir_mount(api.mapping, settings)
    if api.admin is not None:
        found["admin"] = api.admin
    if api.sockets is not None:
        found["websocket"] = websocket_mount(api.sockets, access, api.bindings, reactor)
    return found


async def serve_api(process: Process, mounts: Mapping[str, IResource]) -> None:
    """Open the HTTP listeners.  Problem UNAVAILABLE names the setting."""
    await open_http(process.settings, mounts, process.health, process.limits.http, process.listeners, process.stack)
