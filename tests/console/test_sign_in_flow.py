"""Sign-in without a browser: over HTTP on a transport in memory, with a provider that answers in memory.

`test_sign_in.py` does it with a browser and a real provider.
"""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from ipf.config.console import ConsoleSettings, Oidc
from ipf.console.app import mounts
from ipf.console.html.rendering import Renderer
from ipf.console.html.static import StaticFiles
from ipf.console.people.sessions import Sessions
from ipf.console.people.sign_in import LONGEST_TARGET, PENDING_SECONDS, REFUSALS, REFUSALS_SECONDS, SignIn
from ipf.console.serving.backend import Backend
from ipf.console.serving.web import Console
from ipf.errors import Category, Problem
from ipf.wire.client.remote_service import Response
from ipf.wire.http.oidc import DISCOVERY, FRESH_SECONDS
from ipf.wire.http.site import site
from tests.security.issuer import ISSUER, NOW, jwk, token

CLIENT = Oidc(ISSUER, "console", "a secret")
PAGE = "/jobs"


class Provider:
    """Codes are given out by `authorize`; each is good for one token."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.codes: dict[str, dict[str, str]] = {}
        self.key = "rsa"
        self.is_down = False

    def authorize(self, location: str) -> str:
        """What the browser brings back from this page of the provider, for a person who signs in there."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        code = f"code{len(self.codes)}"
        self.codes[code] = query
        return urlencode({"code": code, "state": query["state"], "iss": ISSUER})

    async def get(self, url: str, headers: Mapping[str, str]) -> Response:
        """Discovery and keys."""
        self.asked.append(url.removeprefix(ISSUER))
        if self.is_down:
            raise Problem(Category.UPSTREAM, "the identity provider cannot be reached: refused")
        if url.endswith(DISCOVERY):
            endpoints = {f"{name}_endpoint": f"{ISSUER}/{name}" for name in ("authorization", "token", "end_session")}
            body: Any = {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys", **endpoints}
        else:
            body = {"keys": [jwk(self.key)]}
        return Response(200, {}, json.dumps(body).encode())

    async def request(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Response:
        """The token of a code."""
        self.asked.append(url.removeprefix(ISSUER))
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        begun = self.codes.pop(form.get("code", ""), None)
        challenge = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        if begun is None or begun["code_challenge"] != challenge or begun["redirect_uri"] != form["redirect_uri"]:
            return Response(400, {}, b'{"error":"invalid_grant"}')
        now = time.time()  # PyJWT asks the machine
        given = token(self.key, aud="console", nonce=begun["nonce"], roles=["ipf-admin"], iat=now, exp=now + 300)
        return Response(200, {}, json.dumps({"id_token": given, "access_token": "a"}).encode())


class Browser:
    """Keeps cookies; follows nothing by itself."""

    def __init__(self, factory: Any, address: str = "192.0.2.1") -> None:
        self.factory = factory
        self.address = address
        self.cookies: dict[str, str] = {}
        self.set: list[str] = []

    def get(self, target: str) -> tuple[int, str]:
        """The status and the Location of an answer."""
        protocol = self.factory.buildProtocol(None)
        transport = StringTransport(peerAddress=_Peer(self.address))
        protocol.callLater = Clock().callLater
        protocol.makeConnection(transport)
        kept = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent = f"GET {target} HTTP/1.1\r\nHost: console.example\r\nCookie: {kept}\r\n\r\n"
        protocol.dataReceived(sent.encode())
        protocol.connectionLost(Failure(ConnectionDone()))
        head = transport.value().partition(b"\r\n\r\n")[0].decode().split("\r\n")
        fields = [line.partition(": ") for line in head[1:]]
        self.set = [value for name, _, value in fields if name.lower() == "set-cookie"]
        for one in self.set:
            self._keep(one)
        return int(head[0].split()[1]), next((value for name, _, value in fields if name.lower() == "location"), "")

    def _keep(self, header: str) -> None:
        for name, morsel in SimpleCookie(header).items():
            self.cookies[name] = morsel.value
            if morsel["max-age"] == "0":
                del self.cookies[name]


class _Peer:
    """The address of a browser."""

    def __init__(self, host: str) -> None:
        self.host, self.port = host, 1


class SignInFlowTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.provider = Provider()
        self.factory = self.made()

    def made(self, **settings: Any) -> Any:
        """A console."""
        own, static = ConsoleSettings(**settings), StaticFiles()
        service: Any = self.provider
        sign_in = SignIn(own, lambda: CLIENT, service, lambda: NOW + self.clock.seconds(), self.clock)
        self.sessions = Sessions(own, self.clock.seconds)
        unused: Any = object()
        backend = Backend(unused, "http://engine", None, self.clock)
        self.console = Console(own, backend, self.sessions, sign_in, Renderer(static), static, lambda: False)
        return site(mounts(self.console, unused))

    def sign_in(self, browser: Browser, target: str = PAGE) -> tuple[int, str]:
        """The whole way of a person."""
        status, location = browser.get("/sign-in?" + urlencode({"to": target}))
        self.assertEqual(status, 303)
        status, begun = browser.get("/sign-in/callback?" + self.provider.authorize(location))
        return browser.get(begun) if begun.startswith("/sign-in/begun?") else (status, begun)

    def test_a_person_signs_in(self) -> None:
        browser = Browser(self.factory)
        self.assertEqual(self.sign_in(browser, "/messages?status=FAILED"), (303, "/messages?status=FAILED"))
        self.assertEqual(set(browser.cookies), {"ipf"})
        (session,) = self.sessions._known.values()
        self.assertEqual((session.person, session.id), ("ada", browser.cookies["ipf"]))

    def test_the_cookie_says_nothing_and_is_of_this_browser_alone(self) -> None:
        browser, other = Browser(self.factory), Browser(self.factory)
        _, location = browser.get("/sign-in?to=/secret-page")
        (header,) = browser.set
        self.assertIn("; Path=/; HttpOnly; SameSite=Lax; Max-Age=600", header)
        sealed = browser.cookies["ipf-sign-in"]
        query = parse_qs(urlsplit(location).query)
        for secret in (query["state"][0], query["nonce"][0], "secret-page"):
            self.assertNotIn(secret, sealed)
        back = "/sign-in/callback?" + self.provider.authorize(location)
        other.get("/sign-in")
        for cookies in ({}, other.cookies, {"ipf-sign-in": sealed[:-2]}, {"ipf-sign-in": "x" * 9000},
                        {"ipf-sign-in": "\u00e9"}, {"ipf-sign-in": sealed[:20] + "A" + sealed[21:]}):  # fmt: skip
            stranger = Browser(self.factory)
            stranger.cookies = dict(cookies)
            self.assertEqual(stranger.get(back)[0], 403, cookies)
        self.assertEqual(self.sessions._known, {})
        self.assertEqual(browser.get(back)[0], 303)

    def test_over_tls_the_cookie_is_bound_to_the_host(self) -> None:
        browser = Browser(self.made(base_url="https://console.example"))
        browser.get("/sign-in")
        (header,) = browser.set
        self.assertTrue(header.startswith("__Host-ipf-sign-in="), header)
        self.assertIn("; Secure", header)

    def test_it_is_too_old_after_ten_minutes(self) -> None:
        browser = Browser(self.factory)
        _, location = browser.get("/sign-in")
        self.clock.advance(PENDING_SECONDS + 1)
        self.assertEqual(browser.get("/sign-in/callback?" + self.provider.authorize(location))[0], 403)

    def test_another_process_takes_nothing(self) -> None:
        """Its key is another: whoever was at the provider during a restart begins again, as with a session."""
        browser = Browser(self.factory)
        _, location = browser.get("/sign-in")
        browser.factory = self.made()
        self.assertEqual(browser.get("/sign-in/callback?" + self.provider.authorize(location))[0], 403)

    def test_a_page_that_is_too_long_for_a_cookie_is_the_first_page(self) -> None:
        browser = Browser(self.factory)
        longest = "/" + "a" * (LONGEST_TARGET - 1)
        browser.get("/sign-in?to=" + longest)
        self.assertLess(len(browser.set[0]), 4096)
        self.assertEqual(self.sign_in(browser, longest)[1], longest)
        self.assertEqual(self.sign_in(browser, longest + "a")[1], "/")

    def test_the_provider_is_asked_once_in_ten_minutes(self) -> None:
        for _ in range(3):
            self.sign_in(Browser(self.factory))
        self.assertEqual(self.provider.asked, [DISCOVERY, "/keys", "/token", "/token", "/token"])
        self.clock.advance(FRESH_SECONDS)
        self.sign_in(Browser(self.factory))
        self.assertEqual(self.provider.asked.count(DISCOVERY), 2)

    def test_new_keys_are_fetched_when_they_are_used(self) -> None:
        self.sign_in(Browser(self.factory))
        self.provider.key = "rsa-other"
        self.assertEqual(self.sign_in(Browser(self.factory))[0], 303)
        self.assertEqual(self.provider.asked.count("/keys"), 2)

    def test_an_outage_of_the_provider(self) -> None:
        """It is asked again after seconds, not for each stranger; what is known lasts through it."""
        self.provider.is_down = True
        for _ in range(100):
            self.assertEqual(Browser(self.factory).get("/sign-in")[0], 502)
        self.assertEqual(self.provider.asked, [DISCOVERY])
        self.provider.is_down = False
        self.clock.advance(10)
        self.assertEqual(self.sign_in(Browser(self.factory))[0], 303)
        self.provider.is_down = True
        self.clock.advance(FRESH_SECONDS)
        self.assertEqual(Browser(self.factory).get("/sign-in")[0], 303)

    def test_ten_thousand_strangers_change_nothing_for_the_next_person(self) -> None:
        """They begin, and leave nothing: no memory, no request to the provider, no refusal for others."""
        first = Browser(self.factory)
        self.sign_in(first)
        before, held = list(self.provider.asked), self._held()
        waiting = Browser(self.factory, "192.0.2.7")
        _, location = waiting.get("/sign-in?to=/codes")
        for number in range(200):
            Browser(self.factory, f"198.51.100.{number}").get("/sign-in")
        for _ in range(10_000):  # without the HTTP around it, which takes most of the time
            begun = self.console.sign_in.begin("http://console.example/sign-in/callback", "/")
            self.successResultOf(Deferred.fromCoroutine(begun))
        self.assertEqual(self.provider.asked, before)
        self.assertEqual(self._held(), held)
        _, begun = waiting.get("/sign-in/callback?" + self.provider.authorize(location))
        self.assertEqual(waiting.get(begun), (303, "/codes"))
        self.assertEqual(self.sign_in(Browser(self.factory, "192.0.2.8")), (303, PAGE))
        self.assertIn(first.cookies["ipf"], self.sessions._known)

    def _held(self) -> tuple[int, ...]:
        """How much is kept of strangers."""
        sign_in = self.console.sign_in
        kept = [value for value in vars(sign_in).values() if isinstance(value, dict | list | set)]
        return (len(self.sessions._known), *map(len, kept), len(sign_in._refusals._counted))

    def test_refused_codes_are_limited_by_address(self) -> None:
        """Each costs a request to the provider.  Others sign in meanwhile, and so does a person at his own address."""
        thief = Browser(self.factory, "203.0.113.5")
        seen = []
        for _ in range(REFUSALS + 10):
            _, location = thief.get("/sign-in")
            state = parse_qs(urlsplit(location).query)["state"][0]
            seen.append(thief.get("/sign-in/callback?" + urlencode({"state": state, "code": "guessed"}))[0])
        self.assertEqual(seen, [403] * REFUSALS + [429] * 10)
        self.assertEqual(self.provider.asked.count("/token"), REFUSALS)
        for _ in range(REFUSALS + 10):
            self.assertEqual(self.sign_in(Browser(self.factory, "203.0.113.6"))[0], 303)
        self.clock.advance(REFUSALS_SECONDS)
        self.assertEqual(self.sign_in(thief)[0], 303)
