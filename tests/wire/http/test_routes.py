"""Routes are a bounded set, whatever paths clients request."""

from __future__ import annotations

import re
from typing import Any

from treq.client import HTTPClient
from twisted.internet import reactor
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent

from ipf.telemetry import metrics
from ipf.wire.admin import app as admin
from ipf.wire.admin.access import AdminAccess
from ipf.wire.admin.route import Mounted
from ipf.wire.http import routes
from ipf.wire.http.routes import MAX_ROUTES, OTHER, route_of
from ipf.wire.http.site import site
from ipf.wire.observe import app as observe
from ipf.wire.reference.table import ADMIN, OBSERVE

CASES = [
    ("/fhir/Patient/123", 200, "/fhir/{type}/{id}"),
    ("/fhir/Patient/123/_history/4", 200, "/fhir/{type}/{id}/_history/{id}"),
    ("/fhir/Patient/1/$everything", 200, "/fhir/{type}/{id}/{operation}"),
    ("/fhir/Patient/", 201, "/fhir/{type}"),
    ("/fhir", 200, "/fhir"),
    ("/fhir/metadata", 200, "/fhir/metadata"),
    ("/actuator/health/liveness", 200, "/actuator/health/liveness"),
    ("/fhir/Patient", 405, OTHER),
    ("/wp-login.php", 404, OTHER),
    ("/fhir/M\xfcller", 400, "/fhir/{id}"),
]


class RoutesTests(TestCase):
    def test_routes(self) -> None:
        for path, status, expected in CASES:
            found = route_of([segment.encode("latin-1") for segment in path.split("/")[1:]], status)
            self.assertEqual(found, expected, path)

    async def test_operations_of_the_table(self) -> None:
        """Every operation of the operator API has the label of its row, from the socket to the metrics."""
        access: Any = AdminAccess(None)
        answered: list[tuple[str, int]] = []
        self.patch(metrics, "http_answered", lambda route, method, status, seconds: answered.append((route, status)))
        nothing: Any = None  # the handlers fail, which is beside the point
        observed = observe.resource(nothing, access.check, {})
        found = admin.resource(access, [Mounted(ADMIN, None)], below={"observe": observed})
        port = reactor.listenTCP(0, site({"admin": found}), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        client = HTTPClient(Agent(reactor))
        for route in (*ADMIN, *OBSERVE):
            path = re.sub(r"\{\w+\}", "7", route.path)
            url = f"http://127.0.0.1:{port.getHost().port}/admin{path}"
            await (await client.request(route.method, url, headers={"Connection": "close"})).content()
            label, status = answered.pop()
            self.assertEqual(label, OTHER if status in (404, 405) else f"/admin{route.path}", route)
        self.flushLoggedErrors()

    def test_the_number_of_routes_is_bounded(self) -> None:
        self.patch(routes, "_known", set())
        words = sorted(routes._WORDS)
        found = {
            route_of([one.encode(), two.encode()], 200) for one in words for two in words
        }  # fmt: skip
        self.assertLessEqual(len(found), MAX_ROUTES + 1)
        self.assertIn(OTHER, found)
