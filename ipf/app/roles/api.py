"""What HTTP clients reach: the paths of the roles `fhir`, `mapping` and `admin`; health and metrics in every role."""

from __future__ import annotations

from twisted.web.resource import IResource

from ipf.app.listeners.access import open_access
from ipf.app.listeners.audit import open_audit
from ipf.app.listeners.http import open_http
from ipf.app.roles.admin import admin_mounts
from ipf.app.roles.fhir import fhir_mounts, mapping_mounts, open_repository
from ipf.app.roles.pair import Pair
from ipf.app.roles.process import Process
from ipf.config.roles import ADMIN, FHIR, MAPPING
from ipf.wire.admin.access import AdminAccess
from ipf.wire.admin.actuator import Component


async def open_api(process: Process, pair: Pair) -> None:
    """Open the HTTP listeners with what the roles of this process serve.  Problem UNAVAILABLE names the setting."""
    mounts = _mounts(process, pair) if process.settings.runs(FHIR, MAPPING, ADMIN) else {}
    await open_http(process.settings, mounts, process.health, process.limits.http, process.listeners, process.stack)


def _mounts(process: Process, pair: Pair) -> dict[str, IResource]:
    settings, runs = pair.settings, pair.settings.runs
    access = open_access(settings, process.reactor)
    if access.keys is not None:
        process.health.add("identity_provider", Component(access.keys.check, required=False))
    admin_access = AdminAccess(settings.admin_token, settings.admin_read_token)
    audit = open_audit(settings, pair.stores, admin_access, process.reactor, process.stack)
    repository = open_repository(settings, pair.stores, access)
    found: dict[str, IResource] = {}
    if runs(FHIR):
        found |= fhir_mounts(process, pair, repository, access, audit)
    if runs(MAPPING):
        found |= mapping_mounts(pair, access, audit)
    if runs(ADMIN):
        found |= admin_mounts(process, pair, repository, admin_access, audit)
    return found
