"""HL7 v2 over HTTP and batches over MLLP, of a real service."""

from __future__ import annotations

import http.client
import re
import tempfile
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import rmtree

from hl7.client import MLLPClient
from twisted.trial.unittest import TestCase

from tests.faults.feed import admission
from tests.service_process import ServiceProcess
from tests.waiting import PATIENCE, free_port

KIND = "application/hl7-v2"
TOKEN = "sender-0123456789"
BATCH = b"BHS|^~\\&|REG|HOSP|IPF|HUB|2026||||B1\r%sBTS|%d\r"


class Sender:
    """Posts to one port."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __call__(
        self, body: bytes, kind: str = KIND, method: str = "POST", path: str = "/", **headers: str
    ) -> tuple[int, bytes]:
        """Status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, {"Content-Type": kind} | headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


class Hl7OverHttpTests(TestCase):
    timeout = PATIENCE

    def service(self, **environment: str) -> tuple[ServiceProcess, Sender]:
        """A service with a listener `lab` of HL7 over HTTP."""
        folder = Path(tempfile.mkdtemp(prefix="ipf-hl7-http-"))
        folder.chmod(0o755)
        self.addCleanup(rmtree, folder, ignore_errors=True)
        port = free_port()
        service = ServiceProcess(folder, IPF_HL7_HTTP_LISTEN=f"lab=tcp:{port}", **environment)
        service.start()
        self.addCleanup(service.stop)
        service.wait_ready()
        return service, Sender(port)

    def test_messages_and_what_is_none(self) -> None:
        service, send = self.service()
        message = admission("H1", "P1", "+471")
        for body, kind, method, path, status, expected in (
            (message, KIND, "POST", "/", 200, b"MSA|AA|H1"),
            (message, "x-application/hl7-v2+er7; charset=UTF-8", "POST", "/hl7", 200, b"MSA|AA|H1"),
            (message.replace(b"\r", b"\n"), KIND, "POST", "/", 200, b"MSA|AA|H1"),
            (b"\x0b" + admission("H2", "P2", "+472") + b"\x1c\r", KIND, "POST", "/", 200, b"MSA|AA|H2"),
            (message.replace(b"|H1|", b"||"), KIND, "POST", "/", 400, b"MSA|AR|"),
            (b"no message", KIND, "POST", "/", 400, b"MSA|AR"),
            (b"", KIND, "POST", "/", 400, b"the body must be"),
            (message, "application/hl7-v2+xml", "POST", "/", 415, b"XML is not read"),
            (message, "text/plain", "POST", "/", 415, b"application/hl7-v2"),
            (message, KIND + "; charset=klingon", "POST", "/", 415, b"klingon"),
            (b"", KIND, "GET", "/", 405, b"POST"),
            (message, KIND, "POST", "/fhir", 404, b""),
        ):
            found = send(body, kind, method, path)
            self.assertEqual((found[0], expected in found[1]), (status, True), (kind, method, path, found))
        self.assertEqual(send(message, Host="evil.example")[0], 421)
        self.assertEqual(self.rows(service), {"H1", "H2"})
        self.assertEqual(service.get("/admin/messages")[1]["items"][0]["source_protocol"], "OTHER")
        self._delivered(service)

    def _delivered(self, service: ServiceProcess) -> None:
        """Counted with its protocol in both processes; no label has an address."""
        counted = (
            r'interface_engine_ingested_messages_total\{source_protocol="OTHER",source_system="\w+",status="%s"\} 2\.0'
        )
        deadline = time.monotonic() + PATIENCE
        while True:
            text = service.get("/actuator/prometheus")[1]
            if all(re.search(counted % status, text) for status in ("RECEIVED", "DELIVERED")):
                break
            self.assertLess(time.monotonic(), deadline)
        values = {value for line in text.splitlines() for value in re.findall(r'="([^"]*)"', line.partition(" ")[0])}
        self.assertIn("OTHER", values)
        self.assertEqual([one for one in values if re.search(r"://|\d+\.\d+\.\d+\.\d+|localhost|interface=", one)], [])

    def test_many_senders_and_batches_at_once(self) -> None:
        service, send = self.service()

        def posted(number: int) -> int:
            messages = [admission(f"B{number}-{one}", f"P{number}", f"+47{one}") for one in range(10)]
            status, body = send(BATCH % (b"".join(messages), 10))
            self.assertEqual(body.count(b"MSA|AA|"), 10)
            return status

        with ThreadPoolExecutor(16) as threads:
            self.assertEqual(set(threads.map(posted, range(30))), {200})
        total = service.get("/admin/messages?limit=1")[1]["total"]
        self.assertEqual(total, 300)

    def test_a_token_is_asked_for(self) -> None:
        _, send = self.service(IPF_HL7_HTTP_TOKEN=TOKEN)
        message = admission("H1", "P1", "+471")
        basic = b64encode(f"lab:{TOKEN}".encode()).decode()
        for given, status in (
            (f"Bearer {TOKEN}", 200), (f"Basic {basic}", 200), ("Bearer x", 401), ("Basic !!", 401), ("", 401),
            (f"Basic {b64encode(TOKEN.encode()).decode()}", 401),
        ):  # fmt: skip
            self.assertEqual(send(message, Authorization=given)[0], status, given)

    def test_networks_and_tenants(self) -> None:
        service, send = self.service(IPF_MLLP_ALLOW="lab=10.9.8.0/24")
        self.assertEqual(send(admission("H1", "P1", "+471"))[0], 403)
        self.assertEqual(self.rows(service), set())

    def test_a_batch_over_mllp(self) -> None:
        service, _ = self.service()
        with MLLPClient("127.0.0.1", service.mllp_port) as client:
            messages = b"".join(admission(id, "P1", "+471").strip(b"\x0b\x1c\r") + b"\r" for id in ("M1", "M2"))
            answer = client.send_message(BATCH % (messages, 2))
            self.assertEqual((answer[1:4], answer.count(b"MSA|AA|"), b"BTS|2" in answer), (b"BHS", 2, True))
            answer = client.send_message(BATCH % (messages.partition(b"\rMSH")[0] + b"\r", 2))
            self.assertIn(b"BTS-1 says 2 messages, there are 1", answer)
        self.assertEqual(self.rows(service), {"M1", "M2"})

    def rows(self, service: ServiceProcess) -> set[str]:
        """MSH-10 of what is stored."""
        return {one["source_id"] for one in service.get("/admin/messages?limit=100")[1]["items"]}
