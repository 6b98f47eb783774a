"""Starts the operator console: the client of the engine, the sessions, the pages, the listener."""

from __future__ import annotations

import os
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger

from ipf.app.listeners.endpoints import bound
from ipf.app.listeners.names import machine_names
from ipf.app.listeners.places import shown_address
from ipf.config.console import ConsoleSettings, oidc
from ipf.console.app import mounts
from ipf.console.html.rendering import Renderer
from ipf.console.html.static import StaticFiles
from ipf.console.pages.overview import live_state
from ipf.console.people.sessions import Sessions
from ipf.console.people.sign_in import SignIn
from ipf.console.serving.backend import Backend
from ipf.console.serving.live import LiveHub
from ipf.console.serving.web import Console
from ipf.errors import Category, Problem
from ipf.wire.client.remote_service import RemoteService
from ipf.wire.http.limits import HttpLimits
from ipf.wire.http.origin import OwnNames
from ipf.wire.http.site import site
from ipf.wire.tls import server_endpoint

log = Logger(namespace="ipf.app.console")

_ENGINE_SECONDS, _PROVIDER_SECONDS = 30.0, 10.0
_LOOPBACK = ("interface=127.0.0.1", "interface=\\:\\:1", "interface=localhost")


async def start(settings: ConsoleSettings, reactor: Any, stack: AsyncExitStack) -> None:
    """Open the console.  Problem UNAVAILABLE names IPF_UI_LISTEN."""
    engine = RemoteService(reactor, _ENGINE_SECONDS, "the engine")
    provider = RemoteService(reactor, _PROVIDER_SECONDS, "the identity provider", body_limit=1024 * 1024)
    stack.push_async_callback(engine.close)
    stack.push_async_callback(provider.close)
    read = partial(oidc, os.environ)
    endpoint = bound(settings.listen, isinstance(read(), tuple) is False)
    is_loopback = any(part in endpoint for part in _LOOPBACK) or endpoint.startswith("unix:")
    static = StaticFiles()
    sign_in = SignIn(settings, read, provider, time.time, reactor)
    console = Console(
        settings,
        Backend(engine, settings.engine_url, settings.admin_token, reactor, settings.fhir_url),
        Sessions(settings, reactor.seconds),
        sign_in,
        Renderer(static),
        static,
        lambda: is_loopback and settings.admin_token is None and bool(sign_in.missing),
    )
    hub = LiveHub(partial(live_state, console.backend), reactor)
    stack.callback(hub.close)
    limits = HttpLimits(names=own_names(settings, is_sandbox=console.is_sandbox()))
    port = await _listen(endpoint, site(mounts(console, hub), limits=limits), reactor, stack)
    scheme = "https" if endpoint.startswith(("ssl:", "mtls:")) else "http"
    url = f"{scheme}://{shown_address(port.getHost())}"
    log.info("event=started console {console} of {engine}", event="started", console=url, engine=settings.engine_url)


def own_names(settings: ConsoleSettings, *, is_sandbox: bool) -> OwnNames:
    """For which names the console answers (`wire/http/origin.py` says why): a sandbox for its own."""
    urls = () if settings.base_url is None else (settings.base_url,)
    return OwnNames(machine_names(*urls) if is_sandbox else None, (), urls)


async def _listen(endpoint: str, factory: Any, reactor: Any, stack: AsyncExitStack) -> IListeningPort:
    try:
        port: IListeningPort = await server_endpoint(reactor, endpoint).listen(factory)
    except Exception as failed:
        raise Problem(Category.UNAVAILABLE, f"{endpoint} cannot be opened: {failed}", "IPF_UI_LISTEN") from None
    stack.push_async_callback(_stop, port)
    return port


async def _stop(port: Any) -> None:
    await maybeDeferred(port.stopListening)
