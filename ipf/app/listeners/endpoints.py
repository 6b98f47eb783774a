"""Opens listeners: how an unprotected one is bound, and how many connections each takes.

A Problem about an unusable endpoint has the name of its setting as its place.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.logger import Logger

from ipf.app.listeners.unusable import UNUSABLE, reason_of
from ipf.app.runtime.watchdog import SelfConnections
from ipf.config.settings import Settings
from ipf.errors import Category, Problem
from ipf.wire.mllp.refused import AbortRefused
from ipf.wire.tls import server_endpoint

log = Logger(namespace="ipf.app.listeners")

HTTP, MLLP, METRICS = "IPF_HTTP_LISTEN", "IPF_MLLP_LISTEN", "IPF_METRICS_LISTEN"
HL7_HTTP, FHIR = "IPF_HL7_HTTP_LISTEN", "IPF_FHIR_LISTEN"
_MAX_FILES = 65_536  # open files and sockets that the service asks for
_SPARE_FILES = 512  # of these, for HTTP, PostgreSQL, maps and logs
_TLS = ("ssl:", "mtls:")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections each MLLP listener accepts, and how many the HTTP listener."""

    mllp: int
    http: int


def is_protected(settings: Settings) -> bool:
    """Whether FHIR and the admin API both require a token."""
    return settings.auth_enabled and settings.admin_token is not None


def needs_token(settings: Settings, variable: str) -> bool:
    """Whether everything that the listener of this setting serves requires a token."""
    own = {METRICS: settings.metrics_token, HL7_HTTP: settings.hl7_http_token}
    if variable in own:
        return own[variable] is not None
    if variable == FHIR:
        return settings.auth_enabled
    return is_protected(settings) or (variable == HTTP and bool(settings.fhir_listen and settings.admin_token))


def bound(endpoint: str, is_protected: bool) -> str:
    """An endpoint string; an unprotected TCP listener is bound to loopback unless it names an interface.

    Source: decisions section 1.
    """
    if is_protected or names_interface(endpoint):
        return endpoint
    return endpoint + (":interface=\\:\\:1" if endpoint.startswith("tcp6:") else ":interface=127.0.0.1")


def names_interface(endpoint: str) -> bool:
    """Whether an endpoint string says by itself where it is reached."""
    return "interface=" in endpoint or not endpoint.startswith(("tcp:", "ssl:", "tcp6:"))


def opened_as(settings: Settings, variable: str, endpoint: str) -> str:
    """The endpoint string that is opened for one of a setting: MLLP on all interfaces, HTTP without tokens on loopback.

    Source: interface specification "MLLP" (senders are on a trusted LAN); decisions, "MLLP listens on all interfaces".
    """
    return endpoint if variable == MLLP else bound(endpoint, needs_token(settings, variable))


def raise_file_limit() -> int:
    """Raise the soft limit of open files as far as the hard limit allows; returns the new limit.

    A login shell allows 1,024 open files, fewer than the senders of one listener.  At that limit neither HTTP nor
    PostgreSQL could open another socket.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _MAX_FILES if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def connection_limits(settings: Settings, databases: int = 0) -> ConnectionLimits:
    """The connection limits of the settings, as far as the limit of open files allows.

    `databases`: connections to databases beside those of one pair.
    """
    files = max(raise_file_limit() - databases, 1)
    mllp, http = mllp_connections(settings, files), http_connections(settings, files)
    text = "{variable}: at most {limit} connections, since this process may open {files} files only"
    if mllp < settings.mllp_max_connections:
        log.warn(text, variable="IPF_MLLP_MAX_CONNECTIONS", limit=mllp, files=files)
    if http < settings.http_max_connections:
        log.warn(text, variable="IPF_HTTP_MAX_CONNECTIONS", limit=http, files=files)
    return ConnectionLimits(mllp, http)


def mllp_connections(settings: Settings, files: int) -> int:
    """Connections of each MLLP listener that leave enough open files for everything else."""
    share = max(1, files - _SPARE_FILES) // max(1, len(settings.mllp_listen))
    return min(settings.mllp_max_connections, max(1, share))


def http_connections(settings: Settings, files: int) -> int:
    """HTTP connections within the open files that MLLP leaves."""
    left = files - mllp_connections(settings, files) * len(settings.mllp_listen) - _SPARE_FILES // 2
    return min(settings.http_max_connections, max(left, files // 4, 1))


@dataclass(frozen=True, slots=True)
class OpenListener:
    """A listener that is open.  `name`: for the log.  `endpoint`: its endpoint string; `address`: where it listens.

    `offers`: what clients find there, each with the path of its URL; "" is no URL.
    """

    name: str
    endpoint: str
    port: IListeningPort
    address: IAddress
    offers: tuple[tuple[str, str], ...] = ()

    @property
    def has_tls(self) -> bool:
        """Whether clients speak TLS."""
        return self.endpoint.startswith(_TLS)


class Listeners:
    """Opens the listeners of this process, and knows those that are open."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._own = SelfConnections(reactor)
        self.open_now: list[OpenListener] = []

    async def open(
        self,
        endpoint: str,
        factory: Any,
        name: str,
        variable: str | None = None,
        offers: tuple[tuple[str, str], ...] = (),
    ) -> OpenListener:
        """Open a listener.  Problem UNAVAILABLE when it cannot be opened; `variable`: the setting that names it."""
        factory.noisy = False
        served = self._own.told_apart(AbortRefused(factory) if endpoint.startswith(_TLS) else factory)
        try:
            port: IListeningPort = await server_endpoint(self._reactor, endpoint).listen(served)
        except UNUSABLE as error:
            raise Problem(Category.UNAVAILABLE, f"{endpoint}: {reason_of(error)}", variable or name) from error
        log.info("{name} listens on {endpoint}", name=name, endpoint=endpoint)
        opened = OpenListener(name, endpoint, port, port.getHost(), offers)
        self.open_now.append(opened)
        return opened

    async def close(self, listener: OpenListener) -> None:
        """Accept no further connections."""
        self.open_now.remove(listener)
        await maybeDeferred(listener.port.stopListening)

    async def unanswered(self, seconds: float) -> dict[str, str]:
        """Connect to each open listener; the reason for each that does not answer within so many seconds."""
        checks = [(one, Deferred.fromCoroutine(self._own.check(one.address, seconds))) for one in self.open_now]
        found = {}
        for listener, check in checks:
            try:
                await check
            except Exception as error:
                if listener in self.open_now:  # else it was closed meanwhile
                    found[listener.name] = str(error)
        return found
