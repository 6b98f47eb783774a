"""Client of one remote HTTP service: a mapping service, a FHIR server, an identity provider.

A request leaves; status, headers and body of the response come back, within a time limit and a size limit.  With
credentials each request carries a bearer token of the client-credentials grant.  The token is fetched once, and again
shortly before it expires or when the service refuses it.  Nothing is repeated here: the caller owns a row that is
processed again with backoff.

Source: decisions section 1, interface specification "Correlation"; RFC 6749 section 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from twisted.internet.defer import CancelledError, DeferredLock
from twisted.internet.interfaces import IReactorTime

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.telemetry import correlation
from ipf.wire.client.failures import describe, was_cancelled
from ipf.wire.client.http_client import HttpClient, read_body, within

BODY_LIMIT = 256 * 1024 * 1024
CONNECTIONS_PER_HOST = 16
RENEWAL_SECONDS = 30.0  # a token is renewed this long before it expires
_SHORTEST_TOKEN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """Of the client-credentials grant."""

    token_url: str
    client_id: str
    client_secret: str
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """The response of a remote service; names of `headers` are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class RemoteService:
    """HTTP client of one service.  `name`: the service in error messages, such as `the mapping service`."""

    def __init__(
        self,
        reactor: Any,
        timeout_seconds: float,
        name: str,
        credentials: Credentials | None = None,
        *,
        clock: IReactorTime | None = None,
        body_limit: int = BODY_LIMIT,
    ) -> None:
        self._clock: IReactorTime = clock or reactor
        self._timeout_seconds = timeout_seconds
        self._name = name
        self._http = HttpClient(
            reactor, timeout_seconds, body_limit=body_limit, connections_per_host=CONNECTIONS_PER_HOST
        )
        self._tokens = None if credentials is None else _Tokens(self, credentials, self._clock)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], correlation_id: str) -> Response:
        """One POST with correlation headers, and with a token when there are credentials.

        Problem UPSTREAM: there was no response; whether the service processed the request is unknown.
        """
        fields = {**headers, correlation.HEADER: correlation_id}
        parent = correlation.traceparent(correlation_id)
        if parent is not None:
            fields[correlation.TRACEPARENT] = parent
        if self._tokens is None:
            return await self.request("POST", url, body, fields)
        authorization = {"Authorization": f"Bearer {await self._tokens.current()}"}
        response = await self.request("POST", url, body, fields | authorization)
        if response.status == 401:
            authorization = {"Authorization": f"Bearer {await self._tokens.renewed()}"}
            response = await self.request("POST", url, body, fields | authorization)
        return response

    async def get(self, url: str, headers: Mapping[str, str]) -> Response:
        """One GET without a token.  Problem UPSTREAM."""
        return await self.request("GET", url, None, headers)

    async def request(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Response:
        """One request without a token.  Problem UPSTREAM."""
        try:
            return await within(self._timeout_seconds, self._clock, self._request(method, url, body, headers))
        except Exception as failure:
            if was_cancelled(failure):
                raise CancelledError() from failure
            raise Problem(Category.UPSTREAM, f"no response from {self._name}: {describe(failure)}") from failure

    async def close(self) -> None:
        """Close the unused connections."""
        await self._http.close()

    async def _request(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Response:
        response = await self._http.request(method, url, headers.items(), body)
        content = await read_body(response)
        fields = {
            name.decode("latin-1").lower(): values[0].decode("latin-1")
            for name, values in response.headers.getAllRawHeaders()
        }
        return Response(response.code, fields, content)


class _Tokens:
    """The bearer token of one client; concurrent callers share one fetch."""

    def __init__(self, service: RemoteService, credentials: Credentials, clock: IReactorTime) -> None:
        self._service = service
        self._credentials = credentials
        self._clock = clock
        self._lock = DeferredLock()
        self._token = ""
        self._valid_until = 0.0

    async def current(self) -> str:
        """A token that is valid for some time.  Problem UPSTREAM."""
        await self._lock.acquire()
        try:
            if self._clock.seconds() >= self._valid_until:
                await self._fetch()
            return self._token
        finally:
            self._lock.release()

    async def renewed(self) -> str:
        """A new token, after the service refused the current one."""
        self._valid_until = 0.0
        return await self.current()

    async def _fetch(self) -> None:
        own = self._credentials
        form = {"grant_type": "client_credentials", "client_id": own.client_id, "client_secret": own.client_secret}
        if own.scope:
            form["scope"] = own.scope
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        response = await self._service.request("POST", own.token_url, urlencode(form).encode(), headers)
        token, seconds = _token(response)
        self._token = token
        self._valid_until = self._clock.seconds() + max(seconds - RENEWAL_SECONDS, _SHORTEST_TOKEN_SECONDS)


def _token(response: Response) -> tuple[str, float]:
    try:
        body = loads(response.body) if response.status == 200 else {}
        token = body["access_token"]
        seconds = float(body.get("expires_in", 300))
    except (Problem, KeyError, TypeError, ValueError, AttributeError):
        raise Problem(Category.UPSTREAM, f"the token endpoint returned no token (status {response.status})") from None
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise Problem(Category.UPSTREAM, "the token endpoint returned no usable token")
    return token, seconds
