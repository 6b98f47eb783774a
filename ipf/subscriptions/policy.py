"""Which channels a subscriber may register: the channel security modes and the endpoint rules.

A Subscription resource arrives on create and update; issues leave, one for each violation, none when it may be served.
Nothing here looks at the network: names are judged as text, addresses when they are written as such.  The channel asks
`permits_address` again for what a name resolves to.

Source: interface specification "Channel security"; decisions section 2 (`SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from ipf.errors import Category, Issue
from ipf.ports import Json

STRICT, RELAXED, PERMISSIVE = "strict", "relaxed", "permissive"

_ENDPOINT = "Subscription.channel.endpoint"
_HEADER = "Subscription.channel.header"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # token of RFC 9110 section 5.6.2
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_NUMERIC_HOST = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\.?")
_URL_TEXT = re.compile(r"[\x21-\x7e]+")
_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection"}
    | {"te", "trailer", "upgrade", "expect"}
)
"""Headers that belong to the connection: a subscriber may not set them."""


@dataclass(frozen=True, slots=True)
class ChannelPolicy:
    """The rules of one deployment.

    `mode`: strict, relaxed or permissive (anything else counts as strict).  `allow`: host patterns (`*.example.org`)
    and networks (`10.1.0.0/16`); when there are any, nothing else may be an endpoint, in every mode.
    """

    mode: str = STRICT
    allow: tuple[str, ...] = ()

    def violations(self, subscription: Json) -> list[Issue]:
        """One issue for each rule that the channel breaks."""
        channel = subscription.get("channel")
        if not isinstance(channel, dict):
            return [_issue("a subscription needs a channel", "Subscription.channel")]
        found: list[Issue] = []
        if channel.get("type") == "rest-hook":
            found += self._endpoint(channel.get("endpoint"))
        found += self._headers(channel.get("header", []))
        return found

    def permits_address(self, address: str) -> bool:
        """Whether a connection to this IP address may be opened for an endpoint given by name."""
        return self.mode in (RELAXED, PERMISSIVE) or bool(self.allow) or not _is_inside(ip_address(address))

    def _endpoint(self, endpoint: object) -> Iterator[Issue]:
        if not isinstance(endpoint, str) or not endpoint:
            yield _issue("a rest-hook channel needs an endpoint", _ENDPOINT)
            return
        url = _split(endpoint)
        if url is None or url.scheme not in ("http", "https") or not url.hostname:
            yield _issue("the endpoint must be an absolute http or https URL", _ENDPOINT)
            return
        if url.scheme != "https" and self.mode != PERMISSIVE:
            yield _issue("the endpoint must be HTTPS", _ENDPOINT)
        if "@" in url.netloc or url.fragment:
            yield _issue("the endpoint must not carry credentials or a fragment", _ENDPOINT)
        yield from self._host(url.hostname)

    def _host(self, host: str) -> Iterator[Issue]:
        if self.allow:
            if not any(_fits(host, pattern) for pattern in self.allow):
                yield _issue("the endpoint's host is not among those that this server allows", _ENDPOINT)
        elif self.mode not in (RELAXED, PERMISSIVE) and _is_inside_name(host):
            yield _issue("the endpoint's host is private, local or not a plain name", _ENDPOINT)

    def _headers(self, headers: object) -> Iterator[Issue]:
        if not isinstance(headers, list):
            yield _issue("header must be a list of texts", _HEADER)
            return
        names = set()
        for number, header in enumerate(headers):
            name, reason = _header_name(header)
            names.add(name)
            if reason:
                yield _issue(reason, f"{_HEADER}[{number}]")
        if self.mode not in (RELAXED, PERMISSIVE) and "authorization" not in names:
            yield _issue("channel.header must hold an Authorization entry", _HEADER)


def _header_name(header: object) -> tuple[str, str | None]:
    """Name in lower case and, when the header cannot be sent, the reason."""
    if not isinstance(header, str) or ":" not in header:
        return "", "a header has the form 'Name: value'"
    name, _, value = header.partition(":")
    if not _HEADER_NAME.fullmatch(name):
        return "", "a header's name has characters that are not allowed"
    if not _HEADER_VALUE.fullmatch(value):
        return "", "a header's value has characters that are not allowed (such as a line break)"
    if not value.strip():
        return "", "a header needs a value"
    lower = name.lower()
    return lower, f"the header {name} is set by the server" if lower in _OURS else None


def _split(endpoint: str) -> SplitResult | None:
    if not _URL_TEXT.fullmatch(endpoint) or "\\" in endpoint:
        return None
    try:
        url = urlsplit(endpoint)
        _ = url.port  # raises when it is no number
    except ValueError:
        return None
    return url


def _fits(host: str, pattern: str) -> bool:
    host = host.rstrip(".")
    try:
        return ip_address(host) in ip_network(pattern, strict=False)
    except ValueError:
        return fnmatchcase(host, pattern.lower())


def _is_inside_name(host: str) -> bool:
    """Whether a host is one of the machine's own neighbourhood, or an address in disguise (`127.1`, `0x7f000001`)."""
    host = host.rstrip(".")
    try:
        return _is_inside(ip_address(host))
    except ValueError:
        pass
    return (
        host == "localhost"
        or host.endswith((".localhost", ".local", ".internal", ".home.arpa"))
        or _NUMERIC_HOST.fullmatch(host) is not None
    )


def _is_inside(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return not address.is_global or address.is_multicast


def _issue(text: str, place: str) -> Issue:
    return Issue(text, place, Category.BUSINESS_RULE)
