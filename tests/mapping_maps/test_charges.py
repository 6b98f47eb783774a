"""Medications, charges and problems: what is in the message is in the resources, in its place."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.corpus import samples
from tests.mapping_maps.facts import Fact, hold
from tests.mapping_maps.test_orders import HEAD, made, requests

MEDICATION, CHARGE, CONDITION = "MedicationRequest", "ChargeItem", "Condition"
NUMBER = "identifier.0.value"


def medication(number: str, path: str, wanted: str) -> Fact:
    """A fact about the order of a medication with this placer number."""
    return (MEDICATION, f"{NUMBER}={number}", path, wanted)


DOSE = "dosageInstruction.doseAndRate"
ORDERED = [
    medication("RX-10", "intent", "original-order"),
    medication("RX-10", "status", "active"),
    medication("RX-10", "priority", "routine"),
    medication("RX-10", "groupIdentifier.value", "G-60"),
    medication("RX-10", "authoredOn", "2026-03-10T09:10:00+01:00"),
    medication("RX-10", "medicationCodeableConcept.coding.code", "0093-2263-01 | 308191"),
    medication(
        "RX-10",
        "medicationCodeableConcept.coding.system",
        "http://hl7.org/fhir/sid/ndc | http://www.nlm.nih.gov/research/umls/rxnorm",
    ),
    medication("RX-10", f"{DOSE}.doseRange.low.value", "500"),
    medication("RX-10", f"{DOSE}.doseRange.high.value", "1000"),
    medication("RX-10", f"{DOSE}.doseRange.high.code", "mg"),
    medication("RX-10", f"{DOSE}.type.coding.code", "ordered"),
    medication("RX-10", "dosageInstruction.timing.repeat.frequency", "2"),
    medication("RX-10", "dosageInstruction.timing.repeat.boundsPeriod.end", "2026-03-20"),
    medication("RX-10", "dosageInstruction.additionalInstruction.coding.code", "FOOD"),
    medication("RX-10", "dosageInstruction.maxDosePerPeriod.numerator.value", "2000"),
    medication("RX-10", "dosageInstruction.maxDosePerPeriod.denominator.code", "d"),
    medication("RX-10", "substitution.allowedCodeableConcept.coding.code", "G"),
    medication("RX-10", "dispenseRequest.quantity.value", "20"),
    medication("RX-10", "dispenseRequest.quantity.unit", "Capsule"),
    medication("RX-10", "dispenseRequest.numberOfRepeatsAllowed", "2"),
    medication("RX-10", "reasonCode.coding.code", "J06.9"),
    medication("RX-10", "note.text", "Label in Swedish | allergic to aspirin"),
    medication("RX-10", "contained.form.coding.code", "CAP"),
    medication("RX-10", "contained.ingredient.strength.numerator.value", "500"),
    medication("RX-10", "contained.ingredient.strength.denominator.unit", "Capsule"),
    medication("RX-10", "supportingInformation.reference", "#medication"),
    medication("RX-10", "encounter.reference", "Encounter-1"),
]
ENCODED = [
    medication("RX-10", "identifier.value", "RX-10 | RXF-10 | RXN-77"),
    medication("RX-10", "medicationCodeableConcept.coding.code", "0093-2263-01 | 308191"),
    medication("RX-10", "dispenseRequest.quantity.value", "30"),
    medication("RX-10", "dosageInstruction.timing.repeat.period", "8"),
    medication("RX-10", "dosageInstruction.0.text", "one capsule every eight hours"),
    medication("RX-10", "dosageInstruction.1.asNeededBoolean", "true"),
    medication("RX-10", "dosageInstruction.0.doseAndRate.doseQuantity.value", "500"),
    medication("RX-10", "dosageInstruction.0.route.coding.code", "PO | PO"),
    medication("RX-10", "dosageInstruction.0.site.coding.code", "MOUTH"),
    medication("RX-10", "dosageInstruction.0.method.coding.code", "419747000 | CH"),
    medication("RX-10", "note.text", "Store dry | Keep cool | checked by pharmacist"),
    medication("RX-10", "supportingInformation.reference", "#medication | Observation-1"),
    medication("RX-11", "medicationReference.reference", "#medication"),
    medication("RX-11", "contained.ingredient.itemCodeableConcept.coding.code", "1795477 | 8591"),
    medication("RX-11", "contained.ingredient.isActive", "false | true"),
    medication("RX-11", f"{DOSE}.rateRatio.numerator.value", "1000"),
    medication("RX-11", f"{DOSE}.rateRatio.denominator.value", "8"),
    medication("RX-11", f"{DOSE}.rateRatio.denominator.code", "h"),
    medication("RX-11", "dosageInstruction.timing.repeat.boundsPeriod.end", "2026-03-10T20:00:00+01:00"),
    medication("RX-9", "status", "stopped"),
    medication("RX-9", "statusReason.coding.code", "ADR"),
    medication("RX-9", f"{DOSE}.doseRange.high.value", "200"),
    ("Observation", "", "valueQuantity.value", "71.5"),
]
SAMPLES: dict[str, list[Fact]] = {
    "orm_pharmacy": ORDERED,
    "rde_encoded": ENCODED,
    "rde_legacy_v23": [
        medication("7001", "dosageInstruction.timing.repeat.frequency", "2"),
        medication("7001", "dosageInstruction.timing.repeat.boundsPeriod.end", "2026-03-17T13:00:00Z"),
        medication("7001", f"{DOSE}.doseQuantity.value", "40"),
        medication("7001", "requester.display", "GREG HOUSE"),
        medication("7001", "dispenseRequest.numberOfRepeatsAllowed", "0"),
    ],
    "omp_order": [
        medication("RX-20", "dosageInstruction.timing.repeat.frequency", "3 | 1"),
        medication("RX-20", "dosageInstruction.0.timing.repeat.boundsPeriod.end", "2026-03-15"),
        medication("RX-20", "dosageInstruction.1.timing.repeat.when", "HS"),
        medication("RX-20", "medicationCodeableConcept.coding.code", "197805"),
    ],
    "dft_p11_charges": [
        (CHARGE, f"{NUMBER}=TX-21", "quantity.value", "2"),
        (CHARGE, f"{NUMBER}=TX-21", "service.reference", "Procedure-1"),
        (CHARGE, f"{NUMBER}=TX-22", "code.coding.code", "CHG101"),
        (CONDITION, "", "code.coding.code", "E11.9 | I10"),
        ("Coverage", "", "subscriberId", "POL-55"),
    ],
    "dft_charges": [
        (CHARGE, f"{NUMBER}=TX-1", "status", "billable"),
        (CHARGE, f"{NUMBER}=TX-1", "code.coding.code", "CHG100 | 99213 | 99213:25:59"),
        (CHARGE, f"{NUMBER}=TX-1", "code.text", "Office visit, 30 minutes"),
        (CHARGE, f"{NUMBER}=TX-1", "occurrencePeriod.end", "2026-03-10"),
        (CHARGE, f"{NUMBER}=TX-1", "enteredDate", "2026-03-10"),
        (CHARGE, f"{NUMBER}=TX-1", "quantity.value", "2"),
        (CHARGE, f"{NUMBER}=TX-1", "priceOverride.value", "200.5"),
        (CHARGE, f"{NUMBER}=TX-1", "priceOverride.currency", "USD"),
        (CHARGE, f"{NUMBER}=TX-1", "reason.coding.code", "I10 | E11.9"),
        (CHARGE, f"{NUMBER}=TX-1", "performer.actor.display", "Ngozi Okafor | Olga Orderer"),
        (CHARGE, f"{NUMBER}=TX-1", "enterer.display", "Eva Enter"),
        (CHARGE, f"{NUMBER}=TX-1", "service.identifier.value", "F-2001"),
        (CHARGE, f"{NUMBER}=TX-1", "service.reference", "Procedure-1"),
        (CHARGE, f"{NUMBER}=TX-1", "account.reference", "Account-1"),
        (CHARGE, f"{NUMBER}=TX-1", "context.reference", "Encounter-1"),
        (CHARGE, f"{NUMBER}=TX-1", "productCodeableConcept.coding.code", "0093-2263-01"),
        (CHARGE, f"{NUMBER}=TX-1", "note.text", "charge note"),
        (CHARGE, "code.coding.code=CHG9", "factorOverride", "-1"),
        (CHARGE, "code.coding.code=CHG9", "priceOverride.value", "16.5"),
        (CHARGE, "", "code.coding.0.code", "CHG100 | CHG9"),
        ("Procedure", "", "status", "completed"),
        ("Account", "", f"{NUMBER}", "ACC-9"),
        ("Coverage", "", "subscriberId", "POL-55"),
        ("Encounter", "", "diagnosis.condition.reference", "Condition-1"),
    ],
    "ppr_problems": [
        (CONDITION, f"{NUMBER}=PI-1", "code.coding.code", "44054006"),
        (CONDITION, f"{NUMBER}=PI-1", "code.coding.system", "http://snomed.info/sct"),
        (CONDITION, f"{NUMBER}=PI-1", "category.coding.code", "problem-list-item"),
        (CONDITION, f"{NUMBER}=PI-1", "clinicalStatus.coding.code", "active"),
        (CONDITION, f"{NUMBER}=PI-1", "verificationStatus.coding.code", "confirmed"),
        (CONDITION, f"{NUMBER}=PI-1", "onsetDateTime", "2025-12-01"),
        (CONDITION, f"{NUMBER}=PI-1", "recordedDate", "2026-01-01"),
        (CONDITION, f"{NUMBER}=PI-1", "severity.coding.code", "MO"),
        (CONDITION, f"{NUMBER}=PI-1", "meta.security.code", "R"),
        (CONDITION, f"{NUMBER}=PI-1", "note.text", "on diet"),
        (CONDITION, f"{NUMBER}=PI-1", "asserter.display", "Ngozi Okafor"),
        (CONDITION, f"{NUMBER}=PI-1", "evidence.detail.reference", "Observation-1"),
        (CONDITION, f"{NUMBER}=PI-3", "clinicalStatus.coding.code", "resolved"),
        (CONDITION, f"{NUMBER}=PI-3", "abatementDateTime", "2026-03-01"),
        (CONDITION, f"{NUMBER}=PI-3", "onsetString", "in his thirties"),
        (CONDITION, f"{NUMBER}=PI-2", "verificationStatus.coding.code", "entered-in-error"),
        (CONDITION, f"{NUMBER}=PI-2", "clinicalStatus.coding.code", ""),
        ("Goal", "", "lifecycleStatus", "active"),
        ("Goal", "", "description.coding.code", "HBA1C7"),
        ("Goal", "", "startDate", "2026-01-05"),
        ("Goal", "", "target.dueDate", "2026-07-01"),
        ("Goal", "", "achievementStatus.coding.code", "IMP"),
        ("Goal", "", "note.text", "going well"),
        ("Goal", "", "addresses.reference", "Condition-1"),
        ("Goal", "", "outcomeReference.reference", "Observation-2"),
        ("CarePlan", "", "title", "Diabetes pathway"),
        ("CarePlan", "", "status", "active"),
        ("CarePlan", "", "addresses.reference", "Condition-1"),
        ("ServiceRequest", "", "reasonReference.reference", "Condition-1"),
    ],
}

PATTERNS = [
    ("QD", {"frequency": 1, "period": 1, "periodUnit": "d"}),
    ("BID", {"frequency": 2, "period": 1, "periodUnit": "d"}),
    ("TID", {"frequency": 3, "period": 1, "periodUnit": "d"}),
    ("QID", {"frequency": 4, "period": 1, "periodUnit": "d"}),
    ("6ID", {"frequency": 6, "period": 1, "periodUnit": "d"}),
    ("QOD", {"frequency": 1, "period": 2, "periodUnit": "d"}),
    ("QAM", {"frequency": 1, "period": 1, "periodUnit": "d", "when": ["MORN"]}),
    ("QHS", {"frequency": 1, "period": 1, "periodUnit": "d", "when": ["HS"]}),
    ("QSHIFT", {"frequency": 3, "period": 1, "periodUnit": "d"}),
    ("Q30M", {"frequency": 1, "period": 30, "periodUnit": "min"}),
    ("Q12H", {"frequency": 1, "period": 12, "periodUnit": "h"}),
    ("Q2W", {"frequency": 1, "period": 2, "periodUnit": "wk"}),
    ("Q3L", {"frequency": 1, "period": 3, "periodUnit": "mo"}),
    ("Q1J26", {"frequency": 1, "period": 1, "periodUnit": "wk", "dayOfWeek": ["tue", "sat"]}),
    ("ACM", {"when": ["ACM"]}),
    ("Once", {"count": 1}),
    ("^^^^3^d", {"period": 3, "periodUnit": "d"}),
    ("^DW^6^7", {"dayOfWeek": ["sat", "sun"]}),
    ("^^^^^^^HS^30^min", {"when": ["HS"], "offset": 30}),
    ("^^^^^^^AC^1^h", {"when": ["AC"], "offset": 60}),
    ("MINE", None),
]
"""TQ1-3, Timing.repeat."""


class FactTests(TestCase):
    """Samples of the corpus."""

    def test_samples(self) -> None:
        """What the message says is where it belongs."""
        for name, facts in SAMPLES.items():
            with self.subTest(sample=name):
                hold(self, name, facts)

    def test_no_sample_is_forgotten(self) -> None:
        """Each sample of medications, charges and problems has facts."""
        kinds = ("rde_", "omp_", "dft_", "ppr_", "orm_pharmacy")
        self.assertEqual({one for one in samples.names() if one.startswith(kinds)}, set(SAMPLES))

    def test_encoded_order_is_the_order(self) -> None:
        """The pharmacy's message updates what the provider's made."""
        self.assertLess(requests("orm_pharmacy", MEDICATION), requests("rde_encoded", MEDICATION))


class TimingTests(TestCase):
    """Repeat patterns (table 0335) and their parts."""

    def test_patterns(self) -> None:
        """A code says what it means, also to who does not know the code."""
        for sent, wanted in PATTERNS:
            with self.subTest(sent=sent):
                text = HEAD.format("RDE^O11") + f"ORC|NW|1\nRXE||D|1\nTQ1|1||{sent}\nRXR|PO"
                timing = made(text, MEDICATION)["dosageInstruction"][0]["timing"]
                held = timing.get("repeat")
                self.assertEqual(None if held is None else {name: as_number(one) for name, one in held.items()}, wanted)

    def test_code_is_kept(self) -> None:
        """As sent; the abbreviations that FHIR has are said in its system too."""
        text = HEAD.format("RDE^O11") + "ORC|NW|1\nRXE||D|1\nTQ1|1||{}\nRXR|PO"
        for sent, codes in (("BID", ["BID", "BID"]), ("Q1W", ["WK", "Q1W"]), ("Q5H", ["Q5H"])):
            coding = made(text.format(sent), MEDICATION)["dosageInstruction"][0]["timing"]["code"]["coding"]
            self.assertEqual([one["code"] for one in coding], codes)


def as_number(value: object) -> object:
    """A decimal as the integer that it is."""
    return value if isinstance(value, (str, list)) else int(str(value))
