"""A service whose FHIR server is another one (`IPF_FHIR_URL`): effects and subscriptions are those of that server."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import Any

from twisted.trial.unittest import TestCase

from tests.event_loop import run
from tests.faults.feed import admission
from tests.flows.test_end_to_end import answer_to
from tests.service_process import ServiceProcess
from tests.waiting import block_until

GROUP = "flows"


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
        channel = {"type": "rest-hook", "endpoint": "http://127.0.0.1:9/hook", "payload": "application/fhir+json"}
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
