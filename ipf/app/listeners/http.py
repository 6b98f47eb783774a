"""The HTTP listeners: one for everything, or with `IPF_FHIR_LISTEN` one for FHIR clients beside it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace

from twisted.web.resource import IResource

from ipf.app.listeners.endpoints import FHIR, HTTP, Listeners, needs_token, opened_as
from ipf.app.listeners.metrics import open_metrics
from ipf.app.listeners.names import own_names
from ipf.app.runtime.process import run_in_thread
from ipf.config.settings import Settings
from ipf.rest.http.outcome import refuse
from ipf.wire.admin import actuator
from ipf.wire.admin.actuator import Health
from ipf.wire.admin.metrics_access import MetricsAccess
from ipf.wire.http.limits import HttpLimits
from ipf.wire.http.site import site
from ipf.wire.observe.observe import refusal as observe_refusal

_OF_FHIR_CLIENTS = ("fhir", "mapping", "websocket")
_OFFERS = {"fhir": "FHIR", "admin": "admin", "console": "console"}  # for the line `event=started`


async def open_http(
    settings: Settings,
    mounts: Mapping[str, IResource],
    health: Health,
    connections: int,
    listeners: Listeners,
    stack: AsyncExitStack,
) -> None:
    """Open the HTTP listeners, each with at most so many connections.  Problem UNAVAILABLE names the setting.

    `mounts`: what the roles of this process serve, by the first segment of its path.  Health is served by every
    process on IPF_HTTP_LISTEN.
    """
    apart = {name: mount for name, mount in mounts.items() if settings.fhir_listen and name in _OF_FHIR_CLIENTS}
    rest = {name: mount for name, mount in mounts.items() if name not in apart}
    rest["actuator"] = actuator.resource(health, _metrics_access(settings))
    await _open(settings, HTTP, settings.http_listen, rest, connections, listeners, stack)
    if settings.fhir_listen is not None and apart:
        await _open(settings, FHIR, settings.fhir_listen, apart, connections, listeners, stack)
    await open_metrics(settings, listeners, stack)


async def _open(
    settings: Settings,
    variable: str,
    endpoint: str,
    mounts: Mapping[str, IResource],
    connections: int,
    listeners: Listeners,
    stack: AsyncExitStack,
) -> None:
    limits = HttpLimits(settings.http_max_header_bytes, settings.http_request_seconds, connections=connections)
    refusals = {"fhir": refuse, "mapping": refuse, "admin/observe": observe_refusal}
    factory = site(mounts, refusals, max_body=settings.http_max_body_bytes, limits=limits, run_in_thread=run_in_thread)
    has_token = needs_token(settings, variable)
    offers = tuple((label, f"/{path}") for path, label in _OFFERS.items() if path in mounts)
    offers = offers or (("health", "/actuator/health"),)
    name = "HTTP" if variable == HTTP else "FHIR"
    opened = await listeners.open(opened_as(settings, variable, endpoint), factory, name, variable, offers)
    factory.limits = replace(limits, names=own_names(settings, opened.address, has_token))
    stack.push_async_callback(listeners.close, opened)


def _metrics_access(settings: Settings) -> MetricsAccess | None:
    """Who may read metrics on this listener; None when they have their own."""
    return None if settings.metrics_listen else MetricsAccess(settings.metrics_token)
