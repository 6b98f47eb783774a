"""Checks the listeners and folders of the settings before a database is started or contacted.

Each endpoint is opened as the service opens it later, and closed again once all are open, so the kernel decides what is
in use, across the listeners of the settings as well.  No endpoint stays open during the start: a sender would be
connected to a service that does not answer yet.  Sockets that systemd passes are open already and only looked up.

A Problem has the name of its setting as its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.endpoints import AdoptedStreamServerEndpoint
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IStreamServerEndpoint
from twisted.internet.protocol import Factory

from ipf.app.listeners.endpoints import FHIR, HL7_HTTP, HTTP, METRICS, MLLP, opened_as
from ipf.app.listeners.unusable import UNUSABLE, is_in_use, reason_of
from ipf.config import roles
from ipf.config.settings import Settings
from ipf.errors import Category, Problem
from ipf.wire.tls import server_endpoint

_EXAMPLE = "tcp:2575 or tcp:2575:interface=0.0.0.0"


def endpoints_of(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """The setting, the name and the endpoint string of each listener that the roles of this process open."""
    yield HTTP, "HTTP", settings.http_listen
    if settings.fhir_listen is not None and settings.runs(roles.FHIR, roles.MAPPING):
        yield FHIR, "FHIR", settings.fhir_listen
    if settings.runs(roles.RECEIVE):
        yield from ((MLLP, f"MLLP {one.name}", one.endpoint) for one in settings.mllp_listen)
        yield from ((HL7_HTTP, f"HL7 over HTTP {one.name}", one.endpoint) for one in settings.hl7_http_listen)
    if settings.metrics_listen is not None:
        yield METRICS, "metrics", settings.metrics_listen


class _Nobody(Factory):
    """Accepts nothing: no turn of the reactor passes while its port is open."""

    noisy = False


@dataclass(frozen=True, slots=True)
class Tried:
    """A listener of the settings, and what keeps it from being opened."""

    name: str
    endpoint: str
    problem: Problem | None


async def check_endpoints(settings: Settings, reactor: Any) -> None:
    """Problem VALUE for an invalid endpoint string, UNAVAILABLE for one that cannot be opened; leaves none open."""
    for one in await try_endpoints(settings, reactor):
        if one.problem is not None:
            raise one.problem


async def try_endpoints(settings: Settings, reactor: Any) -> list[Tried]:
    """Open each listener, then close all."""
    tried: list[Tried] = []
    opened: dict[str, IListeningPort] = {}
    adopted: dict[int, str] = {}
    for variable, name, endpoint in endpoints_of(settings):
        problem = None
        try:
            server = _parsed(opened_as(settings, variable, endpoint), reactor)
            if isinstance(server, AdoptedStreamServerEndpoint):
                _check_adopted(server, f"{variable} ({endpoint})", adopted)
            else:
                opened[f"{variable} ({endpoint})"] = await server.listen(_Nobody())
        except Problem as invalid:
            problem = Problem(invalid.category, f"{endpoint}: {invalid.text}", variable)
        except UNUSABLE as error:
            text = f"{endpoint}: {reason_of(error)}{_taken_by(error, opened)}"
            problem = Problem(Category.UNAVAILABLE, text, variable)
        tried.append(Tried(name, endpoint, problem))
    for port in opened.values():
        await maybeDeferred(port.stopListening)
    return tried


def check_folders(settings: Settings) -> None:
    """Problem VALUE for a folder that does not exist."""
    is_receiving = settings.runs(roles.RECEIVE)
    sources = [("IPF_FILE_SOURCES", folder) for _, folder in settings.file_sources if is_receiving]
    for variable, folder in (("IPF_MAPS_DIR", settings.maps_dir), ("IPF_PACKAGE_DIR", settings.package_dir), *sources):
        if folder is not None and not Path(folder).is_dir():
            raise Problem(Category.VALUE, f"{folder} is not a folder", variable)


def _parsed(endpoint: str, reactor: Any) -> IStreamServerEndpoint:
    """The endpoint of an endpoint string, not opened.  Problem VALUE when it is invalid, or its files are."""
    try:
        return server_endpoint(reactor, endpoint)
    except UNUSABLE as error:
        is_known = endpoint.partition(":")[0] in ("ssl", "mtls", "systemd")
        text = reason_of(error) if is_known else f"not an endpoint such as {_EXAMPLE} ({reason_of(error)})"
        raise Problem(Category.VALUE, text) from error


def _taken_by(error: Exception, opened: Mapping[str, IListeningPort]) -> str:
    """Names the listener of these settings that has the address."""
    if isinstance(error, CannotListenError) and is_in_use(error):
        for name, port in opened.items():
            host = port.getHost()
            if error.port in (getattr(host, "port", None), getattr(host, "name", None)):
                return f" by {name}"
    return ""


def _check_adopted(server: AdoptedStreamServerEndpoint, name: str, adopted: dict[int, str]) -> None:
    """Problem VALUE for a socket of systemd that two listeners name."""
    if server.fileno in adopted:
        raise Problem(Category.VALUE, f"the socket is in use by {adopted[server.fileno]}")
    adopted[server.fileno] = name
