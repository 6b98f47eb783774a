"""A service whose FHIR server is another one (`IPF_FHIR_URL`): effects and subscriptions are those of that server."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import rmtree
from threading import Thread
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import run
from tests.faults.feed import admission
from tests.flows.test_end_to_end import answer_to
from tests.service_process import ServiceProcess
from tests.waiting import block_until

GROUP = "flows"


OUTCOME = {
    "resourceType": "OperationOutcome",
    "issue": [{"severity": "error", "code": "exception", "diagnostics": "HAPI-0389: Failed to call access method"}],
}


class OtherServer:
    """A FHIR server of another make: it refuses transactions, and keeps one Subscription with its versions."""

    def __init__(self) -> None:
        channel = {"type": "rest-hook", "endpoint": "https://sub.example.org/hook", "header": ["Authorization: x"]}
        self.versions: list[dict[str, Any]] = [
            {"resourceType": "Subscription", "id": "7", "status": "error", "error": "Connect to sub.example.org failed",
             "reason": "r", "criteria": "Patient?", "channel": channel},
        ]  # fmt: skip
        self.is_busy = False
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                """Quiet."""

            def do_POST(self) -> None:
                self._read()
                self._answer(500, OUTCOME)

            def do_GET(self) -> None:
                if self.path.endswith("/Subscription/7"):
                    self._answer(200, server.versions[-1])
                else:
                    self._answer(404, {"resourceType": "OperationOutcome", "issue": []})

            def do_PUT(self) -> None:
                sent = json.loads(self._read())
                if server.is_busy:
                    self._answer(422, OUTCOME)
                    return
                assert self.headers["If-Match"] == f'W/"{len(server.versions)}"', self.headers["If-Match"]
                server.versions.append(sent)
                self._answer(200, sent)

            def _read(self) -> bytes:
                return self.rfile.read(int(self.headers["Content-Length"]))

            def _answer(self, status: int, body: Any) -> None:
                raw = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/fhir+json")
                self.send_header("Content-Length", str(len(raw)))
                self.send_header("ETag", f'W/"{len(server.versions)}"')
                self.end_headers()
                self.wfile.write(raw)

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/fhir"
        Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop to listen."""
        self._http.shutdown()
        self._http.server_close()


class OtherServerTests(TestCase):
    """A FHIR server of another make (HAPI FHIR and its like)."""

    def test_its_words_reach_the_operator(self) -> None:
        """The diagnostics in `last_error`, and the Subscription's history, resource and status through to it."""
        folder = Path(tempfile.mkdtemp(prefix="ipf-other-fhir-"))
        folder.chmod(0o755)
        self.addCleanup(rmtree, folder, ignore_errors=True)
        other = OtherServer()
        self.addCleanup(other.close)
        near = ServiceProcess(folder / "near", IPF_FHIR_URL=other.url, IPF_WORKER_PROCESSES="0", IPF_MAX_ATTEMPTS="1")
        near.start()
        self.addCleanup(near.stop)
        near.wait_ready()
        self.assertEqual(run(answer_to(near.mllp_port, admission("M1", "P1", "+471")))[1], b"MSA|AA|M1")
        list_path = "/admin/messages?source_id=M1"
        row = block_until(lambda: (one := near.get(list_path)[1]["items"][0])["status"] == "DEAD_LETTER" and one)
        expected = "the FHIR server responded with 500: exception: HAPI-0389: Failed to call access method"
        self.assertIn(expected, row["last_error"])
        self.assertIn(expected, near.log_path.read_text())
        self._subscription(near, other)

    def _subscription(self, near: ServiceProcess, other: OtherServer) -> None:
        path = "/admin/subscriptions/7"
        _, item = near.get(f"{path}/health")
        self.assertEqual((item["last_error"], item["last_attempt_outcome"]),
                         ("Connect to sub.example.org failed", "failure"))  # fmt: skip
        self.assertEqual(near.get(f"{path}/history")[1]["items"], [])
        self.assertEqual(near.get(f"{path}/resource")[1]["criteria"], "Patient?")
        for wanted in ("requested", "active", "off", "error"):
            status, item = near.request("PATCH", f"{path}/status", {"status": wanted})
            self.assertEqual(status, 200, item)
            self.assertEqual((status, item["status"], item["active"]), (200, wanted, wanted == "active"), item)
        statuses = [(one["status"], "error" in one) for one in other.versions]
        self.assertEqual(statuses, [("error", True), ("requested", False), ("active", False), ("off", False),
                                    ("error", True)])  # fmt: skip
        self.assertEqual({json.dumps(one["channel"]) for one in other.versions},
                         {json.dumps(other.versions[0]["channel"])})  # fmt: skip
        other.is_busy = True
        status, refused = near.request("PATCH", f"{path}/status", {"status": "off"})
        self.assertEqual((status, refused["error"]), (502, "upstream_failed"))
        self.assertIn("responded with 422: exception: HAPI-0389: Failed to call access method", refused["message"])


