"""The client of a remote mapping service, against a real listener: requests, and the meaning of responses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from ipf.errors import Category, Problem
from ipf.ports import Claimed, UnmappedCode
from ipf.telemetry.correlation import traceparent
from ipf.wire.client.mapper_client import RemoteMapper
from ipf.wire.client.remote_service import Credentials, RemoteService
from tests.pipeline.convert import test_convert
from tests.waiting import PATIENCE

BUNDLE = {"resourceType": "Bundle", "type": "transaction", "entry": []}
OUTCOME = {"resourceType": "OperationOutcome", "issue": [{"code": "processing", "diagnostics": "map:7:23: no"}]}
Behave = Callable[[Any], Any]
RAW = b"MSH|^~\\&|A|B|C|D|2026||ADT^A01|7|P|2.5\rPID|||1^^^B^MR\r"


def message(id: int, raw: bytes = RAW) -> Claimed:
    """A message that a worker has claimed."""
    return replace(test_convert.message(id), raw=raw)


class FakeService(Resource):
    """Answers as the test says and stores the requests."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[Any] = []
        self.tokens = 0

    def render(self, request: Any) -> Any:
        headers = {
            name.decode().lower(): values[0].decode() for name, values in request.requestHeaders.getAllRawHeaders()
        }
        body = request.content.read()
        if request.path == b"/token":
            self.tokens += 1
            self.form = parse_qs(body.decode())
            return json.dumps({"access_token": f"t{self.tokens}", "expires_in": 900}).encode()
        self.requests.append((request.uri.decode(), headers, body))
        status, answer, *more = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if status == 0:
            return NOT_DONE_YET
        request.setResponseCode(status)
        for name, value in more:
            request.setHeader(name, value)
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()


class RemoteMapperTests(TestCase):
    def setUp(self) -> None:
        self.service = FakeService()
        self.port = reactor.listenTCP(0, Site(self.service), interface="127.0.0.1")  # type: ignore[attr-defined]
        self.addCleanup(self.port.stopListening)
        self.base = f"http://127.0.0.1:{self.port.getHost().port}"

    def mapper(
        self,
        *,
        timeout: float = PATIENCE,
        answers: Any = None,
        canonical: str | None = "urn:m|1",
        secured: bool = False,
    ) -> RemoteMapper:
        """The client, closed when the test ends."""
        credentials = Credentials(f"{self.base}/token", "me", "secret", "system/*.c") if secured else None
        remote = RemoteService(reactor, timeout, "the mapping service", credentials)
        self.addCleanup(lambda: Deferred.fromCoroutine(remote.close()))

        async def known(_: object) -> Any:
            return answers

        return RemoteMapper(remote, f"{self.base}/mapping/fhir/", lambda _: canonical, known)

    async def refused(self, mapper: RemoteMapper) -> Problem:
        """The Problem of a transform."""
        work = Deferred.fromCoroutine(mapper.transform(message(1)))
        return await self.assertFailure(work, Problem)  # type: ignore[no-any-return]

    async def test_request_and_response(self) -> None:
        """The message bytes, the canonical of the map, the correlation id; unmapped codes are returned."""
        self.service.answers = [(200, BUNDLE, ("X-Ipf-Unmapped", '[["urn:t", "W"]]'))]
        mapped = await self.mapper().transform(message(1))
        self.assertEqual((mapped.bundle, mapped.map_url), (BUNDLE, "urn:m|1"))
        self.assertEqual(mapped.unmapped, (UnmappedCode("urn:t", "W"),))
        uri, headers, body = self.service.requests[0]
        self.assertEqual((uri, body), ("/mapping/fhir/StructureMap/$transform?source=urn%3Am%7C1", RAW))
        self.assertEqual(headers["content-type"], "x-application/hl7-v2+er7;charset=utf-8")
        self.assertEqual(headers["x-correlation-id"], message(1).correlation_id)
        self.assertEqual(headers["traceparent"], traceparent(message(1).correlation_id))
        self.assertNotIn("authorization", headers)
        self.assertTrue(self.mapper().has_map("ZZZ_Z99"))
        self.service.answers = [(200, BUNDLE)]
        await self.mapper(canonical=None).transform(message(1))
        self.assertEqual(self.service.requests[1][0], "/mapping/fhir/StructureMap/$transform")

    async def test_what_no_service_need_see(self) -> None:
        """A message without a patient is not sent."""
        work = Deferred.fromCoroutine(self.mapper().transform(message(1, RAW.partition(b"PID")[0])))
        problem = await self.assertFailure(work, Problem)
        self.assertEqual((problem.category, self.service.requests), (Category.REQUIRED, []))

    async def test_code_mappings_of_operators_are_sent(self) -> None:
        """As ConceptMaps in a Parameters resource; None: a code without a target."""
        self.service.answers = [(200, BUNDLE)]
        answers = {"urn:t": {"W": {"system": "urn:s", "code": "f"}, "N": None}}
        await self.mapper(answers=answers).transform(message(1))
        parts = json.loads(self.service.requests[0][2])["parameter"]
        self.assertEqual(parts[0], {"name": "content", "valueString": RAW.decode()})
        groups = parts[1]["resource"]["group"]
        self.assertEqual(groups[0]["target"], "urn:s")
        self.assertEqual(groups[1]["element"][0]["target"], [{"equivalence": "unmatched"}])

    async def test_meaning_of_responses(self) -> None:
        """Unreachable or too busy: UPSTREAM; refused: MAPPING, with the diagnostics of the OperationOutcome."""
        for status, body, category, text in [
            (500, b"oops", Category.UPSTREAM, "answered 500"),
            (429, b"", Category.UPSTREAM, "answered 429"),
            (302, b"", Category.UPSTREAM, "answered 302"),
            (422, OUTCOME, Category.MAPPING, "answered 422: map:7:23: no"),
            (404, b"<html>", Category.UPSTREAM, "answered 404"),
            (200, b"<html>", Category.UPSTREAM, "no JSON"),
            (200, OUTCOME, Category.MAPPING, "Bundle"),
            (0, b"", Category.UPSTREAM, "no answer within"),
        ]:
            self.service.answers = [(status, body)]
            problem = await self.refused(self.mapper(timeout=0.3 if status == 0 else PATIENCE))
            self.assertIs(problem.category, category, str(problem))
            self.assertIn(text, str(problem))
        await self.port.stopListening()
        problem = await self.refused(self.mapper())
        self.assertEqual((problem.category, "refused" in str(problem)), (Category.UPSTREAM, True), str(problem))

    async def test_client_credentials(self) -> None:
        """One token for many messages; a refused token is fetched again, once."""
        self.service.answers = [(200, BUNDLE)]
        mapper = self.mapper(secured=True)
        for _ in range(3):
            await mapper.transform(message(1))
        self.assertEqual({headers["authorization"] for _, headers, _ in self.service.requests}, {"Bearer t1"})
        expected = {"grant_type": ["client_credentials"], "client_id": ["me"], "client_secret": ["secret"]}
        self.assertEqual(self.service.form, expected | {"scope": ["system/*.c"]})
        self.service.answers = [(401, b""), (200, BUNDLE)]
        await mapper.transform(message(1))
        self.assertEqual(self.service.requests[-1][1]["authorization"], "Bearer t2")
        self.service.answers = [(401, b"")]
        self.assertIs((await self.refused(mapper)).category, Category.UPSTREAM)
        self.assertEqual(self.service.tokens, 3)
