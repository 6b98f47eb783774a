"""Results (ORU): what is in the message is in the resources, in its place; and the same result meets itself again."""

from __future__ import annotations

import sys
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.hl7.message import Message
from tests.corpus import samples
from tests.mapping_maps.facts import Fact, hold
from tests.traffic.messages_results import oru, oru_document

OBSERVATION, REPORT, SPECIMEN, REQUEST = "Observation", "DiagnosticReport", "Specimen", "ServiceRequest"
CODE = "code.coding.code"


def value(code: str, path: str, wanted: str) -> Fact:
    """A fact about the observation with this code."""
    return (OBSERVATION, f"{CODE}={code}", path, wanted)


VALUES = [
    ("Patient", "", "name.family", "Åsen"),
    ("Patient", "", "birthDate", "1980-02-29"),
    (REPORT, "", "status", "final"),
    (REPORT, "", "code.coding.code", "PNL | 24323-8"),
    (REPORT, "", "effectivePeriod.start", "2026-03-01T09:30:00+01:00"),
    (REPORT, "", "effectivePeriod.end", "2026-03-01T09:35:00+01:00"),
    (REPORT, "", "issued", "2026-03-01T10:10:00+01:00"),
    (REPORT, "", "identifier.1.value", "F-1001"),
    (REPORT, "", "identifier.1.system", "urn:ipf:authority:LIS"),
    (REPORT, "", "identifier.1.type.coding.code", "FILL"),
    (REPORT, "", "identifier.2.value", "P-1001"),
    (REPORT, "", "identifier.2.type.coding.code", "PLAC"),
    (REPORT, "", "basedOn.reference", "ServiceRequest-1"),
    (REPORT, "", "encounter.reference", "Encounter-1"),
    (REPORT, "", "resultsInterpreter.display", "Tora Tolk | Ask Assist"),
    (REPORT, "", "performer.extension.valueCodeableConcept.coding.code", "SPRF | TRANS"),
    (REPORT, "", "extension.valueAnnotation.text", "Report comment, first line\nsecond line"),
    (REPORT, "", "extension.valueCodeableConcept.coding.code", "RESCHED"),
    (SPECIMEN, "", "collection.collector.reference", "Practitioner-2"),
    value("1988-5", "valueQuantity.value", "0.5"),
    value("1988-5", "valueQuantity.comparator", "<"),
    value("1988-5", "valueQuantity.unit", "mg/L"),
    value("1988-5", "valueQuantity.code", ""),
    value("1988-5", "effectivePeriod.start", "2026-03-01T09:30:00+01:00"),
    value("5792-7", "valueString", "negative"),
    value("5792-7", "extension.valueCodeableConcept.coding.code", "A"),
    value("5130-0", "valueRatio.numerator.value", "1"),
    value("5130-0", "valueRatio.denominator.value", "128"),
    value("20570-8", "valueRange.low.value", "38"),
    value("20570-8", "valueRange.high.unit", "%"),
    value("777-3", "valueQuantity.comparator", ">"),
    value("777-3", "status", "preliminary"),
    value("777-3", "referenceRange.low.value", "150"),
    value("5821-4", "valueString", "<> 5 /HPF"),
    value("5794-3", "valueString", "2 +"),
    value("5778-6", "valueString", "Yellow & clear"),
    value("22637-3", "valueString", "First line\nSecond line"),
    value("22638-1", "valueString", "One\nTwo bold three"),
    value("882-1", "valueCodeableConcept.coding.code", "278149003 | A"),
    value("882-1", "valueCodeableConcept.text", "A positive?"),
    value("882-1", "status", "corrected"),
    value("600-7", "valueCodeableConcept.coding.code", "3092008 | 112283007"),
    value("600-7", "extension.extension.valueString", "1.1 | 1.2"),
    value("X1", "valueCodeableConcept.coding.code", "Y"),
    value("8665-2", "valueDateTime", "2026-01-15"),
    value("X2", "valueDateTime", "2026-03-01T08:15:00+01:00"),
    value("X3", "valueTime", "08:15:00"),
    value("X4", "valuePeriod.end", "2026-01-31"),
    value("X5", "valueRange.high.value", "3.5"),
    value("X6", "valueString", "10-20"),
    value("X7", "valueQuantity.value", "250"),
    value("X7", "valueQuantity.code", "mL"),
    value("X8", "valueString", "BAG123"),
    value("X9", "valueString", "Mr Per Hansen"),
    value("X10", "valueString", "1 Road Apt 2, 0155 Oslo NOR"),
    value("X11", "valueString", "22 112233"),
    value("X12", "valueSampledData.data", "1 2 3.5"),
    value("X12", "valueSampledData.dimensions", "1"),
    value("X13", "valueSampledData.data", "1 2 3 4 5 6"),
    value("X13", "valueSampledData.dimensions", "2"),
    value("X14", "component.valueQuantity.value", "120 | 122 | 118"),
    value("X15", "status", "cancelled"),
    value("X15", "_status.extension.valueCodeableConcept.coding.code", "X"),
    value("X15", "dataAbsentReason.coding.code", "not-performed"),
    value("X16", "valueString", "some text"),
    value("X17", "status", "unknown"),
    value("X17", "note.text", "Comment to the last"),
    (OBSERVATION, "code.text=Only text as name", "valueString", "here"),
]

