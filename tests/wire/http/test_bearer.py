"""Callers by their tokens: a cached token is accepted as long as it and its key are valid, and no longer."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.ports import ANONYMOUS, Answer, Caller, Request
from ipf.rest.http.outcome import refuse
from ipf.security.access import Unauthorized
from ipf.wire.http.bearer import Bearer
from ipf.wire.http.oidc import FRESH_SECONDS, KeySource
from tests.security.issuer import ISSUER, NOW, RULES, token
from tests.wire.http.test_limits import BoundedConnection
from tests.wire.http.test_oidc import Provider
from tests.wire.http.test_site import Handlers


class CacheTests(TestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.provider = Provider("rsa", "P-256")
        source = KeySource(ISSUER, self.provider.fetch, self.clock)
        self.bearer = Bearer(source, RULES, lambda: NOW + self.clock.seconds(), [("metadata",)])
        self.caller(f"Bearer {token(sub='first')}")  # has the keys fetched

    def request(self, authorization: str, *path: str) -> Request:
        """A request with this header."""
        return Request("GET", path or ("Patient",), (), {"authorization": authorization}, b"", "", "")

    def caller(self, authorization: str, *path: str) -> Caller:
        """The caller of a request with this header."""
        identified = self.bearer.identify(self.request(authorization, *path))
        found: Request = self.successResultOf(Deferred.fromCoroutine(identified))
        return found.caller

    def refused(self, authorization: str) -> str:
        """Why such a request is refused."""
        identified = Deferred.fromCoroutine(self.bearer.identify(self.request(authorization)))
        return str(self.failureResultOf(identified, Unauthorized).value)

    def test_a_token_is_verified_once(self) -> None:
        given = f"Bearer {token()}"
        first = self.caller(given)
        self.assertEqual(first.subject, "ada")
        self.assertIs(self.caller(given), first)

    def test_the_cache_ends_with_the_token(self) -> None:
        given = f"Bearer {token(exp=NOW + 60)}"
        self.caller(given)
        self.clock.advance(60 + RULES.skew - 1)
        self.caller(given)
        self.clock.advance(1)
        for _ in range(2):
            self.assertIn("expired", self.refused(given))

    def test_the_cache_ends_with_the_key(self) -> None:
        given = f"Bearer {token(exp=NOW + 9000)}"
        self.caller(given)
        self.provider.keys = ["P-256"]
        self.clock.advance(FRESH_SECONDS)
        for _ in range(2):
            self.assertIn("no key of the issuer", self.refused(given))

    def test_a_token_is_verified_again_when_other_keys_change(self) -> None:
        given = f"Bearer {token(exp=NOW + 9000)}"
        first = self.caller(given)
        self.provider.keys = ["rsa"]
        self.clock.advance(FRESH_SECONDS)
        second = self.caller(given)
        self.assertEqual(first, second)
        self.assertIsNot(first, second)
        self.assertIs(self.caller(given), second)

    def test_open_paths_need_no_token(self) -> None:
        self.assertIs(self.caller(f"Bearer {token()}", "metadata"), ANONYMOUS)

    def test_refused_tokens_stay_refused(self) -> None:
        self.caller(f"Bearer {token()}")
        for given in (f"Bearer {token('rsa-other')}", "Bearer x", "Basic YTpi"):
            for _ in range(2):
                self.refused(given)


class ConnectionTests(TestCase):
    """From the bytes of a connection to the caller."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.provider = Provider("rsa")
        source = KeySource(ISSUER, self.provider.fetch, self.clock)
        self.bearer = Bearer(source, RULES, lambda: NOW + self.clock.seconds())
        self.callers: list[str] = []
        self.connection = BoundedConnection(Handlers(), self.handle)

    async def handle(self, request: Request) -> Answer:
        """Keep the caller."""
        try:
            caller = (await self.bearer.identify(request)).caller
        except Unauthorized as problem:
            return refuse(problem)
        self.callers.append(caller.subject)
        return Answer(401 if caller is ANONYMOUS else 200)

    def status(self, given: str) -> int:
        """The status of a read with this token, always on the same connection."""
        self.connection.transport.clear()
        return self.connection.get("/fhir/Patient/1", *((f"Authorization: Bearer {given}",) if given else ()))[0]

    def test_one_connection_of_many_clients(self) -> None:
        ada, eve = token(sub="ada"), token(sub="eve")
        tokens = {"ada": ada, "eve": eve, "": ""}
        for name in ("ada", "ada", "eve", "eve", "ada", "", "eve", "", ""):
            self.assertEqual(self.status(tokens[name]), 200 if name else 401)
            self.assertEqual(self.callers.pop(), name)

    def test_a_token_with_a_letter_changed_anywhere(self) -> None:
        good = token()
        for at in range(0, len(good), 29):
            self.assertEqual(self.status(good), 200)
            forged = good[:at] + ("A" if good[at] != "A" else "Q") + good[at + 1 :]
            self.assertEqual([self.status(forged), self.status(forged)], [401, 401], at)

    def test_an_outage_of_the_provider(self) -> None:
        given = token(exp=NOW + 9000)
        self.status(given)
        self.provider.is_down = True
        self.clock.advance(FRESH_SECONDS)
        self.assertEqual([self.status(given), self.status(given)], [200, 200])
