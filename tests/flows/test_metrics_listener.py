"""Metrics on a listener of their own, with a token, of a real service."""

from __future__ import annotations

import http.client
import tempfile
from pathlib import Path
from shutil import rmtree

from twisted.trial.unittest import TestCase

from tests.flows.few_maps import few_maps
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE, free_port

GROUP = "flows"
METRICS, SHORT, HEALTH = "/actuator/prometheus", "/metrics", "/actuator/health/liveness"
TOKEN, WRONG = "scrape-0123456789", "wrong-0123456789"
OF_A_LISTENER = {
    TOKEN: (
        (METRICS, TOKEN, "evil.example", 200),
        (SHORT, TOKEN, "evil.example", 200),
        (METRICS, WRONG, "localhost", 401),
        (SHORT, WRONG, "localhost", 401),
        (METRICS, None, "localhost", 401),
        (SHORT, None, "localhost", 401),
    ),
    "": (
        (METRICS, None, "localhost", 200),
        (SHORT, None, "localhost", 200),
        (METRICS, None, "evil.example", 421),
        (SHORT, None, "evil.example", 421),
    ),
}
NOT_THERE = ((HEALTH, TOKEN, "localhost", 404), ("/admin", TOKEN, "localhost", 404), ("/fhir", TOKEN, "localhost", 404))


def answer(port: int, path: str, token: str | None = None, host: str = "localhost") -> tuple[int, str | None, bytes]:
    """Status, challenge and body of one GET."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        headers = {"Host": host} | ({} if token is None else {"Authorization": f"Bearer {token}"})
        connection.request("GET", path, headers=headers)
        found = connection.getresponse()
        return found.status, found.getheader("WWW-Authenticate"), found.read()
    finally:
        connection.close()


class MetricsListenerTests(TestCase):
    def service(self, **environment: str) -> ServiceProcess:
        folder = Path(tempfile.mkdtemp(prefix="ipf-metrics-"))
        folder.chmod(0o755)
        self.addCleanup(rmtree, folder, ignore_errors=True)
        service = ServiceProcess(folder, IPF_MAPS_DIR=str(few_maps()), **environment)
        service.start()
        self.addCleanup(service.stop)
        service.wait_ready()
        return service

    def check(self, port: int, path: str, token: str | None, host: str, expected: int) -> None:
        status, challenge, body = answer(port, path, token, host)
        place = (port, path, token, host)
        self.assertEqual((status, b"# HELP" in body), (expected, expected == 200), place)
        self.assertEqual(challenge, "Bearer" if expected == 401 else None, place)

    def test_a_listener_with_a_token_and_one_without(self) -> None:
        for token, rows in OF_A_LISTENER.items():
            port = free_port()
            service = self.service(IPF_METRICS_LISTEN=f"tcp:{port}", IPF_METRICS_TOKEN=token)
            for path, sent, host, expected in (*rows, *NOT_THERE):
                self.check(port, path, sent, host, expected)
            for path in (METRICS, SHORT):
                self.check(service.http_port, path, TOKEN, "localhost", 404)
            self.assertEqual(answer(service.http_port, HEALTH)[0], 200, token)
            service.stop()
            self.check_log(service)

    def test_a_token_on_the_main_listener(self) -> None:
        """It comes from a file, and health needs none."""
        secret = Path(self.mktemp())
        secret.write_text(f"{TOKEN}\n")
        secret.chmod(0o600)
        service = self.service(IPF_METRICS_TOKEN_FILE=str(secret.absolute()))
        for token, expected in ((TOKEN, 200), (WRONG, 401), (None, 401)):
            self.check(service.http_port, METRICS, token, "localhost", expected)
        for path in (HEALTH, "/actuator/health", "/actuator/health/readiness"):
            self.assertEqual(answer(service.http_port, path)[0], 200, path)
        service.stop()
        self.check_log(service)

    def check_log(self, service: ServiceProcess) -> None:
        """Neither the token nor what a stranger sends for it is logged."""
        log = service.log_path.read_text()
        self.assertIn("listens on", log)
        for secret in (TOKEN, WRONG):
            self.assertNotIn(secret, log)