PANEL = [
    (REPORT, "", CODE, "58410-2 | 24326-1"),
    (REPORT, "", "status", "final | preliminary"),
    (REPORT, f"{CODE}=58410-2", "result.reference", "Observation-1 | Observation-2"),
    (REPORT, f"{CODE}=24326-1", "result.reference", "Observation-4 | Observation-5"),
    (REPORT, f"{CODE}=24326-1", "specimen.reference", "Specimen-1 | Specimen-3"),
    (REQUEST, f"{CODE}=24326-1", "supportingInfo.reference", "Observation-6"),
    value("718-7", "identifier.0.value", "OBX-1-INST"),
    value("718-7", "category.coding.code", "laboratory"),
    value("718-7", "performer.reference", "PractitionerRole-1"),
    value("6690-2", "interpretation.0.coding.code", "L | L"),
    value("6690-2", "interpretation.1.coding.code", "A | A"),
    value("6690-2", "note.text", "Repeated and confirmed. | Called to ward."),
    value("49541-6", "category.coding.code", "laboratory | QST"),
    value("X20", "focus.reference", "Specimen-1"),
    ("PractitionerRole", "code.coding.code=MDIR", "organization.display", "Central Lab"),
    (SPECIMEN, "identifier.value=S-9", "identifier.value", "S-9 | S-9L | OTHER-1 | SHIP-1"),
    (SPECIMEN, "identifier.value=S-9", "identifier.type.coding.code", "PGN | FGN | SHIP"),
    (SPECIMEN, "identifier.value=S-9", "parent.reference", "Specimen-2"),
    (SPECIMEN, "identifier.value=S-9", "status", "available"),
    (SPECIMEN, "identifier.value=S-9", "type.coding.code", "119297000"),
    (SPECIMEN, "identifier.value=S-9", "collection.method.coding.code", "129314006 | BIO"),
    (SPECIMEN, "identifier.value=S-9", "collection.bodySite.coding.code", "LA | DIST"),
    (SPECIMEN, "identifier.value=S-9", "collection.quantity.value", "5"),
    (SPECIMEN, "identifier.value=S-9", "collection.collectedPeriod.end", "2026-03-02T08:03:00Z"),
    (SPECIMEN, "identifier.value=S-9", "container.additiveCodeableConcept.coding.code", "HEPL"),
    (SPECIMEN, "identifier.value=S-9", "container.type.coding.code", "TUBE"),
    (SPECIMEN, "identifier.value=S-9", "condition.coding.code", "HEM"),
    (SPECIMEN, "identifier.value=S-9", "note.text", "Hemolyzed slightly"),
    (SPECIMEN, "identifier.value=S-9", "accessionIdentifier.value", "ACCN-77"),
    (SPECIMEN, "identifier.value=S-10", "collection.collectedDateTime", "2026-03-02T08:05:00Z"),
]

