"""Events of pharmacies, analysers, monitors, referrals and posted charges: what each becomes, in each version."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.corpus import samples
from tests.mapping_maps.events import entries, resources
from tests.mapping_maps.facts import as_text, at
from tests.mapping_maps.test_orders import HEAD
from tests.mapping_maps.validity import kinds

VERSIONS = ("2.3", "2.4", "2.5", "2.5.1", "2.6", "2.7", "2.8.2")
VISIT = "PV1|1|I|W^1||||||||||||||||V1\n"
ORC = "ORC|{}|RX-1^EHR|RF-1^PH\n"
RXD = "RXD|{}|308191^Amoxicillin^RXNORM|{}|20|CAP|||||7^Pharma^Phil|G"
RXA = "RXA|0|{}|{}||308191^Amoxicillin^RXNORM|500|mg|||7^Nurse^Nora{}"
RXG = "RXG|{}||^BID|308191^Amoxicillin^RXNORM|500||mg"
RF1 = "RF1|{}|S|MED|AM|O|REF-1^GP|20260310|20260410\nPRD|RP|Doc^Dora||||PH|D-1^NPI\nPRD|RT|Spec^Sam||||PH|S-1^LIC^B"
OBR = "OBR|1|P-1^E|{0}^L|718-7^HB^LN|||20260310\nORC|RE|P-1^E|{0}^L\nOBX|1|NM|718-7^HB^LN||7||||||F"
SPM = "SPM|1|S1&E^S2&L||SER^Serum^HL70487\n"
WAVE = (
    "OBR|1|P-1|F-1|93000\nOBX|1|TS|93000&TIM||20260310090001||||||F\n"
    "OBX|2|CD|93000&CHN||1&V1^^2.5&uV^1&{}&0^{}^-2048&2047||||||F\nOBX|3|{}|93000&WAV||{}||||||F"
)

TABLE = [
    ("RDS^O13", ORC.format("RE") + RXD.format(1, "20260310"), "MedicationDispense", "status", "completed"),
    ("RDS^O13", ORC.format("CA") + RXD.format(1, "20260310"), "MedicationDispense", "status", "cancelled"),
    ("RDS^O13", ORC.format("DC") + RXD.format(1, "20260310"), "MedicationDispense", "status", "stopped"),
    ("RDS^O13", ORC.format("RE") + RXD.format(1, "20260310"), "MedicationDispense", "quantity.value", "20"),
    (
        "RDS^O13",
        ORC.format("RE") + RXD.format(1, "20260310"),
        "MedicationDispense",
        "substitution.wasSubstituted",
        "true",
    ),
    (
        "RDS^O13",
        ORC.format("RE") + RXD.format(1, "20260310"),
        "MedicationDispense",
        "authorizingPrescription.identifier.value",
        "RX-1",
    ),
    (
        "RAS^O17",
        ORC.format("RE") + RXA.format(1, "202603101000", ""),
        "MedicationAdministration",
        "status",
        "completed",
    ),
    (
        "RAS^O17",
        ORC.format("RE") + RXA.format(1, "202603101000", "|" * 8 + "REFUSED||RE"),
        "MedicationAdministration",
        "status",
        "not-done",
    ),
    (
        "RAS^O17",
        ORC.format("RE") + RXA.format(1, "202603101000", "|" * 11 + "D"),
        "MedicationAdministration",
        "status",
        "entered-in-error",
    ),
    (
        "RAS^O17",
        ORC.format("RE") + RXA.format(1, "202603101000", ""),
        "MedicationAdministration",
        "dosage.dose.value",
        "500",
    ),
    ("RGV^O15", ORC.format("RE") + RXG.format(1), "MedicationRequest", "intent", "instance-order"),
    ("RGV^O15", ORC.format("RE") + RXG.format(1), "MedicationRequest", "status", "active"),
    ("RGV^O15", ORC.format("DC") + RXG.format(1), "MedicationRequest", "status", "stopped"),
    ("RGV^O15", ORC.format("RE") + RXG.format(1), "MedicationRequest", "basedOn.identifier.value", "RX-1"),
    ("ORU^W01", WAVE.format(0, 500, "NA", "12^14^16"), "Observation", "valueSampledData.period", "2"),
    ("ORU^W01", WAVE.format(0, 500, "NA", "12^14^16"), "Observation", "valueSampledData.data", "12 14 16"),
    ("ORU^W01", WAVE.format(3, 500, "NA", "12^14^16"), "Observation", "valueSampledData.origin.value", "3"),
    ("ORU^W01", WAVE.format(0, 500, "NA", "12^14^16"), "Observation", "valueSampledData.factor", "2.5"),
    ("ORU^W01", WAVE.format(0, 500, "MA", "12^14~13^15"), "Observation", "valueSampledData.dimensions", "2"),
    ("ORU^W01", WAVE.format(0, 500, "MA", "12^14~13^15"), "Observation", "valueSampledData.data", "12 14 13 15"),
]
"""Type, segments after PID and PV1, resource, path, value.  The path is only of one resource of its type."""


def message(kind: str, segments: str, version: str = "2.5.1", visit: str = VISIT) -> str:
    """PID and PV1, then these."""
    return HEAD.format(kind).replace("2.5.1", version) + visit + segments


def same(found: str, wanted: str) -> bool:
    """As text; numbers by value."""
    return found == wanted or (found.replace(".", "", 1).isdecimal() and float(found) == float(wanted))


class EventTests(TestCase):
    """One row, one fact."""

    def test_table(self) -> None:
        """Each in the version that most senders use."""
        for kind, segments, resource_type, path, wanted in TABLE:
            with self.subTest(kind=kind, path=path, wanted=wanted):
                held = resources(message(kind, segments), resource_type)
                found = [as_text(value) for one in held for value in at(one, path.split("."))]
                self.assertEqual(len(found), 1, found)
                self.assertTrue(same(found[0], wanted), found[0])

    def test_versions(self) -> None:
        """The resource of each event in all versions, with its patient and visit."""
        kinds = [
            ("RDS^{}", ORC.format("RE") + RXD.format(1, "20260310") + "\nRXR|PO", "MedicationDispense", "O01 O13"),
            (
                "RAS^{}",
                ORC.format("RE") + RXA.format(1, "20260310", "") + "\nRXR|PO",
                "MedicationAdministration",
                "O01 O17",
            ),
            ("RGV^{}", ORC.format("RE") + RXG.format(1) + "\nRXR|PO", "MedicationRequest", "O01 O15"),
        ]
        for kind, segments, resource_type, events in kinds:
            before, after = events.split()
            for version in VERSIONS:
                with self.subTest(kind=kind, version=version):
                    text = message(kind.format(before if version == "2.3" else after), segments, version)
                    [held] = resources(text, resource_type)
                    self.assertIn("reference", held["subject"])
                    self.assertTrue("context" in held or "encounter" in held)
                    self.assertIn("route", str(held))

    def test_each_dispense_is_one(self) -> None:
        """The second dispense of an order is another one; the same message again is the same."""
        for kind, template, resource_type in (
            ("RDS^O13", RXD, "MedicationDispense"),
            ("RAS^O17", RXA.replace("{}", "{}", 2).removesuffix("{}"), "MedicationAdministration"),
        ):
            with self.subTest(kind=kind):
                urls = [
                    entries(message(kind, ORC.format("RE") + template.format(*one)), resource_type)[0]["request"]["url"]
                    for one in ((1, "202603101000"), (2, "202603101800"), (1, "202603101000"))
                ]
                self.assertEqual(len(set(urls)), 2)
                self.assertEqual(urls[0], urls[2])

    def test_the_order_is_not_written_over(self) -> None:
        """RXE and RXO beside a dispense, an administration or an instruction create what is missing."""
        for kind, segments in (
            ("RDS^O13", RXD.format(1, "2026")),
            ("RAS^O17", RXA.format(1, "2026", "")),
            ("RGV^O15", RXG.format(1)),
        ):
            for ordered in ("RXO|308191^A|500||mg\n", "RXE||308191^A|500||mg\nTQ1|1||BID\nRXR|PO\n"):
                with self.subTest(kind=kind, ordered=ordered[:3]):
                    text = message(kind, ORC.format("NW") + ordered + segments)
                    held = entries(text, "MedicationRequest")
                    orders = [one for one in held if one["resource"]["intent"] != "instance-order"]
                    self.assertEqual([one["request"]["method"] for one in orders], ["POST"])
                    self.assertIn("ifNoneExist", orders[0]["request"])


class AnalyserTests(TestCase):
    """OUL: the same result in three arrangements."""

    def test_arrangements(self) -> None:
        """One report for each order, with its specimen; keys as in ORU, which the laboratory sends later."""
        later = "ORC|RE|P-1^E|F-1^L\nOBR|1|P-1^E|F-1^L|718-7^HB^LN|||20260310\nOBX|1|NM|718-7^HB^LN||7||||||F"
        [stored] = entries(message("ORU^R01", later), "DiagnosticReport")
        kinds = [
            ("OUL^R22", SPM + "SAC|||C1^L\n" + OBR.format("F-1") + "\n" + OBR.format("F-2")),
            ("OUL^R23", SPM + "SAC|||C1^L\n" + OBR.format("F-1") + "\n" + OBR.format("F-2")),
            (
                "OUL^R24",
                OBR.format("F-1").replace("\nOBX", "\n" + SPM + "SAC|||C1^L\nOBX", 1) + "\n" + OBR.format("F-2"),
            ),
        ]
        for kind, segments in kinds:
            for version in VERSIONS[2:]:
                with self.subTest(kind=kind, version=version):
                    text = message(kind, segments, version)
                    first, second = entries(text, "DiagnosticReport")
                    self.assertEqual(first["request"], stored["request"])
                    self.assertNotEqual(second["request"], stored["request"])
                    self.assertTrue(all("reference" in one["subject"] for one in resources(text, "Observation")))
                    self.assertIn("encounter", first["resource"])
                    self.assertIn("specimen", first["resource"])
                    self.assertEqual(len(first["resource"]["result"]), 1)
                    specimen = resources(text, "Specimen")[0]
                    self.assertEqual(specimen["identifier"][0]["value"], "S1")
                    self.assertEqual(specimen["container"][0]["identifier"][0]["value"], "C1")

    def test_r21(self) -> None:
        """The oldest one has the container beside the order."""
        text = message("OUL^R21", "SAC|||C1^L\n" + OBR.format("F-1").replace("ORC|RE|P-1^E|F-1^L\n", ""))
        self.assertEqual(len(resources(text, "DiagnosticReport")[0]["result"]), 1)
        self.assertEqual(resources(text, "Specimen")[0]["container"][0]["identifier"][0]["value"], "C1")

    def test_index_of_each_specimen(self) -> None:
        """Without a time, what is told of one specimen does not replace what is told of the next."""
        body = "SPM|1|{0}&E\nOBX|1|NM|HEM||1||||||F\n" + OBR.format("F-1")
        first, second = (
            entries(message("OUL^R22", body.format(one)), "Observation")[0]["request"]["url"] for one in ("S1", "S2")
        )
        self.assertNotEqual(first, second)


class ReferralTests(TestCase):
    """REF and RRI I12 to I15."""

    def test_events(self) -> None:
        """What each says of the referral, in each version."""
        for event, wanted in (("I12", "active"), ("I13", "active"), ("I14", "active"), ("I15", "revoked")):
            for kind in ("REF", "RRI"):
                for version in VERSIONS:
                    with self.subTest(kind=kind, event=event, version=version):
                        text = HEAD.format(f"{kind}^{event}").replace("2.5.1", version)
                        head, _, pid = text.partition("\n")
                        [held] = resources(
                            f"{head}\n{RF1.format('P')}\n{pid}DG1|1||I10^H^I10C\n{VISIT}", "ServiceRequest"
                        )
                        self.assertEqual(held["status"], wanted)
                        self.assertEqual(held["identifier"][0]["value"], "REF-1")
                        self.assertEqual((held["priority"], held["requester"]["display"]), ("stat", "Dora Doc"))
                        self.assertEqual([one["display"] for one in held["performer"]], ["Sam Spec"])
                        self.assertEqual(len(held["reasonReference"]), 1)
                        self.assertIn("encounter", held)

    def test_status(self) -> None:
        """Table 0283: accepted, pending, rejected, expired."""
        for code, wanted in (("A", "active"), ("P", "active"), ("R", "revoked"), ("E", "revoked")):
            with self.subTest(code=code):
                head, _, pid = HEAD.format("RRI^I12").partition("\n")
                [held] = resources(f"{head}\n{RF1.format(code)}\n{pid}", "ServiceRequest")
                self.assertEqual(held["status"], wanted)


class PostedChargeTests(TestCase):
    """DFT P11."""

    def test_each_charge_has_diagnoses_and_insurances(self) -> None:
        """Beside those of the visit."""
        first = "DG1|1||I10^H^I10C\nIN1|1|P1|C1|ACME\nFT1|1|T1||2026||CG|C1\n"
        body = first + "DG1|1||E11^D^I10C\nIN1|1|P2|C1|ACME\nFT1|2|T2||2026||CG|C2"
        for version in VERSIONS[1:]:
            with self.subTest(version=version):
                text = message("DFT^P11", body, version)
                self.assertEqual(len(resources(text, "ChargeItem")), 2)
                self.assertEqual(len(resources(text, "Condition")), 2)
                self.assertEqual(len(resources(text, "Coverage")), 2)


class DocumentEventTests(TestCase):
    """MDM T01 to T11."""

    def test_each_has_a_document(self) -> None:
        """With and without content; a cancelled document is an error, the others are current."""
        for number in range(1, 12):
            with self.subTest(event=number):
                text = message(f"MDM^T{number:02}", "TXA|1|DS|TX|||||||||DOC-1\nOBX|1|TX|1^Note||text||||||F")
                [held] = resources(text, "DocumentReference")
                self.assertEqual(held["status"], "entered-in-error" if number == 11 else "current")
                self.assertEqual(held["masterIdentifier"]["value"], "DOC-1")


class TwoOfOneNumberTests(TestCase):
    """Allergies that two IAM identify alike, or that one repeats in its action code, stay valid together."""

    def test_table(self) -> None:
        head = "MSH|^~\\&|A|B|||2026||ADT^A60^ADT_A60|1|P|2.5\nPID|1||1^^^B^MR||X\n"
        for segments, is_error in (
            ("IAM|1||1^Eggs^L|||A^Add|7^L", False),
            ("IAM|1||1^Eggs^L|||D^Delete|7^L", True),
            ("IAM|1||1^Eggs^L|||D^Delete~X^Other|7^L", True),
            ("IAM|1||1^Eggs^L|||X^Other~D^Delete|7^L", True),
            ("IAM|1||||||7^L\nIAM|2||1^Eggs^L|||D^Delete|7^L", True),
        ):
            self.assertEqual(kinds(head + segments), set(), segments)
            made = samples.library().transform_message(samples.parse(head + segments), checked=False)
            found = [
                one["resource"] for one in made["entry"] if one["resource"]["resourceType"] == "AllergyIntolerance"
            ]
            self.assertEqual([("verificationStatus" in one, "clinicalStatus" in one) for one in found],
                             [(is_error, not is_error)], segments)  # fmt: skip
