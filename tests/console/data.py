"""A morning in a hospital, all invented: what the pages show in the walk over them and in the screenshots.

`seed` fills an engine that runs with `stage.SETTINGS`: messages of many kinds, converted and dead, some that a person
must decide about, rejected frames, a subscription that works and one that does not, a topic, a job.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from tests.service_process import ROOT, ServiceProcess
from tests.traffic.messages import END, VT
from tests.waiting import PATIENCE, block_until

Json = dict[str, Any]

CORPUS = ROOT / "tests/corpus"
NUMBER_SYSTEM = "urn:ipf:authority:HOSPITAL"


class Engine:
    """HTTP and MLLP requests to an engine."""

    def __init__(self, service: ServiceProcess) -> None:
        self.service = service

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """One request; the status and the decoded body, None without one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.service.http_port, timeout=PATIENCE)
        try:
            kind = "application/fhir+json" if path.startswith("/fhir") else "application/json"
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": kind, "Accept": "*/*"})
            answer = connection.getresponse()
            content_type, found = answer.headers.get("Content-Type") or "", answer.read()
            return answer.status, json.loads(found) if found and "json" in content_type else None
        finally:
            connection.close()

    def must(self, method: str, path: str, body: object = None) -> Any:
        """The body of a request that succeeds."""
        status, found = self.ask(method, path, body)
        assert 200 <= status < 300, f"{method} {path}: {status} {found}"
        return found

    def send(self, *messages: bytes) -> list[str]:
        """Send messages over MLLP; the acknowledgement code of each."""
        codes = []
        with socket.create_connection(("127.0.0.1", self.service.mllp_port), timeout=PATIENCE) as connection:
            for message in messages:
                connection.sendall(VT + message + END)
                answer = b""
                while not answer.endswith(END):
                    answer += connection.recv(65536) or _closed(answer)
                codes.append(answer.partition(b"MSA|")[2][:2].decode())
        return codes

    def settled(self) -> None:
        """Wait until nothing is being converted and nothing can be."""
        block_until(lambda: not self._busy(), "nothing is being converted")

    def _busy(self) -> bool:
        queue = self.must("GET", "/admin/observe/system")["queue"]
        return bool(queue["received"] or queue["transforming"])


class Subscriber:
    """The endpoints of subscribers: `/working` answers 200, `/broken` answers 500."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                """A notification."""
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(500 if self.path.startswith("/broken") else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_POST = do_PUT

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # the engine may drop connections
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        """Close it."""
        self._server.shutdown()
        self._server.server_close()


def _closed(answer: bytes) -> bytes:
    raise AssertionError(f"the connection was closed after {answer!r}")


def message(kind: str, id: str, *segments: str, sender: str = "WARD", facility: str = "HOSPITAL") -> bytes:
    """An HL7 v2.5.1 message of now."""
    now = datetime.now(UTC).strftime("%Y%m%d%H%M%S+0000")
    header = f"MSH|^~\\&|{sender}|{facility}|IPF|HOSPITAL|{now}||{kind}|{id}|P|2.5.1|||||||UNICODE UTF-8"
    return "".join(f"{one}\r" for one in (header, *segments)).encode()


def admission(id: str, number: str, family: str, given: str, phone: str = "") -> bytes:
    """An ADT^A01 with a next of kin, an allergy and a diagnosis."""
    day = (datetime.now(UTC) - timedelta(hours=3)).strftime("%Y%m%d%H%M%S+0000")
    return message(
        "ADT^A01^ADT_A01", id, f"EVN|A01|{day}",
        f"PID|1||{number}^^^HOSPITAL^MR||{family}^{given}||19580214|M|||Lindenstrasse 12^^Koeln^^50674^DE||{phone}|||M",
        "NK1|1|Gruen^Anna|SPO^Spouse^HL70063|Lindenstrasse 12^^Koeln^^50674^DE|0221 5550101",
        f"PV1|1|I|W3^12^A^HOSPITAL|R|||1234^Weber^Ruth^^^Dr.|||MED||||1|||1234^Weber^Ruth|IP|V{number}^^^HOSPITAL^VN"
        f"|||||||||||||||||||||||||{day}",
        "AL1|1|DA|7980^Penicillin^RXN|SV|Urticaria",
        f"DG1|1||I50.9^Heart failure, unspecified^I10||{day}|A", "ZBE|1|local note of the ward",
    )  # fmt: skip


def result(id: str, number: str, family: str, given: str, value: str) -> bytes:
    """An ORU^R01 of one panel; `value`: of OBX-5 of the first result."""
    day = datetime.now(UTC).strftime("%Y%m%d%H%M%S+0000")
    return message(
        "ORU^R01^ORU_R01", id, f"PID|1||{number}^^^HOSPITAL^MR||{family}^{given}||19580214|M",
        f"PV1|1|I|W3^12^A^HOSPITAL||||||||||||||||V{number}^^^HOSPITAL^VN",
        f"ORC|RE|PL{id}^WARD|FL{id}^LAB",
        f"OBR|1|PL{id}^WARD|FL{id}^LAB|24323-8^CMP^LN|||{day}|||||||||||||||{day}||CH|F",
        f"OBX|1|NM|2345-7^Glucose^LN||{value}|mg/dL|70-99|H|||F|||{day}",
        f"OBX|2|NM|2160-0^Creatinine^LN||1.1|mg/dL|0.7-1.3|N|||F|||{day}",
        sender="LAB",
    )  # fmt: skip


def corpus() -> Iterable[bytes]:
    """Messages of the conversion tests, of as many kinds."""
    for path in sorted(CORPUS.glob("*.hl7")):
        yield path.read_bytes().replace(b"\r\n", b"\r").replace(b"\n", b"\r")


PEOPLE = (("Gruen", "Juergen"), ("Hansen", "Kari"), ("Okafor", "Ada"), ("Moreau", "Luc"), ("Nowak", "Ewa"))


def seed(engine: Engine, working: str, broken: str) -> None:
    """Everything.  `working`, `broken`: endpoints of subscribers."""
    subscriptions = subscribe(engine, working, broken)
    engine.send(*(admission(f"A{n}", f"4711{n}", *PEOPLE[n % 5], f"0221 55501{n:02}") for n in range(12)))
    engine.send(*(result(f"R{n}", f"4711{n}", *PEOPLE[n % 5], f"{90 + 7 * n}") for n in range(12)))
    engine.send(*corpus())
    engine.send(*(message("ZDM^Z01", f"Z{n}", "ZDM|1|nothing maps this", sender="PUMPS") for n in range(3)))
    assert engine.send(b"this is no HL7", b"MSH|^~\\&|X|\r") == ["AR", "AR"]
    ambiguous(engine)
    engine.settled()
    block_until(lambda: engine.must("GET", "/admin/unread-fields")["total"] > 0, "unread fields")
    cause = engine.must("GET", "/admin/dead-letters/errors")["items"][0]
    engine.must("POST", "/admin/dead-letters/retry", {"fingerprint": cause["fingerprint"]})
    engine.settled()
    block_until(lambda: _status(engine, subscriptions[1]) == "error", "the broken subscriber is noticed")


def ambiguous(engine: Engine) -> None:
    """Two Patients with one number, and messages that wait until a person says which of them is meant."""
    for birth in ("1958-02-14", "1985-02-14"):
        identifier = {"system": NUMBER_SYSTEM, "value": "90210", "type": {"coding": [{"code": "MR"}]}}
        name = [{"family": "Berg", "given": ["Nils"]}]
        engine.must("POST", "/fhir/Patient", {"resourceType": "Patient", "identifier": [identifier], "name": name,
                                              "birthDate": birth})  # fmt: skip
    engine.send(*(admission(f"AMB-{n}", "90210", "Berg", "Nils") for n in range(2)))


def subscribe(engine: Engine, working: str, broken: str) -> Sequence[str]:
    """The ids of a subscription that works and of one that does not; there is a topic too."""
    ids = []
    for criteria, endpoint in (("Patient?", working), ("Observation?code=2345-7", broken)):
        channel = {"type": "rest-hook", "endpoint": endpoint, "payload": "application/fhir+json",
                   "header": ["Authorization: Bearer invented"]}  # fmt: skip
        body = {"resourceType": "Subscription", "status": "requested", "reason": "the ward's board",
                "criteria": criteria, "channel": channel}  # fmt: skip
        ids.append(engine.must("POST", "/fhir/Subscription", body)["id"])
    for id in ids:
        block_until(lambda id=id: _status(engine, id) != "requested", "the subscription is active")  # type: ignore[misc]
    topic = {"resourceType": "SubscriptionTopic", "id": "admissions", "url": "http://example.org/topics/admissions",
             "status": "active", "title": "Admissions", "resourceTrigger": [{
                 "resource": "Encounter", "supportedInteraction": ["create"]}]}  # fmt: skip
    engine.must("PUT", "/fhir/SubscriptionTopic/admissions", topic)
    return ids


def _status(engine: Engine, id: str) -> str:
    return str(engine.must("GET", f"/fhir/Subscription/{id}")["status"])
