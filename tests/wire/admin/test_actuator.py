"""Health and metrics through a real listener, with components that succeed, fail and hang."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from treq.client import HTTPClient
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.resource import IResource, Resource
from twisted.web.server import Site

from ipf.telemetry import metrics
from ipf.wire.admin import actuator
from ipf.wire.admin.actuator import Component, Health
from ipf.wire.admin.metrics_access import MetricsAccess


async def up() -> None:
    return None


async def detailed() -> Mapping[str, Any]:
    return {"queue": 3}


async def down() -> None:
    raise ConnectionError("no database")


async def hanging() -> None:
    await Deferred()


class ActuatorTests(TestCase):
    def open(self, **components: Component) -> None:
        self.serve(actuator.resource(Health(components, reactor, 0.1), MetricsAccess()))

    def serve(self, resource: IResource) -> None:
        root = Resource()
        root.putChild(b"actuator", resource)
        port = reactor.listenTCP(0, Site(root), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        self.client = HTTPClient(Agent(reactor, pool=HTTPConnectionPool(reactor, persistent=False)))
        self.base = f"http://127.0.0.1:{port.getHost().port}/actuator"

    async def ask(self, path: str, method: str = "GET", token: str | None = None) -> tuple[int, bytes, Any]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        response = await self.client.request(method, self.base + path, headers=headers, reactor=reactor)
        return response.code, await response.content(), response.headers

    async def test_metrics_with_a_token(self) -> None:
        self.serve(actuator.resource(Health({}, reactor, 0.1), MetricsAccess("scrape")))
        for token, expected in ((None, 401), ("", 401), ("other", 401), ("scrape", 200)):
            status, body, headers = await self.ask("/prometheus", token=token)
            self.assertEqual((status, b"# HELP" in body), (expected, expected == 200), token)
            self.assertEqual(headers.getRawHeaders("www-authenticate"), ["Bearer"] if expected == 401 else None)
        self.assertEqual((await self.ask("/health"))[0], 200)

    async def test_metrics_on_a_listener_of_their_own(self) -> None:
        for token, rows in (
            (None, (("actuator", "/prometheus", 200), ("actuator", "/health", 404), ("metrics", "", 200))),
            ("scrape", (("actuator", "/prometheus", 401), ("metrics", "", 401), ("metrics", "/nothing", 404))),
        ):
            for mount, path, expected in rows:
                self.serve(actuator.metrics_mounts(MetricsAccess(token))[mount])
                self.assertEqual((await self.ask(path))[0], expected, (token, mount, path))
        self.serve(actuator.resource(Health({}, reactor, 0.1), None))
        self.assertEqual([(await self.ask(path))[0] for path in ("/prometheus", "/health")], [404, 200])

    async def test_all_up(self) -> None:
        self.open(inbox=Component(up), fhir=Component(detailed))
        status, body, headers = await self.ask("/health")
        self.assertEqual(status, 200)
        expected = {"inbox": {"status": "UP"}, "fhir": {"status": "UP", "details": {"queue": 3}}}
        self.assertEqual(json.loads(body), {"status": "UP", "components": expected})
        self.assertEqual(headers.getRawHeaders("content-type"), ["application/json"])
        self.assertEqual(len(headers.getRawHeaders("x-correlation-id")[0]), 36)

    async def test_a_required_component_takes_health_and_readiness_down(self) -> None:
        self.open(inbox=Component(down), fhir=Component(up))
        for path in ("/health", "/health/readiness"):
            status, body, _ = await self.ask(path)
            self.assertEqual((status, json.loads(body)["status"]), (503, "DOWN"), path)
        status, body, _ = await self.ask("/health/liveness")
        self.assertEqual((status, json.loads(body)), (200, {"status": "UP"}))

    async def test_a_downstream_component_is_shown_only(self) -> None:
        self.open(inbox=Component(up), mapping=Component(down, required=False))
        status, body, _ = await self.ask("/health")
        shown = json.loads(body)
        self.assertEqual((status, shown["status"]), (200, "UP"))
        self.assertEqual(shown["components"]["mapping"], {"status": "DOWN", "details": {"error": "no database"}})
        self.assertEqual((await self.ask("/health/readiness"))[0], 200)

    async def test_metrics(self) -> None:
        self.open()
        status, body, headers = await self.ask("/prometheus")
        self.assertEqual((status, headers.getRawHeaders("content-type")), (200, [metrics.CONTENT_TYPE]))
        self.assertIn(b"interface_engine_dlq_current_size", body)

    async def test_other_paths_and_methods(self) -> None:
        self.open()
        for method, path, expected in (("GET", "/nothing", 404), ("GET", "/", 404), ("POST", "/health", 405)):
            status, body, _ = await self.ask(path, method)
            self.assertEqual((status, list(json.loads(body))), (expected, ["error", "message"]))


class HealthTests(TestCase):
    def test_a_hanging_check_is_down_after_its_limit_and_does_not_hide_others(self) -> None:
        clock = Clock()
        health = Health({"inbox": Component(hanging), "fhir": Component(up)}, clock, 2.0)
        result = Deferred.fromCoroutine(health.health())
        self.assertNoResult(result)
        clock.advance(2.0)
        answer = self.successResultOf(result)
        body = json.loads(answer.body)
        self.assertEqual((answer.status, body["components"]["fhir"]), (503, {"status": "UP"}))
        error = body["components"]["inbox"]["details"]["error"]
        self.assertEqual(error, "no answer within 2 s")
        self.assertEqual(clock.getDelayedCalls(), [])