CORRECTED = [
    (REPORT, "", "status", "corrected"),
    value("2951-2", "status", "corrected"),
    value("2951-2", "valueQuantity.value", "141"),
    value("2823-3", "status", "cancelled"),
    value("2823-3", "dataAbsentReason.coding.code", "not-performed"),
    value("2075-0", "status", "entered-in-error"),
    value("2028-9", "status", "entered-in-error"),
    value("49541-6", "status", "final"),
    value("49541-6", "dataAbsentReason.coding.code", "not-asked"),
]

RADIOLOGY = [
    (REPORT, "", "presentedForm.contentType", "application/pdf | application/rtf | image/jpeg | image/png"),
    (REPORT, "", "presentedForm.title", "Report as PDF | Report as RTF | Image | Small"),
    (REPORT, "", "presentedForm.1.data", "e1xydGYxIEhlbGxvfQ=="),
    (REPORT, "", "presentedForm.2.url", "https://pacs.example.org/wado/1.2.3"),
    (REPORT, "", "presentedForm.3.data", "iVBORw=="),
    (REPORT, "", "presentedForm.0.creation", "2026-03-04T10:10:00Z"),
    (REPORT, "", "category.coding.code", "RAD"),
    (OBSERVATION, "", "valueString", "No infiltrate | no effusion. | Heart size normal."),
    (OBSERVATION, "", "category.coding.code", " | ".join(["imaging"] * 7)),
]

TWO_PATIENTS = [
    ("Patient", "", "name.family", "First | Second"),
    (REPORT, "", "subject.reference", "Patient-1 | Patient-2"),
    (REPORT, "", "status", "final | registered | unknown"),
    (OBSERVATION, "", "subject.reference", "Patient-1 | Patient-2"),
    (OBSERVATION, "", "valueQuantity.value", "5.1 | 13.5"),
    (OBSERVATION, "", "status", "final | registered | unknown"),
    (OBSERVATION, "", "note.text", "Note to the result"),
    (REQUEST, "", "subject.display", "No patient was sent"),
    (SPECIMEN, "", "type.coding.code", "BLD"),
    (SPECIMEN, "", "container.additiveCodeableConcept.coding.code", "HEPL"),
    (SPECIMEN, "", "note.text", "drawn late"),
    (SPECIMEN, "", "collection.bodySite.coding.code", "LA"),
    (SPECIMEN, "", "receivedTime", "2026-03-05T08:30:00Z"),
]

V28 = [
    (OBSERVATION, f"{CODE}=29463-7", "performer.reference", "Organization-2"),
    (REPORT, "", "resultsInterpreter.display", "Rita Radio"),
    (REPORT, "", "performer.display", "Tor Tekno"),
    (REPORT, "", "identifier.type.coding.code", "FILL | PLAC | FGN | PGN"),
    (REQUEST, "", "requester.display", "Lars Lege"),
    (SPECIMEN, "identifier.value=S-20", "collection.collector.display", "Sam Samler"),
    value("2345-7", "extension.extension.url", "original-sub-identifier | group | sequence | identifier"),
    value("2345-7", "device.reference", "Device-1"),
    value("2345-7", "performer.display", "Olga Obs"),
    value("2345-7", "specimen.reference", "Specimen-1"),
    value("2345-7", "extension.valueReference.reference", "Location-1"),
    value("2951-2", "extension.valueReference.reference", "Specimen-1 | Specimen-2"),
    ("Device", "", "serialNumber", "SER7"),
    ("Device", "", "udiCarrier.deviceIdentifier", "00012345678905"),
    ("Device", "", "expirationDate", "2030-01-01"),
    ("PractitionerRole", "code.coding.code=RO", "telecom.value", "+47 22 112233"),
    ("PractitionerRole", "code.coding.code=RO", "period.end", "2026-03-07"),
]

