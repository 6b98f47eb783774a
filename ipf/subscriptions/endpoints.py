"""Endpoint rules: which hosts and addresses a Subscription may name, at registration and again at each connection.

| address | |
|---|---|
| public, private (RFC 1918, RFC 4193), loopback | valid in every security mode |
| a port of this host that the service listens on | never: a notification would be a request to the service itself |
| link-local (metadata services of clouds), unspecified, multicast, broadcast | never |
| private and loopback with tenants | only those that `SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW` names |
| `SUBSCRIPTION_SERVICE_ENDPOINT_DENY` | none that it names; `*`: none but those that `..._ALLOW` names |

The host is looked at as text, and every address that a name resolves to: when a Subscription is registered
(`endpoint_names.py`), and by the client that connects.  Nothing here resolves names.  Every refusal names the setting
that it comes from.

Source: decisions, "Decided after the second measurement" (Endpoints); interface specification "Channel security".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from ipf.subscriptions.addresses import (
    Address,
    address_of,
    is_local_name,
    is_numeric,
    is_private,
    matches_host,
    matches_network,
    never_an_endpoint,
)

ALLOW, DENY = "SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW", "SUBSCRIPTION_SERVICE_ENDPOINT_DENY"
_PORTS = {"http": 80, "https": 443}
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9_])?")
_URL_TEXT = re.compile(r"[\x21-\x7e]+")
_EVERYTHING = "*"

OwnPorts = Callable[[], Mapping[int, str]]
"""The ports that this service listens on, each with the setting that names it."""


def _no_ports() -> Mapping[int, str]:
    return {}


def _is_loopback(address: str) -> bool:
    found = address_of(address)
    return found is not None and found.is_loopback


@dataclass(frozen=True, slots=True)
class EndpointRules:
    """The rules of one deployment.

    `allow`, `deny`: host patterns (`*.example.org`) and networks (`10.1.0.0/16`).  `is_of_this_host`: whether an
    address reaches this host.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    has_tenants: bool = False
    own_ports: OwnPorts = _no_ports
    is_of_this_host: Callable[[str], bool] = _is_loopback

    def refusal(self, host: str, port: int) -> str | None:
        """Why an endpoint with this host and port cannot be registered; None: it can."""
        host = host.rstrip(".").lower()
        address = address_of(host)
        if address is not None:
            return self._address_refusal(host, address, port)
        if is_numeric(host):
            return "the host must be written as an address such as 192.0.2.1"
        if not _PLAIN_NAME.fullmatch(host):
            return "the host is not a plain name"
        if is_local_name(host) and (own := self._own_port("127.0.0.1", port)):
            return own
        return self._name_refusal(host, needs_allow=self.has_tenants and is_local_name(host))

    def forbids(self, host: str, address: str, port: int) -> str | None:
        """Why no connection may be opened to an address that this host resolves to; None: it may."""
        found = address_of(address)
        if found is None:
            return "it is not an address"
        return self._address_refusal(host.rstrip(".").lower(), found, port)

    def domain_refusal(self, domain: str) -> str | None:
        """Why no mail may be sent to this domain; None: it may."""
        return self._name_refusal(domain.rstrip(".").lower(), needs_allow=False)

    def _address_refusal(self, host: str, address: Address, port: int) -> str | None:
        kind = never_an_endpoint(address)
        if kind is not None:
            return f"{kind} addresses are never endpoints, whatever {ALLOW} says"
        own = self._own_port(str(address), port)
        if own is not None:
            return own
        if any(matches_network(address, pattern) for pattern in self.deny):
            return f"{DENY} excludes it"
        if any(matches_network(address, pattern) for pattern in self.allow):
            return self._denied_name(host)
        is_exact = address.is_loopback  # a pattern for many names does not mean this host
        return self._name_refusal(host, needs_allow=self.has_tenants and is_private(address), is_exact=is_exact)

    def _name_refusal(self, host: str, *, needs_allow: bool, is_exact: bool = False) -> str | None:
        denied = self._denied_name(host)
        if denied is not None:
            return denied
        patterns = [one for one in self.allow if matches_host(host, one)]
        if any(not is_exact or not _is_wildcard(one) for one in patterns):
            return None
        if _EVERYTHING in self.deny:
            return f"{DENY} is {_EVERYTHING}, and {ALLOW} does not name it"
        return f"with tenants, private and loopback addresses need {ALLOW}" if needs_allow else None

    def _denied_name(self, host: str) -> str | None:
        is_denied = any(one != _EVERYTHING and matches_host(host, one) for one in self.deny)
        return f"{DENY} excludes it" if is_denied else None

    def _own_port(self, address: str, port: int) -> str | None:
        setting = self.own_ports().get(port)
        if setting is None or not self.is_of_this_host(address):
            return None
        return f"this service itself listens on port {port} ({setting})"


def _is_wildcard(pattern: str) -> bool:
    return "*" in pattern or "?" in pattern or "[" in pattern


def split_endpoint(endpoint: str) -> SplitResult | None:
    """The parts of an absolute http or https URL; None when it is none, or one that clients read in several ways."""
    if not _URL_TEXT.fullmatch(endpoint) or "\\" in endpoint:
        return None
    try:
        url = urlsplit(endpoint)
        _ = url.port  # raises when it is not a number
    except ValueError:
        return None
    return url if url.scheme in _PORTS and url.hostname else None


def port_of(url: SplitResult) -> int:
    """The port that a client connects to."""
    return url.port if url.port is not None else _PORTS[url.scheme]
