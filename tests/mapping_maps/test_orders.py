"""Orders and appointments: what is in the message is in the resources, and what each code makes of their state."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from tests.corpus import samples
from tests.mapping_maps.facts import Fact, hold

REQUEST, APPOINTMENT, PROVENANCE, SPECIMEN = "ServiceRequest", "Appointment", "Provenance", "Specimen"
NUMBER = "identifier.0.value"


def order(number: str, path: str, wanted: str) -> Fact:
    """A fact about the order with this placer number."""
    return (REQUEST, f"{NUMBER}={number}", path, wanted)


RADIOLOGY = [
    order("P-1001", "identifier.value", "P-1001 | F-2001 | FG-8 | ALT-3 | ALT-4"),
    order("P-1001", "identifier.type.coding.code", "PLAC | FILL | FGN | PLAC | PLAC"),
    order("P-1001", "identifier.0.system", "urn:ipf:authority:EHR"),
    order("P-1001", "identifier.1.system", "urn:ipf:authority:RIS"),
    order("P-1001", "requisition.value", "G-50"),
    order("P-1001", "status", "active"),
    order("P-1001", "intent", "reflex-order"),
    order("P-1001", "priority", "stat"),
    order("P-1001", "code.coding.code", "36643-5 | CHEST2"),
    order("P-1001", "code.coding.system", "http://loinc.org"),
    order("P-1001", "category.coding.code", "RAD"),
    order("P-1001", "authoredOn", "2026-03-10T09:10:00+01:00"),
    order("P-1001", "occurrenceTiming.repeat.boundsPeriod.start", "2026-03-11T08:00:00+01:00"),
    order("P-1001", "occurrenceDateTime", ""),
    order("P-1001", "quantityQuantity.value", "1"),
    order("P-1001", "asNeededCodeableConcept.text", "if still in pain"),
    order("P-1001", "meta.security.code", "R"),
    order("P-1001", "locationCode.coding.code", "OF | O"),
    order("P-1001", "reasonCode.coding.code", "R05 | Z87.891"),
    order("P-1001", "orderDetail.coding.code", "PORT | ISO"),
    order("P-1001", "basedOn.identifier.value", "P-900"),
    order("P-1001", "note.text", "call before transport | First line\nPressure & pain ^ 3 | day"),
    order("P-1001", "note.1.time", "2026-03-10T09:05:00+01:00"),
    order("P-1001", "requester.reference", "PractitionerRole-1"),
    order("P-1001", "requester.display", "Ngozi Okafor"),
    order("P-1001", "requester.extension.valueContactPoint.value", "+1 507 5550122"),
    order("P-1001", "extension.valueContactPoint.value", "+1 507 5550100"),
    order("P-1001", "extension.extension.valueDateTime", "2026-03-10T09:10:00+01:00"),
    order("P-1001", "reasonReference.reference", "Condition-1"),
    order("P-1001", "supportingInfo.reference", "Observation-1"),
    order("P-1001", "subject.reference", "Patient-1"),
    order("P-1001", "encounter.reference", "Encounter-1"),
    ("Observation", "", "valueQuantity.value", "38.2"),
    ("Observation", "", "note.text", "measured under the arm"),
    ("Condition", "", "code.coding.code", "R05"),
    ("PractitionerRole", "", "organization.reference", "Organization-3"),
    ("Organization", "name=Hillside Clinic", "address.city", "Northfield"),
    ("Organization", "name=Hillside Clinic", "telecom.value", "+1 507 5550111"),
    ("Practitioner", f"{NUMBER}=1234567893", "address.line", "2 Oak Rd"),
    ("Device", "", "deviceName.name", "Workstation 12"),
    (PROVENANCE, "target.reference=ServiceRequest-1", "activity.coding.1.display", "message - ORM^O01^ORM_O01"),
    (
        PROVENANCE,
        "activity.coding.code=CREATE",
        "agent.type.coding.code",
        "enterer | verifier | author | author | performer",
    ),
    (PROVENANCE, "activity.coding.code=CREATE", "recorded", "2026-03-10T09:10:00+01:00"),
    (
        PROVENANCE,
        "activity.coding.code=CREATE",
        "agent.who.display",
        "Carla Clerk | Vera Verify | Ngozi Okafor | Sam Second | Amy Actor",
    ),
    ("Coverage", "", "subscriberId", "POL-55"),
    ("AllergyIntolerance", "", "code.coding.code", "1191"),
]
CHANGES = [
    order("P-1001", "status", "active"),
    order("P-1002", "replaces.identifier.value", "P-1001"),
    order("P-1002", "intent", "order"),
    order("P-1002", "priority", "stat"),
    order("P-0990", "extension.valueCodeableConcept.coding.code", "PAT"),
    order("P-0980", "status", "completed"),
    order("P-1003", "basedOn.identifier.value", "P-1002"),
    (PROVENANCE, "activity.coding.code=CANCEL", "agent.who.display", "Carla Clerk"),
]
LEGACY = [
    order("5501", "identifier.0.system", "urn:ipf:authority:HILLSIDE"),
    order("5501", "quantityQuantity.value", "2"),
    order("5501", "occurrenceTiming.repeat.period", "8"),
    order("5501", "occurrenceTiming.repeat.periodUnit", "h"),
    order("5501", "occurrenceTiming.repeat.boundsPeriod.start", "2026-03-10T13:00:00Z"),
    order("5501", "occurrenceTiming.repeat.boundsPeriod.end", "2026-03-13T13:00:00Z"),
    order("5501", "priority", "stat"),
    order("5501", "note.text", "with food"),
    order("5501", "requester.display", "GREG HOUSE"),
    order("5502", "status", "on-hold"),
    order("5502", "code.text", "Text only test"),
    order("5502", "occurrenceTiming.repeat.frequency", "2"),
    ("Observation", "", "valueString", "171 cm"),
]
LAB = [
    order("L-1", "specimen.reference", "Specimen-1 | Specimen-2"),
    order("L-1", "priority", "asap"),
    order("L-1", "occurrenceTiming.repeat.count", "8"),
    order("L-1", "occurrenceTiming.repeat.boundsPeriod.end", "2026-03-13T06:00:00+01:00"),
    order("L-1", "extension.url", "http://hl7.org/fhir/StructureDefinition/businessEvent"),
    order("L-2", "code.coding.code", "718-7"),
    order("L-2", "specimen.reference", "Specimen-3"),
    order("L-2", "reasonReference.reference", ""),
    (SPECIMEN, "", "type.coding.code", "SER | UR"),
    (SPECIMEN, f"{NUMBER}=SP-1", "identifier.value", "SP-1 | LSP-1"),
    (SPECIMEN, f"{NUMBER}=SP-1", "collection.collectedDateTime", "2026-03-10T09:00:00+01:00"),
    (SPECIMEN, "", "collection.quantity.code", "mL"),
    (SPECIMEN, "", "collection.collector.display", "Tom Taker"),
    ("RelatedPerson", "", "name.given", "Olof"),
]
BY_SPECIMEN = [
    order("L-11", "specimen.reference", "Specimen-1"),
    order("L-12", "specimen.reference", "Specimen-1"),
    order("L-13", "specimen.reference", "Specimen-2"),
    (SPECIMEN, "", "type.coding.code", "BLD | UR"),
]
EXAM = [
    order("C-1", "occurrenceTiming.repeat.dayOfWeek", "mon | tue | wed | thu | fri"),
    order("C-1", "occurrenceTiming.repeat.timeOfDay", "08:00:00"),
    order("C-1", "reasonCode.coding.code", "I48.0"),
    order("C-2", "occurrenceTiming.repeat.dayOfWeek", "mon | wed | fri"),
    order("C-2", "occurrenceTiming.repeat.duration", "30"),
    order("C-2", "occurrenceTiming.repeat.durationUnit", "min"),
]
BOOKING: list[Fact] = [
    (APPOINTMENT, "", "identifier.value", "A-100 | B-200"),
    (APPOINTMENT, "", "status", "booked"),
    (APPOINTMENT, "", "start", "2026-03-20T10:00:00+01:00"),
    (APPOINTMENT, "", "end", "2026-03-20T10:30:00+01:00"),
    (APPOINTMENT, "", "minutesDuration", "30"),
    (APPOINTMENT, "", "reasonCode.coding.code", "185389009 | FOLLOWUP"),
    (APPOINTMENT, "", "appointmentType.coding.code", "Normal"),
    (APPOINTMENT, "", "serviceType.coding.code", "99213"),
    (APPOINTMENT, "", "basedOn.reference", "ServiceRequest-1"),
    (APPOINTMENT, "", "comment", "Bring & show card\nand the list\nblood drawn the day before"),
    (APPOINTMENT, "", "extension.valueReference.reference", "Patient-1"),
    (APPOINTMENT, "", "extension.valueAnnotation.authorReference.display", "Carla Clerk"),
    (APPOINTMENT, "", "participant.actor.display", "Carla Clerk | Fred Filler | Eva Enter | Ngozi Okafor | Nora Nurse"),
    (APPOINTMENT, "", "participant.4.period.start", "2026-03-20T10:10:00+01:00"),
    (APPOINTMENT, "", "participant.4.period.end", "2026-03-20T10:25:00+01:00"),
    (APPOINTMENT, "", "participant.4.status", "needs-action"),
    (APPOINTMENT, "", "participant.7.period.end", "2026-03-20T11:05:00+01:00"),
    (APPOINTMENT, "", "participant.8.status", "declined"),
    (REQUEST, "", "identifier.value", "P-1001 | F-2001"),
    (REQUEST, "", "occurrencePeriod.end", "2026-03-20T10:30:00+01:00"),
    ("Encounter", "", "status", "planned"),
    ("Encounter", "", "appointment.reference", "Appointment-1"),
    ("Device", "", "deviceName.name", "EKG cart 7"),
    ("Location", "name=Room 12", f"{NUMBER}", "HILLSIDE/resource/R12Room 12"),
    (PROVENANCE, "agent.type.coding.code=enterer", "agent.who.display", "Eva Enter"),
]
SAMPLES: dict[str, list[Fact]] = {
    "orm_radiology": RADIOLOGY,
    "orm_changes": CHANGES,
    "orm_legacy_v23": LEGACY,
    "orm_no_patient": [order("W-1", "subject.display", "no patient was sent"), order("W-1", "subject.reference", "")],
    "oml_lab": LAB,
    "oml_by_specimen": BY_SPECIMEN,
    "omg_exam": EXAM,
    "siu_s12_booking": BOOKING,
    "siu_s13_moved": [
        (APPOINTMENT, "", "status", "booked"),
        (APPOINTMENT, "", "start", "2026-03-21T14:00:00+01:00"),
        (APPOINTMENT, "", "end", "2026-03-21T14:30:00+01:00"),
    ],
    "siu_s15_cancelled": [
        (APPOINTMENT, "", "status", "cancelled"),
        (APPOINTMENT, "", "cancelationReason.coding.code", "PATCAN"),
    ],
    "siu_s26_noshow_v23": [
        (APPOINTMENT, "", "status", "noshow"),
        (APPOINTMENT, "", "identifier.value", "B-200"),
        (APPOINTMENT, "", "end", "2026-03-20T10:45:00Z"),
        (APPOINTMENT, "", "minutesDuration", "45"),
    ],
}

STATUS = """
NW - active | CA - active | OC - revoked | CR - revoked | DC - revoked | OD - revoked | DR - revoked
HD - active | HR - on-hold | OH - on-hold | RL - active | OE - active | OR - active | RP - active | RQ - active
RU - revoked | RO - active | XO - active | XR - active | XX - active | SN - active | NA - active | OK - active
PA - active | CH - active | UA - revoked | UC - active | UD - active | UH - active | UM - active | UR - on-hold
UX - active | RE - active | SC - unknown | SS - unknown | RR - active | FU - completed | AF - active
DF - revoked | CN - completed | ZZ - unknown | NW CM completed | NW CA revoked | NW DC revoked
NW ER entered-in-error | NW HD on-hold | NW IP active | NW RP revoked | NW SC active | NW A active
SC CM completed | CA CA revoked | SC ZZ unknown
"""
"""ORC-1, ORC-5 (- = not sent), ServiceRequest.status."""
MEDICATION_STATUS = """
NW - active | CA - active | OC - cancelled | CR - cancelled | DC - stopped | OD - stopped | HD - active
OH - on-hold | HR - on-hold | RL - active | RP - active | RO - active | XO - active | RU - stopped
UA - cancelled | SC CM completed | SC DC stopped | SC CA cancelled | SC HD on-hold | SC ER entered-in-error
SC RP stopped | SC - unknown | ZZ - unknown
"""
"""ORC-1, ORC-5 (- = not sent), MedicationRequest.status."""
APPOINTMENT_STATUS = """
S12 - booked | S13 - booked | S14 - booked | S15 - cancelled | S16 - cancelled | S17 - entered-in-error
S18 - booked | S19 - booked | S20 - booked | S21 - booked | S22 - booked | S26 - noshow | S12 Pending pending
S12 Waitlist waitlist | S14 Started checked-in | S14 Complete fulfilled | S14 Cancelled cancelled
S14 Deleted entered-in-error | S14 Noshow noshow | S14 ZZ booked | S15 Booked cancelled
S17 Booked entered-in-error | S26 Booked noshow
"""
"""Event, SCH-25 (- = not sent), Appointment.status."""
RESULT_STATUS = "RE F completed | RE C completed | RE P active | RE X revoked | SC F completed | NW F active"
"""ORC-1, OBR-25, ServiceRequest.status: a result tells the state of its order only where ORC does not."""

HEAD = "MSH|^~\\&|A|B|||20260310120000||{}|1|P|2.5.1\nPID|1||1^^^B^MR||X\n"


def rows(table: str) -> list[tuple[str, str, str]]:
    """Rows of three words; `-` is nothing."""
    read = []
    for row in table.replace("\n", " | ").split(" | "):
        if row.strip():
            first, second, third = row.split()
            read.append((first, "" if second == "-" else second, third))
    return read


def found(text: str, resource_type: str) -> list[dict[str, Any]]:
    """The resources of a type that a message makes."""
    bundle = samples.library().transform_message(samples.parse(text))
    return [one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == resource_type]


def made(text: str, resource_type: str) -> dict[str, Any]:
    """The only resource of a type that a message makes."""
    [only] = found(text, resource_type)
    return only


class FactTests(TestCase):
    """Samples of the corpus."""

    def test_samples(self) -> None:
        """What the message says is where it belongs."""
        for name, facts in SAMPLES.items():
            with self.subTest(sample=name):
                hold(self, name, facts)

    def test_no_sample_is_forgotten(self) -> None:
        """Each sample of orders and appointments has facts."""
        kinds = ("orm_", "oml_", "omg_", "siu_")
        self.assertEqual({one for one in samples.names() if one.startswith(kinds)} - {"orm_pharmacy"}, set(SAMPLES))


class StatusTests(TestCase):
    """Row by row."""

    def test_orders(self) -> None:
        """Event and status of an order."""
        for control, status, wanted in rows(STATUS):
            with self.subTest(control=control, status=status):
                text = HEAD.format("ORM^O01") + f"ORC|{control}|1|||{status}\nOBR|1|1||T"
                self.assertEqual(made(text, REQUEST)["status"], wanted)

    def test_results(self) -> None:
        """The state of a result."""
        for control, status, wanted in rows(RESULT_STATUS):
            with self.subTest(control=control, status=status):
                text = HEAD.format("ORM^O01") + f"ORC|{control}|1\nOBR|1|1||T{'|' * 21}{status}"
                self.assertEqual(made(text, REQUEST)["status"], wanted)

    def test_medications(self) -> None:
        """Event and status of an order of a medication."""
        for control, status, wanted in rows(MEDICATION_STATUS):
            with self.subTest(control=control, status=status):
                text = HEAD.format("RDE^O11") + f"ORC|{control}|1|||{status}\nRXE||D|1\nRXR|PO"
                self.assertEqual(made(text, "MedicationRequest")["status"], wanted)

    def test_appointments(self) -> None:
        """Event and filler status of an appointment."""
        for event, status, wanted in rows(APPOINTMENT_STATUS):
            with self.subTest(event=event, status=status):
                sch = f"SCH|1{'|' * 10}^^^20260310{'|' * 14}{status}\nPID"
                text = HEAD.format(f"SIU^{event}").replace("PID", sch, 1)
                self.assertEqual(made(text, APPOINTMENT)["status"], wanted)


VISIT = "PV1|1|O|W" + "|" * 16 + "V1^^^B^VN\n"
TWO_ORDERS = "ORC|NW|1^A\nTQ1|1||BID||||||S\nOBR|1|1^A||T1\nSPM|1|S1&A\nORC|NW|2^A\nOBR|2|2^A||T2"


class VersionTests(TestCase):
    """The same message in the versions of the standard, whose structures differ."""

    def test_orders(self) -> None:
        """Two orders with their visit, priority and specimen, from 2.4 (no SPM, no TQ1 yet) to what is not out yet."""
        for kind in ("OML^O21^OML_O21", "OMG^O19^OMG_O19"):
            for version in ("2.4", "2.5", "2.5.1", "2.6", "2.7", "2.8.2", "2.9"):
                with self.subTest(kind=kind, version=version):
                    held = found(HEAD.format(kind).replace("2.5.1", version) + VISIT + TWO_ORDERS, REQUEST)
                    self.assertEqual([one["identifier"][0]["value"] for one in held], ["1", "2"])
                    self.assertEqual([one.get("priority") for one in held], ["stat", None])
                    self.assertEqual([len(one.get("specimen", [])) for one in held], [1, 0])
                    self.assertTrue(all("encounter" in one for one in held))

    def test_others(self) -> None:
        """What each version has of the other messages."""
        table = [
            ("ORM^O01", "2.1 2.2 2.3.1 2.5.1 2.7", "ORC|NW|1\nOBR|1|1||T", REQUEST),
            ("RDE^O01", "2.3", "ORC|NW|1\nRXE|^BID|D|5\nRXR|PO", "MedicationRequest"),
            ("RDE^O11", "2.4 2.5 2.5.1 2.7 2.8.2", "ORC|NW|1\nRXE||D|5\nTQ1|1||BID\nRXR|PO", "MedicationRequest"),
            ("DFT^P03", "2.1 2.2 2.3 2.4 2.5.1 2.8", "FT1|1|T1||20260310||CG|C1", "ChargeItem"),
            ("PPR^PC1", "2.3 2.4 2.5.1 2.8", "PRB|AD|20260310|I10^H^I10", "Condition"),
        ]
        for kind, versions, segments, resource_type in table:
            for version in versions.split():
                with self.subTest(kind=kind, version=version):
                    text = HEAD.format(kind).replace("2.5.1", version) + VISIT + segments
                    self.assertEqual(len(found(text, resource_type)), 1)
                    if resource_type != "Condition":
                        self.assertTrue({"encounter", "context"} & set(found(text, resource_type)[0]))


class IdentityTests(TestCase):
    """A later message updates, and does not add."""

    def test_same_order(self) -> None:
        """Found by the placer's number, else by the filler's; the same in a change, and in the appointment for it."""
        of_type = "&identifier:of-type=http://terminology.hl7.org/CodeSystem/v2-0203|PLAC|P-1001"
        first = requests("orm_radiology", REQUEST)
        self.assertEqual(first, {f"ServiceRequest?identifier=urn:ipf:authority:EHR|P-1001{of_type}"})
        self.assertLess(first, requests("orm_changes", REQUEST))
        self.assertEqual({f"{REQUEST}?{one}" for one in requests("siu_s12_booking", REQUEST)}, first)
        self.assertEqual(
            made(HEAD.format("ORM^O01") + "ORC|SC||F-1\nOBR|1||F-1|T", REQUEST)["identifier"][0]["value"], "F-1"
        )

    def test_placer_first(self) -> None:
        """Whichever segment has it."""
        held = made(HEAD.format("ORM^O01") + "ORC|NW||F-1\nOBR|1|P-1|F-1|T", REQUEST)["identifier"]
        self.assertEqual([one["value"] for one in held], ["P-1", "F-1"])

    def test_same_appointment(self) -> None:
        """Booked, moved, cancelled."""
        for name in ("siu_s13_moved", "siu_s15_cancelled"):
            self.assertEqual(requests(name, APPOINTMENT), requests("siu_s12_booking", APPOINTMENT))

    def test_not_written_over(self) -> None:
        """Patient, visit and, by an appointment, the order are created when they are not there, and else left alone."""
        for name in SAMPLES:
            for resource_type in ("Patient", "Encounter"):
                with self.subTest(sample=name, type=resource_type):
                    for one in requests(name, resource_type):
                        self.assertTrue(one.startswith("identifier="), one)


def requests(name: str, resource_type: str) -> set[str]:
    """Conditions of all entries of a type."""
    entries = samples.bundle(name)["entry"]
    held = [one["request"] for one in entries if one["resource"]["resourceType"] == resource_type]
    return {one.get("ifNoneExist") or one["url"] for one in held}
