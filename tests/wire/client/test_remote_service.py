"""The client of a remote service, against a real listener: limits and failures."""

from __future__ import annotations

from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase
from twisted.web.server import Site

from ipf.errors import Category, Problem
from ipf.wire.client.http_client import HEADER_LIMIT
from ipf.wire.client.remote_service import RemoteService, Response
from tests.waiting import PATIENCE, free_port, until
from tests.wire.client.test_mapper_client import FakeService


class RemoteServiceTests(TestCase):
    def setUp(self) -> None:
        self.fake = FakeService()
        self.port = reactor.listenTCP(0, Site(self.fake), interface="127.0.0.1")  # type: ignore[attr-defined]
        self.addCleanup(self.port.stopListening)
        self.service = RemoteService(reactor, PATIENCE, "the service", body_limit=1000)
        self.addCleanup(lambda: Deferred.fromCoroutine(self.service.close()))

    def get(self, url: str = "") -> Deferred[Response]:
        return Deferred.fromCoroutine(self.service.get(url or f"http://127.0.0.1:{self.port.getHost().port}/", {}))

    async def arrived(self, count: int) -> None:
        await until(lambda: len(self.fake.requests) >= count, f"request {count}")

    async def test_a_response_within_the_limit(self) -> None:
        self.fake.answers = [(200, b"x" * 1000, ("X-Kind", "A"))]
        response = await self.get()
        self.assertEqual((response.status, response.headers["x-kind"], len(response.body)), (200, "A", 1000))

    async def test_a_response_that_is_too_large(self) -> None:
        self.fake.answers = [(200, b"x" * (HEADER_LIMIT + 1000))]
        problem = await self.assertFailure(self.get(), Problem)
        self.assertEqual(problem.category, Category.UPSTREAM)
        self.assertEqual(problem.text, "no response from the service: the response is too large")

    async def test_failures(self) -> None:
        for url, text in (
            (f"http://127.0.0.1:{free_port()}/", "connection refused"),
            ("ftp://127.0.0.1/", "the endpoint is no usable http or https URL"),
            ("http://", "the endpoint is no usable http or https URL"),
        ):
            problem = await self.assertFailure(self.get(url), Problem)
            self.assertEqual(problem.text, f"no response from the service: {text}", url)

    async def test_time_limits(self) -> None:
        """That of the service, or that of the request."""
        clock = Clock()
        service = RemoteService(reactor, 30, "the service", clock=clock)
        self.addCleanup(lambda: Deferred.fromCoroutine(service.close()))
        self.fake.answers = [(0, b""), (0, b"")]
        for number, (given, limit) in enumerate(((None, 30), (300.0, 300)), 1):
            url = f"http://127.0.0.1:{self.port.getHost().port}/"
            waiting = Deferred.fromCoroutine(service.request("POST", url, b"", {}, given))
            await self.arrived(number)
            clock.advance(limit - 1)
            self.assertNoResult(waiting)
            clock.advance(2)
            problem = await self.assertFailure(waiting, Problem)
            self.assertEqual(problem.category, Category.UPSTREAM)

    async def test_cancelling(self) -> None:
        self.fake.answers = [(0, b"")]
        getting = self.get()
        await self.arrived(1)
        getting.cancel()
        await self.assertFailure(getting, CancelledError)
