"""Where the service listens and what it reads: looked at before anything is started, and opened when all is ready.

Part of the composition root.  Whatever cannot be used is a Problem whose place is the variable that says it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger

from ipf.errors import Category, Problem
from ipf.settings import Settings

log = Logger(namespace="ipf.doors")

HTTP, MLLP = "IPF_HTTP_LISTEN", "IPF_MLLP_LISTEN"
_UNUSABLE = (CannotListenError, ValueError, TypeError, LookupError, OSError, OverflowError)


def is_protected(settings: Settings) -> bool:
    """Whether every door asks for a token."""
    return settings.auth_enabled and settings.admin_token is not None


def bound(endpoint: str, is_protected: bool) -> str:
    """An endpoint string; a TCP listener that nothing protects is bound to loopback unless it names an interface.

    Source: decisions section 1.
    """
    if is_protected or "interface=" in endpoint or not endpoint.startswith(("tcp:", "ssl:", "tcp6:")):
        return endpoint
    return endpoint + (":interface=\\:\\:1" if endpoint.startswith("tcp6:") else ":interface=127.0.0.1")


def check_places(settings: Settings, reactor: Any) -> None:
    """Problem for an endpoint string that says nothing, or a folder that is none; nothing is opened."""
    for variable, endpoint in ((HTTP, settings.http_listen), *((MLLP, one.endpoint) for one in settings.mllp_listen)):
        try:
            serverFromString(reactor, endpoint)
        except _UNUSABLE as error:
            text = f"{endpoint} is no endpoint such as tcp:2575 or tcp:2575:interface=0.0.0.0 ({error})"
            raise Problem(Category.VALUE, text, variable) from error
    for variable, folder in (("IPF_MAPS_DIR", settings.maps_dir), ("IPF_PACKAGE_DIR", settings.package_dir)):
        if folder is not None and not Path(folder).is_dir():
            raise Problem(Category.VALUE, f"{folder} is no folder", variable)


async def listen(reactor: Any, place: str, factory: Any, what: str, variable: str | None = None) -> IListeningPort:
    """Open a listener.  Problem: it cannot be opened."""
    factory.noisy = False
    try:
        port: IListeningPort = await serverFromString(reactor, place).listen(factory)
    except _UNUSABLE as error:
        raise Problem(Category.UNAVAILABLE, f"{what} cannot listen on {place}: {error}", variable) from error
    log.info("{what} listens on {place}", what=what, place=place)
    return port
