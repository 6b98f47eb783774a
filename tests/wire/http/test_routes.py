"""Routes are a bounded set, whatever paths clients request."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.wire.http import routes
from ipf.wire.http.routes import MAX_ROUTES, OTHER, route_of

CASES = [
    ("/fhir/Patient/123", 200, "/fhir/{type}/{id}"),
    ("/fhir/Patient/123/_history/4", 200, "/fhir/{type}/{id}/_history/{id}"),
    ("/fhir/Patient/1/$everything", 200, "/fhir/{type}/{id}/{operation}"),
    ("/fhir/Patient/", 201, "/fhir/{type}"),
    ("/fhir", 200, "/fhir"),
    ("/fhir/metadata", 200, "/fhir/metadata"),
    ("/admin/messages/17/retry", 409, "/admin/messages/{id}/retry"),
    ("/admin/observe/trace/6f1e1b5e", 200, "/admin/observe/trace/{id}"),
    ("/admin/observe/trace/6f1e1b5e", 404, OTHER),
    ("/fhir/Patient", 405, OTHER),
    ("/wp-login.php", 404, OTHER),
    ("/fhir/M\xfcller", 400, "/fhir/{id}"),
]


class RoutesTests(TestCase):
    def test_routes(self) -> None:
        for path, status, expected in CASES:
            found = route_of([segment.encode("latin-1") for segment in path.split("/")[1:]], status)
            self.assertEqual(found, expected, path)

    def test_the_number_of_routes_is_bounded(self) -> None:
        self.patch(routes, "_known", set())
        words = sorted(routes._WORDS)
        found = {
            route_of([one.encode(), two.encode()], 200) for one in words for two in words
        }  # fmt: skip
        self.assertLessEqual(len(found), MAX_ROUTES + 1)
        self.assertIn(OTHER, found)
