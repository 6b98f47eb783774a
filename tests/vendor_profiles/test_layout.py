"""Profiles in the other layout of manifests: what is read otherwise, and the notes about it."""

from __future__ import annotations

from datetime import UTC, datetime

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.hl7.message import Message
from ipf.mapping.language.grammar import parse
from ipf.ports import Claimed
from ipf.vendor_profiles.findings import Findings
from ipf.vendor_profiles.manifest import Manifest, read_manifest
from ipf.vendor_profiles.map_names import with_names_of_ipf
from ipf.vendor_profiles.profile import Validation, validate_profile
from ipf.vendor_profiles.quirks import normalized
from tests.vendor_profiles.samples import bare, tar

MANIFEST = """
profile:
  id: northwind
  version: "3.1"
  schemaVersion: 1
  vendor: {name: Northwind, productLine: Ward, productVersion: "3.x"}
  fhirVersions: [R4]
  hl7Versions: [v2.5, V2.5.1, "2.7"]
ingest:
  - id: ward
    type: hl7v2-mllp
    config: {port: 2591, facilityResolver: northwind-msh-4-facility}
  - id: api
    type: fhir-r4-polling
    config: {baseUrl: "https://fhir.example.org", sources: [{id: labs}]}
mappings:
  - messageType: ADT^A04
    map: maps/a04.fml
    tests: [tests/walk-in/, tests/no-result]
  - sourceType: northwind-patients
    map: maps/patients.fml
    tests: [tests/changed]
quirks:
  msh3-format: facility-shortcode-then-pipe
  empty-pid-strategy: reject
audit:
  agent-system: northwind
  enrichments:
    - addOriginatingUser: pv1.7
    - addPointOfCare: pv1.3.1
    - addPracticeId: query.practiceid
"""
A04 = """
map "urn:test:northwind:a04" = "a04"
uses "http://hl7.org/fhir/v2/StructureDefinition/ADT_A04" alias ADT_A04 as source
uses "http://hl7.org/fhir/StructureDefinition/Bundle" alias Bundle as target
group A04(source src : ADT_A04, target bundle : Bundle) {
  src.pid as pid -> bundle.entry as entry then Person(pid, entry) "pid";
}
group Person(source pid, target entry) {
  pid -> entry.resource = create('Patient') as patient then {
    pid -> patient.id = uuid() "id";
    pid.pid3 as cx -> patient.identifier as id then { cx.cx1 as v -> id.value = v "value"; } "number";
  } "patient";
}
"""
PATIENTS = """
map "urn:test:northwind:patients" = "patients"
uses "urn:test:northwind:ChangedPatient" alias Changed as source
uses "http://hl7.org/fhir/StructureDefinition/Bundle" alias Bundle as target
group Patients(source src : Changed, target bundle : Bundle) {
  src -> bundle.entry as entry, entry.resource = create('Patient') as patient then {
    src.patientid as v -> patient.identifier as id, id.value = v "number";
  } "patient";
}
"""
EXPECTED = """{"resourceType": "Bundle", "type": "message", "entry": [{"resource": {"resourceType": "Patient",
  "id": "<placeholder-uuid>", "identifier": [{"value": "4711"}]}}]}"""
MESSAGE = "MSH|^~\\&|WARD|NW|||20260101||ADT^A04|M1|P|2.5\nPID|1||4711^^^NW^MR\n"


def files(**changes: str) -> dict[str, str]:
    """Files of a profile in the other layout; `changes` by the name before the suffix."""
    return {
        "manifest.yaml": changes.get("manifest", MANIFEST),
        "README.md": "Northwind",
        "maps/a04.fml": A04,
        "maps/patients.fml": PATIENTS,
        "tests/walk-in/input.hl7": MESSAGE,
        "tests/walk-in/expected.json": changes.get("expected", EXPECTED),
        "tests/no-result/input.hl7": MESSAGE,
        "tests/changed/input.json": changes.get("input", '{"patientid": "4711"}'),
        "tests/changed/expected.json": EXPECTED,
    }


