"""References by the URL of the service, over sockets: by its setting, and by the address of the request."""

from __future__ import annotations

import tempfile
from pathlib import Path
from shutil import rmtree
from typing import Any

from twisted.trial.unittest import TestCase

from tests.flows.few_maps import few_maps
from tests.service_process import ServiceProcess

GROUP = "flows"
HOSPITAL = "https://fhir.hospital.example/fhir"


def observation(id: str, base_url: str) -> Any:
    """An Observation of a Patient that it names by URL."""
    return {"resourceType": "Observation", "id": id, "status": "final", "code": {"text": "x"},
            "subject": {"reference": f"{base_url}/Patient/1"}}  # fmt: skip


class OwnUrlFlow(TestCase):
    """A service behind a proxy."""

    def setUp(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="ipf-urls-"))
        folder.chmod(0o755)
        self.addCleanup(rmtree, folder, ignore_errors=True)
        self.service = ServiceProcess(folder, IPF_BASE_URL=HOSPITAL, IPF_MAPS_DIR=str(few_maps()))
        self.service.start()
        self.addCleanup(self.service.stop)
        self.service.wait_ready()

    def put(self, resource: Any) -> Any:
        """The stored resource."""
        status, stored = self.service.request("PUT", f"/fhir/{resource['resourceType']}/{resource['id']}", resource)
        self.assertEqual(status, 201, stored)
        return stored

    def test_references(self) -> None:
        self.put({"resourceType": "Patient", "id": "1"})
        for id, base_url, expected in (
            ("by-setting", HOSPITAL, "Patient/1"),
            ("by-address", f"{self.service.base_url}/fhir", "Patient/1"),
            ("elsewhere", "https://other.example/fhir", "https://other.example/fhir/Patient/1"),
        ):
            self.assertEqual(self.put(observation(id, base_url))["subject"]["reference"], expected)
        for search in ("subject=Patient/1", f"subject={HOSPITAL}/Patient/1"):
            status, found = self.service.request("GET", f"/fhir/Observation?{search}&_sort=_id")
            self.assertEqual(
                (status, [one["resource"]["id"] for one in found["entry"]]), (200, ["by-address", "by-setting"])
            )
