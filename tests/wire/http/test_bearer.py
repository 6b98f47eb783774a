"""What a connection knows of its token: the caller, for as long as the token and its key hold, and not longer."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.ports import ANONYMOUS, Answer, Caller, Credential, Request
from ipf.rest.http.outcome import refuse
from ipf.security.access import Unauthorized
from ipf.wire.http import bearer as under_test
from ipf.wire.http.bearer import Bearer
from ipf.wire.http.oidc import FRESH_SECONDS, KeySource
from ipf.wire.http.site import FhirResource
from tests.security.issuer import ISSUER, NOW, RULES, token
from tests.wire.http.test_limits import GuardedConnection
from tests.wire.http.test_oidc import Provider
from tests.wire.http.test_short import sent
from tests.wire.http.test_site import Handlers


class CredentialTests(TestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.provider = Provider("rsa", "P-256")
        self.bearer = self.another()
        self.caller(Credential(f"Bearer {token(sub='first')}".encode()))  # which has the keys fetched
        self.hashed = 0
        key = under_test._key

        def counted(given: str) -> bytes:
            self.hashed += 1
            return key(given)

        self.patch(under_test, "_key", counted)

    def another(self) -> Bearer:
        """A Bearer with keys of its own fetching."""
        source = KeySource(ISSUER, self.provider.fetch, self.clock)
        return Bearer(source, RULES, lambda: NOW + self.clock.seconds(), [("metadata",)])

    def asked(self, credential: Credential, *path: str) -> Request:
        """A request over the connection that has sent this."""
        headers = {"authorization": credential.raw.decode()}
        return Request("GET", path or ("Patient",), (), headers, b"", "", "", credential=credential)

    def caller(self, credential: Credential, *path: str, bearer: Bearer | None = None) -> Caller:
        """Who that is."""
        identified = (bearer or self.bearer).identify(self.asked(credential, *path))
        found: Request = self.successResultOf(Deferred.fromCoroutine(identified))
        return found.caller

    def refused(self, credential: Credential) -> str:
        """Why it is refused."""
        identified = Deferred.fromCoroutine(self.bearer.identify(self.asked(credential)))
        return str(self.failureResultOf(identified, Unauthorized).value)

    def test_the_caller_is_the_same_object_and_nothing_is_hashed_again(self) -> None:
        credential = Credential(f"Bearer {token()}".encode())
        first = self.caller(credential)
        self.assertEqual((first.subject, self.hashed), ("ada", 1))
        for _ in range(3):
            self.assertIs(self.caller(credential), first)
        self.assertEqual(self.hashed, 1)
        self.assertIs(self.caller(Credential(credential.raw)), first)
        self.assertEqual(self.hashed, 2)

    def test_it_ends_with_the_token(self) -> None:
        credential = Credential(f"Bearer {token(exp=NOW + 60)}".encode())
        self.caller(credential)
        self.clock.advance(60 + RULES.skew - 1)
        self.caller(credential)
        self.clock.advance(1)
        for _ in range(2):
            self.assertIn("expired", self.refused(credential))

    def test_it_ends_with_the_key(self) -> None:
        credential = Credential(f"Bearer {token(exp=NOW + 9000)}".encode())
        self.caller(credential)
        self.provider.keys = ["P-256"]
        self.clock.advance(FRESH_SECONDS)
        for _ in range(2):
            self.assertIn("no key of the issuer", self.refused(credential))

    def test_it_is_verified_anew_when_other_keys_change(self) -> None:
        credential = Credential(f"Bearer {token(exp=NOW + 9000)}".encode())
        first = self.caller(credential)
        self.provider.keys = ["rsa"]
        self.clock.advance(FRESH_SECONDS)
        second = self.caller(credential)
        self.assertEqual(first, second)
        self.assertIsNot(first, second)
        self.assertIs(self.caller(credential), second)

    def test_what_was_verified_while_keys_changed_is_verified_again(self) -> None:
        self.provider.keys, self.bearer = ["rsa"], self.another()
        self.caller(Credential(f"Bearer {token()}".encode()))
        self.provider.keys = ["rsa", "P-256"]
        credential = Credential(f"Bearer {token('P-256')}".encode())
        self.caller(credential)
        self.assertIsNone(credential.known)
        kept = self.caller(credential)
        self.assertIs(self.caller(credential), kept)

    def test_open_paths_ask_nobody(self) -> None:
        credential = Credential(f"Bearer {token()}".encode())
        self.caller(credential)
        self.assertIs(self.caller(credential, "metadata"), ANONYMOUS)

    def test_what_another_has_found_out_does_not_count(self) -> None:
        credential = Credential(f"Bearer {token()}".encode())
        first, other = self.caller(credential), self.another()
        for _ in range(3):
            self.assertIsNot(self.caller(credential, bearer=other), first)
        self.assertEqual(self.caller(credential), first)
        for known in (first, (None, NOW + 9000, first), object()):
            forged = Credential(b"Bearer a.b.c")
            forged.known = known
            self.assertIn("refused", self.refused(forged))

    def test_refused_ones_are_not_remembered(self) -> None:
        for text in (f"Bearer {token('rsa-other')}", "Bearer x", "Basic YTpi"):
            credential = Credential(text.encode())
            for _ in range(2):
                self.refused(credential)
                self.assertIsNone(credential.known)


class ConnectionTests(TestCase):
    """From the bytes of a connection to the caller."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.provider = Provider("rsa")
        source = KeySource(ISSUER, self.provider.fetch, self.clock)
        self.bearer = Bearer(source, RULES, lambda: NOW + self.clock.seconds())
        self.callers: list[str] = []
        self.connection = GuardedConnection(Handlers())
        direct: dict[bytes, Any] = self.connection.protocol.requestFactory.direct
        direct[b"fhir"] = FhirResource(self.handle, refuse)

    async def handle(self, request: Request) -> Answer:
        """Say who asks."""
        caller = (await self.bearer.identify(request)).caller
        self.callers.append(caller.subject)
        return Answer(401 if caller is ANONYMOUS else 200)

    def status(self, given: str, *more: str) -> int:
        """How a read with this token is answered, on the same connection each time."""
        self.connection.transport.clear()
        head = (f"Authorization: Bearer {given}",) if given else ()
        self.connection.send(sent("GET /fhir/Patient/1", ("Host: x", *head, *more)))
        return self.connection.answer()[0]

    def test_one_connection_of_many_clients(self) -> None:
        ada, eve = token(sub="ada"), token(sub="eve")
        self.assertEqual(len(ada), len(eve))
        tokens = {"ada": ada, "eve": eve, "": ""}
        for name in ("ada", "ada", "eve", "eve", "ada", "", "eve", "", ""):
            self.assertEqual(self.status(tokens[name]), 200 if name else 401)
            self.assertEqual(self.callers.pop(), name)

    def test_a_token_with_a_letter_changed_anywhere(self) -> None:
        good = token()
        for at in range(0, len(good), 29):
            self.assertEqual([self.status(good), self.status(good)], [200, 200])
            forged = good[:at] + ("A" if good[at] != "A" else "Q") + good[at + 1 :]
            self.assertEqual([self.status(forged), self.status(forged)], [401, 401], at)

    def test_the_same_whether_the_other_headers_repeat(self) -> None:
        """Until it ends, and from then on."""
        given = token(exp=NOW + 60)
        for seconds, status in ((0, 200), (60 + RULES.skew - 1, 200), (1, 401)):
            self.clock.advance(seconds)
            found = [self.status(given, *more) for more in ((), (), ("X-Request-Id: 1",), ("X-Request-Id: 2",))]
            self.assertEqual(found, [status] * 4, seconds)

    def test_a_key_that_is_gone(self) -> None:
        given = token(exp=NOW + 9000)
        self.assertEqual([self.status(given), self.status(given)], [200, 200])
        self.provider.keys = ["P-256"]
        self.clock.advance(FRESH_SECONDS)
        self.assertEqual([self.status(given), self.status(given)], [401, 401])

    def test_an_outage_of_the_provider(self) -> None:
        given = token(exp=NOW + 9000)
        self.status(given)
        self.provider.is_down = True
        self.clock.advance(FRESH_SECONDS)
        self.assertEqual([self.status(given), self.status(given)], [200, 200])
