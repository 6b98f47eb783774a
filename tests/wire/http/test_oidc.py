"""Keys of an identity provider through rotation and outage, and callers by their tokens; on a clock that is moved."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.errors import Category, Problem
from ipf.ports import ANONYMOUS, Caller, Request
from ipf.security.access import Unauthorized
from ipf.wire.client.remote_service import Response
from ipf.wire.http.bearer import Bearer
from ipf.wire.http.oidc import DISCOVERY, FORCED_SECONDS, FRESH_SECONDS, RETRY_SECONDS, KeySource
from tests.security.issuer import ISSUER, NOW, RULES, jwk, token

KEYS_URL = f"{ISSUER}/keys"


class Provider:
    """Answers with the documents it is given; counts requests."""

    def __init__(self, *keys: str) -> None:
        self.keys = list(keys)
        self.document: Any = {"issuer": ISSUER, "jwks_uri": KEYS_URL, "token_endpoint": f"{ISSUER}/token", "x": 1}
        self.is_down = False
        self.asked: list[str] = []
        self.held: Deferred[None] | None = None
        self.answers: dict[str, Response] = {}

    async def fetch(self, url: str) -> Response:
        """One GET."""
        self.asked.append(url.removeprefix(ISSUER))
        if self.held is not None:
            await self.held
        if self.is_down:
            raise Problem(Category.UPSTREAM, "the identity provider cannot be reached: refused")
        if url in self.answers:
            return self.answers[url]
        body = self.document if url.endswith(DISCOVERY) else {"keys": [jwk(name) for name in self.keys]}
        return Response(200, {}, json.dumps(body).encode())

    def count(self) -> int:
        """The number of fetches of the keys."""
        return len([one for one in self.asked if one == "/keys"])


class OidcTests(TestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.provider = Provider("rsa")
        self.source = KeySource(ISSUER, self.provider.fetch, self.clock)
        self.bearer = Bearer(self.source, RULES, lambda: NOW + self.clock.seconds(), [("metadata",)])

    def caller(self, given: str) -> Caller:
        """The caller of a token, which must be known at once."""
        found: Caller = self.successResultOf(Deferred.fromCoroutine(self.bearer.caller_of(given)))
        return found

    def refused(self, given: str) -> Problem:
        """Why it is refused."""
        problem: Problem = self.failureResultOf(Deferred.fromCoroutine(self.bearer.caller_of(given)), Problem).value
        return problem

    def identify(self, path: tuple[str, ...] = ("Patient",), **headers: str) -> Request:
        """The request with its caller."""
        request = Request("GET", path, (), headers, b"", "", "")
        found: Request = self.successResultOf(Deferred.fromCoroutine(self.bearer.identify(request)))
        return found

    # -- keys

    def test_the_discovery_document_and_its_keys_are_cached(self) -> None:
        for _ in range(3):
            self.assertEqual(self.caller(token()).subject, "ada")
        self.assertEqual(self.provider.asked, [DISCOVERY, "/keys"])

    def test_keys_url_that_is_set(self) -> None:
        source = KeySource(ISSUER, self.provider.fetch, self.clock, f"{ISSUER}/other")
        self.assertEqual(len(self.successResultOf(Deferred.fromCoroutine(source.current())).keys), 1)
        self.assertEqual(self.provider.asked, ["/other"])

    def test_keys_are_fetched_again_in_the_background(self) -> None:
        self.caller(token())
        self.clock.advance(FRESH_SECONDS - 1)
        self.caller(token(sub="b"))
        self.assertEqual(self.provider.count(), 1)
        self.clock.advance(1)
        self.provider.held = Deferred()
        self.caller(token(sub="c", exp=NOW + 5000))  # nobody waits
        self.provider.held.callback(None)
        self.assertEqual(self.provider.count(), 2)

    def test_rotation(self) -> None:
        old = token()
        self.caller(old)
        self.provider.keys = ["rsa", "P-256"]
        self.assertEqual(self.caller(token("P-256")).subject, "ada")
        self.assertEqual(self.caller(old).subject, "ada")
        self.provider.keys = ["P-256"]
        self.clock.advance(FRESH_SECONDS)
        self.assertIn("no key of the issuer", str(self.refused(old)))  # though it was verified and remembered

    def test_unknown_keys_cause_one_fetch_in_30_seconds(self) -> None:
        self.caller(token())
        for number in range(50):
            self.refused(token("rsa-other", sub=str(number)))
        self.assertEqual(self.provider.count(), 2)
        self.clock.advance(FORCED_SECONDS)
        self.refused(token("rsa-other"))
        self.assertEqual(self.provider.count(), 3)

    def test_a_key_that_is_replaced_under_its_kid(self) -> None:
        """A wrong signature causes one fetch in 30 seconds; tokens of the former key are refused from then on."""
        old, new = token(), token("rsa-other", {"kid": "rsa"})
        self.caller(old)
        self.provider.answers[KEYS_URL] = Response(
            200, {}, json.dumps({"keys": [jwk("rsa-other", kid="rsa")]}).encode()
        )
        self.assertEqual(self.caller(new).subject, "ada")
        for number in range(50):
            self.assertIn("signature", str(self.refused(token(sub=str(number)))))
        self.assertIn("signature", str(self.refused(old)))
        self.assertEqual(self.provider.asked.count("/keys"), 2)

    def test_many_wait_for_one_fetch(self) -> None:
        self.provider.held = Deferred()
        waiting = [Deferred.fromCoroutine(self.bearer.caller_of(token(sub=str(number)))) for number in range(20)]
        self.provider.held.callback(None)
        self.assertEqual([self.successResultOf(one).subject for one in waiting], [str(number) for number in range(20)])
        self.assertEqual(self.provider.asked, [DISCOVERY, "/keys"])

    def test_outage(self) -> None:
        self.caller(token())
        self.provider.is_down = True
        for _ in range(5):
            self.clock.advance(FRESH_SECONDS)
            self.assertEqual(self.caller(token(exp=NOW + 9000)).subject, "ada")
        self.assertIn("cannot be reached", str(self.failureResultOf(Deferred.fromCoroutine(self.source.check())).value))
        self.refused(token("P-256"))
        self.provider.is_down, self.provider.keys = False, ["rsa", "P-256"]
        self.clock.advance(FRESH_SECONDS)
        self.assertEqual(self.caller(token("P-256", exp=NOW + 9000)).subject, "ada")
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(self.source.check()))["keys"], 2)

    def test_outage_from_the_start(self) -> None:
        self.provider.is_down = True
        self.successResultOf(Deferred.fromCoroutine(self.source.start()))
        self.assertEqual(self.refused(token()).rendering.http_status, 503)
        asked = len(self.provider.asked)
        self.refused(token())
        self.assertEqual(len(self.provider.asked), asked)
        self.provider.is_down = False
        self.clock.advance(RETRY_SECONDS)
        self.assertEqual(self.caller(token()).subject, "ada")

    def test_documents_that_are_not_the_issuers(self) -> None:
        for changes in ({"issuer": "https://evil.example.org"}, {"issuer": None}, {"jwks_uri": None},
                        {"jwks_uri": "http://idp.example.org/keys"}, {"jwks_uri": "file:///etc/passwd"}):  # fmt: skip
            self.setUp()
            self.provider.document |= changes
            self.assertEqual(self.refused(token()).rendering.http_status, 503, changes)

    def test_answers_that_are_no_keys(self) -> None:
        self.caller(token())
        for reply in (
            Response(500, {}, b""),
            Response(302, {}, b""),
            Response(200, {}, b"<html>"),
            Response(200, {}, b"[]"),
        ):
            self.provider.answers[KEYS_URL] = reply
            self.clock.advance(FRESH_SECONDS)
            self.assertEqual(self.caller(token(exp=NOW + 9000)).subject, "ada")

    def test_smart(self) -> None:
        found = self.successResultOf(Deferred.fromCoroutine(self.source.smart()))
        self.assertEqual((found["issuer"], found["jwks_uri"], found["token_endpoint"]),
                         (ISSUER, KEYS_URL, f"{ISSUER}/token"))  # fmt: skip
        self.assertNotIn("x", found)
        self.assertIn("permission-v2", found["capabilities"])

    # -- callers

    def test_identify(self) -> None:
        good = token(scope="system/Patient.rs")
        for authorization in (f"Bearer {good}", f"bearer {good}", f"BEARER  {good} "):
            caller = self.identify(authorization=authorization).caller
            self.assertEqual((caller.subject, caller.scopes), ("ada", ("system/Patient.rs",)))
        self.assertIs(self.identify().caller, ANONYMOUS)
        self.assertIs(self.identify(authorization="").caller, ANONYMOUS)
        self.assertIs(self.identify(("metadata",), authorization="Bearer nonsense").caller, ANONYMOUS)

    def test_the_request_is_not_changed(self) -> None:
        values = {one.name: f"<{one.name}>" for one in fields(Request)}
        found = Request(**values).by(ANONYMOUS)  # type: ignore[arg-type]
        seen = {one.name: getattr(found, one.name) for one in fields(Request)}
        self.assertEqual(seen, values | {"caller": ANONYMOUS})

    def test_headers_that_are_no_bearer_token(self) -> None:
        good = token()
        for authorization in ("Basic YTpi", good, "Bearer", "Bearer ", f"Bearer {good}, Bearer {good}",
                              f"DPoP {good}", f"Bearer{good}", f"Bearer {good} x", "Bearer \udcff\ud800",
                              f"Bearer {'x' * 100_000}"):  # fmt: skip
            request = Request("GET", ("Patient",), (), {"authorization": authorization}, b"", "", "")
            problem = self.failureResultOf(Deferred.fromCoroutine(self.bearer.identify(request)), Unauthorized).value
            self.assertNotIn(good[:30], str(problem) + problem.challenge)

    def test_a_cached_token_expires(self) -> None:
        given = token(exp=NOW + 60)
        self.caller(given)
        self.clock.advance(60 + RULES.skew - 1)
        self.caller(given)
        self.clock.advance(1)
        self.assertIn("expired", str(self.refused(given)))
        self.assertIn('error="invalid_token"', self.refused(given).challenge)  # type: ignore[attr-defined]

    def test_the_cache_is_bounded(self) -> None:
        self.patch(__import__("ipf.wire.http.bearer", fromlist=["x"]), "_MAX_CACHED", 10)
        for number in range(25):
            self.caller(token(sub=str(number), exp=NOW + number))
        self.assertLessEqual(len(self.bearer._cached), 10)
