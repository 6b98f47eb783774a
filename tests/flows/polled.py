"""Two sources that are polled, as vendor profiles: an EHR with FHIR, and a practice with a REST API (`athena.py`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.flows.athena import SECRET
from tests.vendor_profiles.samples import tar

PATIENTS = 60
EHR = """
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
PRACTICE = """
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
_MAP = """
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
CREDENTIALS = {"EHR_TOKEN": "t", "PRACTICE_CLIENT": "me", "PRACTICE_SECRET": SECRET}
"""The environment of a service that has both profiles."""
_MR = {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/v2-0203", "code": "MR"}]}


ZONED = """
profile: {id: zoned, version: "1.0", schemaVersion: 1, vendor: {name: Zoned}}
ingest:
  - {id: denver, type: hl7v2-mllp, facilityResolver: msh-4, facilities: [DENVER], timeZone: America/Denver}
"""
"""A sender of HL7 v2 with a zone of its own."""


def profiles(folder: Path, ehr_url: str, practice_port: int) -> None:
    """Make the folder with the archives of both sources."""
    folder.mkdir()
    (folder / "ehr.tar.gz").write_bytes(tar({"manifest.yaml": EHR.format(base=ehr_url), "README.md": "x"}))
    archive = {
        "manifest.yaml": PRACTICE.format(port=practice_port),
        "README.md": "x",
        "maps/patient.fml": _MAP,
        "tests/patient/input.json": '{"patientid": "1"}',
        "tests/patient/expected.json": json.dumps({"resourceType": "Patient", "identifier": [{"value": "1"}]}),
    }
    (folder / "practice.tar.gz").write_bytes(tar(archive))
    (folder / "zoned.tar.gz").write_bytes(tar({"manifest.yaml": ZONED, "README.md": "x"}))


def entry(resource: dict[str, Any]) -> dict[str, Any]:
    """The entry of a transaction that stores a resource."""
    return {"resource": resource, "request": {"method": "PUT", "url": f"{resource['resourceType']}/{resource['id']}"}}


def patient(number: int, change: int) -> dict[str, Any]:
    """A patient of the EHR."""
    return {
        "resourceType": "Patient",
        "id": f"p{number}",
        "identifier": [{"system": "urn:test:mrn", "value": f"M{number}", "type": _MR}],
        "name": [{"family": f"Family{number}"}],
        "telecom": [{"system": "phone", "value": str(change)}],
    }


def result(number: int, change: int) -> dict[str, Any]:
    """A result of this patient."""
    return {
        "resourceType": "Observation",
        "id": f"o{number}",
        "status": "final",
        "code": {"text": "glucose"},
        "subject": {"reference": f"Patient/p{number}"},
        "valueInteger": change,
    }
