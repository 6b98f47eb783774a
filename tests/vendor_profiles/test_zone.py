"""The zone of a sender: after the offset of MSH-7, before that of the installation."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.config.paths import folder
from ipf.mapping.compiler.conversions import zone_offset
from ipf.mapping.library import profiled
from ipf.mapping.library.maps import Library
from ipf.ports import Claimed
from ipf.vendor_profiles.findings import Findings
from ipf.vendor_profiles.folder import ProfileFolder, prepare_copies_folder
from ipf.vendor_profiles.manifest import read_manifest
from ipf.vendor_profiles.registry import Deployment
from tests.vendor_profiles.samples import tar
from tests.vendor_profiles.test_folder import claimed

MANIFEST = """
profile: {id: zoned, version: "1", schemaVersion: 1, vendor: {name: Zoned}}
ingest:
  - {id: berlin, type: hl7v2-mllp, facilityResolver: msh-4, facilities: [BERLIN], timeZone: Europe/Berlin}
  - {id: denver, type: hl7v2-mllp, facilityResolver: msh-4, facilities: [DENVER], timeZone: America/Denver}
  - {id: other, type: hl7v2-mllp, facilityResolver: msh-4, facilities: [OTHER]}
"""
MESSAGE = (
    "MSH|^~\\&|LAB|{place}|||{sent}||ORU^R01^ORU_R01|1|P|2.5.1\rPID|1||1^^^B^MR||X\r"
    "OBR|1||F1|T^Test^L|||202607011200\rOBX|1|NM|A^A^L||1||||||F|||20260101120000\r"
)


class ZoneTests(TestCase):
    def setUp(self) -> None:
        live = Path(self.mktemp())
        live.mkdir()
        (live / "zoned.tar.gz").write_bytes(tar({"manifest.yaml": MANIFEST, "README.md": "Zoned"}))
        self.library = Library.load(folder("maps"), compiled=False, offset=zone_offset("Asia/Tokyo"))
        made = ProfileFolder(live, Deployment({}, {}), prepare_copies_folder(Path(self.mktemp()) / "profiles-1"))
        self.library.vendor_profiles = made.build(self.library, fresh=True)

    def times(self, place: str, sent: str) -> tuple[str, str]:
        """Of the report (July) and of the result (January)."""
        message: Claimed = claimed(MESSAGE.format(place=place, sent=sent).encode(), message_type="ORU_R01")
        bundle = profiled.transform(self.library, message, None).bundle
        found = {one["resource"]["resourceType"]: one["resource"] for one in bundle["entry"]}
        return found["DiagnosticReport"]["effectiveDateTime"][10:], found["Observation"]["effectiveDateTime"][10:]

    def test_order(self) -> None:
        """MSH-7, the sender, the installation; a zone knows of daylight saving time, an offset does not."""
        table = [
            ("BERLIN", "20260101", "T12:00:00+02:00", "T12:00:00+01:00"),
            ("DENVER", "20260101", "T12:00:00-06:00", "T12:00:00-07:00"),
            ("OTHER", "20260101", "T12:00:00+09:00", "T12:00:00+09:00"),
            ("NOBODY", "20260101", "T12:00:00+09:00", "T12:00:00+09:00"),
            ("BERLIN", "20260101120000+0500", "T12:00:00+05:00", "T12:00:00+05:00"),
            ("BERLIN", "20260101120000+0100", "T12:00:00+02:00", "T12:00:00+01:00"),  # its own zone in winter
            ("OTHER", "20260101120000+0500", "T12:00:00+05:00", "T12:00:00+05:00"),
            ("DENVER", "2026", "T12:00:00-06:00", "T12:00:00-07:00"),
        ]
        for _ in range(3):  # results from the cache are those of the zone
            for place, sent, july, january in table:
                with self.subTest(place=place, sent=sent):
                    self.assertEqual(self.times(place, sent), (july, january))

    def test_the_trace_says_the_same(self) -> None:
        message = claimed(MESSAGE.format(place="DENVER", sent="20260101").encode(), message_type="ORU_R01")
        made = profiled.explain(self.library, message, None).bundle
        report = next(one["resource"] for one in made["entry"] if one["resource"]["resourceType"] == "DiagnosticReport")
        self.assertEqual(report["effectiveDateTime"][10:], "T12:00:00-06:00")

    def test_mistakes(self) -> None:
        """No zone, a folder of zones, a path."""
        for zone in ("Mars/Base", "Europe", "../UTC", "/etc/passwd"):
            findings = Findings()
            read_manifest(MANIFEST.replace("Europe/Berlin", zone).encode(), findings)
            self.assertEqual([one.pointer for one in findings.items], ["/ingest/0/timeZone"], zone)
