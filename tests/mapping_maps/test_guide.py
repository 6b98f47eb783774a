"""Our maps against HL7's v2-to-FHIR guide, where its tables lie beside the project."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator

from twisted.trial.unittest import TestCase

from ipf.config.paths import folder
from ipf.mapping.language.concepts import Table
from tests.reference import REFERENCE, needs_reference

V2 = "http://terminology.hl7.org/CodeSystem/v2-"

TABLES = {
    "AdministrativeSex": "AdministrativeSex",
    "MaritalStatus": "MaritalStatus",
    "Religion": "Religion",
    "Event[EncounterStatus]": "Event_EncounterStatus",
    "PatientClass[EncounterClass]": "PatientClass_EncounterClass",
    "PatientClass[EncounterStatus]": "PatientClass_EncounterStatus",
    "AmbulatoryStatus": "AmbulatoryStatus",
    "DiagnosisType": "DiagnosisType",
    "Relationship": "Relationship",
    "HospitalService": "HospitalService",
    "InterpretationCodes": "InterpretationCodes",
    "ObservationResultStatusCodesInterpretation": "ObservationResultStatus",
    "AllergenType[AllergyIntoleranceCategory]": "AllergenType_Category",
    "AllergyType": "AllergenType_Type",
    "AllergySeverity[AllergyIntolerance.criticality]": "AllergySeverity_Criticality",
    "AllergySeverity[AllergyIntolerance.reaction.severity]": "AllergySeverity_ReactionSeverity",
    "AddressType[Type]": "AddressType_Type",
    "AddressType[Use]": "AddressType_Use",
    "NameType": "NameType",
    "TelecommunicationUseCode": "TelecommunicationUseCode",
    "TelecommunicationEquipmentType": "TelecommunicationEquipmentType",
    "IdentifierType": "IdentifierType",
    "EncounterPriority": "EncounterPriority",
    "ProviderRole": "ProviderRole",
    "LivingWillCode": "LivingWillCode",
    "ResultStatus[Non-Queries]": "ResultStatus_DiagnosticReport",
    "CompletionStatus": "CompletionStatus",
    "YesNoIndicator[AvailabilityStatus]": "YesNo_SpecimenAvailability",
    "SpecimenCollectionMethod": "SpecimenCollectionMethod",
    "RouteOfAdministration": "RouteOfAdministration",
    "EventReason": "EventReason",
    "OrderControlCode[ServiceRequest.status]": "OrderControlCode_ServiceRequestStatus",
    "OrderStatus": "OrderStatus",
    "OrderType": "OrderType",
    "ExtendedPriorityCodes": "ExtendedPriorityCodes",
    "ConfidentialityCode": "ConfidentialityCode",
    "RepeatPattern": "RepeatPattern",
    "EventRelatedPeriod": "EventRelatedPeriod",
    "FillerStatusCodes[Appointment]": "FillerStatusCodes_Appointment",
    "AppointmentReasonCodes": "AppointmentReasonCodes",
    "AppointmentTypeCodes": "AppointmentTypeCodes",
    "CommentType": "CommentType",
    "AllowSubstitution": "AllowSubstitution",
    "AdministrationMethod": "AdministrationMethod",
}
"""Tables of the guide by name, and the file under maps/codesystems that carries them."""

DECIDED = {
    ("Event_EncounterStatus", "A08"): "says nothing about the state of a visit: the class of patient does",
    ("TelecommunicationEquipmentType", "CP"): "a cell phone is a phone (system) that is mobile (use)",
    ("IdentifierType", "NNxxx"): "a pattern, not a code",
}
"""Where the maps differ on purpose."""


def guide_rows(name: str) -> Iterator[tuple[str, str, str]]:
    """(v2 code, FHIR code, FHIR system) of a table of the guide."""
    path = REFERENCE / "v2-to-fhir" / "codesystems" / f"HL7 Concept Map_ {name} - Sheet1.csv"
    with path.open(encoding="utf-8-sig", newline="") as file:
        for row in csv.reader(file):
            cells = [cell.strip() for cell in row] + [""] * 12
            if cells[0] and cells[2].startswith("HL7") and cells[6]:
                yield cells[0], cells[6], cells[9] or cells[8]  # one table lacks the column in between


def guide_codes(name: str) -> Iterator[tuple[str, str]]:
    """(v2 code, FHIR code or nothing) of a table of the guide; no patterns."""
    path = REFERENCE / "v2-to-fhir" / "codesystems" / f"HL7 Concept Map_ {name} - Sheet1.csv"
    with path.open(encoding="utf-8-sig", newline="") as file:
        for row in csv.reader(file):
            cells = [cell.strip() for cell in row] + [""] * 12
            if cells[0] and cells[2].startswith("HL7") and "<" not in cells[0]:
                yield cells[0], cells[6]


def own_rows(stem: str) -> dict[str, tuple[str, str]]:
    """The same of ours, by v2 code."""
    content = json.loads((folder("maps") / "codesystems" / f"{stem}.json").read_text(encoding="utf-8"))
    found: dict[str, tuple[str, str]] = {}
    for group in content["group"]:
        for element in group["element"]:
            if "code" in element["target"][0]:
                found.setdefault(element["code"], (element["target"][0]["code"], group["target"]))
    return found


@needs_reference
class GuideTables(TestCase):
    """Code tables."""

    def setUp(self) -> None:
        """The guide is not part of the project."""

    def test_codes(self) -> None:
        """Each row of the guide is in our table, or says a code of HL7 v2 as itself, which needs no row."""
        for name, stem in TABLES.items():
            own = own_rows(stem)
            for code, target, system in guide_rows(name):
                if (stem, code) in DECIDED:
                    continue
                with self.subTest(table=name, code=code):
                    itself = system.startswith(V2) and target == code
                    self.assertEqual(own.get(code, (target, system) if itself else None), (target, system))

    def test_codes_that_match_nothing(self) -> None:
        """What the guide leaves without a target is no gap that an operator should hear of."""
        for name, stem in TABLES.items():
            content = json.loads((folder("maps") / "codesystems" / f"{stem}.json").read_text(encoding="utf-8"))
            table = Table(content)
            known = table.results("code").keys() | table.without_match
            codes = list(guide_codes(name))
            blank = {code for code, target in codes if not target} - {code for code, target in codes if target}
            with self.subTest(table=name):
                self.assertEqual(blank - known if not table.is_partial else set(), set())

    def test_every_table_is_used(self) -> None:
        """No file of ours is left out of this comparison, but those that the guide has no table for."""
        ours = {path.stem for path in (folder("maps") / "codesystems").glob("*.json")}
        own = {"AssigningAuthority", "CodingSystem", "DurationUnit", "EthnicGroup", "QuantityComparator", "Race"}
        own |= {"Event_AppointmentStatus", "FillerStatusCodes_ParticipationStatus"}
        own |= {"OrderControlCode_MedicationRequestStatus", "OrderStatus_MedicationRequest"}
        own |= {"ProblemLifeCycle_ClinicalStatus", "ProblemConfirmation_VerificationStatus"}
        own |= {"GoalLifeCycle_Status", "PathwayLifeCycle_Status"}
        own |= {"MediaType", "DocumentContentPresentation_MediaType", "DiagnosticServiceSection_Category"}
        own |= {"DocumentAvailability_Status", "DocumentCompletion_DocStatus", "CountryCurrency"}
        self.assertEqual(ours - set(TABLES.values()), own)
