"""Immunizations (VXU): what was given, refused or deleted, and what was observed with it."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.corpus import samples
from tests.mapping_maps.facts import hold

IMMUNIZATION, FIRST, SECOND = "Immunization", "identifier.value=IMM-1", "identifier.value=IMM-2"

CHILD = [
    ("Patient", "", "birthDate", "2025-02-14"),
    (IMMUNIZATION, FIRST, "status", "completed"),
    (IMMUNIZATION, FIRST, "identifier.value", "IMM-1 | P-20"),
    (IMMUNIZATION, FIRST, "identifier.type.coding.code", "FILL | PLAC"),
    (IMMUNIZATION, FIRST, "vaccineCode.coding.system", "http://hl7.org/fhir/sid/cvx | http://hl7.org/fhir/sid/ndc"),
    (IMMUNIZATION, FIRST, "vaccineCode.coding.code", "20 | 00001"),
    (IMMUNIZATION, FIRST, "occurrenceDateTime", "2026-03-20"),
    (IMMUNIZATION, FIRST, "doseQuantity.value", "0.5"),
    (IMMUNIZATION, FIRST, "doseQuantity.code", "mL"),
    (IMMUNIZATION, FIRST, "primarySource", "true"),
    (IMMUNIZATION, FIRST, "lotNumber", "U1234"),
    (IMMUNIZATION, FIRST, "recorded", "2026-03-20T10:10:00-05:00"),
    (IMMUNIZATION, FIRST, "performer.function.coding.code", "OP | AP"),
    (IMMUNIZATION, FIRST, "performer.actor.display", "Dana Doctor | Nina Nurse"),
    (IMMUNIZATION, FIRST, "route.coding.code", "IM | IM"),
    (IMMUNIZATION, FIRST, "site.coding.code", "LD"),
    (IMMUNIZATION, FIRST, "programEligibility.coding.code", "V05"),
    (IMMUNIZATION, FIRST, "fundingSource.coding.code", "PHC70"),
    (IMMUNIZATION, FIRST, "protocolApplied.doseNumberPositiveInt", "3"),
    (IMMUNIZATION, FIRST, "protocolApplied.doseNumberString", ""),
    (IMMUNIZATION, FIRST, "protocolApplied.seriesDosesPositiveInt", "5"),
    (IMMUNIZATION, FIRST, "education.documentType", "DTaP VIS | DTaP"),
    (IMMUNIZATION, FIRST, "education.publicationDate", "2024-05-01"),
    (IMMUNIZATION, FIRST, "education.presentationDate", "2026-03-20 | 2026-03-20"),
    (IMMUNIZATION, FIRST, "reaction.detail.reference", "Observation-1"),
    (IMMUNIZATION, FIRST, "reaction.date", "2026-03-21"),
    (IMMUNIZATION, FIRST, "location.reference", "Location-1"),
    (IMMUNIZATION, SECOND, "primarySource", "false"),
    (IMMUNIZATION, SECOND, "reportOrigin.coding.code", "01"),
    (IMMUNIZATION, SECOND, "doseQuantity.value", ""),
    ("Observation", "", "code.coding.code", "31044-1 | 8310-5 | 29768-9"),
    ("Observation", "", "partOf.reference", "Immunization-1 | Immunization-1 | Immunization-2"),
    ("Observation", "", "note.text", "Reported by phone"),
    ("Organization", "identifier.value=PMC", "name", "sanofi pasteur"),
]

REFUSAL = [
    (IMMUNIZATION, "", "status", "not-done"),
    (IMMUNIZATION, "", "statusReason.coding.code", "00"),
    (IMMUNIZATION, "", "vaccineCode.coding.code", "107"),
    (IMMUNIZATION, "", "identifier.system", "urn:ipf:derived"),
]

DELETED = [
    (IMMUNIZATION, "", "status", "entered-in-error"),
    (IMMUNIZATION, "", "reasonCode.coding.code", "Z23"),
    (IMMUNIZATION, "", "expirationDate", "2027-01-01"),
    (IMMUNIZATION, "", "encounter.reference", "Encounter-1"),
    (IMMUNIZATION, "", "performer.function.coding.code", "AP"),
    ("Observation", "", "valueCodeableConcept.coding.code", "38907003"),
    ("Observation", "", "note.text", "Told by the mother"),
    ("Encounter", "", "identifier.value", "V9"),
]


class ImmunizationTests(TestCase):
    """What stands in the samples."""

    def test_facts(self) -> None:
        """Each in its place."""
        hold(self, "vxu_child", CHILD)
        hold(self, "vxu_refusal", REFUSAL)
        hold(self, "vxu_delete", DELETED)

    def test_deletion_meets_what_it_deletes(self) -> None:
        """By the filler's number."""
        urls = [
            one["request"]["url"]
            for name in ("vxu_child", "vxu_delete")
            for one in samples.bundle(name)["entry"]
            if one["resource"]["resourceType"] == IMMUNIZATION
        ]
        self.assertEqual(urls[0], urls[2])
        self.assertNotEqual(urls[0], urls[1])