POINT_OF_CARE = [
    ("Patient", "", "name.family", "Moe"),
    ("Encounter", "", "class.code", "EMER"),
    (REPORT, "", "identifier.1.value", "POC-1"),
    (REQUEST, "", "priority", "stat"),
    value("2339-0", "valueQuantity.value", "7.2"),
    value("2339-0", "note.text", "Fingerstick"),
    value("2339-0", "encounter.reference", "Encounter-1"),
]


class ResultFacts(TestCase):
    """What stands in the samples."""

    def test_facts(self) -> None:
        """Each in its place."""
        hold(self, "oru_values", VALUES)
        hold(self, "oru_panel", PANEL)
        hold(self, "oru_corrected", CORRECTED)
        hold(self, "oru_radiology", RADIOLOGY)
        hold(self, "oru_two_patients", TWO_PATIENTS)
        hold(self, "oru_v28", V28)
        hold(self, "oru_r30_poc", POINT_OF_CARE)


MESSAGE = "MSH|^~\\&|LIS|HOSP|||2026||ORU^R01^ORU_R01|1|P|2.5.1\nPID|||P1^^^HOSP^MR||Doe\n{}"


def resources(text: str, resource_type: str) -> list[dict[str, Any]]:
    """Resources of a type, of a message with these segments after PID."""
    entries = samples.library().transform_message(samples.parse(MESSAGE.format(text)))["entry"]
    return [one["resource"] for one in entries if one["resource"]["resourceType"] == resource_type]


def requests(text: str, resource_type: str) -> list[str]:
    """How entries of a type are written."""
    entries = samples.library().transform_message(samples.parse(MESSAGE.format(text)))["entry"]
    return [
        one["request"]["method"] + " " + (one["request"].get("ifNoneExist") or one["request"]["url"])
        for one in entries
        if one["resource"]["resourceType"] == resource_type
    ]


OBR = "OBR|1|P^HIS|F^LIS|C^Panel^L|||20260101\n"


class SameResultTests(TestCase):
    """A result is found again by patient, order, code and sub-ID."""

    def test_a_correction_meets_the_first_result(self) -> None:
        """Whatever is different: status, value, position, time of the message, the visit."""
        first = requests("PV1||I|||||||||||||||||V1\n" + OBR + "OBX|3|NM|GLU^^L|1|5||||||P|||20260101", OBSERVATION)
        again = requests(OBR + "OBX|1|ST|GLU^Glucose^L|1|6||||||C", OBSERVATION)
        self.assertEqual(first, again)
        self.assertTrue(first[0].startswith("PUT Observation?identifier=urn:ipf:derived|"))

    def test_other_results(self) -> None:
        """Another order, service, code or sub-ID is another result; the same code twice is two."""
        texts = [
            OBR + "OBX|1|NM|GLU^^L|1|5",
            OBR.replace("F^LIS", "G^LIS") + "OBX|1|NM|GLU^^L|1|5",
            OBR.replace("C^Panel", "D^Panel") + "OBX|1|NM|GLU^^L|1|5",
            OBR + "OBX|1|NM|NA^^L|1|5",
            OBR + "OBX|1|NM|GLU^^L|2|5",
            OBR + "OBX|1|NM|GLU^^L|3|5\nOBX|2|NM|GLU^^L|3|6",
        ]
        found = [one for text in texts for one in requests(text, OBSERVATION)]
        self.assertEqual((len(found), len(set(found))), (7, 7))

    def test_reports_of_one_accession(self) -> None:
        """Two services under one number are two reports, and so is the same service twice."""
        texts = OBR + "OBX|1|NM|A^^L||5\n" + OBR.replace("C^", "D^") + "OBX|1|NM|B^^L||5\n" + OBR + "OBX|1|NM|E^^L||5"
        self.assertEqual(len(set(requests(texts, REPORT))), 3)
        self.assertEqual([len(one["result"]) for one in resources(texts, REPORT)], [1, 1, 1])

    def test_numbers_that_name_an_order(self) -> None:
        """The filler's in OBR or ORC, else the placer's, else the time."""
        table = [
            ("ORC|RE\nOBR|1||F^LIS|C", "ORC|RE||F^LIS\nOBR|1|||C"),
            ("ORC|RE|P^HIS\nOBR|1|||C", "OBR|1|P^HIS||C"),
            ("OBR|1|||C|||20260101", "OBR|1|||C|||20260101|||||||||||||||||F"),
        ]
        for one, other in table:
            with self.subTest(one=one):
                self.assertEqual(requests(one, REPORT), requests(other, REPORT))
        self.assertNotEqual(requests("OBR|1|||C|||20260101", REPORT), requests("OBR|1|||C|||20260102", REPORT))

    def test_what_is_not_overwritten(self) -> None:
        """Patient, visit and order are made when there is none; a result never takes their place."""
        text = "PV1||I|||||||||||||||||V1\n" + OBR + "OBX|1|NM|GLU^^L||5"
        for resource_type in ("Patient", "Encounter", REQUEST):
            self.assertTrue(requests(text, resource_type)[0].startswith("POST identifier="), resource_type)

    def test_a_visit_that_says_nothing(self) -> None:
        """A class of patient alone makes no Encounter."""
        self.assertEqual(resources("PV1|1|O\n" + OBR, "Encounter"), [])


