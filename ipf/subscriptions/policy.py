"""Channel policy: the channel security modes and the endpoint rules for submitted Subscriptions.

Each violation is an issue, which names the setting.  `endpoints.py` has the rules on hosts and addresses.

Source: interface specification "Channel security"; decisions, "Decided after the second measurement" (Endpoints).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from ipf.config.brokers import Broker, MissingLibrary, kind_of, missing_library
from ipf.errors import Category, Issue
from ipf.ports import Json
from ipf.ports.delivery import NO_MAIL
from ipf.subscriptions.broker_rules import broker_violations, reserved_header
from ipf.subscriptions.endpoint_names import HTTP_CHANNELS, named_host, unresolved_text
from ipf.subscriptions.endpoints import EndpointRules, port_of, split_endpoint

STRICT, RELAXED, PERMISSIVE = "strict", "relaxed", "permissive"
NO_SESSION = (
    "no websocket session can be authenticated: SUBSCRIPTION_SERVICE_CHANNEL_SECURITY is strict, and authentication is "
    "off (SUBSCRIPTION_SERVICE_AUTH_ISSUER); a token of $get-ws-binding-token binds"
)

_ENDPOINT = "Subscription.channel.endpoint"
_HEADER = "Subscription.channel.header"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # token of RFC 9110 section 5.6.2
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_EMAIL_ADDRESS = re.compile(
    r"(?:mailto:)?[\w.!#$%&'*+/=^`{|}~-]{1,64}@([A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?)", re.A
)
_FRAMING_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection"}
    | {"te", "trailer", "upgrade", "expect"}
)
"""Headers of the connection, which would break the framing of a request.  Others of the server are replaced."""


def _resolves(host: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ChannelPolicy:
    """The rules of one deployment.

    `mode`: strict, relaxed or permissive; any other value means strict.  `endpoints`: the rules on hosts and addresses,
    the same in every mode.  `brokers`: the only message brokers that are allowed; `endpoints` does not apply to them.
    `sends_mail`: whether there is a mail server.  `authenticates`: whether clients have bearer tokens.
    `is_unresolved`: whether a host name did not resolve when it was last looked up.
    """

    mode: str = STRICT
    endpoints: EndpointRules = field(default_factory=EndpointRules)
    brokers: tuple[Broker, ...] = ()
    missing_library: MissingLibrary = missing_library
    sends_mail: bool = True
    authenticates: bool = True
    is_unresolved: Callable[[str], bool] = _resolves

    def violations(self, subscription: Json) -> list[Issue]:
        """One issue for each rule that the channel violates."""
        channel = subscription.get("channel")
        if not isinstance(channel, dict):
            return [_issue("a subscription needs a channel", "Subscription.channel")]
        found: list[Issue] = []
        kind, endpoint, headers = channel.get("type"), channel.get("endpoint"), channel.get("header", [])
        if kind == "message" and kind_of(endpoint) is not None:
            return [*self._broker(str(endpoint)), *_message_headers(headers)]
        if kind in HTTP_CHANNELS:
            found += self._endpoint(kind, endpoint)
        elif kind == "email":
            found += self._email(endpoint)
        found += self._headers(headers, kind in HTTP_CHANNELS)
        return found

    def warnings(self, subscription: Json) -> list[str]:
        """Why an accepted Subscription is not notified, or cannot be bound."""
        channel = subscription.get("channel")
        kind = channel.get("type") if isinstance(channel, dict) else None
        if kind == "email" and not self.sends_mail:
            return [NO_MAIL]
        if (named := named_host(subscription)) is not None and self.is_unresolved(named[0]):
            return [unresolved_text(named[0])]
        return [NO_SESSION] if kind == "websocket" and not (self._is_lenient or self.authenticates) else []

    @property
    def _is_lenient(self) -> bool:
        return self.mode in (RELAXED, PERMISSIVE)

    @property
    def _mode(self) -> str:
        """What the security mode is, for refusals that come from it."""
        mode = self.mode if self._is_lenient else STRICT
        return f"(SUBSCRIPTION_SERVICE_CHANNEL_SECURITY is {mode})"

    def _broker(self, endpoint: str) -> Iterator[Issue]:
        is_open = self.mode == PERMISSIVE
        yield from broker_violations(
            endpoint, self.brokers, self.missing_library, needs_tls=not is_open, needs_credentials=not self._is_lenient
        )

    def _email(self, endpoint: object) -> Iterator[Issue]:
        found = _EMAIL_ADDRESS.fullmatch(unquote(endpoint)) if isinstance(endpoint, str) else None
        if found is None:
            yield _issue("an email channel needs one address as its endpoint: mailto:name@example.org", _ENDPOINT)
        elif refused := self.endpoints.domain_refusal(found[1]):
            yield _issue(f"the domain of the address is refused: {refused}", _ENDPOINT)

    def _endpoint(self, kind: str, endpoint: object) -> Iterator[Issue]:
        if not isinstance(endpoint, str) or not endpoint:
            yield _issue(f"a {kind} channel needs an endpoint", _ENDPOINT)
            return
        url = split_endpoint(endpoint)
        if url is None:
            yield _issue("the endpoint must be an absolute http or https URL", _ENDPOINT)
            return
        if url.scheme != "https" and self.mode != PERMISSIVE:
            yield _issue(f"the endpoint must be HTTPS {self._mode}", _ENDPOINT)
        if "@" in url.netloc or url.fragment:
            yield _issue("the endpoint must not carry credentials or a fragment", _ENDPOINT)
        refused = self.endpoints.refusal(url.hostname or "", port_of(url))
        if refused is not None:
            yield _issue(f"the host of the endpoint is refused: {refused}", _ENDPOINT)

    def _headers(self, headers: object, is_http: bool) -> Iterator[Issue]:
        names: set[str] = set()
        yield from _header_violations(headers, names)
        if is_http and isinstance(headers, list) and not self._is_lenient and "authorization" not in names:
            yield _issue(f"channel.header must hold an Authorization entry {self._mode}", _HEADER)


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


def _issue(text: str, place: str) -> Issue:
    return Issue(text, place, Category.BUSINESS_RULE)
