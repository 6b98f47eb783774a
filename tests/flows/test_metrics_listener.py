"""Metrics on a listener of their own, with a token, of a real service."""

from __future__ import annotations

import http.client
import tempfile
from pathlib import Path
from shutil import rmtree

from twisted.trial.unittest import TestCase

from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE, free_port

METRICS, HEALTH = "/actuator/prometheus", "/actuator/health/liveness"


def status(port: int, path: str, token: str = "", host: str = "localhost") -> int:
    """The status of one GET."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers={"Host": host, "Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    finally:
        connection.close()


class MetricsListenerTests(TestCase):
    timeout = PATIENCE

    def test_a_listener_with_a_token_and_one_without(self) -> None:
        for token, rows in (
            ("scrape", ((METRICS, "scrape", "evil.example", 200), (METRICS, "", "localhost", 401))),
            ("", ((METRICS, "", "localhost", 200), (METRICS, "", "evil.example", 421))),
        ):
            folder = Path(tempfile.mkdtemp(prefix="ipf-metrics-"))
            folder.chmod(0o755)
            self.addCleanup(rmtree, folder, ignore_errors=True)
            port = free_port()
            service = ServiceProcess(folder, IPF_METRICS_LISTEN=f"tcp:{port}", IPF_METRICS_TOKEN=token)
            service.start()
            self.addCleanup(service.stop)
            service.wait_ready()
            for path, sent, host, expected in (*rows, (HEALTH, "", "localhost", 404), ("/admin", "", "localhost", 404)):
                self.assertEqual(status(port, path, sent, host), expected, (token, path, sent, host))
            main = service.http_port
            self.assertEqual([status(main, METRICS, "scrape"), status(main, HEALTH)], [404, 200], token)
            service.stop()