class StatusTests(TestCase):
    """Tables 0085 and 0123."""

    def test_observations(self) -> None:
        """Each code, an unknown one, none."""
        table = {
            "A": "amended", "B": "amended", "C": "corrected", "D": "entered-in-error", "F": "final", "I": "registered",
            "N": "final", "O": "registered", "P": "preliminary", "R": "preliminary", "S": "preliminary", "U": "final",
            "V": "final", "W": "entered-in-error", "X": "cancelled", "Q": "unknown", "": "unknown",
        }  # fmt: skip
        for code, wanted in table.items():
            with self.subTest(code=code):
                found = resources(OBR + f"OBX|1|NM|GLU^^L||5||||||{code}", OBSERVATION)
                self.assertEqual(found[0]["status"], wanted)

    def test_reports(self) -> None:
        """Each code, an unknown one, none."""
        table = {
            "O": "registered", "I": "registered", "S": "registered", "A": "partial", "P": "preliminary",
            "C": "corrected", "R": "partial", "F": "final", "X": "cancelled", "Y": "unknown", "Z": "unknown",
            "M": "preliminary", "N": "registered", "q": "unknown", "": "unknown",
        }  # fmt: skip
        for code, wanted in table.items():
            with self.subTest(code=code):
                self.assertEqual(resources("OBR|1||F|C" + "|" * 21 + code, REPORT)[0]["status"], wanted)


class LargeMessageTests(TestCase):
    """The messages of the benches."""

    def test_thirty_observations(self) -> None:
        """All of them, in order, each with the specimen; three notes."""
        bundle = samples.library().transform_message(Message.parse(oru(30)))
        found = [one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == OBSERVATION]
        report = next(one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == REPORT)
        self.assertEqual((len(found), len(report["result"])), (30, 30))
        self.assertEqual(sum("note" in one for one in found), 3)
        self.assertTrue(all("specimen" in one for one in found))

    def test_document(self) -> None:
        """The whole document, once."""
        bundle = samples.library().transform_message(Message.parse(oru_document(200_000)))
        report = next(one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == REPORT)
        self.assertEqual(report["presentedForm"][0]["contentType"], "application/pdf")
        self.assertGreater(len(report["presentedForm"][0]["data"]), 198_000)


CULTURE = (
    "MSH|^~\\&|A|B|||20260310||ORU^R01^ORU_R01|1|P|2.5.1\nPID|1||1^^^B^MR||X\nOBR|1|P1^EHR|F1^LAB|630-4^Culture^LN\n"
    "OBX|1|CWE|600-7^Bacteria^LN|1|112283007^E. coli^SCT||||||F\nOBX|2|CWE|600-7^Bacteria^LN|2|3092008^Staph^SCT||||||F"
)
COLI, STAPH = "600-7&Bacteria&LN^1", "600-7&Bacteria&LN^2"


