"""Which channels a subscriber may register: the channel security modes and the endpoint rules.

A Subscription resource arrives on create and update; issues leave, one for each violation, none when it may be served.
Nothing here looks at the network: names are judged as text, addresses when they are written as such.  Who opens a
connection asks `permits` again for each address that a name resolves to.

Source: interface specification "Channel security"; decisions section 2 (`SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from ipf.errors import Category, Issue
from ipf.ports import Json
from ipf.subscriptions.addresses import address_of, fits, fits_network, is_inside, is_inside_name, is_metadata
from ipf.subscriptions.addresses import is_own_machine as is_own

STRICT, RELAXED, PERMISSIVE = "strict", "relaxed", "permissive"

_ENDPOINT = "Subscription.channel.endpoint"
_HEADER = "Subscription.channel.header"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # token of RFC 9110 section 5.6.2
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_URL_TEXT = re.compile(r"[\x21-\x7e]+")
_MAIL = re.compile(r"(?:mailto:)?[\w.!#$%&'*+/=^`{|}~-]{1,64}@([A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?)", re.A)
_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection"}
    | {"proxy-authorization", "te", "trailer", "upgrade", "expect"}
    | {"content-type", "content-encoding", "x-correlation-id", "x-ipf-signature"}
)
"""Headers that belong to the connection, or that the server sets itself: a subscriber may not set them."""

_CALLED = ("rest-hook", "message")  # channels that are HTTP requests of ours


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
        kind, endpoint = channel.get("type"), channel.get("endpoint")
        if kind in _CALLED:
            found += self._endpoint(kind, endpoint)
        elif kind == "email":
            found += self._mail(endpoint)
        found += self._headers(channel.get("header", []), kind in _CALLED)
        return found

    def permits(self, host: str, address: str) -> bool:
        """Whether a connection to this IP address may be opened for an endpoint with this host.

        Asked for what a name resolves to, each time.  A host pattern opens no way to the machine itself, to its link or
        to the credentials that a cloud serves: for these, the network must be allowed, or the host by its full name.
        """
        where = address_of(address)
        if where is None:
            return False
        if any(fits_network(where, pattern) for pattern in self.allow):
            return True
        if not self.allow:
            return not is_metadata(where) if self._is_lenient else not is_inside(where)
        patterns = [pattern for pattern in self.allow if fits(host, pattern)]
        if is_metadata(where) or not patterns:
            return False
        return not is_own(where) or any("*" not in pattern and "?" not in pattern for pattern in patterns)

    @property
    def _is_lenient(self) -> bool:
        return self.mode in (RELAXED, PERMISSIVE)

    def _mail(self, endpoint: object) -> Iterator[Issue]:
        found = _MAIL.fullmatch(unquote(endpoint)) if isinstance(endpoint, str) else None
        if found is None:
            yield _issue("an email channel needs one address as its endpoint: mailto:name@example.org", _ENDPOINT)
        elif self.allow and not any(fits(found[1], pattern) for pattern in self.allow):
            yield _issue("the address's domain is not among those that this server allows", _ENDPOINT)

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
            if not any(fits(host, pattern) for pattern in self.allow):
                yield _issue("the endpoint's host is not among those that this server allows", _ENDPOINT)
            return
        address = address_of(host.rstrip("."))
        if not self._is_lenient and is_inside_name(host):
            yield _issue("the endpoint's host is private, local or not a plain name", _ENDPOINT)
        elif address is not None and is_metadata(address):
            yield _issue("the endpoint is an address at which a cloud serves credentials", _ENDPOINT)

    def _headers(self, headers: object, is_called: bool) -> Iterator[Issue]:
        if not isinstance(headers, list):
            yield _issue("header must be a list of texts", _HEADER)
            return
        names = set()
        for number, header in enumerate(headers):
            name, reason = _header_name(header)
            names.add(name)
            if reason:
                yield _issue(reason, f"{_HEADER}[{number}]")
        if is_called and not self._is_lenient and "authorization" not in names:
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


def _issue(text: str, place: str) -> Issue:
    return Issue(text, place, Category.BUSINESS_RULE)
