"""Which requests of web browsers are answered: the rules on Host and Origin.  No IO.

**Host.**  A page of `evil.example` may let its name resolve to 127.0.0.1 (DNS rebinding); then the browser takes this
server for `evil.example`, and the page reads and writes everything that needs no token.  A listener with own names
answers only requests whose Host is one of them: loopback names, the address of the connection itself, and the names of
the settings.  A name cannot be an IP address of this server without being asked for it, so addresses are safe.
Health has nothing to protect: it answers for any Host, as a load balancer or an orchestrator asks for it.

**Origin.**  A browser states the origin of the page that sends a request.  Everything but a plain read is answered only
for pages of this server, of its base URL, and of the named origins.  Clients that are no browsers send no Origin.

Sources: RFC 9112 section 3.2 (Host), RFC 9110 section 15.5.20 (421), RFC 6454; https://www.w3.org/TR/fetch-metadata/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from ipf.errors import Category, Problem

LOOPBACK_NAMES = frozenset(("localhost", "ip6-localhost"))
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.%]+\]|[a-z0-9._~-]+)(?::(?P<port>\d{1,5}))?", re.ASCII)
_READS = frozenset(("GET", "HEAD", "OPTIONS"))
_HEALTH = frozenset(("/actuator/health", "/actuator/health/liveness", "/actuator/health/readiness"))
_PORTS = {"http": "80", "https": "443", "ws": "80", "wss": "443"}


@dataclass(frozen=True, slots=True)
class OwnNames:
    """The names of a listener.  `hosts` None: it answers for any Host.  `origins`: of pages that may use it (`*`: any).

    `base_urls`: addresses of this server in browsers, perhaps those of a proxy in front of it.
    """

    hosts: frozenset[str] | None = None
    origins: tuple[str, ...] = ()
    base_urls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sent:
    """What a request says about itself.  `local`: address of this server in the connection; "" for a Unix socket.

    `is_secure`: the client speaks TLS to this server itself.
    """

    method: str
    version: str
    hosts: Sequence[str]
    origins: Sequence[str] = ()
    fetch_site: Sequence[str] = ()
    is_upgrade: bool = False
    local: str = ""
    is_secure: bool = False
    path: str = ""


def refusal_of(sent: Sent, names: OwnNames) -> Problem | None:
    """Why a request is not answered; None: it is."""
    return _host_problem(sent, names) or _origin_problem(sent, names)


def _host_problem(sent: Sent, names: OwnNames) -> Problem | None:
    if not sent.hosts and sent.version != "HTTP/1.0":
        return Problem(Category.VALUE, "the request has no Host header", "Host")
    if names.hosts is None or (sent.method in _READS and sent.path in _HEALTH):
        return None
    name = host_name(sent.hosts[0]) if sent.hosts else None
    if name is not None and (name in names.hosts or name in LOOPBACK_NAMES or _is_own_address(name, sent.local)):
        return None
    text = "this listener answers only for its own names; IPF_HOSTS adds the name by which you reach it"
    return Problem(Category.MISDIRECTED, text, "Host")


def _origin_problem(sent: Sent, names: OwnNames) -> Problem | None:
    if sent.method in _READS and not sent.is_upgrade:
        return None
    if not sent.origins:
        if "cross-site" in sent.fetch_site and "*" not in names.origins:
            return _foreign()
        return None
    host = sent.hosts[0] if sent.hosts else ""
    if all(_is_allowed(origin, host, names, is_secure=sent.is_secure) for origin in sent.origins):
        return None
    return _foreign()


def _foreign() -> Problem:
    text = "pages of other sites may only read here; IPF_HTTP_CORS_ORIGINS names those that may do more"
    return Problem(Category.FORBIDDEN, text, "Origin")


def _is_allowed(origin: str, host: str, names: OwnNames, *, is_secure: bool) -> bool:
    """Whether pages of an origin may change something: named, or an address of this server.

    Behind a proxy that ends TLS the origin is `https`, and this server sees plain HTTP; the reverse is another origin.
    """
    if "*" in names.origins or origin in names.origins:
        return True
    scheme, authority = _authority(origin)
    if authority is None:
        return False  # also for `null`
    if authority == _normal(host, scheme) and not (is_secure and scheme in ("http", "ws")):
        return True
    return any(_authority(url) == (scheme, authority) for url in names.base_urls)


def host_name(host: str) -> str | None:
    """The name in a Host header: lower case, without port, brackets and the dot at its end; None: malformed."""
    found = _HOST.fullmatch(host.strip().lower())
    return None if found is None else found["name"].strip("[]").rstrip(".") or None


def names_in(words: Iterable[str]) -> frozenset[str]:
    """Names of the settings (a host, a host with its port, or a URL) as `host_name` has them."""
    hosts = (urlsplit(word).netloc if "://" in word else word for word in words)
    return frozenset(name for host in hosts if (name := host_name(host)))


def is_loopback(host: str) -> bool:
    """Whether an address, or `localhost`, is reached from this machine alone."""
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_own_address(name: str, local: str) -> bool:
    """Whether a Host is the address of the connection, or another of loopback that reaches it."""
    try:
        asked, own = ip_address(name), ip_address(local)
    except ValueError:
        return False
    own = getattr(own, "ipv4_mapped", None) or own
    return asked == own or (asked.is_loopback and own.is_loopback)


def _authority(url: str) -> tuple[str, str | None]:
    """Scheme, and host with its port, of an origin or a URL; None for something else."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "", None
    scheme = parts.scheme.lower()
    return scheme, _normal(parts.netloc, scheme) if scheme in _PORTS and parts.netloc else None


def _normal(host: str, scheme: str) -> str | None:
    """A host with its port, which is that of the scheme when it is left out."""
    name, found = host_name(host), _HOST.fullmatch(host.strip().lower())
    return None if name is None or found is None else f"{name}:{found['port'] or _PORTS[scheme]}"
