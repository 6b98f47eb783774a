"""Bearer tokens of the client-credentials grant, by a client secret or by a signed assertion.

A token is fetched once, and again shortly before it expires or when the service refuses it.

Source: RFC 6749 section 4.4; RFC 7523 section 2.2; https://hl7.org/fhir/smart-app-launch/backend-services.html
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol
from urllib.parse import urlencode

import jwt
from twisted.internet.defer import DeferredLock
from twisted.internet.interfaces import IReactorTime

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads

RENEWAL_SECONDS = 30.0  # a token is renewed this long before it expires
_SHORTEST_TOKEN_SECONDS = 5.0
_ASSERTION_MINUTES = 4  # SMART allows five
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class Grant(Protocol):
    """What a token is asked for with."""

    @property
    def token_url(self) -> str:
        """The token endpoint."""

    def form(self) -> dict[str, str]:
        """The fields of the request.  Problem UPSTREAM: the key cannot be used."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Client id and secret."""

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""

    def form(self) -> dict[str, str]:
        """See `Grant.form`."""
        return {**_form(self.client_id, self.scope), "client_secret": self.client_secret}


@dataclass(frozen=True, slots=True)
class SignedCredentials:
    """Client id and private key (PEM)."""

    token_url: str
    client_id: str
    private_key: str = field(repr=False)
    key_id: str = ""
    algorithm: str = "RS384"
    scope: str = ""

    def form(self) -> dict[str, str]:
        """See `Grant.form`."""
        now = datetime.now(UTC)
        claims = {
            "iss": self.client_id, "sub": self.client_id, "aud": self.token_url, "jti": uuid.uuid4().hex,
            "iat": now, "exp": now + timedelta(minutes=_ASSERTION_MINUTES),
        }  # fmt: skip
        headers = {"kid": self.key_id} if self.key_id else None
        try:
            assertion = jwt.encode(claims, self.private_key, self.algorithm, headers)
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            text = f"the private key cannot sign with {self.algorithm}"
            raise Problem(Category.UPSTREAM, f"{text}: {type(error).__name__}") from error
        form = _form(self.client_id, self.scope)
        return {**form, "client_assertion_type": _ASSERTION_TYPE, "client_assertion": assertion}


def _form(client_id: str, scope: str) -> dict[str, str]:
    form = {"grant_type": "client_credentials", "client_id": client_id}
    return {**form, "scope": scope} if scope else form


class Answered(Protocol):
    """The answer of a token endpoint."""

    @property
    def status(self) -> int:
        """HTTP status."""

    @property
    def body(self) -> bytes:
        """The body."""


Send = Callable[[str, str, bytes | None, Mapping[str, str]], Awaitable[Answered]]
"""One request: method, URL, body, headers.  Problem UPSTREAM."""


class Tokens:
    """The bearer token of one client; concurrent callers share one fetch."""

    def __init__(self, request: Send, credentials: Grant, clock: IReactorTime) -> None:
        self._request = request
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
        form = self._credentials.form()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        url, body = self._credentials.token_url, urlencode(form).encode()
        response = await self._request("POST", url, body, headers)
        token, seconds = _token(response)
        self._token = token
        self._valid_until = self._clock.seconds() + max(seconds - RENEWAL_SECONDS, _SHORTEST_TOKEN_SECONDS)


def _token(response: Answered) -> tuple[str, float]:
    try:
        body = loads(response.body) if response.status == 200 else {}
        token = body["access_token"]
        seconds = float(body.get("expires_in", 300))
    except (Problem, KeyError, TypeError, ValueError, AttributeError):
        raise Problem(Category.UPSTREAM, f"the token endpoint returned no token (status {response.status})") from None
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise Problem(Category.UPSTREAM, "the token endpoint returned no usable token")
    return token, seconds
