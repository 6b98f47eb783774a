"""The rest-hook channel: one notification in, one HTTP request out, and what the far end answered.

Requests go out over kept connections (`wire/client/connection.py`): endpoints are cached, redirects are not followed,
no cookies
are kept, and no more of an answer's body is read than it takes to use the connection again.  Nothing the far end does
raises: refusal, silence, a reset or a bad certificate become `Delivered.error`, in words that hold no part of the path
(it may name a patient's resource).

Source: interface specification "Notification shapes", "Correlation"; RFC 9110 sections 5.5, 7.6.1 and 10.2.3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from hyperlink import DecodedURL
from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.web.client import URI

from ipf.ports import Channel, Clock, Delivered, Notification
from ipf.telemetry import correlation
from ipf.wire.client.connection import Exchanges, TooLate
from ipf.wire.client.endpoints import Endpoints, UnusableUrl, was_cancelled, why
from ipf.wire.client.resolver import Permits

BODY_LIMIT = 64 * 1024
CONTENT_TYPE = "application/fhir+json; charset=UTF-8"

_URL = re.compile(r"(https?)://([^/?#@\\]+)([^#]*)(?:#.*)?", re.I)
_PRINTABLE = re.compile(r"[\x21-\x7e]+")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?")
_OURS = frozenset({correlation.HEADER.lower(), "accept-encoding"})  # nothing compressed is asked for
_PORTS = {"http": 80, "https": 443}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_CONNECTION_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive"}
    | {"proxy-connection", "te", "trailer", "upgrade", "expect"}
)


class RestHook:
    """`Channel` over HTTP.  `permits` is asked for each address that a name resolves to, before it is tried.

    A subscriber may ask for a shorter time limit than `timeout_seconds`, not for a longer one.
    """

    unavailable = None

    def __init__(
        self,
        reactor: Any,
        timeout_seconds: float,
        *,
        clock: IReactorTime | None = None,
        now: Clock = lambda: datetime.now(UTC),
        permits: Permits | None = None,
        body_limit: int = BODY_LIMIT,
    ) -> None:
        self._clock: IReactorTime = clock or reactor
        self._timeout_seconds = timeout_seconds
        self._now = now
        self._endpoints = Endpoints(reactor, timeout_seconds, permits)
        self._exchanges = Exchanges(self._clock, body_limit)

    def place(self, endpoint: str) -> str:
        """Scheme, host and port."""
        return place_of(endpoint)

    async def send(self, notification: Notification) -> Delivered:
        """Send and wait for the answer, or for the time limit.  CancelledError only when the caller cancels."""
        refused = header_problem(notification.headers)
        if refused is not None:
            return Delivered(None, 0, refused)
        started = self._clock.seconds()
        seconds = min(notification.timeout_seconds or self._timeout_seconds, self._timeout_seconds)
        try:
            uri, request = request_of(notification)
            endpoint = self._endpoints.endpointForURI(uri)
            status, waits = await self._exchanges.ask(endpoint, endpoint, request, started + seconds)
        except Exception as error:
            if was_cancelled(error):
                raise CancelledError() from error
            text = f"no answer within {seconds:g} s" if isinstance(error, TooLate) else why(error)
            return Delivered(None, self._since(started), text)
        retry_after = seconds_of(waits, self._now()) if waits is not None and status >= 400 else None
        return Delivered(status, self._since(started), None, retry_after)

    async def close(self) -> None:
        """Close the kept connections."""
        await self._exchanges.close()

    def _since(self, started: float) -> int:
        return round((self._clock.seconds() - started) * 1000)


_: type[Channel] = RestHook


def request_of(notification: Notification) -> tuple[URI, bytes]:
    """Where a notification goes, and the bytes of its request; its headers are known to be good.  UnusableUrl."""
    text = notification.url
    url = _URL.fullmatch(text if _PRINTABLE.fullmatch(text) else _ascii(text))
    if url is None:
        raise UnusableUrl
    uri, host = _origin(url[1].lower(), url[2])
    target, body = url[3], notification.body or b""
    lines = [f"{notification.method} {target if target[:1] == '/' else '/' + target} HTTP/1.1", f"Host: {host}"]
    names = set()
    for name, value in notification.headers:
        lower = name.lower()
        if lower not in _OURS:
            lines.append(f"{name}: {value}")
            names.add(lower)
    if body and "content-type" not in names:
        lines.append(f"Content-Type: {CONTENT_TYPE}")
    lines.append(f"{correlation.HEADER}: {notification.correlation_id}")
    parent = correlation.traceparent(notification.correlation_id)
    if parent is not None and correlation.TRACEPARENT not in names:
        lines.append(f"Traceparent: {parent}")
    lines.append(f"Content-Length: {len(body)}\r\n\r\n")
    return uri, "\r\n".join(lines).encode() + body


def _ascii(url: str) -> str:
    """A URL with text outside ASCII as it goes over the wire."""
    try:
        text: str = DecodedURL.from_text(url).to_uri().to_text()
    except ValueError:
        raise UnusableUrl() from None
    if not _PRINTABLE.fullmatch(text):
        raise UnusableUrl
    return text


@lru_cache(maxsize=4096)
def _origin(scheme: str, authority: str) -> tuple[URI, str]:
    """What an endpoint is made from, and the `Host` header."""
    parts = _AUTHORITY.fullmatch(authority)
    port = int(parts[2] or _PORTS[scheme]) if parts is not None else 0
    if parts is None or not 0 < port < 65536:
        raise UnusableUrl
    host = parts[1].strip("[]").encode()
    uri = URI(scheme.encode(), authority.encode(), host, port, b"", b"", b"", b"")
    return uri, parts[1] if port == _PORTS[scheme] else f"{parts[1]}:{port}"


@lru_cache(maxsize=4096)
def place_of(endpoint: str) -> str:
    """Scheme, host and port of a URL; the text itself when it is none."""
    try:
        url = urlsplit(endpoint)
        port = url.port or {"http": 80, "https": 443}.get(url.scheme, 0)
    except ValueError:
        return endpoint
    return f"{url.scheme}://{url.hostname}:{port}"


def header_problem(headers: Sequence[tuple[str, str]]) -> str | None:
    """Why registered headers cannot be sent: not HTTP, or the connection's own; None when they can."""
    for name, value in headers:
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            return "a registered header is not a valid HTTP header"
        if name.lower() in _CONNECTION_HEADERS:
            return f"the registered header {name} belongs to the connection and cannot be set"
    return None


def seconds_of(retry_after: bytes, now: datetime) -> float | None:
    """`Retry-After` (seconds or a date, RFC 9110 section 10.2.3) as seconds from now; None when it is neither."""
    text = retry_after.decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
