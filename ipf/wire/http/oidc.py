"""The identity provider: its discovery document and its signing keys.

In: the issuer's URL.  Out: the `KeySet` in use, and the SMART configuration of this server.  Keys are fetched at start
and refreshed in the background when they are ten minutes old.  A token with an unknown key, or one that its key did not
sign (the issuer may have replaced the key under its `kid`), causes one more fetch, at most every 30 seconds.  While the
provider cannot be reached, the known keys stay in use; without any, requests are answered 503.  A removed key is
invalid from the next fetch on, and `KeySource.generation` grows, so that cached verifications are dropped.

Nothing is kept over a restart.  Sources: OpenID Connect Discovery 1.0; RFC 8414; SMART App Launch 2.2 "Conformance".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.ports import Json
from ipf.security.keys import KeyRefused, KeySet
from ipf.telemetry.logs import event_line
from ipf.wire.client.remote_service import Response

log = Logger()

DISCOVERY = "/.well-known/openid-configuration"
FRESH_SECONDS = 600.0  # keys older than this are refreshed
RETRY_SECONDS = 5.0  # between attempts while the provider cannot be reached
FORCED_SECONDS = 30.0  # between fetches that unknown keys cause

Fetch = Callable[[str], Awaitable[Response]]
"""One GET; Problem UPSTREAM."""

_PASSED_ON = (
    "authorization_endpoint", "token_endpoint", "token_endpoint_auth_methods_supported", "registration_endpoint",
    "introspection_endpoint", "revocation_endpoint", "grant_types_supported", "response_types_supported",
    "code_challenge_methods_supported",
)  # fmt: skip
_CAPABILITIES = ["client-confidential-symmetric", "client-confidential-asymmetric", "permission-patient",
                 "permission-user", "permission-v1", "permission-v2"]  # fmt: skip
_SCOPES = ["system/*.cruds", "user/*.cruds", "patient/*.cruds", "system/*.read", "system/*.write", "system/*.*"]


class KeySource:
    """The keys of one issuer.  `keys_url` None: as the discovery document says."""

    def __init__(self, issuer: str, fetch: Fetch, clock: IReactorTime, keys_url: str | None = None) -> None:
        self._issuer = issuer
        self._fetch = fetch
        self._clock = clock
        self._keys_url = keys_url
        self._keys: KeySet | None = None
        self._document: Json = {}
        self._fetched_at = self._attempted_at = self._forced_at = float("-inf")
        self._fetching: list[Deferred[None]] | None = None
        self._failure = ""
        self.generation = 0

    async def current(self) -> KeySet:
        """The keys in use.  Problem UNAVAILABLE when none was ever fetched."""
        self.refresh_if_old()
        if self._keys is None:
            if self._is_due() or self._fetching is not None:
                await self._refresh()
            if self._keys is None:
                raise Problem(Category.UNAVAILABLE, "the keys of the identity provider are not known yet")
        return self._keys

    def refresh_if_old(self) -> None:
        """Refresh old keys in the background; called where a cached verification is used."""
        if self._keys is not None and self._fetching is None and self._is_due():
            Deferred.fromCoroutine(self._refresh())

    def _is_due(self) -> bool:
        now = self._clock.seconds()
        return now - self._fetched_at >= FRESH_SECONDS and now - self._attempted_at >= RETRY_SECONDS

    async def renewed(self) -> KeySet:
        """The keys in use, fetched again for a token that none of them has signed."""
        now = self._clock.seconds()
        if self._fetching is not None or now - self._forced_at >= FORCED_SECONDS:
            self._forced_at = now
            await self._refresh()
        return await self.current()

    async def start(self) -> None:
        """Fetch for the first time; a failure is logged."""
        await self._refresh()

    async def check(self) -> Json:
        """The health check: number and age of the keys.  RuntimeError with the last failure."""
        if self._failure:
            raise RuntimeError(self._failure)
        age = self._clock.seconds() - self._fetched_at
        return {"keys": len(self._keys.keys) if self._keys else 0, "age_seconds": round(age) if self._keys else None}

    async def document(self) -> Json:
        """The discovery document, as old as the keys.  Problem UNAVAILABLE when it was never fetched."""
        await self.current()
        return self._document

    async def smart(self) -> Json:
        """The SMART configuration of this server.  Problem UNAVAILABLE while the provider was never reached."""
        if not self._document:
            await self._discover(required=True)
        known = {name: self._document[name] for name in _PASSED_ON if name in self._document}
        known.setdefault("code_challenge_methods_supported", ["S256"])
        known_urls = {"issuer": self._issuer, "jwks_uri": self._keys_url or self._document.get("jwks_uri")}
        return {**known_urls, **known, "scopes_supported": _SCOPES, "capabilities": _CAPABILITIES}

    async def _refresh(self) -> None:
        """Fetch the keys; concurrent calls share one fetch."""
        if self._fetching is not None:
            waiting: Deferred[None] = Deferred()
            self._fetching.append(waiting)
            return await waiting
        self._fetching = []
        self._attempted_at = self._clock.seconds()
        try:
            await self._load()
        except (Problem, KeyRefused) as problem:
            self._failed(str(problem))
        finally:
            waiters, self._fetching = self._fetching, None
            for one in waiters:
                one.callback(None)
        return None

    async def _load(self) -> None:
        url = self._keys_url
        if url is None:
            await self._discover(required=not self._document)
            url = str(self._document["jwks_uri"])
        self._take(KeySet.parse(await self._json(url)))

    def _take(self, keys: KeySet) -> None:
        self._fetched_at = self._clock.seconds()
        if self._failure:
            log.info("event=identity_provider_reachable")
        self._failure = ""
        if keys == self._keys:
            return
        self._keys = keys
        self.generation += 1
        log.info(event_line("keys_changed", keys=len(keys.keys), refused=len(keys.refused)))
        for reason in keys.refused:
            log.warn("a key of the identity provider is not used: {reason}", reason=reason)

    def _failed(self, reason: str) -> None:
        if reason != self._failure:
            log.warn(event_line("identity_provider_unreachable", reason=reason))
        self._failure = reason

    async def _discover(self, required: bool) -> None:
        """Read the discovery document.  On failure the known one stays, unless the document is `required`."""
        try:
            document = await self._json(self._issuer.rstrip("/") + DISCOVERY)
            self._check(document)
        except Problem as problem:
            if required:
                raise Problem(Category.UNAVAILABLE, f"the identity provider is not known yet: {problem}") from None
            return
        self._document = document

    def _check(self, document: Any) -> None:
        if not isinstance(document, dict) or document.get("issuer") != self._issuer:
            raise Problem(Category.UPSTREAM, "the discovery document is not that of the configured issuer")
        keys_url = document.get("jwks_uri")
        if not isinstance(keys_url, str) or urlsplit(keys_url).scheme not in ("http", "https"):
            raise Problem(Category.UPSTREAM, "the discovery document names no key set")
        if self._issuer.startswith("https:") and not keys_url.startswith("https:"):
            raise Problem(Category.UPSTREAM, "the discovery document names a key set that is not protected")

    async def _json(self, url: str) -> Any:
        reply = await self._fetch(url)
        if reply.status != 200:
            raise Problem(Category.UPSTREAM, f"the identity provider answered {reply.status}")
        return loads(reply.body)
