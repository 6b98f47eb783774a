"""The HTTP client of every outbound call: treq on a pooled `twisted.web.client.Agent`.

Connections are kept and reused per host.  Redirects are not followed, cookies are not kept, compressed responses are
neither requested nor decompressed (a small response could expand to gigabytes).  The address rule and the size limit
are those of `endpoints.py`.

A request is sent once.  Callers own a durable row that is sent again with backoff, so the client repeats nothing, not
even a request on a kept connection that the server closed at the same moment.

Source: RFC 9110 section 9.2.2; https://docs.twisted.org/en/stable/web/howto/client.html
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from http.cookiejar import DefaultCookiePolicy
from typing import Any, TypeVar

from treq.client import HTTPClient
from treq.cookies import IndexableCookieJar
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IConsumer, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import Agent, HTTPConnectionPool, ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from ipf.wire.client.endpoints import HttpEndpointFactory
from ipf.wire.client.failures import TimeLimitExceeded
from ipf.wire.client.resolver import AddressRule

HEADER_LIMIT = 64 * 1024
IDLE_SECONDS = 30  # an unused connection is closed after this time

_T = TypeVar("_T")


class HttpClient:
    """One connection pool and its treq client.

    `body_limit`: bytes of a response body.  `connections_per_host`: unused connections that are kept (0: each request
    has its own); there is no limit for connections in use.  `forbids`: addresses that may not be connected to.
    """

    def __init__(
        self,
        reactor: Any,
        connect_seconds: float,
        *,
        body_limit: int,
        connections_per_host: int,
        forbids: AddressRule | None = None,
    ) -> None:
        self._reactor = reactor
        self._pool = HTTPConnectionPool(reactor, persistent=connections_per_host > 0)
        self._pool.maxPersistentPerHost = connections_per_host
        self._pool.cachedConnectionTimeout = IDLE_SECONDS
        self._pool.retryAutomatically = False
        endpoints = HttpEndpointFactory(reactor, connect_seconds, HEADER_LIMIT + body_limit, forbids)
        agent = UncompressedAgent(Agent.usingEndpointFactory(reactor, endpoints, self._pool))
        no_cookies = IndexableCookieJar(policy=DefaultCookiePolicy(allowed_domains=()))
        self._client = HTTPClient(agent, no_cookies, data_to_body_producer=BytesProducer)

    async def request(
        self, method: str, url: str, headers: Iterable[tuple[str, str]], body: bytes | None = None
    ) -> IResponse:
        """Send a request; returns when the head of the response is complete (`read_body` reads on).

        Cancelling closes the connection.  Failures: `failures.describe`.
        """
        fields = Headers()
        for name, value in headers:
            fields.addRawHeader(name, value)
        response: IResponse = await self._client.request(
            method, url, headers=fields, data=body, allow_redirects=False, unbuffered=True, reactor=self._reactor
        )
        return response

    async def close(self) -> None:
        """Close the unused connections."""
        await self._pool.closeCachedConnections()


async def within(seconds: float, clock: IReactorTime, work: Coroutine[Deferred[Any], Any, _T]) -> _T:
    """The result of `work`, which is cancelled after `seconds`: TimeLimitExceeded."""

    def exceeded(result: object, limit: float) -> Failure:
        return Failure(TimeLimitExceeded(limit))

    return await Deferred.fromCoroutine(work).addTimeout(seconds, clock, exceeded)


def read_body(response: IResponse) -> Deferred[bytes]:
    """The whole body of a response.  Cancelling closes the connection."""
    if response.length == 0:
        return succeed(b"")
    reader = _BodyReader()
    response.deliverBody(reader)
    return reader.body


class _BodyReader(Protocol):
    """Collects a body.  `twisted.web.client.readBody` cannot be cancelled: its transport has no `abortConnection`."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.body: Deferred[bytes] = Deferred(self._cancel)

    def dataReceived(self, data: bytes) -> None:
        """Twisted: a part of the body."""
        self._parts.append(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: the body is complete, or the connection was lost."""
        if self.body.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.body.callback(b"".join(self._parts))
        else:
            self.body.errback(reason)

    def _cancel(self, body: Deferred[bytes]) -> None:
        if self.transport is not None:
            self.transport.loseConnection()


@implementer(IBodyProducer)
class BytesProducer:
    """A request body that is in memory; treq's default reads it as a file, in later turns of the reactor."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        """Twisted: write the body."""
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Twisted: nothing is left to write."""

    def resumeProducing(self) -> None:
        """Twisted: nothing is left to write."""

    def stopProducing(self) -> None:
        """Twisted: nothing is left to write."""


@implementer(IAgent)
class UncompressedAgent:
    """Removes the content coding that treq adds to requests and would undo in responses."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def request(
        self, method: bytes, uri: bytes, headers: Headers | None = None, bodyProducer: IBodyProducer | None = None
    ) -> Deferred[IResponse]:
        """Twisted: send."""
        if headers is not None:
            headers.removeHeader(b"accept-encoding")
        return self._agent.request(method, uri, headers, bodyProducer).addCallback(_without_content_encoding)


def _without_content_encoding(response: Any) -> Any:
    response.headers.removeHeader(b"content-encoding")
    return response