def check(**changes: str) -> Validation:
    """Validates it, without general maps."""
    return validate_profile(tar(files(**changes)), "northwind.tar.gz", bare())


def read(text: str) -> tuple[Manifest | None, Findings]:
    """The manifest and what was found."""
    findings = Findings()
    return read_manifest(text.encode(), findings), findings


class LayoutTests(TestCase):
    def test_manifest(self) -> None:
        made, findings = read(MANIFEST)
        assert made is not None
        self.assertEqual([str(one) for one in findings.errors], [])
        self.assertEqual(made.vendor.fhir_versions, ("R4",))
        self.assertEqual(made.vendor.hl7_versions, ("2.5", "2.5.1", "2.7"))
        (item,) = made.ingest
        self.assertEqual((item.id, item.port, item.resolver), ("ward", 2591, "msh-4"))
        fields = [(name, field.segment, field.field, field.component) for name, field in made.audit.enrichments]
        self.assertEqual(fields, [("addOriginatingUser", "PV1", 7, 0), ("addPointOfCare", "PV1", 3, 1)])
        self.assertEqual([one.message_type for one in made.mappings], ["ADT_A04", "northwind-patients"])

    def test_each_change_is_a_note(self) -> None:
        """With the pointer and the line of the text."""
        _, findings = read(MANIFEST)
        notes = {(one.pointer, one.line) for one in findings.items if one.severity == "information"}
        for expected in (
            ("/profile/fhirVersions", 7), ("/profile/hl7Versions", 8), ("/profile/hl7Versions/0", 8),
            ("/profile/hl7Versions/1", 8), ("/ingest/0/config/port", 12), ("/ingest/0/config/facilityResolver", 12),
            ("/ingest/1/config/baseUrl", 15), ("/audit/enrichments/0/addOriginatingUser", 29),
        ):  # fmt: skip
            self.assertIn(expected, notes)
        self.assertNotIn(("/profile/hl7Versions/2", 8), notes)

    def test_mistakes(self) -> None:
        """Each row: a text of the manifest, its replacement, the pointer and a part of the error."""
        for old, new, pointer, words in (
            ("config: {port: 2591,", "port: 2592\n    config: {port: 2591,", "/ingest/0/config/port", "as well"),
            ("productVersion:", "fhirVersions: [R4], productVersion:", "/profile/fhirVersions", "as well"),
            ("northwind-msh-4-facility", "by-ward", "/ingest/0/config/facilityResolver", "is none of"),
            ("config: {port: 2591,", "config: {ports: 1,", "/ingest/0/config/ports", "is not a known key"),
            ("sourceType: north", "messageType: ADT^A01\n    sourceType: north", "/mappings/1/sourceType", "either"),
            ("northwind-patients", "a/b", "/mappings/1/sourceType", "letters, digits"),
            ("pv1.7", "pid.5", "/audit/enrichments/0/addOriginatingUser", "may not be written"),
        ):
            _, findings = read(MANIFEST.replace(old, new))
            shown = [(one.pointer, one.message) for one in findings.errors]
            self.assertTrue(any(one[0] == pointer and words in one[1] for one in shown), (new, shown))

    def test_profile(self) -> None:
        """It is valid; its cases run, also those of JSON and without an expectation."""
        checked = check()
        self.assertEqual([str(one) for one in checked.findings if one.severity == "error"], [])
        result = checked.as_json()
        self.assertEqual((result["valid"], result["tests"]["passed"], result["tests"]["failed"]), (True, 3, 0))
        self.assertEqual(
            [(one["id"], one["served"]) for one in result["ingest"] if one["type"] == "hl7v2-mllp"], [("ward", True)]
        )
        self.assertEqual([one["sourceType"] for one in result["mappings"]], [None, "northwind-patients"])
        warned = [one.path for one in checked.findings if "no expected.json" in one.message]
        self.assertEqual(warned, ["tests/no-result/input.hl7"])

    def test_failing_cases(self) -> None:
        for changes, path in (
            ({"expected": EXPECTED.replace("4711", "4712")}, "tests/walk-in/input.hl7"),
            ({"input": '{"patientid": "4712"}'}, "tests/changed/input.json"),
            ({"input": "{"}, "tests/changed/input.json"),
        ):
            checked = check(**changes)
            self.assertIsNone(checked.profile)
            self.assertEqual([one.path for one in checked.cases if not one.passed], [path])

    def test_a_folder_without_cases(self) -> None:
        checked = check(manifest=MANIFEST.replace("tests/walk-in/", "tests/walk/"))
        errors = [(one.pointer, one.message) for one in checked.findings if one.severity == "error"]
        self.assertEqual(errors, [("/mappings/0/tests/0", "there is no file tests/walk/, and no folder with cases")])


