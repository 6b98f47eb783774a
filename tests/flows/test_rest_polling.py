"""The REST API of a vendor is polled through lost answers, limits, tokens that end, and kills of the service.

The API hands each change out once.  At the end every change is a message, each once, and each patient has its last
version.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import loads
from tests.faults.scenario import scratch
from tests.flows.athena import SECRET, Practice
from tests.service_process import ServiceProcess
from tests.vendor_profiles.samples import tar
from tests.waiting import PATIENCE

GROUP = "kills"
PATIENTS, ROUNDS = 12, 5
FEED = "practice/api/test-changed-patients"
MANIFEST = """
profile: {{id: practice, version: "1", schemaVersion: 1, vendor: {{name: Test}}}}
ingest:
  - id: api
    type: athena-native-rest
    baseUrl: http://127.0.0.1:{port}/v1/1
    pollIntervalSeconds: 1
    since: "2026-01-01T00:00:00Z"
    auth:
      type: oauth2-client-credentials
      tokenUrl: http://127.0.0.1:{port}/oauth2/token
      clientId: ${{PRACTICE_CLIENT}}
      clientSecretEnv: PRACTICE_SECRET
    resources:
      - sourceType: test-changed-patients
        query: patients/changed
        items: patients
        idField: patientid
        versionField: lastmodified
mappings:
  - {{sourceType: test-changed-patients, map: maps/patient.fml, tests: [tests/patient]}}
"""
MAP = """
/// url = "urn:test:practice"
uses "urn:test:Changed" alias Changed as source
uses "http://hl7.org/fhir/StructureDefinition/Bundle" alias Bundle as target
group Practice(source src : Changed, target bundle : Bundle) {
  src -> bundle.type = 'transaction' "type";
  src -> bundle.entry as entry, entry.resource = create('Patient') as patient then {
    src.patientid as number -> patient.identifier as id, id.system = 'urn:test:practice', id.value = number "number";
    src.lastname as family -> patient.name as name, name.family = family "name";
    src.email as mail -> patient.telecom as telecom, telecom.system = 'email', telecom.value = mail "email";
  } "patient";
}
"""


class RestPollingFlowTests(TestCase):
    timeout = 2 * PATIENCE

    def setUp(self) -> None:
        self.folder = scratch()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.practice = Practice(3)
        self.addCleanup(self.practice.stop)
        archive = {"manifest.yaml": MANIFEST.format(port=self.practice.port), "README.md": "x", "maps/patient.fml": MAP}
        archive |= {"tests/patient/input.json": '{"patientid": "1"}', "tests/patient/expected.json":
                    '{"resourceType": "Patient", "identifier": [{"value": "1"}]}'}  # fmt: skip
        (self.folder / "profiles").mkdir()
        (self.folder / "profiles/practice.tar.gz").write_bytes(tar(archive))
        self.service = ServiceProcess(
            self.folder / "service", IPF_PROFILE_DIR=str(self.folder / "profiles"), PRACTICE_CLIENT="me",
            PRACTICE_SECRET=SECRET,
        )  # fmt: skip
        self.service.start()
        self.addCleanup(self.service.stop)
        self.service.wait_ready()

    def wait(self, condition: Callable[[], bool], limit: float = PATIENCE) -> None:
        deadline = time.monotonic() + limit
        pause = getattr(time, "sleep")  # noqa: B009  # blocking on purpose: there is no reactor here
        while not condition():
            self.assertLess(time.monotonic(), deadline, self.service.log_tail())
            self.service.request("POST", "/admin/sources/poll", {"name": FEED})  # after a failure it would wait longer
            pause(0.1)

    def messages(self) -> list[Any]:
        found, offset = {}, 0
        while True:
            _, page = self.service.get(f"/admin/messages?limit=200&offset={offset}")
            found |= {one["id"]: one for one in page["items"]}
            offset += len(page["items"])
            if not page["items"]:
                return list(found.values())

    def stored(self) -> list[tuple[int, int]]:
        """Number and version of each message."""
        found = []
        for one in self.messages():
            _, whole = self.service.get(f"/admin/messages/{one['id']}")
            record = loads(whole["raw_message"])
            found.append((int(record["patientid"]), int(record["email"].partition("@")[0])))
        return sorted(found)

    def test_every_change_becomes_a_message(self) -> None:
        for number in range(ROUNDS):
            for patient in range(PATIENTS):
                self.practice.change(patient)
            handed_out = len(self.practice.handed_out)
            self.wait(lambda count=handed_out: len(self.practice.handed_out) > count)  # type: ignore[misc]
            if number % 2:
                self.service.kill()
                self.service.start()
                self.service.wait_ready()
        self.practice.calm = True
        made = [(number, version) for number in range(PATIENTS) for version in range(1, ROUNDS + 1)]
        self.wait(lambda: len(self.messages()) >= len(made))
        self.wait(lambda: {one["status"] for one in self.messages()} == {"DELIVERED"})
        self.assertEqual(self.stored(), made)
        self.assertEqual({one["source_protocol"] for one in self.messages()}, {"EHR_NATIVE_API"})
        _, bundle = self.service.get("/fhir/Patient?_count=200")
        mails = {one["resource"]["identifier"][0]["value"]: one["resource"]["telecom"][0]["value"]
                 for one in bundle["entry"]}  # fmt: skip
        self.assertEqual(mails, {str(number): f"{ROUNDS}@test" for number in range(PATIENTS)})
        self.assertEqual([name for name, count in self.practice.faults.items() if not count], [])
