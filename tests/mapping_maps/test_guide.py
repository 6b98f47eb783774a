"""Our maps against HL7's v2-to-FHIR guide, where its tables lie beside the project.

The facts of `v2-pairs` come from messages of results; those about PID and NK1 are tried by calling the same message an
ADT.  The others (orders, results) wait for the maps of those messages.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest, TestCase

from ipf.data import folder
from tests.corpus import samples

REFERENCE = Path(__file__).resolve().parents[2].parent / "shared" / "reference"
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


def own_rows(stem: str) -> dict[str, tuple[str, str]]:
    """The same of ours, by v2 code."""
    content = json.loads((folder("maps") / "codesystems" / f"{stem}.json").read_text(encoding="utf-8"))
    found: dict[str, tuple[str, str]] = {}
    for group in content["group"]:
        for element in group["element"]:
            found.setdefault(element["code"], (element["target"][0]["code"], group["target"]))
    return found


class GuideTables(TestCase):
    """Code tables."""

    def setUp(self) -> None:
        """The guide is not part of the project."""
        if not REFERENCE.is_dir():
            raise SkipTest("shared/reference is not there")

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

    def test_every_table_is_used(self) -> None:
        """No file of ours is left out of this comparison, but those that the guide has no table for."""
        ours = {path.stem for path in (folder("maps") / "codesystems").glob("*.json")}
        own = {"AssigningAuthority", "CodingSystem", "DurationUnit", "EthnicGroup", "Race"}
        own |= {"Event_AppointmentStatus", "FillerStatusCodes_ParticipationStatus"}
        self.assertEqual(ours - set(TABLES.values()), own)


class GuideFacts(TestCase):
    """Facts about small messages, one per row of the tables of DTM, CX, XPN and CWE."""

    def test_core_facts(self) -> None:
        """At least 98 of 100 core facts about PID and NK1 hold."""
        pairs = REFERENCE / "v2-pairs"
        if not pairs.is_dir():
            raise SkipTest("shared/reference/v2-pairs is not there")
        tried, failed, others = 0, [], 0
        for case in json.loads((pairs / "facts.json").read_text(encoding="utf-8")):
            facts = [one for one in case["core"] if one["src"].startswith(("PID-", "NK1-"))]
            others += len(case["core"]) - len(facts)
            if not facts:
                continue
            text = (pairs / "messages" / f"{case['name']}.hl7").read_text(encoding="utf-8")
            bundle = samples.library().transform_message(as_adt(text))
            tried += len(facts)
            failed += [(case["name"], one) for one in facts if not holds(bundle, one)]
        self.assertGreater(tried, 20)
        self.assertLessEqual(len(failed), tried * 0.02, failed)
        print(f"core facts: {tried - len(failed)} of {tried} hold; {others} are about orders, results and headers")


def as_adt(text: str) -> Any:
    """The same segments under an ADT^A08, from a named sender."""
    segments = text.replace("\r\n", "\n").replace("\r", "\n").strip().split("\n")
    kept = [one for one in segments[1:] if one.startswith(("PID", "NK1"))]
    return samples.parse("\n".join(["MSH|^~\\&|A|B|||2026||ADT^A08^ADT_A01|1|P|2.5.1", *kept]))


def holds(bundle: dict[str, Any], fact: dict[str, Any]) -> bool:
    """Whether some resource of the fact's type has its value at its path."""
    values = [
        value
        for entry in bundle["entry"]
        if entry["resource"]["resourceType"] == fact["rt"]
        for path in fact["path"].split(" or ")
        for value in at(entry["resource"], path.split("."))
    ]
    wanted = fact["value"].lower()
    if fact["op"] == "date":
        return any(str(one).lower().startswith(wanted) for one in values)
    return any(str(one).lower() == wanted for one in values)


def at(value: Any, path: list[str]) -> Iterator[Any]:
    """Values at a path, lists flattened."""
    if isinstance(value, list):
        for one in value:
            yield from at(one, path)
    elif not path:
        yield value
    elif isinstance(value, dict) and path[0] in value:
        yield from at(value[path[0]], path[1:])
