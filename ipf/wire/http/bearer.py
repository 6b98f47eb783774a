"""Authentication: `Authorization: Bearer ...` in, the `Caller` out.

A verified token is cached by its hash until it expires; the cache is cleared when the keys change.  A refused token is
not cached.

Source: RFC 6750; interface specification "FHIR surface", "Channel security" (the websocket's `bearer-` protocol).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from math import inf

from ipf.ports import ANONYMOUS, Caller, Request, Session
from ipf.security.access import Unauthorized, may_hold
from ipf.security.tenancy import Tenancy
from ipf.security.tokens import LONGEST, Rules, TokenRefused, UnknownKey, WrongSignature, verify
from ipf.wire.http.oidc import KeySource

_MAX_CACHED = 10_000
_PREFIX = "bearer "


class Bearer:
    """Callers by their tokens.  `now`: seconds since 1970; `open_paths`: need no token."""

    def __init__(
        self,
        source: KeySource,
        rules: Rules,
        now: Callable[[], float],
        open_paths: Collection[tuple[str, ...]] = (),
        tenancy: Tenancy | None = None,
    ) -> None:
        self._source = source
        self._rules = rules
        self._now = now
        self._open_paths = frozenset(open_paths)
        self._tenancy = tenancy or Tenancy()
        self._cached: dict[bytes, Caller] = {}
        self._generation = -1

    async def identify(self, request: Request) -> Request:
        """The request with its caller; ANONYMOUS without a token.  Problem UNAUTHORIZED, or UNAVAILABLE."""
        header = request.headers.get("authorization")
        if not header or request.path in self._open_paths:
            return request.by(ANONYMOUS)
        if header[: len(_PREFIX)].lower() != _PREFIX:
            raise Unauthorized("a bearer token is required")
        return request.by(await self.caller_of(header[len(_PREFIX) :].strip()))

    async def caller_of(self, token: str) -> Caller:
        """The caller of a token.  Problem UNAUTHORIZED with the reason; UNAVAILABLE without keys."""
        if len(token) > LONGEST:
            raise _refusal(TokenRefused("it is too long"))
        self._check_keys()
        key = _key(token)
        caller = self._cached.get(key)
        if caller is not None:
            if self._now() < self._until(caller):
                return caller
            del self._cached[key]
        try:
            caller = await self._verified(token)
        except TokenRefused as refused:
            raise _refusal(refused) from None
        if self._generation == self._source.generation:
            self._keep(key, caller)
        return caller

    def _check_keys(self) -> None:
        """Drop cached tokens when the keys have changed."""
        self._source.refresh_if_old()
        if self._generation != self._source.generation:
            self._generation = self._source.generation
            self._cached.clear()

    def _until(self, caller: Caller) -> float:
        """The time at which a caller's token expires, with the allowed clock skew."""
        return inf if caller.expires_at is None else caller.expires_at + self._rules.skew

    async def _verified(self, token: str) -> Caller:
        keys = await self._source.current()
        try:
            return verify(token, keys, self._rules, self._now())
        except (UnknownKey, WrongSignature):
            renewed = await self._source.renewed()
            if renewed is keys:
                raise
            return verify(token, renewed, self._rules, self._now())

    def _keep(self, key: bytes, caller: Caller) -> None:
        if len(self._cached) >= _MAX_CACHED:
            now = self._now()
            self._cached = {one: kept for one, kept in self._cached.items() if (kept.expires_at or now) > now}
            if len(self._cached) >= _MAX_CACHED:
                self._cached.clear()
        self._cached[key] = caller

    async def session(self, token: str | None) -> Session:
        """The session of a websocket client.  Without a token it may bind by binding token only.

        Problem UNAUTHORIZED, FORBIDDEN (tenant) or UNAVAILABLE.
        """
        if token is None:
            return Session(may_read=lambda _: False, caller=ANONYMOUS)
        caller = await self.caller_of(token)
        until = None if caller.expires_at is None else datetime.fromtimestamp(caller.expires_at, UTC)
        return Session(self._tenancy.of(caller), partial(may_hold, caller, "r"), until, caller)


def _key(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def _refusal(reason: TokenRefused) -> Unauthorized:
    text = f"the bearer token is refused: {reason}"
    return Unauthorized(text, f'error="invalid_token", error_description="{reason}"')
