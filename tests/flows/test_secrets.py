"""Marked secrets and marked patient data go through every path; no log line, metric or stranger's answer has them.

The service runs as it is installed, with its log level at INFO.  Whatever carries `PHIMARK` came from a patient's
record, whatever carries `SECMARK` is a secret.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import LIMIT, run
from tests.faults.scenario import Scenario
from tests.flows.test_end_to_end import answer_to
from tests.service_process import ServiceProcess
from tests.waiting import free_port, until

GROUP = "flows"
PHI, SECRET = "PHIMARK", "SECMARK"
SETTINGS = {
    "IPF_ADMIN_AUTH_TOKEN": f"{SECRET}-admin-0123456789",
    "IPF_ADMIN_READ_TOKEN": f"{SECRET}-reader-0123456789",
    "IPF_SECRET_KEY": f"{SECRET}-key-0123456789-0123456789",
    "SUBSCRIPTION_SERVICE_SIGNING_SECRET": f"{SECRET}-signing-0123456789",
    "IPF_SMTP_URL": f"smtp://mailer:{SECRET}mail@127.0.0.1:1?from=ipf@example.org",
    "IPF_BROKERS": f"nats://ipf:{SECRET}nats@127.0.0.1:1 kafka://ipf:{SECRET}kafka@127.0.0.1:2/fhir.* "
    f"amqp://ipf:{SECRET}amqp@127.0.0.1:3",
    "IPF_MAX_ATTEMPTS": "2",
    "IPF_BACKOFF_BASE_MS": "10",
    "IPF_PASSTHROUGH_TYPES": "ADT_A04",
    "SUBSCRIPTION_SERVICE_DELIVERY_MAX_ATTEMPTS": "2",
    "SUBSCRIPTION_SERVICE_DELIVERY_BACKOFF_BASE_MS": "10",
    "SUBSCRIPTION_SERVICE_VALIDATION_MODE": "warn",
    "SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_READS": "true",
    "SUBSCRIPTION_SERVICE_AUDIT_CAPTURE_SEARCH": "true",
}
_PID = f"PID|1||{PHI}mrn^^^GENERAL^MR||{PHI}family^{PHI}given||19700315|F|||{PHI}street^^{PHI}city||{PHI}phone"


def message(control_id: str, kind: str, *segments: str, sender: str = "FEED") -> bytes:
    """A frame with the marked patient."""
    head = f"MSH|^~\\&|{sender}|GENERAL|IPF|IPF|20260102030405||{kind}|{control_id}|P|2.5.1"
    return ("\x0b" + "\r".join((head, _PID, *segments)) + "\r\x1c\r").encode()


_VISIT = f"PV1|1|I|{PHI}ward^301||||D1^{PHI}doctor"
MESSAGES = {
    "good": message("S1", "ADT^A01^ADT_A01", _VISIT),
    "a result": message(
        "S2", "ORU^R01^ORU_R01", f"OBR|1|||{PHI}code^{PHI}text", f"OBX|1|NM|{PHI}obs||{PHI}number||||||F"
    ),
    "strange values": message("S3", "ADT^A08^ADT_A01", f"PV1|1|{PHI}class{'|' * 42}{PHI}date"),
    "no map": message("S4", "ZZZ^Z01", f"ZZZ|{PHI}"),
    "a repeat with other content": message("S1", "ADT^A01^ADT_A01", f"PV1|1|O|{PHI}other"),
    "passed through": message("S5", "ADT^A04"),
    "no control id": message("", "ADT^A01"),
    "no type": message("S6", ""),
    "no HL7": f"\x0b{PHI} is no HL7\x1c\r".encode(),
    "bytes": f"\x0bMSH|^~\\&|FEED|G|I|I|2026||ADT^A01|S7|P|2.5.1||||||UTF-8\rPID|1||{PHI}".encode() + b"\xff\xfe\x1c\r",
    "wrong delimiters": f"\x0bMSH|||||FEED|{PHI}\rPID|1||{PHI}\x1c\r".encode(),
    "a broken time": message("S8", "ADT^A08^ADT_A01", "EVN|A08|20269999").replace(b"19700315", f"{PHI}1970".encode()),
}
PATIENT = {
    "resourceType": "Patient",
    "identifier": [{"system": "urn:mrn", "value": f"{PHI}mrn2"}],
    "name": [{"family": f"{PHI}family2"}],
}
_TWICE = {"resourceType": "Patient", "identifier": [{"system": "urn:twice", "value": f"{PHI}twice"}]}


def _bundle(kind: str, *entries: Any) -> dict[str, Any]:
    return {"resourceType": "Bundle", "type": kind, "entry": list(entries)}


def _entry(method: str, url: str, resource: Any = None, **request: str) -> dict[str, Any]:
    return {"request": {"method": method, "url": url, **request}} | ({"resource": resource} if resource else {})


REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/fhir/Patient", PATIENT),
    ("POST", "/fhir/Patient", _TWICE),
    ("POST", "/fhir/Patient", _TWICE),
    ("POST", "/fhir/Patient", {**PATIENT, f"{PHI}element": 1}),
    ("POST", "/fhir/Patient", {**PATIENT, "birthDate": f"{PHI}date"}),
    ("POST", "/fhir/Patient", {**PATIENT, "gender": f"{PHI}gender"}),
    ("POST", "/fhir/Patient", f'{{"resourceType":"Patient","name":[{{"family":"{PHI}'.encode()),
    ("POST", "/fhir/Patient", f'{{"resourceType":"{PHI}"}}'.encode()),
    ("POST", "/fhir/Patient", b"\xff\xfe" + PHI.encode()),
    ("PUT", f"/fhir/Patient/{PHI}id", {**PATIENT, "id": f"{PHI}id"}),
    ("PUT", f"/fhir/Patient/{PHI}id", {**PATIENT, "id": "another"}),
    ("GET", f"/fhir/Patient/{PHI}id", None),
    ("GET", f"/fhir/Patient/{PHI}nobody", None),
    ("GET", f"/fhir/{PHI}type", None),
    ("GET", f"/fhir/Patient?family={PHI}family2", None),
    ("GET", f"/fhir/Patient?{PHI}parameter=x", None),
    ("GET", f"/fhir/Patient?birthdate={PHI}", None),
    ("GET", f"/fhir/Patient?_cursor={PHI}", None),
    ("GET", f"/fhir/Patient?name=%00{PHI}%ff", None),
    ("PATCH", f"/fhir/Patient/{PHI}id", [{"op": "test", "path": "/gender", "value": f"{PHI}value"}]),
    ("PATCH", f"/fhir/Patient/{PHI}id", {"resourceType": "Parameters", "parameter": [{"name": PHI}]}),
    ("DELETE", f"/fhir/Patient?identifier=urn:twice|{PHI}twice", None),
    ("POST", "/fhir", _bundle("transaction", _entry("PUT", f"Patient?identifier=urn:twice|{PHI}twice", _TWICE))),
    ("POST", "/fhir", _bundle("transaction", _entry("POST", f"{PHI}type", PATIENT))),
    ("POST", "/fhir", _bundle("batch", _entry("GET", f"Patient?name={PHI}"), _entry("GET", f"Patient/{PHI}"),
                              _entry("POST", "Patient", {**PATIENT, "birthDate": PHI}))),
    ("POST", "/fhir", _bundle(PHI)),
    ("POST", "/fhir/Patient/$validate", {**PATIENT, "gender": f"{PHI}gender"}),
    ("POST", f"/fhir/Patient/{PHI}id/$everything", None),
    ("GET", f"/fhir/Patient/{PHI}id/$everything?_since={PHI}", None),
    ("GET", f"/fhir/Patient/{PHI}id/_history?_count={PHI}", None),
    ("POST", "/mapping/fhir/StructureMap/$transform", {"resourceType": "Parameters", "parameter": [
        {"name": "source", "valueUri": f"urn:{PHI}"}, {"name": "content", "valueString": f"{PHI}\r{PHI}"}]}),
    ("POST", "/mapping/fhir/StructureMap/$transform?source=http%3A%2F%2Fx%2F" + PHI, f"MSH|{PHI}".encode()),
    ("GET", f"/fhir/AuditEvent?patient=Patient/{PHI}id", None),
    ("GET", f"/admin/messages?source_id={PHI}", None),
    ("GET", f"/admin/messages?limit={PHI}", None),
    ("GET", f"/admin/audit?patient={PHI}id", None),
    ("GET", f"/admin/{PHI}", None),
    ("GET", f"/{PHI}", None),
    ("GET", f"/admin/observe/trace/{PHI}", None),
    ("POST", f"/admin/messages/{PHI}/retry", None),
]  # fmt: skip
STRANGERS = {
    "no token": {},
    "a wrong token": {"Authorization": f"Bearer {SECRET}-wrong"},
    "basic": {"Authorization": f"Basic {SECRET}basic"},
    "a wrong scheme": {"Authorization": f"{SECRET}"},
}


class SecretsTests(TestCase):
    timeout = LIMIT  # seven starts that fail, and each path of the service

    def test_every_path(self) -> None:
        """Messages, FHIR requests, subscriptions, `$transform`, the admin API."""
        run(self._every_path())

    async def _every_path(self) -> None:
        scenario = Scenario(**SETTINGS)
        async with scenario:
            service = scenario.service
            await self._subscriptions(service)
            for name, frame in MESSAGES.items():
                answer = b"\r".join(await answer_to(service.mllp_port, frame))
                if b"MSA|AA" not in answer:
                    self.assertNotIn(f"{PHI}family".encode(), answer, name)
            for method, path, body in REQUESTS:
                await self._ask(service, method, path, body)
            await self._strangers(service)
            await self._until_quiet(service)
            _, metrics = await asyncio.to_thread(service.request, "GET", "/actuator/prometheus", None, _token())
            self._clean(metrics, "a metric")
            for path in ("/actuator/health", "/fhir/metadata"):
                _, body = await asyncio.to_thread(service.request, "GET", path)
                self._clean(json.dumps(body), path)
            await asyncio.to_thread(service.stop)
            self._check_log(service.log_path.read_text())

    async def _ask(self, service: ServiceProcess, method: str, path: str, body: Any) -> None:
        for kind in ("application/fhir+json", "application/fhir+xml"):
            if method == "PATCH" and isinstance(body, list):
                kind = "application/json-patch+json"
            headers = _token() | {"Content-Type": kind, "X-Correlation-Id": f"{PHI}-correlation"}
            status, answer = await asyncio.to_thread(service.request, method, path, body, headers)
            self.assertLess(status, 500, f"{method} {path}: {answer}")
            self.assertNotIn(SECRET, json.dumps(answer), f"{method} {path}")

    async def _subscriptions(self, service: ServiceProcess) -> None:
        """One whose endpoint refuses, one with a secret in its URL, one whose far end answers with what it got."""
        far = Echo()
        port = await far.start()
        self.addCleanup(far.close)
        refusing, echoing = f"127.0.0.1:{free_port()}/{SECRET}path", f"127.0.0.1:{port}/echo?key={SECRET}query"
        for endpoint in (f"http://{refusing}", f"http://{echoing}"):
            resource = {
                "resourceType": "Subscription", "status": "requested", "reason": f"{PHI}reason",
                "criteria": f"Patient?family={PHI}family",
                "channel": {"type": "rest-hook", "endpoint": endpoint, "payload": "application/fhir+json",
                            "header": [f"Authorization: Bearer {SECRET}hook", f"X-Api-Key: {SECRET}apikey"]},
            }  # fmt: skip
            status, answer = await asyncio.to_thread(service.request, "POST", "/fhir/Subscription", resource)
            self.assertEqual(status, 201, answer)
        mail = {"type": "email", "endpoint": f"mailto:{PHI}@example.org", "header": [f"Subject: {SECRET}"]}
        resource["channel"] = mail
        await asyncio.to_thread(service.request, "POST", "/fhir/Subscription", resource)
        broken = {"type": "rest-hook", "endpoint": f"{SECRET}://x", "header": [f"Bad\r\nHeader: {SECRET}"]}
        wrong = {**resource, "criteria": f"Patient?{PHI}x=1", "channel": broken}
        await asyncio.to_thread(service.request, "POST", "/fhir/Subscription", wrong)

    async def _strangers(self, service: ServiceProcess) -> None:
        """Whoever has no token learns nothing of what others sent."""
        for name, headers in STRANGERS.items():
            asked = ("GET", "/admin/messages/1"), ("GET", "/admin/audit"), ("POST", "/admin/messages/1/retry")
            for method, path in asked:
                status, answer = await asyncio.to_thread(service.request, method, path, None, headers)
                self.assertEqual(status, 401, name)
                self._clean(json.dumps(answer), f"{name}: {path}")

    async def _until_quiet(self, service: ServiceProcess) -> None:
        """Until all messages have ended and the deliveries are given up."""

        async def ended() -> tuple[Any, Any] | None:
            status, page = await asyncio.to_thread(service.request, "GET", "/admin/messages", None, _token())
            self.assertEqual(status, 200, page)
            _, found = await asyncio.to_thread(service.get, "/fhir/Subscription?status=error")
            states = {item["status"] for item in page["items"]}
            return (page, found) if states <= {"DELIVERED", "DEAD_LETTER"} and found["total"] >= 2 else None

        quiet = await until(ended)
        assert quiet is not None
        page, found = quiet
        for entry in found["entry"]:
            self._clean(entry["resource"].get("error", ""), "Subscription.error")
        for item in page["items"]:
            self._clean(item["last_error"] or "", f"last_error of {item['message_type']}")
            await asyncio.to_thread(service.request, "GET", f"/admin/messages/{item['id']}", None, _token())

    def _check_log(self, text: str) -> None:
        lines = text.splitlines()
        self.assertGreater(len(lines), 20)
        self.assertTrue(any("event=dlq" in line for line in lines), "messages became dead letters")
        self.assertEqual([line for line in lines if PHI in line or SECRET in line], [])

    def _clean(self, text: str, what: str) -> None:
        for mark in (PHI, SECRET):
            self.assertNotIn(mark, text, what)

    def test_a_start_that_fails(self) -> None:
        """Wrong settings are named without their values."""
        run(self._failing_starts())

    async def _failing_starts(self) -> None:
        gone = f"postgresql://ipf:{SECRET}db@127.0.0.1:{free_port()}/ipf?connect_timeout=1"
        table = {
            "a database that is away": {"IPF_DB_URL": gone, "IPF_FHIR_DB_URL": gone.replace("/ipf?", "/fhir?")},
            "no URL": {"IPF_DB_URL": f"{SECRET} is no URL", "IPF_FHIR_DB_URL": f"host={SECRET} password={SECRET}"},
            "one database": {"IPF_DB_URL": gone},
            "a short key": {"IPF_SECRET_KEY": SECRET},
            "a secret file": {"IPF_ADMIN_AUTH_TOKEN_FILE": f"/nowhere/{SECRET}"},
            "equal tokens": {"IPF_ADMIN_AUTH_TOKEN": f"{SECRET}same", "IPF_ADMIN_READ_TOKEN": f"{SECRET}same"},
            "mail": {"IPF_SMTP_URL": f"ftp://mailer:{SECRET}@example.org"},
        }
        scenarios = {name: Scenario(**environment) for name, environment in table.items()}
        for scenario in scenarios.values():
            scenario.service.start()
        for name, scenario in scenarios.items():
            await until(partial(_has_ended, scenario.service), name)
            self.assertNotIn(scenario.service.ended(), (0, None), name)
            text = scenario.service.log_tail(100_000)
            if name != "a secret file":  # the name of a file is no secret
                self.assertNotIn(SECRET, text, name)
            self.assertIn("IPF_" if name != "a database that is away" else "reached", text, name)
            await scenario.__aexit__()


def _has_ended(service: ServiceProcess) -> bool:
    return service.ended() is not None


def _token() -> dict[str, str]:
    return {"Authorization": f"Bearer {SETTINGS['IPF_ADMIN_AUTH_TOKEN']}"}


class Echo:
    """A far end that answers 500 with all that it was sent: what it says is nobody else's business."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Its port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Listen no more."""
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        text = await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 500 " + SECRET.encode() + b"\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(text)
        writer.write(head + text)
        writer.close()
