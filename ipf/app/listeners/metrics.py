"""A listener for metrics alone (`IPF_METRICS_LISTEN`): with it, the main listener does not serve them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

from ipf.app.listeners.endpoints import METRICS, Listeners, needs_token, opened_as
from ipf.app.listeners.names import own_names
from ipf.config.settings import Settings
from ipf.wire.admin.actuator import metrics_mounts
from ipf.wire.admin.metrics_access import MetricsAccess
from ipf.wire.http.limits import HttpLimits
from ipf.wire.http.site import site

_CONNECTIONS = 32  # scrapers


async def open_metrics(settings: Settings, listeners: Listeners, stack: AsyncExitStack) -> None:
    """Open the listener, if there is one.  Problem UNAVAILABLE names IPF_METRICS_LISTEN.

    Without a token it is bound to loopback unless it names an interface, and answers there for its own names only.
    """
    if settings.metrics_listen is None:
        return
    has_token = needs_token(settings, METRICS)
    limits = HttpLimits(settings.http_max_header_bytes, settings.http_request_seconds, connections=_CONNECTIONS)
    factory = site(metrics_mounts(MetricsAccess(settings.metrics_token)), limits=limits)
    endpoint = opened_as(settings, METRICS, settings.metrics_listen)
    opened = await listeners.open(endpoint, factory, "metrics", METRICS)
    factory.limits = replace(limits, names=own_names(settings, opened.address, has_token))
    stack.push_async_callback(listeners.close, opened)