class NamesTests(TestCase):
    def test_names(self) -> None:
        source = "uses 'http://hl7.org/fhir/v2/StructureDefinition/ORU_R01' alias A as source\n"
        names = ("pid", "pv1.pv119", "cx1", "xpn2", "obx5", "zpi3", "zpi", "name", "PID", "PID_3", "event")
        rules = "\n".join(f"  src.{name} as v{number} -> b.x = v{number} 'r';" for number, name in enumerate(names))
        text = "map 'urn:x' = 'x'\n" + source + "group G(source src, target b) {\n" + rules + "\n}"
        made, count = with_names_of_ipf(parse(text.replace("'", '"'), "x.fml"))
        found = [rule.sources[0].element for rule in made.groups[0].rules]
        wanted = ["PID", "PV1.PV1_19", "CX_1", "XPN_2", "OBX_5", "ZPI_3", "ZPI", "name", "PID", "PID_3", "event"]
        self.assertEqual((found, count), (wanted, 8))

    def test_other_sources_keep_their_names(self) -> None:
        text = 'map "urn:x" = "x"\nuses "urn:x:api" alias A as source\ngroup G(source s, target b) { s.pid3 -> b.x; }'
        content = parse(text, "x.fml")
        self.assertIs(with_names_of_ipf(content)[0], content)


def claimed(raw: bytes) -> Claimed:
    """A stored message."""
    return Claimed(1, 1, "c", datetime.now(UTC), "A", "M", "ADT_A04", raw, "utf-8", 0)


class QuirkTests(TestCase):
    def test_application_and_facility_in_one_field(self) -> None:
        quirks = {"msh3-format": "facility-shortcode-then-pipe"}
        for sent, application, facility in (("N\\F\\W|", "W", "N"), ("N\\F\\W|X", "W", "X"), ("W|X", "W", "X")):
            raw = f"MSH|^~\\&|{sent}|||1||ADT^A04|M|P|2.5\rPID|1||1\r".encode()
            read = Message.parse(normalized(claimed(raw), quirks).raw).header
            self.assertEqual((read.field(3), read.field(4)), (application, facility))

    def test_rtf_before_an_attachment(self) -> None:
        head = b"MSH|^~\\&|A|B|||1||ORU^R01|M|P|2.5\rOBX|1|ED|x||A^application^pdf^Base64^"
        made = normalized(
            claimed(head + b"{\\E\\rtf1 {x}} QUJD\r"), {"attachment-encoding": "base64-with-rtf-prefix-trim"}
        )
        self.assertEqual(made.raw, head + b"QUJD\r")
        same = normalized(claimed(head + b"{x}QUJD\r"), {"attachment-encoding": "base64-standard"})
        self.assertEqual(same.raw, head + b"{x}QUJD\r")

    def test_messages_without_a_patient_number(self) -> None:
        for pid, strategy, refused in (
            (b"PID|1||\r", "reject", True), (b"", "reject", True), (b"PID|1||7\r", "reject", False),
            (b"PID|1||\r", "synthesize-from-mrn", False),
        ):  # fmt: skip
            raw = b"MSH|^~\\&|A|B|||1||ADT^A04|M|P|2.5\r" + pid
            if refused:
                problem = self.assertRaises(Problem, normalized, claimed(raw), {"empty-pid-strategy": strategy})
                self.assertIn("has no PID-3", str(problem))
            else:
                self.assertEqual(normalized(claimed(raw), {"empty-pid-strategy": strategy}).raw, raw)
