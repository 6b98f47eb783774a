"""The rest-hook channel: one notification in, one HTTP request out, and what the far end answered.

Built on one treq client over one connection pool: connections are kept and reused, endpoints are cached, redirects are
not followed, no cookies are kept, and no more of an answer's body is read than it takes to use the connection again.
Nothing the far end does raises: refusal, silence, a reset or a bad certificate become `Delivered.error`, in words that
hold no part of the path (it may name a patient's resource).

A kept connection that the far end has closed meanwhile is found out only by writing to it; such a request is sent once
more on a fresh connection, which at-least-once delivery allows.

Source: interface specification "Notification shapes", "Correlation"; RFC 9110 sections 5.5, 7.6.1 and 10.2.3.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from hyperlink import EncodedURL
from treq.client import HTTPClient
from treq.cookies import IndexableCookieJar
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import Agent, HTTPConnectionPool, ResponseNeverReceived
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from ipf.ports import Channel, Clock, Delivered, Notification
from ipf.telemetry import correlation
from ipf.wire.outbound import Endpoints, was_cancelled, why
from ipf.wire.resolver import Permits

BODY_LIMIT = 64 * 1024
KEPT_PER_HOST = 256
KEPT_SECONDS = 30
CONTENT_TYPE = "application/fhir+json; charset=UTF-8"

_ASCII_URL = re.compile(r"https?://[\x21-\x7e]+")
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
        self._reactor = reactor
        self._clock: IReactorTime = clock or reactor
        self._timeout_seconds = timeout_seconds
        self._now = now
        self._body_limit = body_limit
        self._pool = KeptConnections(reactor)
        endpoints = Endpoints(reactor, timeout_seconds, permits)
        self._cookies = NoCookies()
        agent = Agent.usingEndpointFactory(reactor, endpoints, self._pool)
        self._client = HTTPClient(PlainAgent(agent), self._cookies)

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
        limit = TimeLimit(self._clock, seconds)
        try:
            status, retry_after = await self._exchange(notification, limit)
        except Exception as error:
            if not limit.passed and was_cancelled(error):
                raise CancelledError() from error
            text = f"no answer within {seconds:g} s" if limit.passed else why(error)
            return Delivered(None, self._since(started), text)
        finally:
            limit.end()
        return Delivered(status, self._since(started), None, retry_after)

    async def close(self) -> None:
        """Close the kept connections."""
        await self._pool.closeCachedConnections()  # type: ignore[no-untyped-call]  # Twisted has no hints here

    def _since(self, started: float) -> int:
        return round((self._clock.seconds() - started) * 1000)

    async def _exchange(self, notification: Notification, limit: TimeLimit) -> tuple[int, float | None]:
        request = self._request(notification)
        reused = self._pool.reused
        try:
            response = await limit.bound(request)
        except ResponseNeverReceived as error:
            if limit.passed or not reused or was_cancelled(error):
                raise
            response = await limit.bound(self._request(notification))
        if response.length != 0:  # a body of length zero is complete already
            rest = Rest(self._body_limit)
            response.deliverBody(rest)
            await limit.bound(rest.ended)
        retry_after = response.headers.getRawHeaders(b"retry-after") if response.code >= 400 else None
        return response.code, seconds_of(retry_after[0], self._now()) if retry_after else None

    def _request(self, notification: Notification) -> Deferred[Any]:
        url = notification.url
        answer: Deferred[Any] = self._client.request(
            notification.method,
            AsciiUrl(url) if _ASCII_URL.fullmatch(url) else url,
            headers=_headers(notification),
            data=notification.body,
            allow_redirects=False,
            unbuffered=True,
            cookies=self._cookies,
            reactor=self._reactor,
        )
        return answer


_: type[Channel] = RestHook


class TimeLimit:
    """One deadline over several waits: cancels the one that is pending when it comes."""

    def __init__(self, clock: IReactorTime, seconds: float) -> None:
        self.passed = False
        self._pending: Deferred[Any] | None = None
        self._timer = clock.callLater(seconds, self._pass)

    def bound(self, work: Deferred[Any]) -> Deferred[Any]:
        """`work` itself, under the deadline."""
        self._pending = work
        if self.passed:
            work.cancel()
        return work

    def end(self) -> None:
        """All waits are over."""
        if self._timer.active():
            self._timer.cancel()

    def _pass(self) -> None:
        self.passed = True
        if self._pending is not None:
            self._pending.cancel()


class Rest(Protocol):
    """Reads an answer's body to its end and forgets it; beyond `limit` bytes, or when cancelled, the line is cut."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self.ended: Deferred[None] = Deferred(lambda _: self._cut())

    def dataReceived(self, data: bytes) -> None:
        """Twisted: a piece of the body."""
        self._left -= len(data)
        if self._left < 0:
            self._cut()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: the body is complete, or broke off; the status was known before."""
        self._end()

    def _cut(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()
        self._end()

    def _end(self) -> None:
        if not self.ended.called:
            self.ended.callback(None)


class KeptConnections(HTTPConnectionPool):
    """The pool; `reused` says of the last connection asked for whether it was a kept one."""

    def __init__(self, reactor: Any) -> None:
        super().__init__(reactor, persistent=True)  # type: ignore[no-untyped-call]  # Twisted has no hints here
        self.maxPersistentPerHost = KEPT_PER_HOST
        self.cachedConnectionTimeout = KEPT_SECONDS
        self.retryAutomatically = False
        self.reused = False

    def getConnection(self, key: Hashable, endpoint: IStreamClientEndpoint) -> Deferred[Any]:
        """Twisted: a connection for one request.  Only a kept one is there at once."""
        connection: Deferred[Any] = super().getConnection(key, endpoint)
        self.reused = bool(connection.called)
        return connection


class NoCookies(IndexableCookieJar):
    """One subscriber's cookies are never stored, nor sent to another."""

    def add_cookie_header(self, request: Any) -> None:
        """Nothing to add."""

    def extract_cookies(self, response: Any, request: Any) -> None:
        """Nothing to keep."""


class AsciiUrl(EncodedURL):
    """A URL that is plain ASCII already: spares treq its IDNA and percent encoding, a third of a request's cost."""

    def __init__(self, text: str) -> None:
        self._text = text

    def to_uri(self) -> AsciiUrl:
        """It is one."""
        return self

    def to_text(self, with_password: bool = False) -> str:
        """As it came."""
        return self._text


@implementer(IAgent)
class PlainAgent:
    """Asks for no compressed answers and unpacks none (a small answer could unpack to a huge one)."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def request(
        self, method: bytes, uri: bytes, headers: Headers | None = None, bodyProducer: IBodyProducer | None = None
    ) -> Deferred[IResponse]:
        """Twisted: send."""
        if headers is not None:
            headers.removeHeader(b"accept-encoding")
        return self._agent.request(method, uri, headers, bodyProducer).addCallback(_as_it_came)


def _as_it_came(response: Any) -> Any:
    response.headers.removeHeader(b"content-encoding")
    return response


def _headers(notification: Notification) -> Headers:
    headers = Headers()
    for name, value in notification.headers:
        headers.addRawHeader(name, value)
    if notification.body and not headers.hasHeader("Content-Type"):
        headers.addRawHeader("Content-Type", CONTENT_TYPE)
    headers.setRawHeaders(correlation.HEADER, [notification.correlation_id])
    parent = correlation.traceparent(notification.correlation_id)
    if parent is not None and not headers.hasHeader(correlation.TRACEPARENT):
        headers.addRawHeader(correlation.TRACEPARENT, parent)
    return headers


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
