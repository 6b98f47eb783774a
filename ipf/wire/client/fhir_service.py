"""A FHIR service elsewhere: one request out, the answer's status and body back, within a time limit.

Shared by the clients of a mapping service and of a FHIR server.  Connections are kept and reused; redirects are not
followed; no more of a body than `body_limit` is read.  When a token endpoint is given, each request carries a bearer
token of the client-credentials grant, fetched once and again shortly before it ends, or when the far end refuses it.
Nothing is retried here: a caller that fails has a row that is tried again.

Source: decisions section 1, interface specification "Correlation"; RFC 6749 section 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import Agent, HTTPConnectionPool, ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.telemetry import correlation
from ipf.wire.client.agent import NoCookies, PlainAgent, TimeLimit
from ipf.wire.client.endpoints import Endpoints, was_cancelled, why

BODY_LIMIT = 256 * 1024 * 1024
EARLY_SECONDS = 30.0  # a token is fetched again so long before it ends
_SHORTEST_TOKEN = 5.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """Of the client-credentials grant."""

    token_url: str
    client_id: str
    client_secret: str
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the far end answered; `headers` in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Remote:
    """HTTP to one service.  `what` names it in failures: `the mapping service`."""

    def __init__(
        self,
        reactor: Any,
        timeout_seconds: float,
        what: str,
        credentials: Credentials | None = None,
        *,
        clock: IReactorTime | None = None,
        body_limit: int = BODY_LIMIT,
    ) -> None:
        self._reactor = reactor
        self._clock: IReactorTime = clock or reactor
        self._timeout_seconds = timeout_seconds
        self._what = what
        self._body_limit = body_limit
        self._pool = HTTPConnectionPool(reactor, persistent=True)
        self._pool.maxPersistentPerHost = 16
        agent = Agent.usingEndpointFactory(reactor, Endpoints(reactor, timeout_seconds), self._pool)
        self._cookies = NoCookies()
        self._client = HTTPClient(PlainAgent(agent), self._cookies)
        self._tokens = None if credentials is None else _Tokens(self, credentials, self._clock)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], correlation_id: str) -> Reply:
        """One POST and its answer.  Problem UPSTREAM: it could not be had (nothing is known to be done)."""
        fields = {**headers, correlation.HEADER: correlation_id}
        parent = correlation.traceparent(correlation_id)
        if parent is not None:
            fields[correlation.TRACEPARENT] = parent
        if self._tokens is None:
            return await self.exchange(url, body, fields)
        reply = await self.exchange(url, body, fields | {"Authorization": f"Bearer {await self._tokens.current()}"})
        if reply.status == 401:
            token = await self._tokens.renewed()
            reply = await self.exchange(url, body, fields | {"Authorization": f"Bearer {token}"})
        return reply

    async def get(self, url: str, headers: Mapping[str, str]) -> Reply:
        """One GET without a token.  Problem UPSTREAM."""
        return await self.exchange(url, None, headers)

    async def exchange(self, url: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        """A POST without a token; a GET when there is no body."""
        limit = TimeLimit(self._clock, self._timeout_seconds)
        try:
            return await self._exchange(url, body, headers, limit)
        except Problem:
            raise
        except Exception as error:
            if not limit.passed and was_cancelled(error):
                raise CancelledError() from error
            text = f"no answer within {self._timeout_seconds:g} s" if limit.passed else why(error)
            raise Problem(Category.UPSTREAM, f"{self._what} cannot be reached: {text}") from error
        finally:
            limit.end()

    async def close(self) -> None:
        """Close the kept connections."""
        await self._pool.closeCachedConnections()

    async def _exchange(self, url: str, body: bytes | None, headers: Mapping[str, str], limit: TimeLimit) -> Reply:
        fields = Headers()
        for name, value in headers.items():
            fields.addRawHeader(name, value)
        sent: Deferred[Any] = self._client.request(
            "GET" if body is None else "POST", url, headers=fields, data=body, allow_redirects=False, unbuffered=True,
            cookies=self._cookies, reactor=self._reactor,
        )  # fmt: skip
        response = await limit.bound(sent)
        content = b""
        if response.length != 0:
            whole = _Whole(self._body_limit)
            response.deliverBody(whole)
            content = await limit.bound(whole.ended)
        answered = {
            name.decode("latin-1").lower(): values[0].decode("latin-1")
            for name, values in response.headers.getAllRawHeaders()
        }
        return Reply(response.code, answered, content)


class _Tokens:
    """The bearer token of one client; asked for once, however many wait for it."""

    def __init__(self, remote: Remote, credentials: Credentials, clock: IReactorTime) -> None:
        self._remote = remote
        self._credentials = credentials
        self._clock = clock
        self._lock = DeferredLock()
        self._token = ""
        self._until = 0.0

    async def current(self) -> str:
        """A token that is good for a while.  Problem UPSTREAM."""
        await self._lock.acquire()
        try:
            if self._clock.seconds() >= self._until:
                await self._fetch()
            return self._token
        finally:
            self._lock.release()

    async def renewed(self) -> str:
        """A new one: the far end refused the one before."""
        self._until = 0.0
        return await self.current()

    async def _fetch(self) -> None:
        ours = self._credentials
        form = {"grant_type": "client_credentials", "client_id": ours.client_id, "client_secret": ours.client_secret}
        if ours.scope:
            form["scope"] = ours.scope
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        reply = await self._remote.exchange(ours.token_url, urlencode(form).encode(), headers)
        token, seconds = _token(reply)
        self._token = token
        self._until = self._clock.seconds() + max(seconds - EARLY_SECONDS, _SHORTEST_TOKEN)


def _token(reply: Reply) -> tuple[str, float]:
    try:
        body = loads(reply.body) if reply.status == 200 else {}
        token = body["access_token"]
        seconds = float(body.get("expires_in", 300))
    except (Problem, KeyError, TypeError, ValueError, AttributeError):
        raise Problem(Category.UPSTREAM, f"the token endpoint gave no token (status {reply.status})") from None
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise Problem(Category.UPSTREAM, "the token endpoint gave no usable token")
    return token, seconds


class _Whole(Protocol):
    """Collects a body; beyond `limit` bytes, or when cancelled, the line is cut."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._parts: list[bytes] = []
        self.ended: Deferred[bytes] = Deferred(lambda _: self._cut())

    def dataReceived(self, data: bytes) -> None:
        """Twisted: a piece of the body."""
        self._left -= len(data)
        self._parts.append(data)
        if self._left < 0 and not self.ended.called:
            self.ended.errback(Problem(Category.UPSTREAM, "the answer is larger than it may be"))
            self._cut()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: the body is complete, or broke off."""
        if self.ended.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.ended.callback(b"".join(self._parts))
        else:
            self.ended.errback(reason)

    def _cut(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()
