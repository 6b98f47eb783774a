"""What web pages of other sites can do to a real service of a default installation: nothing."""

from __future__ import annotations

import http.client
import tempfile
from pathlib import Path
from shutil import rmtree

from twisted.trial.unittest import TestCase

from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE, free_port

GROUP = "flows"
EVIL = "evil.example"


class BrowserTests(TestCase):
    def status(
        self, service: ServiceProcess, method: str, path: str, *, port: int | None = None, **headers: str
    ) -> int:
        """The status of one request; `host` replaces the Host header, `port` that of the service."""
        connection = http.client.HTTPConnection("127.0.0.1", port or service.http_port, timeout=PATIENCE)
        try:
            connection.putrequest(method, path, skip_host="host" in headers)
            for name, value in {**headers, "content_length": "0"}.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            return connection.getresponse().status
        finally:
            connection.close()

    def started(self, folder: Path, **environment: str) -> ServiceProcess:
        service = ServiceProcess(folder, **environment)
        service.start()
        self.addCleanup(service.stop)
        service.wait_ready()
        return service

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ipf-browsers-"))
        self.folder.chmod(0o755)
        self.addCleanup(rmtree, self.folder, ignore_errors=True)

    def test_pages_of_other_sites(self) -> None:
        lab = free_port()
        service = self.started(self.folder, IPF_HL7_HTTP_LISTEN=f"lab=tcp:{lab}")
        self.assertEqual(self.status(service, "POST", "/", port=lab, host=EVIL), 421)
        self.assertNotEqual(self.status(service, "POST", "/", port=lab), 421)
        own = f"127.0.0.1:{service.http_port}"
        retry, read = ("POST", "/admin/dead-letters/retry"), ("GET", "/admin/messages")
        for (method, path), headers, expected in (
            (read, {"host": f"{EVIL}:{service.http_port}"}, 421),
            (("GET", "/fhir/Patient"), {"host": EVIL}, 421),
            (("GET", "/actuator/health"), {"host": EVIL}, 200),  # load balancers and probes have names of their own
            (("GET", "/fhir/Patient"), {"host": EVIL, "x_forwarded_host": own}, 421),
            (retry, {"origin": f"http://{EVIL}"}, 403),
            (("DELETE", "/fhir/Patient/1"), {"origin": "null"}, 403),
            (("GET", "/websocket"), {"origin": f"http://{EVIL}", "upgrade": "websocket", "connection": "Upgrade"}, 403),
            (retry, {"origin": f"http://{own}"}, 400),  # it has no body
            (read, {"origin": f"http://{EVIL}"}, 200),
            (read, {"host": f"localhost:{service.http_port}"}, 200),
            (read, {}, 200),
        ):
            self.assertEqual(self.status(service, method, path, **headers), expected, (method, path, headers))

    def test_named_hosts(self) -> None:
        service = self.started(self.folder, IPF_HOSTS="ehr.example.org")
        for host, expected in (("ehr.example.org", 200), ("EHR.example.org:443", 200), ("localhost", 200), (EVIL, 421)):
            self.assertEqual(self.status(service, "GET", "/admin/messages", host=host), expected, host)

    def test_a_named_interface_answers_for_any_host(self) -> None:
        port = ServiceProcess(self.folder).http_port
        service = ServiceProcess(self.folder, IPF_HTTP_LISTEN=f"tcp:{port}:interface=0.0.0.0")
        service.http_port = port
        service.start()
        self.addCleanup(service.stop)
        service.wait_ready()
        self.assertEqual(self.status(service, "GET", "/admin/messages", host="proxy.example"), 200)
        self.assertEqual(self.status(service, "POST", "/admin/mapping/reload", origin=f"http://{EVIL}"), 403)
