"""Manifests: content, and the position of every mistake."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.vendor_profiles.findings import Findings
from ipf.vendor_profiles.manifest import Manifest, read_manifest
from ipf.vendor_profiles.source_fields import SourceField
from tests.vendor_profiles.samples import EXAMPLE, small

HEAD = "profile: {id: a, version: 1.10, schemaVersion: 1, vendor: {name: V}}\n"


def read(text: str) -> tuple[Manifest | None, Findings]:
    """The manifest and what was found."""
    findings = Findings()
    return read_manifest(text.encode(), findings), findings


class ManifestTests(TestCase):
    def test_the_example(self) -> None:
        made, findings = read((EXAMPLE / "manifest.yaml").read_text())
        assert made is not None
        self.assertEqual(findings.items, [])
        self.assertEqual((made.id, made.version, made.vendor.product_version), ("acme-adt", "1.2.0", "2023"))
        (item,) = made.ingest
        self.assertEqual((item.port, item.resolver, item.facilities, item.tenant), (2580, "msh-4", (), None))
        self.assertEqual([one.message_type for one in made.mappings], ["ADT_A04"])
        self.assertEqual(made.audit.enrichments[2], ("point-of-care", SourceField("PV1", 3, 1)))

    def test_scalars_keep_their_text(self) -> None:
        """The version 1.10 is not 1.1, and 2.5 is a text."""
        made, _ = read(small(version="1.10")["manifest.yaml"])
        assert made is not None
        self.assertEqual((made.version, made.vendor.hl7_versions), ("1.10", ("2.5", "2.5.1")))

    def test_mistakes(self) -> None:
        """Each row: text after a valid head, pointer, line and a part of the error."""
        for text, pointer, line, words in (
            ("quirks: {nul-values: ignore}", "/quirks/nul-values", 2, "is no quirk; known are missing-control-id"),
            ("quirks: {null-values: drop}", "/quirks/null-values", 2, "is no strategy of null-values; known are"),
            ("quirk: {}", "/quirk", 2, "is not a known key"),
            ("mappings:\n  - {messageType: A04, map: maps/a.fml}", "/mappings/0/messageType", 3, "such as ADT^A04"),
            ("mappings:\n- {messageType: ADT^A04}", "/mappings/0/map", 3, "is missing"),
            ("mappings:\n- {messageType: ADT^A04, map: maps/a}\n- {messageType: ADT^A04^X, map: maps/b}",
             "/mappings/1/messageType", 4, "two maps for ADT_A04"),
            ("mappings: ADT^A04", "/mappings", 2, "must be a list"),
            ("ingest:\n- {id: a, type: hl7v2-file}", "/ingest/0/type", 3, "is no type of ingest"),
            ("ingest:\n- {id: a, type: hl7v2-mllp, port: 70000}", "/ingest/0/port", 3, "1 to 65535"),
            ("ingest:\n- {id: a, type: hl7v2-mllp}", "/ingest/0", 3, "needs a port"),
            ("ingest:\n- {id: a, type: hl7v2-mllp, port: 1, facilityResolver: pid-3}", "/ingest/0/facilityResolver", 3,
             "is none of listener, msh-3"),
            ("ingest:\n- {id: a, type: hl7v2-mllp, facilityResolver: msh-4, facilities: [X], tenant: t}",
             "/ingest/0/tenant", 3, "needs a port"),
            ("ingest:\n- {id: a, type: hl7v2-mllp, port: 1}\n- {id: a, type: hl7v2-mllp, port: 2}", "/ingest/1/id", 4,
             "two of this id"),
            ("audit: {enrichments: [{a: MSH-4, b: MSH-3}]}", "/audit/enrichments/0", 2, "one name"),
            ("audit: {enrichments: [{a: somewhere}]}", "/audit/enrichments/0/a", 2, "PV1-3.4"),
            ("audit: {enrichments: [{a: PID-5}]}", "/audit/enrichments/0/a", 2, "may not be written"),
            ("audit: {enrichments: [{a: OBX-5}]}", "/audit/enrichments/0/a", 2, "may not be written"),
            ("quirks: &a {}\naudit: *a", "2:9", 2, "anchors and aliases"),
            ("quirks: {a: 1, a: 2}", "/quirks/a", 2, "is there twice"),
            ("quirks: [", "3:1", 3, "is no YAML"),
            ("quirks: {null-values: !!python/object/apply:os.system [x]}", "/quirks/null-values", 2, "must be a text"),
        ):  # fmt: skip
            _, findings = read(HEAD + text + "\n")
            shown = [(one.pointer, one.line, one.message) for one in findings.errors]
            self.assertTrue(any(one[:2] == (pointer, line) and words in one[2] for one in shown), (text, shown))

    def test_required_keys(self) -> None:
        for text, pointer in (
            ("", ""), ("- a", ""), ("profile: 1", "/profile"), ("ingest: []", "/profile"),
            ("profile: {id: a/b, version: 1, schemaVersion: 1, vendor: {name: V}}", "/profile/id"),
            ("profile: {id: a, schemaVersion: 1, vendor: {name: V}}", "/profile/version"),
            ("profile: {id: a, version: 1, schemaVersion: 2, vendor: {name: V}}", "/profile/schemaVersion"),
            ("profile: {id: a, version: 1, schemaVersion: x, vendor: {name: V}}", "/profile/schemaVersion"),
            ("profile: {id: a, version: 1, schemaVersion: 1}", "/profile/vendor"),
            ("profile: {id: a, version: 1, schemaVersion: 1, vendor: {}}", "/profile/vendor/name"),
            ("[" * 30_000 + "]" * 30_000, "1:21"), ("{a: " * 15_000, None), ("- " * 30_000, None),
            ("a: " * 3 + "\xff", None), ("x" * 70_000, ""),
        ):  # fmt: skip
            _, findings = read(text)
            self.assertTrue(findings.errors, text[:50])
            if pointer is not None:
                self.assertIn(pointer, [one.pointer for one in findings.errors], (text[:50], findings.errors))

    def test_number_of_findings_is_bounded(self) -> None:
        """Only the first findings are listed."""
        _, findings = read("a:\n" * 5000)
        self.assertEqual(len(findings.items), 201)
        self.assertIn("only the first", findings.items[-1].message)

    def test_what_cannot_be_polled_gives_warnings(self) -> None:
        """Polling items of other engines, with any keys, are no mistake; they say why nothing is fetched."""
        text = "ingest:\n- {id: a, type: fhir-r4-polling, baseUrl: http://x}\n- {id: b, type: rest-polling, oauth: {}}"
        made, findings = read(HEAD + text)
        assert made is not None
        self.assertEqual((made.ingest, findings.errors), ((), []))
        self.assertEqual([(one.pointer, one.severity) for one in findings.items],
                         [("/ingest/0/type", "warning"), ("/ingest/1/oauth", "warning"),
                          ("/ingest/1/type", "warning")])  # fmt: skip
        self.assertEqual([one.reason for one in made.served],
                         ["nothing is fetched for this item: it has no sources with a search",
                          "nothing is fetched for this item: it has no baseUrl"])  # fmt: skip

    def test_notations_of_a_facility_resolver(self) -> None:
        for given, resolver in (("MSH-4", "msh-4"), ("msh-4.1", "msh-4"), ("MSH.3", "msh-3"), ("Listener", "listener")):
            made, findings = read(HEAD + f"ingest: [{{id: a, type: hl7v2-mllp, port: 1, facilityResolver: {given}}}]")
            assert made is not None
            self.assertEqual((made.ingest[0].resolver, findings.errors), (resolver, []))