def organisms(*parents: tuple[str, str]) -> list[list[str]]:
    """The organisms of the susceptibilities after a culture, each in an OBR with these OBR-26 and OBR-29."""
    lines = [CULTURE]
    for number, (result, order) in enumerate(parents, 2):
        lines.append(f"OBR|{number}|P{number}^EHR|F{number}^LAB|50545-3^Susc^LN{'|' * 22}{result}|||{order}")
        lines.append("OBX|1|ST|18906-8^Cipro^LN||S||||||F")
    bundle = samples.library().transform_message(samples.parse("\n".join(lines)))
    by_url = {one.get("fullUrl"): one["resource"] for one in bundle["entry"]}
    tests = [one["resource"] for one in bundle["entry"] if "valueString" in one["resource"]]
    links = [[link for link in one.get("derivedFrom", ()) if "reference" in link] for one in tests]
    found = [[by_url[link["reference"]] for link in row] for row in links]
    return [[one["valueCodeableConcept"]["coding"][0]["display"] for one in row] for row in found]


class ParentResultTests(TestCase):
    """OBR-26 and OBR-29: of which organism a susceptibility is."""

    def test_two_organisms(self) -> None:
        """By code and sub-ID, in the order that is named by either number, or is the only one."""
        for order in ("P1&EHR^F1&LAB", "^F1&LAB", "P1&EHR", ""):
            with self.subTest(order=order):
                self.assertEqual(organisms((COLI, order), (STAPH, order)), [["E. coli"], ["Staph"]])
                self.assertEqual(organisms((STAPH, order), (STAPH, order)), [["Staph"], ["Staph"]])

    def test_no_such_parent(self) -> None:
        """Another sub-ID, code or none: no link."""
        for parent in ("600-7&Bacteria&LN^3", "600-7&Bacteria&LN", "600&Bacteria&LN^1", "00-7&Bacteria&LN^1", "^1", ""):
            with self.subTest(parent=parent):
                self.assertEqual(organisms((parent, "^F1&LAB")), [[]])

    def test_a_parent_of_an_earlier_message(self) -> None:
        """It is named: by the descriptor of its value, else the text or the code of OBR-26."""
        head = "MSH|^~\\&|A|B|||20260310120000||ORU^R01^ORU_R01|1|P|2.5.1\nPID|1||1^^^B^MR||X\n"
        for sent, display in (
            ("600-7&Bacteria&LN^1^E. coli", "E. coli"),
            ("600-7&Bacteria&LN^1", "Bacteria"),
            ("600-7", "600-7"),
            ("^1", None),
        ):
            order = f"OBR|1|P2|F2|50545-3^Susc^LN{'|' * 22}{sent}|||^F1&LAB\nOBX|1|ST|18906-8^Cipro^LN||S||||||F"
            bundle = samples.library().transform_message(samples.parse(head + order))
            [test] = [one["resource"] for one in bundle["entry"] if "valueString" in one["resource"]]
            named = [(one["type"], one["display"]) for one in test.get("derivedFrom", ())]
            self.assertEqual(named, [] if display is None else [("Observation", display)], sent)
            self.assertEqual(
                {one["identifier"]["value"] for one in test.get("derivedFrom", ())}, {"F1"} if display else set()
            )

    def test_two_cultures(self) -> None:
        """The order says which; without it there is no link."""
        second = CULTURE.partition("OBR")[2].replace("P1^", "P9^").replace("F1^", "F9^").replace("E. coli", "Proteus")
        self.patch(sys.modules[__name__], "CULTURE", f"{CULTURE}\nOBR{second}")
        self.assertEqual(organisms((COLI, "^F9&LAB"), (COLI, "^F1&LAB"), (COLI, "")), [["Proteus"], ["E. coli"], []])
