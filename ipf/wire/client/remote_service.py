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

from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime

from ipf.errors import Category, Problem
from ipf.telemetry import correlation
from ipf.wire.client.failures import describe, was_cancelled
from ipf.wire.client.http_client import HttpClient, read_body, within
from ipf.wire.client.resolver import AddressRule
from ipf.wire.client.tokens import Credentials, Grant, Tokens

__all__ = ["Credentials", "RemoteService", "Response"]

BODY_LIMIT = 256 * 1024 * 1024
CONNECTIONS_PER_HOST = 16


@dataclass(frozen=True, slots=True)
class Response:
    """The response of a remote service; names of `headers` are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class RemoteService:
    """HTTP client of one service.  `name`: the service in error messages, such as `the mapping service`.

    `forbids`: addresses that may not be connected to.
    """

    def __init__(
        self,
        reactor: Any,
        timeout_seconds: float,
        name: str,
        credentials: Grant | None = None,
        *,
        clock: IReactorTime | None = None,
        body_limit: int = BODY_LIMIT,
        connections_per_host: int = CONNECTIONS_PER_HOST,
        forbids: AddressRule | None = None,
    ) -> None:
        self._clock: IReactorTime = clock or reactor
        self._timeout_seconds = timeout_seconds
        self._name = name
        self._http = HttpClient(
            reactor,
            timeout_seconds,
            body_limit=body_limit,
            connections_per_host=connections_per_host,
            forbids=forbids,
        )
        self._tokens = None if credentials is None else Tokens(self.request, credentials, self._clock)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], correlation_id: str) -> Response:
        """One POST with correlation headers, and with a token when there are credentials.

        Problem UPSTREAM: there was no response; whether the service processed the request is unknown.
        """
        fields = {**headers, correlation.HEADER: correlation_id}
        parent = correlation.traceparent(correlation_id)
        if parent is not None:
            fields[correlation.TRACEPARENT] = parent
        return await self.authorized("POST", url, body, fields)

    async def authorized(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Response:
        """One request, with a token when there are credentials; once more with a new token after a 401.

        Problem UPSTREAM.
        """
        if self._tokens is None:
            return await self.request(method, url, body, headers)
        fields = {**headers, "Authorization": f"Bearer {await self._tokens.current()}"}
        response = await self.request(method, url, body, fields)
        if response.status == 401:
            fields["Authorization"] = f"Bearer {await self._tokens.renewed()}"
            response = await self.request(method, url, body, fields)
        return response

    async def get(self, url: str, headers: Mapping[str, str]) -> Response:
        """One GET without a token.  Problem UPSTREAM."""
        return await self.request("GET", url, None, headers)

    async def request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], seconds: float | None = None
    ) -> Response:
        """One request without a token, within the time limit of the service or its own.  Problem UPSTREAM."""
        limit = seconds or self._timeout_seconds
        try:
            return await within(limit, self._clock, self._request(method, url, body, headers))
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