class RemoteFhirTests(TestCase):
    def setUp(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="ipf-remote-fhir-"))
        folder.chmod(0o755)
        self.addCleanup(rmtree, folder, ignore_errors=True)
        self.far = ServiceProcess(folder / "far", IPF_WORKER_PROCESSES="0")
        self.near = ServiceProcess(folder / "near", IPF_FHIR_URL=f"{self.far.base_url}/fhir", IPF_WORKER_PROCESSES="0")
        for service in (self.far, self.near):
            service.start()
            self.addCleanup(service.stop)
        for service in (self.far, self.near):
            service.wait_ready()

    def wait(self, ask: Callable[[], Any]) -> Any:
        """What `ask` answers as soon as it is true."""
        return block_until(ask)

    def effects(self, source_id: str, phone: str) -> dict[str, tuple[str, str, str]]:
        """Id, version and action by type, once the message is delivered."""
        self.assertEqual(
            run(answer_to(self.near.mllp_port, admission(source_id, "P1", phone)))[1], b"MSA|AA|" + source_id.encode()
        )
        _, page = self.near.get(f"/admin/messages?source_id={source_id}")
        path = f"/admin/messages/{page['items'][0]['id']}/effects"
        found = self.wait(lambda: (body := self.near.get(path)[1])["effects_status"] == "delivered" and body)
        made = found["fhir_resources_created"]
        return {one["resource_type"]: (one["id"], one["version_id"], one["action"]) for one in made}

    def test_effects_and_subscriptions_of_that_server(self) -> None:
        made = self.effects("M1", "+471")
        patient = self.far.get("/fhir/Patient?identifier=P1")[1]["entry"][0]["resource"]["id"]
        self.assertEqual(made["Patient"], (patient, "1", "created"))
        self.assertEqual(self.effects("M2", "+472")["Patient"], (patient, "2", "updated"))
        self.assertEqual(self.near.get("/fhir/Patient")[1]["total"], 0)
        self._subscriptions()
        self.far.stop()
        status, refused = self.near.get("/admin/subscriptions/health")
        self.assertEqual((status, refused["error"]), (502, "upstream_failed"))

    def _subscriptions(self) -> None:
        channel = {"type": "rest-hook", "endpoint": "http://127.0.0.1:9/hook", "payload": "application/fhir+json",
                   "header": ["Authorization: Bearer s3cret"]}  # fmt: skip
        resource = {"resourceType": "Subscription", "status": "requested", "reason": "flow",
                    "criteria": "Patient?active=false", "channel": channel}  # fmt: skip
        made = [self.far.request("POST", "/fhir/Subscription", resource)[1]["id"] for _ in range(3)]
        path = f"/admin/subscriptions/{made[0]}"
        self.wait(lambda: self.near.get(f"{path}/health")[1]["active"])
        _, health = self.near.get("/admin/subscriptions/health")
        self.assertEqual((health["total"], {one["id"] for one in health["items"]}),
                         (3, {f"Subscription/{one}" for one in made}))  # fmt: skip
        self.assertEqual({one["endpoint"] for one in health["items"]}, {"http://127.0.0.1:9/hook"})
        _, shown = self.near.get(f"{path}/resource")
        self.assertEqual((shown["id"], shown["criteria"]), (made[0], "Patient?active=false"))
        status, history = self.near.get(f"{path}/history")
        self.assertEqual((status, history["total"], history["items"]), (200, 0, []))
        for wanted in ("off", "requested"):
            status, item = self.near.request("PATCH", f"{path}/status", {"status": wanted})
            self.assertEqual(status, 200, item)
            self.assertIn(item["status"], (wanted, "active") if wanted == "requested" else (wanted,))
        _, history = self.far.get(f"/fhir/Subscription/{made[0]}/_history")
        statuses = [one["resource"]["status"] for one in history["entry"]]
        self.assertEqual(statuses[-4:], ["requested", "off", "active", "requested"], "every change is a version there")
        self.assertEqual(self.far.get(f"/fhir/Subscription/{made[0]}")[1]["channel"]["header"], ["Authorization: ***"])
        status, refused = self.near.request("PATCH", f"{path}/status", {"status": "error"})
        self.assertEqual(status, 502)
        self.assertIn("submit a subscription with status requested or off", refused["message"])
        self.assertEqual(self.far.get(f"/fhir/Subscription/{made[1]}")[1]["id"], made[1])
        for method, where, body, expected in (
            ("PATCH", f"{path}/status", {"status": "on"}, (400, "invalid_status")),
            ("PATCH", "/admin/subscriptions/none/status", {"status": "off"}, (404, "not_found")),
            ("GET", "/admin/subscriptions/none/history", None, (404, "not_found")),
            ("GET", "/admin/subscriptions/none/resource", None, (404, "not_found")),
            ("GET", f"{path}/resource?tenant=other", None, (404, "not_found")),
        ):
            status, found = self.near.request(method, where, body)
            self.assertEqual((status, found["error"]), expected, where)
        self.assertEqual(self.near.request("POST", f"{path}/test")[0], 422)
