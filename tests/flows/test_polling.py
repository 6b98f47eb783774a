"""A second instance of the service is polled as the EHR, through kills of the engine and outages of the EHR.

The EHR goes on changing meanwhile.  At the end the engine has a message of the last version of each resource, each key
once.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

from twisted.trial.unittest import TestCase

from tests.faults.scenario import scratch
from tests.service_process import ServiceProcess
from tests.vendor_profiles.samples import tar
from tests.waiting import PATIENCE

GROUP = "kills"
PATIENTS, ROUNDS = 60, 6
MANIFEST = """
profile: {{id: ehr, version: "1", schemaVersion: 1, vendor: {{name: Test}}}}
ingest:
  - id: all
    type: fhir-r4-polling
    baseUrl: {base}
    pollIntervalSeconds: 1
    sourceSystem: EHR
    overlapSeconds: 2
    auth: {{type: bearer, tokenEnv: EHR_TOKEN}}
    sources:
      - {{id: patients, search: "Patient?_lastUpdated=gt{{{{lastRun}}}}&_count=7"}}
      - {{id: results, search: "Observation?_lastUpdated=gt{{{{lastRun}}}}&_count=7"}}
mappings: []
"""


class PollingFlowTests(TestCase):
    timeout = 2 * PATIENCE

    def setUp(self) -> None:
        self.folder = scratch()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.ehr = self.opened("ehr")
        archive = tar({"manifest.yaml": MANIFEST.format(base=f"{self.ehr.base_url}/fhir"), "README.md": "x"})
        (self.folder / "profiles").mkdir()
        (self.folder / "profiles/ehr.tar.gz").write_bytes(archive)
        self.engine = self.opened("engine", IPF_PROFILE_DIR=str(self.folder / "profiles"), EHR_TOKEN="t")
        self.chance = random.Random(7)

    def opened(self, name: str, **environment: str) -> ServiceProcess:
        service = ServiceProcess(self.folder / name, **environment)
        service.start()
        self.addCleanup(service.stop)
        service.wait_ready()
        return service

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        pause = getattr(time, "sleep")  # noqa: B009  # blocking on purpose: there is no reactor here
        while not condition():
            self.assertLess(time.monotonic(), deadline, self.engine.log_tail())
            pause(0.1)

    def change(self) -> None:
        """A third of the patients changes, each with a result."""
        for number in self.chance.sample(range(PATIENTS), PATIENTS // 3):
            entries = [
                entry(patient(number, self.chance.randrange(10**6))),
                entry(result(number, self.chance.randrange(10**6))),
            ]
            body = json.dumps({"resourceType": "Bundle", "type": "transaction", "entry": entries}).encode()
            status, answer = self.ehr.request("POST", "/fhir", body, {"Content-Type": "application/fhir+json"})
            self.assertEqual(status, 200, answer)

    def expected(self) -> set[str]:
        """The last version of each resource of the EHR."""
        found = set()
        for kind in ("Patient", "Observation"):
            _, bundle = self.ehr.get(f"/fhir/{kind}?_count=1000&_elements=id")
            for one in bundle["entry"]:
                held = one["resource"]
                found.add(f"{kind}/{held['id']}/{held['meta']['versionId']}")
        return found

    def keys(self) -> list[str]:
        return [one["source_id"] for one in self.messages()]

    def messages(self) -> Iterator[Any]:
        offset = 0
        while True:
            _, page = self.engine.get(f"/admin/messages?limit=200&offset={offset}")
            yield from page["items"]
            offset += len(page["items"])
            if not page["items"]:
                return

    def resources(self, service: ServiceProcess, kind: str) -> list[Any]:
        _, bundle = service.get(f"/fhir/{kind}?_count=1000")
        return [one["resource"] for one in bundle.get("entry", ())]

    def check_resources(self) -> None:
        """Each patient and each result once, as it is in the EHR, and each result with its patient."""
        numbers = {one["id"]: one["identifier"][0]["value"] for one in self.resources(self.engine, "Patient")}
        here = self.resources(self.engine, "Observation")
        there = self.resources(self.ehr, "Observation")
        self.assertEqual(len(numbers), len(set(numbers.values())))
        found = {(numbers[one["subject"]["reference"].partition("/")[2]], one["valueInteger"]) for one in here}
        self.assertEqual(found, {(f"M{one['id'][1:]}", one["valueInteger"]) for one in there})
        self.assertEqual(len(here), len(there))

    def test_kills_and_outages_lose_nothing(self) -> None:
        self.change()
        self.wait(lambda: bool(self.keys()))
        for number in range(ROUNDS):
            self.change()
            service = self.ehr if number % 3 == 2 else self.engine
            service.kill()
            if service is self.engine:
                self.change()
            service.start()
            service.wait_ready()
            self.change()
        self.wait(lambda: self.expected() <= set(self.keys()))
        keys = {one["id"]: one["source_id"] for one in self.messages()}
        self.assertEqual(len(keys), len(set(keys.values())))
        self.wait(lambda: {one["status"] for one in self.messages()} == {"DELIVERED"})
        self.check_resources()
        _, body = self.engine.get("/admin/sources")
        self.assertEqual([one["name"] for one in body["items"]], ["ehr/all/patients", "ehr/all/results"])
        self.assertEqual({one["source_protocol"] for one in self.messages()}, {"FHIR_REST"})


def entry(resource: dict[str, Any]) -> dict[str, Any]:
    return {"resource": resource, "request": {"method": "PUT", "url": f"{resource['resourceType']}/{resource['id']}"}}


def patient(number: int, change: int) -> dict[str, Any]:
    return {
        "resourceType": "Patient",
        "id": f"p{number}",
        "identifier": [{"system": "urn:test:mrn", "value": f"M{number}", "type": MR}],
        "name": [{"family": f"Family{number}"}],
        "telecom": [{"system": "phone", "value": str(change)}],
    }


def result(number: int, change: int) -> dict[str, Any]:
    return {
        "resourceType": "Observation",
        "id": f"o{number}",
        "status": "final",
        "code": {"text": "glucose"},
        "subject": {"reference": f"Patient/p{number}"},
        "valueInteger": change,
    }


MR = {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/v2-0203", "code": "MR"}]}
