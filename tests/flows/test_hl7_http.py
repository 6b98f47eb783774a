"""HL7 v2 over HTTP, and batches over HTTP and MLLP."""

from __future__ import annotations

import re
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor

from tests.flows.engine import TOKEN, EngineTestCase, from_sender

FAMILY = "engine"
KIND = "application/hl7-v2"
BEARER = f"Bearer {TOKEN}"
BATCH = b"BHS|^~\\&|REG|HOSP|IPF|HUB|2026||||B1\r%sBTS|%d\r"


class Hl7OverHttpTests(EngineTestCase):
    def test_messages_and_what_is_none(self) -> None:
        message = from_sender("WEB", "H1", "WEB1")
        second = b"\x0b" + from_sender("WEB", "H2", "WEB2") + b"\x1c\r"
        for body, kind, method, path, status, expected in (
            (message, KIND, "POST", "/", 200, b"MSA|AA|H1"),
            (message, "x-application/hl7-v2+er7; charset=UTF-8", "POST", "/hl7", 200, b"MSA|AA|H1"),
            (message.replace(b"\r", b"\n"), KIND, "POST", "/", 200, b"MSA|AA|H1"),
            (second, KIND, "POST", "/", 200, b"MSA|AA|H2"),
            (message.replace(b"|H1|", b"||"), KIND, "POST", "/", 400, b"MSA|AR|"),
            (b"no message", KIND, "POST", "/", 400, b"MSA|AR"),
            (b"", KIND, "POST", "/", 400, b"the body must be"),
            (message, "application/hl7-v2+xml", "POST", "/", 415, b"XML is not read"),
            (message, "text/plain", "POST", "/", 415, b"application/hl7-v2"),
            (message, KIND + "; charset=klingon", "POST", "/", 415, b"klingon"),
            (b"", KIND, "GET", "/", 405, b"POST"),
            (message, KIND, "POST", "/fhir", 404, b""),
        ):
            found = self.post(self.engine.lab, body, kind, method, path, Authorization=BEARER)
            self.assertEqual((found[0], expected in found[1]), (status, True), (kind, method, path, found))
        self.assertEqual({(one["source_id"], one["source_protocol"]) for one in self.listed("source_system=WEB")},
                         {("H1", "OTHER"), ("H2", "OTHER")})  # fmt: skip
        self.counted()

    def counted(self) -> None:
        """With its protocol in both processes; no label has an address."""
        counted = (
            r'interface_engine_ingested_messages_total\{source_protocol="OTHER",source_system="WEB",status="%s"\} 2\.0'
        )

        def complete() -> str:
            text: str = self.ask("GET", "/actuator/prometheus")
            return text if all(re.search(counted % one, text) for one in ("RECEIVED", "DELIVERED")) else ""

        text = self.wait(complete, "both are counted")
        values = {value for line in text.splitlines() for value in re.findall(r'="([^"]*)"', line.partition(" ")[0])}
        self.assertEqual([one for one in values if re.search(r"://|\d+\.\d+\.\d+\.\d+|localhost|interface=", one)], [])

    def test_many_senders_and_batches_at_once(self) -> None:
        def posted(number: int) -> int:
            messages = [from_sender("MANY", f"B{number}-{one}", f"MANY{number}") for one in range(10)]
            batch = BATCH % (b"".join(messages), 10)
            status, body = self.post(self.engine.lab, batch, KIND, Authorization=BEARER)
            self.assertEqual(body.count(b"MSA|AA|"), 10)
            return status

        with ThreadPoolExecutor(8) as threads:
            self.assertEqual(set(threads.map(posted, range(8))), {200})
        self.assertEqual(len(self.listed("source_system=MANY")), 80)

    def test_a_token_is_asked_for(self) -> None:
        message = from_sender("ASKED", "H1", "WEB3")
        basic = b64encode(f"lab:{TOKEN}".encode()).decode()
        for given, status in (
            (BEARER, 200), (f"Basic {basic}", 200), ("Bearer x", 401), ("Basic !!", 401), ("", 401),
            (f"Basic {b64encode(TOKEN.encode()).decode()}", 401),
        ):  # fmt: skip
            found = self.post(self.engine.lab, message, KIND, Authorization=given)
            self.assertEqual(found[0], status, given)

    def test_a_network_that_may_not_connect(self) -> None:
        message = from_sender("CLOSED", "H1", "WEB4")
        self.assertEqual(self.post(self.engine.closed, message, KIND, Authorization=BEARER)[0], 403)
        self.assertEqual(self.listed("source_system=CLOSED"), [])

    def test_a_batch_over_mllp(self) -> None:
        first, second = (from_sender("BATCHED", id, "WEB5") for id in ("M1", "M2"))
        accepted, refused = map(b"\r".join, self.send(BATCH % (first + second, 2), BATCH % (first, 2)))
        self.assertEqual((accepted[:3], accepted.count(b"MSA|AA|"), b"BTS|2" in accepted), (b"BHS", 2, True))
        self.assertIn(b"BTS-1 says 2 messages, there are 1", refused)
        self.assertEqual({one["source_id"] for one in self.listed("source_system=BATCHED")}, {"M1", "M2"})
