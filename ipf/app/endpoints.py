"""Where the service listens and what it reads: looked at before anything is started, and opened when all is ready.

Part of the composition root.  Whatever cannot be used is a Problem whose place is the variable that says it.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger

from ipf.config.settings import Settings
from ipf.errors import Category, Problem
from ipf.wire.mllp.refused import RefusedConnection

log = Logger(namespace="ipf.app.listeners")

_FILES = 65_536  # sockets and files that the service asks for
_SPARE_FILES = 512  # of these, for HTTP, PostgreSQL, maps and logs
HTTP, MLLP = "IPF_HTTP_LISTEN", "IPF_MLLP_LISTEN"
_TLS = ("ssl:", "mtls:")
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


def raise_file_limit() -> int:
    """Let this process open as many files as it may, up to a bound; how many that are.

    A login shell allows 1,024, which is fewer than the senders that one listener takes: those beyond would take the
    last file from HTTP and PostgreSQL as well.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _FILES if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def most_senders(settings: Settings, files: int) -> int:
    """How many connections each MLLP listener may have, so that files are left for all else."""
    share = max(1, files - _SPARE_FILES) // max(1, len(settings.mllp_listen))
    most = min(settings.mllp_max_connections, max(1, share))
    if most < settings.mllp_max_connections:
        text = "IPF_MLLP_MAX_CONNECTIONS: {most} connections a listener, since this process may open {files} files only"
        log.warn(text, most=most, files=files)
    return most


def most_clients(settings: Settings, files: int) -> int:
    """How many HTTP connections there may be, out of the files that MLLP leaves, and some for all else."""
    left = files - most_senders(settings, files) * len(settings.mllp_listen) - _SPARE_FILES // 2
    most = min(settings.http_max_connections, max(left, files // 4, 1))
    if most < settings.http_max_connections:
        text = "IPF_HTTP_MAX_CONNECTIONS: {most} connections, since this process may open {files} files only"
        log.warn(text, most=most, files=files)
    return most


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
        served = RefusedConnection(factory) if place.startswith(_TLS) else factory
        port: IListeningPort = await serverFromString(reactor, place).listen(served)
    except _UNUSABLE as error:
        raise Problem(Category.UNAVAILABLE, f"{what} cannot listen on {place}: {error}", variable) from error
    log.info("{what} listens on {place}", what=what, place=place)
    return port
