"""Sign-in of people: OpenID Connect authorization code flow with PKCE.

`begin` sends the browser to the provider with a state, a nonce and a code challenge.  What it must know again later is
in a short-lived cookie, encrypted with a key of this process (Fernet): nothing of a sign-in that nobody finishes stays
here.  `finish` takes the code that the browser brings back, exchanges it at the provider, and verifies the ID token:
signature, issuer, audience, times, nonce.  The tokens stay here.  `logout_url` is the provider's page that ends its own
session.

The discovery document and the keys of the provider are cached (`wire/http/oidc.py`).  A begun sign-in asks the provider
nothing.  Codes that it refuses are counted by address: beyond REFUSALS in a minute none of this address is sent on.

The variables OIDC_* are read at every call, so they can be changed while the console runs.

Sources: interface specification "Operator UI"; OpenID Connect Core 1.0 section 3.1, RP-Initiated Logout 1.0; RFC 7636;
RFC 9700 section 2.1; https://github.com/fernet/spec.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote, urlencode

import jwt
from cryptography.fernet import Fernet, InvalidToken
from twisted.internet.interfaces import IReactorTime

from ipf.config.console import ConsoleSettings, Oidc
from ipf.console.people.sessions import role_of
from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.security.addresses import AddressLimit
from ipf.security.tokens import TokenRefused, UnknownKey, WrongSignature, verify_signature
from ipf.wire.admin.route import Role
from ipf.wire.client.remote_service import RemoteService, Response
from ipf.wire.http.oidc import KeySource

PENDING_SECONDS = 600
"""How long a person may take at the provider."""
REFUSALS, REFUSALS_SECONDS = 60, 60.0
LONGEST_TARGET = 1500
"""Characters of a page to return to: browsers keep cookies of 4,096 bytes."""
_LONGEST_COOKIE = 8192
_SKEW_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Begun:
    """A sign-in that has begun.  `target`: the page to return to."""

    state: str
    nonce: str
    verifier: str
    redirect_uri: str
    target: str


class TooManyRefusals(Problem):
    """Too many codes from one address were refused."""

    def __init__(self) -> None:
        super().__init__(Category.UNAVAILABLE, "too many refused sign-ins from this address; try again in a minute")


@dataclass(frozen=True, slots=True)
class Person:
    """Who signed in.  `role` None: none of this console."""

    id: str
    name: str
    role: Role | None
    id_token: str
    access_token: str


class SignIn:
    """`read`: the provider as the variables name it now; `now`: seconds since 1970; `clock`: for what is cached."""

    def __init__(
        self,
        settings: ConsoleSettings,
        read: Callable[[], Oidc | tuple[str, ...]],
        service: RemoteService,
        now: Callable[[], float],
        clock: IReactorTime,
    ) -> None:
        self._settings = settings
        self._read = read
        self._service = service
        self._now = now
        self._clock = clock
        self._fernet = Fernet(Fernet.generate_key())
        self._known: tuple[str, KeySource] | None = None
        self._refusals = AddressLimit(REFUSALS, REFUSALS_SECONDS, now)

    @property
    def missing(self) -> tuple[str, ...]:
        """The variables that are not set; none: people can sign in."""
        found = self._read()
        return () if isinstance(found, Oidc) else found

    async def begin(self, redirect_uri: str, target: str) -> tuple[str, str]:
        """The cookie of the sign-in, and the provider's URL.  Problem UPSTREAM or UNAVAILABLE."""
        provider = self._provider()
        document = await self._source(provider).document()
        target = target if len(target) <= LONGEST_TARGET else "/"
        begun = Begun(token_urlsafe(24), token_urlsafe(24), token_urlsafe(48), redirect_uri, target)
        challenge = urlsafe_b64encode(sha256(begun.verifier.encode()).digest()).rstrip(b"=").decode()
        query = urlencode({
            "response_type": "code", "client_id": provider.client_id, "redirect_uri": redirect_uri,
            "scope": self._settings.scope, "state": begun.state, "nonce": begun.nonce,
            "code_challenge": challenge, "code_challenge_method": "S256",
        })  # fmt: skip
        endpoint = _endpoint(document, "authorization_endpoint")
        sealed = self._fernet.encrypt_at_time(dumps(asdict(begun)), int(self._now())).decode()
        return sealed, f"{endpoint}{'&' if '?' in endpoint else '?'}{query}"

    async def finish(self, cookie: str, parameters: Mapping[str, str], address: str = "") -> tuple[Person, str]:
        """The person and the page to return to.  `address`: of the browser.

        Problem FORBIDDEN with the reason; UPSTREAM; TooManyRefusals.
        """
        begun = self._opened(cookie)
        if not compare_digest(parameters.get("state", "").encode("utf-8", "replace"), begun.state.encode()):
            raise _refused("the state is not that of this sign-in")
        if "error" in parameters:
            raise _refused(f"the provider answered {parameters['error'][:100]}")
        provider = self._provider()
        if parameters.get("iss", provider.issuer) != provider.issuer:  # RFC 9207
            raise _refused("the answer is from another provider")
        if self._refusals.is_reached(address):
            raise TooManyRefusals
        self._refusals.count(address)  # before the answer, so that many codes at once do not pass
        person = await self._person_of(provider, parameters.get("code", ""), begun)
        self._refusals.forgive(address)
        return person, begun.target

    async def _person_of(self, provider: Oidc, code: str, begun: Begun) -> Person:
        source = self._source(provider)
        tokens = await self._exchange(provider, await source.document(), code, begun)
        claims = await self._verified(tokens["id_token"], source, provider, begun.nonce)
        return self._person(claims, tokens)

    async def logout_url(self, id_token: str, return_to: str) -> str | None:
        """The provider's page that ends its session; None when it has none."""
        if self.missing:
            return None
        try:
            provider = self._provider()
            endpoint = (await self._source(provider).document()).get("end_session_endpoint")
        except Problem:
            return None
        if not isinstance(endpoint, str) or not id_token:
            return None
        query = {"id_token_hint": id_token, "client_id": provider.client_id, "post_logout_redirect_uri": return_to}
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    def _provider(self) -> Oidc:
        found = self._read()
        if not isinstance(found, Oidc):
            raise Problem(Category.UNAVAILABLE, f"sign-in needs {', '.join(found)}")
        return found

    def _opened(self, cookie: str) -> Begun:
        """What the cookie of a sign-in holds.  Problem FORBIDDEN."""
        try:
            sealed = cookie.encode("ascii") if len(cookie) <= _LONGEST_COOKIE else b""
            found = self._fernet.decrypt_at_time(sealed, PENDING_SECONDS, int(self._now()))
        except (InvalidToken, UnicodeEncodeError):
            raise _refused("this sign-in is too old or belongs to another browser; begin again") from None
        return Begun(**loads(found))

    def _source(self, provider: Oidc) -> KeySource:
        """Document and keys of the provider, which are fetched again when another issuer is set."""
        if self._known is None or self._known[0] != provider.issuer:
            self._known = provider.issuer, KeySource(provider.issuer, self._fetch, self._clock)
        return self._known[1]

    async def _fetch(self, url: str) -> Response:
        return await self._service.get(url, {"Accept": "application/json"})

    async def _exchange(self, provider: Oidc, document: Mapping[str, Any], code: str, begun: Begun) -> dict[str, str]:
        """The tokens for a code."""
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": begun.redirect_uri,
            "code_verifier": begun.verifier,
        }  # fmt: skip
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        methods = document.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if "client_secret_basic" in methods:
            pair = f"{quote(provider.client_id, safe='')}:{quote(provider.client_secret, safe='')}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": provider.client_id, "client_secret": provider.client_secret}
        reply = await self._service.request(
            "POST", _endpoint(document, "token_endpoint"), urlencode(form).encode(), headers
        )
        body = loads(reply.body) if reply.status == 200 else {}
        if not isinstance(body, dict) or not isinstance(body.get("id_token"), str):
            raise _refused(f"the provider gave no ID token (status {reply.status})")
        access = body.get("access_token")
        return {"id_token": body["id_token"], "access_token": access if isinstance(access, str) else ""}

    async def _verified(self, token: str, source: KeySource, provider: Oidc, nonce: str) -> dict[str, Any]:
        """The claims of an ID token.  Problem FORBIDDEN."""
        try:
            await _verify_signature(token, source)
            claims: dict[str, Any] = jwt.decode(
                token,
                options={"verify_signature": False, "verify_exp": True, "verify_nbf": True, "verify_iat": True,
                         "verify_aud": True, "verify_iss": True, "require": ["exp", "iat", "sub", "iss", "aud"]},
                audience=provider.client_id, issuer=provider.issuer, leeway=_SKEW_SECONDS,
            )  # fmt: skip
        except (TokenRefused, jwt.PyJWTError) as refused:
            raise _refused(f"the ID token is refused: {refused}") from None
        audience = claims["aud"]
        if isinstance(audience, list) and len(audience) > 1 and claims.get("azp") != provider.client_id:
            raise _refused("the ID token is for another client")
        if not compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise _refused("the ID token is not of this sign-in")
        return claims

    def _person(self, claims: Mapping[str, Any], tokens: Mapping[str, str]) -> Person:
        names = (claims.get(name) for name in ("name", "preferred_username", "email", "sub"))
        shown = next(str(name) for name in names if isinstance(name, str) and name)
        role = role_of(roles_in(claims, self._settings), self._settings)
        return Person(str(claims["sub"]), shown[:100], role, tokens["id_token"], tokens["access_token"])


async def _verify_signature(token: str, source: KeySource) -> None:
    """With the keys that are known, or once with new ones.  Raises TokenRefused."""
    keys = await source.current()
    try:
        verify_signature(token, keys)
    except (UnknownKey, WrongSignature):
        renewed = await source.renewed()
        if renewed is keys:
            raise
        verify_signature(token, renewed)


def roles_in(claims: Mapping[str, Any], settings: ConsoleSettings) -> Iterator[str]:
    """The texts at the path of the roles claim, such as `realm_access.roles`."""
    value: Any = claims
    if settings.roles_claim in claims:  # a claim with a dot in its name (`https://example.org/roles`)
        value = claims[settings.roles_claim]
    else:
        for name in settings.roles_claim.split("."):
            value = value.get(name) if isinstance(value, dict) else None
    found = value if isinstance(value, list) else str(value or "").split()
    yield from (one for one in found if isinstance(one, str))


def _endpoint(document: Mapping[str, Any], name: str) -> str:
    url = document.get(name)
    if not isinstance(url, str) or not url.startswith(("https://", "http://")):
        raise Problem(Category.UPSTREAM, f"the discovery document has no {name}")
    return url


def _refused(reason: str) -> Problem:
    return Problem(Category.FORBIDDEN, reason)
