"""Clients of polled sources, against a real listener: tokens, signed assertions, headers, missing variables."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase
from twisted.web.server import Site

from ipf.errors import Problem
from ipf.ports.messages.sources import AuthKind, PolledSource, SourceAuth
from ipf.wire.client.source_client import SourceClient
from tests.pipeline.poll.simulated import API, SOURCE
from tests.wire.client.test_mapper_client import FakeService


class SourceClientTests(TestCase):
    def setUp(self) -> None:
        self.fake = FakeService()
        self.port = reactor.listenTCP(0, Site(self.fake), interface="127.0.0.1")  # type: ignore[attr-defined]
        self.addCleanup(self.port.stopListening)
        self.url = f"http://127.0.0.1:{self.port.getHost().port}"

    def client(self, source: PolledSource, **environ: str) -> SourceClient:
        client = SourceClient(source, environ, reactor)
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        return client

    async def test_headers_of_requests(self) -> None:
        auth = SourceAuth(AuthKind.BEARER, secret="EHR_TOKEN")
        source = replace(SOURCE, auth=auth, headers=(("X-Client", "a-${EHR_CLIENT}"),))
        self.fake.answers = [(200, b"{}"), (200, b"{}")]
        await self.client(source, EHR_TOKEN="abc\n", EHR_CLIENT="7").get(f"{self.url}/Patient")
        await self.client(API).get(f"{self.url}/patients")
        fhir, api = (headers for _, headers, _ in self.fake.requests)
        shown = {name: fhir.get(name) for name in ("accept", "prefer", "authorization", "x-client")}
        self.assertEqual(shown, {"accept": "application/fhir+json", "prefer": "handling=strict",
                                 "authorization": "Bearer abc", "x-client": "a-7"})  # fmt: skip
        self.assertEqual((api.get("accept"), api.get("authorization")), ("application/json", None))

    async def test_a_token_is_renewed_when_it_is_refused(self) -> None:
        auth = SourceAuth(AuthKind.SECRET, f"{self.url}/token", "me", "EHR_SECRET", "system/*.read")
        self.fake.answers = [(200, b"{}"), (401, b""), (200, b"{}"), (200, b"{}")]
        client = self.client(replace(SOURCE, auth=auth), EHR_SECRET="s&1")
        for _ in range(2):
            self.assertEqual((await client.get(f"{self.url}/Patient")).status, 200)
        self.assertEqual(self.fake.form, {"grant_type": ["client_credentials"], "client_id": ["me"],
                                          "client_secret": ["s&1"], "scope": ["system/*.read"]})  # fmt: skip
        sent = [headers.get("authorization") for _, headers, _ in self.fake.requests]
        self.assertEqual(sent, ["Bearer t1", "Bearer t1", "Bearer t2"])

    async def test_a_signed_assertion(self) -> None:
        """The key as PEM text, and as the name of a file."""
        key = rsa.generate_private_key(65537, 2048)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        folder = Path(tempfile.mkdtemp(prefix="ipf-key-"))
        self.addCleanup(rmtree, folder)
        (folder / "key.pem").write_text(pem)
        url = f"{self.url}/token"
        auth = SourceAuth(AuthKind.SIGNED, url, "${EHR_ID}", "EHR_KEY", key_id="k1", algorithm="RS384")
        for value in (pem, str(folder / "key.pem")):
            self.fake.answers = [(200, b"{}")]
            await self.client(replace(SOURCE, auth=auth), EHR_KEY=value, EHR_ID="me").get(f"{self.url}/Patient")
            (assertion,) = self.fake.form["client_assertion"]
            self.assertEqual(jwt.get_unverified_header(assertion)["kid"], "k1")
            claims = jwt.decode(assertion, key.public_key(), ["RS384"], audience=url)
            self.assertEqual((claims["iss"], claims["sub"]), ("me", "me"))
            self.assertLessEqual(claims["exp"] - claims["iat"], 300)

    async def test_what_is_missing_is_named(self) -> None:
        for auth, environ, text in (
            (SourceAuth(AuthKind.BEARER, secret="EHR_TOKEN"), {}, "EHR_TOKEN is not set"),
            (
                SourceAuth(AuthKind.SECRET, "http://h/t", "${EHR_ID}", "EHR_SECRET"),
                {"EHR_SECRET": "x"},
                "EHR_ID is not",
            ),
            (SourceAuth(AuthKind.BEARER, secret="EHR_TOKEN"), {"EHR_TOKEN": "ü"}, "EHR_TOKEN holds"),
            (SourceAuth(AuthKind.SIGNED, "http://h/t", "c", "EHR_KEY"), {"EHR_KEY": "/no/such"}, "EHR_KEY names"),
        ):
            with self.assertRaises(Problem) as raised:
                SourceClient(replace(SOURCE, auth=auth), environ, reactor)
            self.assertIn(text, str(raised.exception))
        auth = SourceAuth(AuthKind.SIGNED, f"{self.url}/token", "c", "EHR_KEY")
        client = self.client(replace(SOURCE, auth=auth), EHR_KEY="-----BEGIN NONSENSE")
        problem = await self.assertFailure(Deferred.fromCoroutine(client.get(self.url)), Problem)
        self.assertIn("cannot sign with RS384", problem.text)
