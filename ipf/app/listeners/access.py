"""Authentication of HTTP clients: the identity provider's keys, bearer tokens, tenants and websocket sessions."""

from __future__ import annotations

from dataclasses import dataclass
from time import time
from typing import Any

from twisted.internet.defer import Deferred

from ipf.config.settings import Settings
from ipf.ports import ANONYMOUS, Authenticate, Session
from ipf.rest.write.permission import OPEN_PATHS
from ipf.security.tenancy import Identify, Tenancy, placing
from ipf.security.tokens import Rules
from ipf.subscriptions.policy import NO_SESSION, STRICT
from ipf.wire.channels.websocket_resource import allow_anonymous
from ipf.wire.client.remote_service import RemoteService, Response
from ipf.wire.http.bearer import Bearer
from ipf.wire.http.oidc import KeySource

_PROVIDER_TIMEOUT_SECONDS = 5.0
_LARGEST_KEY_SET = 1024 * 1024  # bytes
AUTH_SANDBOX = (
    "SUBSCRIPTION_SERVICE_AUTH_ENABLED is false beside an issuer: this is a sandbox, and requests to /fhir are not "
    "authenticated"
)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use `/fhir`, `/mapping` and websockets.  `keys`, `identify` None: without bearer tokens."""

    keys: KeySource | None
    identify: Identify | None
    authenticate: Authenticate


def open_access(settings: Settings, reactor: Any) -> Access:
    """Authentication as the settings ask for it; the identity provider's keys are fetched in the background."""
    if not settings.auth_enabled:
        return Access(None, None, session_without_tokens(settings))
    keys = key_source(settings, reactor)
    Deferred.fromCoroutine(keys.start())
    bearer = token_authentication(keys, settings)
    return Access(keys, placing(bearer.identify, tenancy_of(settings)), bearer.session)


def token_authentication(keys: KeySource, settings: Settings) -> Bearer:
    """Verifies bearer tokens, and identifies their callers."""
    rules = Rules(
        settings.auth_issuer or "",
        settings.auth_audience,
        settings.auth_skew_seconds,
        settings.tenant_claim,
        settings.auth_patient_claim,
    )
    return Bearer(keys, rules, time, OPEN_PATHS, tenancy_of(settings))


def key_source(settings: Settings, reactor: Any) -> KeySource:
    """The signing keys of the identity provider."""
    remote = RemoteService(reactor, _PROVIDER_TIMEOUT_SECONDS, "the identity provider", body_limit=_LARGEST_KEY_SET)

    async def fetch(url: str) -> Response:
        return await remote.get(url, {"Accept": "application/json"})

    return KeySource(settings.auth_issuer or "", fetch, reactor, settings.auth_jwks_url)


def tenancy_of(settings: Settings) -> Tenancy:
    """The rule that assigns a caller to a tenant."""
    return Tenancy(settings.multitenancy == "enabled", frozenset(settings.tenants))


def session_without_tokens(settings: Settings) -> Authenticate:
    """Websocket sessions where bearer tokens are disabled: in mode strict, clients bind by binding token only."""
    return _no_permission if settings.channel_security == STRICT else allow_anonymous


async def _no_permission(bearer: str | None) -> Session:
    return Session(may_read=lambda _: False, caller=ANONYMOUS, refusal=NO_SESSION)
