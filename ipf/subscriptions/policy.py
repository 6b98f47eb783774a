"""Channel policy: the channel security modes and the endpoint rules for submitted Subscriptions.

Each violation is an issue.  Nothing here resolves names: host names are checked as text, literal addresses as
addresses.  The client that opens a connection calls `permits` for each address that a name resolves to.

Source: interface specification "Channel security"; decisions section 2 (`SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from ipf.config.brokers import Broker, MissingLibrary, kind_of, missing_library
from ipf.errors import Category, Issue
from ipf.ports import Json
from ipf.subscriptions.addresses import (
    address_of,
    is_metadata,
    is_private,
    is_private_host,
    matches_host,
    matches_network,
)
from ipf.subscriptions.addresses import is_local as is_local
from ipf.subscriptions.broker_rules import broker_violations, reserved_header

STRICT, RELAXED, PERMISSIVE = "strict", "relaxed", "permissive"

_ENDPOINT = "Subscription.channel.endpoint"
_HEADER = "Subscription.channel.header"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # token of RFC 9110 section 5.6.2
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_URL_TEXT = re.compile(r"[\x21-\x7e]+")
_EMAIL_ADDRESS = re.compile(
    r"(?:mailto:)?[\w.!#$%&'*+/=^`{|}~-]{1,64}@([A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?)", re.A
)
_FRAMING_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection"}
    | {"te", "trailer", "upgrade", "expect"}
)
"""Headers of the connection, which would break the framing of a request.  Others of the server are replaced."""

_HTTP_CHANNELS = ("rest-hook", "message")


@dataclass(frozen=True, slots=True)
class ChannelPolicy:
    """The rules of one deployment.

    `mode`: strict, relaxed or permissive; any other value means strict.  `allow`: host patterns (`*.example.org`) and
    networks (`10.1.0.0/16`); when set, no other endpoint is allowed in any mode.  `brokers`: the only message brokers
    that are allowed, in every mode and whatever `allow` says.
    """

    mode: str = STRICT
    allow: tuple[str, ...] = ()
    brokers: tuple[Broker, ...] = ()
    missing_library: MissingLibrary = missing_library

    def violations(self, subscription: Json) -> list[Issue]:
        """One issue for each rule that the channel violates."""
        channel = subscription.get("channel")
        if not isinstance(channel, dict):
            return [_issue("a subscription needs a channel", "Subscription.channel")]
        found: list[Issue] = []
        kind, endpoint, headers = channel.get("type"), channel.get("endpoint"), channel.get("header", [])
        if kind == "message" and kind_of(endpoint) is not None:
            return [*self._broker(str(endpoint)), *_message_headers(headers)]
        if kind in _HTTP_CHANNELS:
            found += self._endpoint(kind, endpoint)
        elif kind == "email":
            found += self._email(endpoint)
        found += self._headers(headers, kind in _HTTP_CHANNELS)
        return found

    def permits(self, host: str, address: str) -> bool:
        """Whether a connection to this IP address may be opened for an endpoint with this host.

        Called for each resolved address, on each connection.  A host pattern with a wildcard does not permit local
        addresses, and no host pattern permits cloud metadata addresses: `allow` must contain their network.
        """
        target = address_of(address)
        if target is None:
            return False
        if any(matches_network(target, pattern) for pattern in self.allow):
            return True
        if not self.allow:
            return not is_metadata(target) if self._is_lenient else not is_private(target)
        patterns = [pattern for pattern in self.allow if matches_host(host, pattern)]
        if is_metadata(target) or not patterns:
            return False
        return not is_local(target) or any("*" not in pattern and "?" not in pattern for pattern in patterns)

    def endpoint_issues(self, url: str) -> list[Issue]:
        """One issue for each rule that a URL violates from which this server reads."""
        return list(self._endpoint("rest-hook", url))

    @property
    def _is_lenient(self) -> bool:
        return self.mode in (RELAXED, PERMISSIVE)

    def _broker(self, endpoint: str) -> Iterator[Issue]:
        is_open = self.mode == PERMISSIVE
        yield from broker_violations(
            endpoint, self.brokers, self.missing_library, needs_tls=not is_open, needs_credentials=not self._is_lenient
        )

    def _email(self, endpoint: object) -> Iterator[Issue]:
        found = _EMAIL_ADDRESS.fullmatch(unquote(endpoint)) if isinstance(endpoint, str) else None
        if found is None:
            yield _issue("an email channel needs one address as its endpoint: mailto:name@example.org", _ENDPOINT)
        elif self.allow and not any(matches_host(found[1], pattern) for pattern in self.allow):
            yield _issue("this server does not allow the domain of the address", _ENDPOINT)

    def _endpoint(self, kind: str, endpoint: object) -> Iterator[Issue]:
        if not isinstance(endpoint, str) or not endpoint:
            yield _issue(f"a {kind} channel needs an endpoint", _ENDPOINT)
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
            if not any(matches_host(host, pattern) for pattern in self.allow):
                yield _issue("this server does not allow the host of the endpoint", _ENDPOINT)
            return
        address = address_of(host.rstrip("."))
        if not self._is_lenient and is_private_host(host):
            yield _issue("the host of the endpoint is private, local or not a plain name", _ENDPOINT)
        elif address is not None and is_metadata(address):
            yield _issue("the endpoint is the address of a cloud metadata service", _ENDPOINT)

    def _headers(self, headers: object, is_http: bool) -> Iterator[Issue]:
        names: set[str] = set()
        yield from _header_violations(headers, names)
        if is_http and isinstance(headers, list) and not self._is_lenient and "authorization" not in names:
            yield _issue("channel.header must hold an Authorization entry", _HEADER)


def _header_violations(headers: object, names: set[str]) -> Iterator[Issue]:
    """The violations of headers; their names in lower case are added to `names`."""
    if not isinstance(headers, list):
        yield _issue("header must be a list of strings", _HEADER)
        return
    for number, header in enumerate(headers):
        name, reason = _header_name(header)
        names.add(name)
        if reason:
            yield _issue(reason, f"{_HEADER}[{number}]")


def _message_headers(headers: object) -> Iterator[Issue]:
    """The violations of headers of messages to a broker."""
    names: set[str] = set()
    yield from _header_violations(headers, names)
    for reason in filter(None, map(reserved_header, sorted(names))):
        yield _issue(reason, _HEADER)


def _header_name(header: object) -> tuple[str, str | None]:
    """The name in lower case, and the reason when the header cannot be sent."""
    if not isinstance(header, str) or ":" not in header:
        return "", "a header must have the form 'Name: value'"
    name, _, value = header.partition(":")
    if not _HEADER_NAME.fullmatch(name):
        return "", "the header name contains characters that are not allowed"
    if not _HEADER_VALUE.fullmatch(value):
        return "", "the header value contains characters that are not allowed (such as a line break)"
    if not value.strip():
        return "", "a header needs a value"
    lower = name.lower()
    text = f"the header {name} belongs to the HTTP connection and cannot be set"
    return lower, text if lower in _FRAMING_HEADERS else None


def _split(endpoint: str) -> SplitResult | None:
    if not _URL_TEXT.fullmatch(endpoint) or "\\" in endpoint:
        return None
    try:
        url = urlsplit(endpoint)
        _ = url.port  # raises when it is not a number
    except ValueError:
        return None
    return url


def _issue(text: str, place: str) -> Issue:
    return Issue(text, place, Category.BUSINESS_RULE)
