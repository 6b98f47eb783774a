"""The rest-hook channel: one notification in, one HTTP request out, the status of the response back.

Requests go out over the pooled client of `wire/client/http_client.py`.  No failure of the endpoint raises: a refusal,
a timeout, a reset or a bad certificate become `Delivered.error`.  Its text holds no part of the path, which may name a
patient's resource.

The status counts as soon as the head of the response is complete.  The body is read, up to a limit, so that the
connection can be used again, and dropped.

Source: interface specification "Notification shapes", "Correlation"; RFC 9110 sections 5.5, 7.6.1 and 10.2.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from urllib.parse import urlsplit

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.web.iweb import IResponse

from ipf.ports import Channel, Clock, Delivered, Notification
from ipf.telemetry import correlation
from ipf.wire.client.failures import describe, was_cancelled
from ipf.wire.client.http_client import HttpClient, read_body, within

BODY_LIMIT = 64 * 1024
CONNECTIONS_PER_HOST = 256
CONTENT_TYPE = "application/fhir+json; charset=UTF-8"

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_CONNECTION_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive"}
    | {"proxy-connection", "te", "trailer", "upgrade", "expect"}
)


class RestHook:
    """`Channel` over HTTP.

    `timeout_seconds` bounds a request from connecting to the end of the response.  A subscriber may ask for a shorter
    limit, not for a longer one.
    """

    unavailable = None

    def __init__(
        self,
        http: HttpClient,
        timeout_seconds: float,
        clock: IReactorTime,
        *,
        now: Clock = lambda: datetime.now(UTC),
    ) -> None:
        self._http = http
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._now = now

    def destination(self, endpoint: str) -> str:
        """Scheme, host and port."""
        return origin_of(endpoint)

    async def send(self, notification: Notification) -> Delivered:
        """Send, and wait for the response or for the time limit.  CancelledError only when the caller cancels."""
        refused = header_problem(notification.headers)
        if refused is not None:
            return Delivered(None, 0, refused)
        started = self._clock.seconds()
        seconds = min(notification.timeout_seconds or self._timeout_seconds, self._timeout_seconds)
        responses: list[IResponse] = []
        error = None
        try:
            await within(seconds, self._clock, self._post(notification, responses))
        except Exception as failure:
            if was_cancelled(failure):
                raise CancelledError() from failure
            error = describe(failure)
        milliseconds = round((self._clock.seconds() - started) * 1000)
        if not responses:
            return Delivered(None, milliseconds, error)
        response = responses[0]
        retry_after = response.headers.getRawHeaders(b"retry-after") if response.code >= 400 else None
        pause = None if not retry_after else seconds_of(retry_after[0], self._now())
        return Delivered(response.code, milliseconds, None, pause)

    async def _post(self, notification: Notification, responses: list[IResponse]) -> None:
        response = await self._http.request(
            notification.method, notification.url, headers_of(notification), notification.body
        )
        responses.append(response)
        await read_body(response)


_: type[Channel] = RestHook


POSITION_HEADER = "X-IPF-LSN"
"""A subscriber that sends it back with a read, as it is, sees at least what it was notified of
(docs/how-to/read-replicas.md)."""


def headers_of(notification: Notification) -> Iterator[tuple[str, str]]:
    """The registered headers, with content type, correlation id and trace context where they have none."""
    names = {name.lower() for name, _ in notification.headers}
    yield from notification.headers
    if notification.body and "content-type" not in names:
        yield "Content-Type", CONTENT_TYPE
    if correlation.HEADER.lower() not in names:
        yield correlation.HEADER, notification.correlation_id
    if notification.position:
        yield POSITION_HEADER, notification.position
    parent = correlation.traceparent(notification.correlation_id)
    if parent is not None and correlation.TRACEPARENT not in names:
        yield correlation.TRACEPARENT, parent


@lru_cache(maxsize=4096)
def origin_of(endpoint: str) -> str:
    """Scheme, host and port of a URL; the text itself when it is no URL."""
    try:
        url = urlsplit(endpoint)
        port = url.port or {"http": 80, "https": 443}.get(url.scheme, 0)
    except ValueError:
        return endpoint
    return f"{url.scheme}://{url.hostname}:{port}"


def header_problem(headers: Sequence[tuple[str, str]]) -> str | None:
    """Why registered headers cannot be sent: not HTTP, or reserved for the connection; None when they can."""
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
