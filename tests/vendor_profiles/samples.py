"""Profiles for tests: a small one that is built of texts, and the example of the repository."""

from __future__ import annotations

import io
import tarfile
from functools import cache
from pathlib import Path

from ipf.mapping.compiler.groups import Environment
from ipf.mapping.library.map_files import Maps
from ipf.mapping.library.maps import Library
from ipf.vendor_profiles.archive import pack

EXAMPLE = Path(__file__).resolve().parents[2] / "etc/profiles-example/acme-adt"

MAP = """
/// url = "urn:test:acme:ADT_A04"
uses "http://hl7.org/fhir/StructureDefinition/Bundle" alias Bundle as target
group Acme(source src : ADT_A04, target bundle : Bundle) {
  src.PID as pid -> bundle.entry as e, e.resource = create('Patient') as patient then {
    pid.PID_3 as cx -> patient.identifier as id, id.system = 'urn:test:acme' then { cx.CX_1 as v -> id.value = v; };
    pid.PID_8 as sex -> patient.gender = translate(sex, 'urn:test:acme:sex', 'code');
    pid.PID_7 as born -> patient.birthDate = born;
  };
}
"""
TABLE = """{"resourceType": "ConceptMap", "url": "urn:test:acme:sex", "group": [{"element": [
  {"code": "W", "target": [{"code": "female", "equivalence": "equal"}]}]}]}"""
MANIFEST = """
profile:
  id: {id}
  version: {version}
  schemaVersion: 1
  vendor: {{name: Acme, hl7Versions: [2.5, "2.5.1"]}}
ingest:
  - {{id: adt, type: hl7v2-mllp, port: {port}, facilityResolver: msh-4}}
mappings:
  - {{messageType: ADT^A04, map: maps/a04.fml, tests: [tests/a04.hl7]}}
quirks:
  missing-control-id: content-hash
  timestamps: day-first
audit:
  agent-system: urn:test:acme
  enrichments:
    - facility: MSH-4
"""
MESSAGE = "MSH|^~\\&|ACME|WEST|IPF|IPF|01.02.2026||ADT^A04|{id}|P|2.5\rPID|1||{patient}||A^B||15.03.1970|W\r"
EXPECTED = '{"resourceType": "Patient", "gender": "female", "birthDate": "1970-03-15"}'


def message(control_id: str, patient: str = "4711") -> bytes:
    """A message of Acme."""
    return MESSAGE.format(id=control_id, patient=patient).encode()


def small(id: str = "acme", version: str = "1.0", port: int = 2599) -> dict[str, str]:
    """Files of a small profile."""
    return {
        "manifest.yaml": MANIFEST.format(id=id, version=version, port=port),
        "README.md": "Acme",
        "maps/a04.fml": MAP,
        "maps/sex.json": TABLE,
        "tests/a04.hl7": message("C1").decode().replace("\r", "\n"),
        "tests/a04.json": EXPECTED,
    }


def tar(files: dict[str, str], mode: str = "w:gz") -> bytes:
    """An archive of these files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:  # type: ignore[call-overload]  # the mode is a literal there
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content.encode())
            archive.addfile(member, io.BytesIO(content.encode()))
    return packed.getvalue()


@cache
def example() -> bytes:
    """The archive of the example."""
    return pack(EXAMPLE)


@cache
def bare() -> Library:
    """A library without maps."""
    return Library(Maps(), {}, Environment())
