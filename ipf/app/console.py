"""Starts the operator console: the client of the engine, the sessions, the pages, the listener."""

from __future__ import annotations

import os
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.endpoints import serverFromString
from twisted.logger import Logger

from ipf.app.listeners.endpoints import bound
from ipf.config.console import ConsoleSettings, oidc
from ipf.console.app import mounts
from ipf.console.backend import Backend
from ipf.console.live import LiveHub
from ipf.console.pages.overview import live_state
from ipf.console.rendering import Renderer
from ipf.console.sessions import Sessions
from ipf.console.sign_in import SignIn
from ipf.console.static import StaticFiles
from ipf.console.web import Console
from ipf.errors import Category, Problem
from ipf.wire.client.remote_service import RemoteService
from ipf.wire.http.site import site

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
    sign_in = SignIn(settings, read, provider, time.time)
    console = Console(
        settings,
        Backend(engine, settings.engine_url, settings.admin_token),
        Sessions(settings, reactor.seconds),
        sign_in,
        Renderer(static),
        static,
        lambda: is_loopback and bool(sign_in.missing),
    )
    hub = LiveHub(partial(live_state, console.backend), reactor)
    stack.callback(hub.close)
    await _listen(endpoint, site(mounts(console, hub)), reactor, stack)
    log.info("event=started console at {endpoint}, engine at {engine}", endpoint=endpoint, engine=settings.engine_url)


async def _listen(endpoint: str, factory: Any, reactor: Any, stack: AsyncExitStack) -> None:
    try:
        port = await serverFromString(reactor, endpoint).listen(factory)
    except Exception as failed:
        raise Problem(Category.UNAVAILABLE, f"{endpoint} cannot be opened: {failed}", "IPF_UI_LISTEN") from None
    stack.push_async_callback(_stop, port)


async def _stop(port: Any) -> None:
    await maybeDeferred(port.stopListening)
