"""The functions of FHIRPath that need definitions, with the validator as host: tables of expression and result."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.fhirpath import FhirPathError, compile
from ipf.fhir.profiles.library import Structures
from ipf.fhir.validation.validator import Validator

Json = dict[str, Any]
CORE = "http://hl7.org/fhir/StructureDefinition/"
PROFILE = "http://x.test/p"
BLOOD_PRESSURE: Json = {
    "resourceType": "StructureDefinition",
    "url": PROFILE,
    "type": "Observation",
    "baseDefinition": CORE + "Observation",
    "derivation": "constraint",
    "differential": {
        "element": [
            {"id": "Observation.category", "path": "Observation.category",
             "slicing": {"discriminator": [{"type": "pattern", "path": "$this"}], "rules": "open"}},
            {"id": "Observation.category:vital", "path": "Observation.category", "sliceName": "vital", "min": 1,
             "patternCodeableConcept": {"coding": [{"code": "vital-signs"}]}},
            {"id": "Observation.value[x]", "path": "Observation.value[x]",
             "slicing": {"discriminator": [{"type": "type", "path": "$this"}], "rules": "open"}},
            {"id": "Observation.value[x]:valueQuantity", "path": "Observation.value[x]", "sliceName": "valueQuantity",
             "type": [{"code": "Quantity"}]},
            {"id": "Observation.component", "path": "Observation.component",
             "slicing": {"discriminator": [{"type": "value", "path": "code.text"}], "rules": "open"}},
            {"id": "Observation.component:systolic", "path": "Observation.component", "sliceName": "systolic"},
            {"id": "Observation.component:systolic.code", "path": "Observation.component.code"},
            {"id": "Observation.component:systolic.code.text", "path": "Observation.component.code.text",
             "fixedString": "systolic"},
            {"id": "Observation.performer", "path": "Observation.performer",
             "slicing": {"discriminator": [{"type": "type", "path": "resolve()"}], "rules": "open"}},
            {"id": "Observation.performer:person", "path": "Observation.performer", "sliceName": "person",
             "type": [{"code": "Reference", "targetProfile": [CORE + "Practitioner"]}]},
        ]
    },
}  # fmt: skip
OBSERVATION: Json = {
    "resourceType": "Observation",
    "status": "final",
    "category": [{"coding": [{"code": "exam"}]}, {"coding": [{"code": "vital-signs"}]}],
    "code": {"text": "blood pressure"},
    "performer": [{"reference": "Practitioner/1"}],
    "valueQuantity": {"value": 1, "unit": "mmHg"},
    "component": [
        {"code": {"text": "systolic"}, "valueQuantity": {"value": 120}},
        {"code": {"text": "diastolic"}, "valueQuantity": {"value": 80}},
    ],
}
PATIENT: Json = {
    "resourceType": "Patient",
    "gender": "male",
    "birthDate": "1970-01-01",
    "_birthDate": {"extension": [{"url": "http://x.test/e", "valueBoolean": True}]},
    "deceasedBoolean": False,
    "name": [{"family": "A", "given": ["B", "C"]}, {"family": "D"}],
    "contact": [{"name": {"family": "E"}, "modifierExtension": [{"url": "http://x.test/m", "valueCode": "x"}]}],
    "maritalStatus": {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/v3-MaritalStatus", "code": "M"}]},
}
INTERPRETATION = "http://terminology.hl7.org/CodeSystem/v3-ObservationInterpretation"
INTERPRETED: Json = {**OBSERVATION, "interpretation": [
    {"coding": [{"system": INTERPRETATION, "code": "A"}]}, {"coding": [{"system": INTERPRETATION, "code": "H"}]},
    {"coding": [{"system": INTERPRETATION, "code": "N"}]},
]}  # fmt: skip
ERROR = "error"

ELEMENTS: tuple[tuple[str, Any], ...] = (
    ("elementDefinition().path", ["Patient"]),
    ("Patient.elementDefinition().path", ["Patient"]),
    ("name.elementDefinition().path", ["Patient.name", "Patient.name"]),
    ("Patient.name.where(family = 'D').elementDefinition().id", ["Patient.name"]),
    ("name.given.elementDefinition().path", ["HumanName.given", "HumanName.given"]),
    ("name[0].given.first().elementDefinition().max", ["*"]),
    ("contact.elementDefinition().min", [0]),
    ("contact.name.elementDefinition().path", ["Patient.contact.name"]),
    ("deceased.elementDefinition().path", ["Patient.deceased[x]"]),
    ("(deceased as boolean).elementDefinition().type.code", ["boolean", "dateTime"]),
    ("deceased.ofType(boolean).elementDefinition().type.code", ["boolean", "dateTime"]),
    ("birthDate.extension('http://x.test/e').elementDefinition().path", ["date.extension"]),
    ("gender.elementDefinition().binding.strength", ["required"]),
    ("name.elementDefinition().first() is ElementDefinition", [True]),
    ("photo.elementDefinition()", []),
    ("descendants().where(false).elementDefinition()", []),
    ("descendants().elementDefinition()", ERROR),
    ("(name | contact.name).elementDefinition()", ERROR),
    ("name.select($this.elementDefinition())", ERROR),
    ("'a'.elementDefinition()", ERROR),
)
SLICES: tuple[tuple[str, Any], ...] = (
    (f"category.slice('{PROFILE}', 'vital').coding.code", ["vital-signs"]),
    (f"component.slice('{PROFILE}', 'systolic').value.value", [120]),
    (f"component.where(code.text = 'diastolic').slice('{PROFILE}', 'systolic')", []),
    (f"value.slice('{PROFILE}', 'valueQuantity').unit", ["mmHg"]),
    (f"children().slice('{PROFILE}', 'systolic').count()", [1]),
    (f"code.slice('{PROFILE}', 'systolic')", []),
    (f"status.slice('{PROFILE}', 'vital')", []),
    (f"bodySite.slice('{PROFILE}', 'vital')", []),
    (f"component.slice('{PROFILE}', 'none')", ERROR),
    ("component.slice('http://x.test/unknown', 'systolic')", ERROR),
    (f"component.slice('{PROFILE}', {{}})", ERROR),
    ("component.slice({}, 'systolic')", ERROR),
    (f"performer.slice('{PROFILE}', 'person')", ERROR),  # it cannot be resolved
)
CONFORMS: tuple[tuple[str, Any], ...] = (
    (f"conformsTo('{PROFILE}')", [True]),
    (f"conformsTo('{CORE}Observation')", [True]),
    (f"conformsTo('{CORE}Patient')", [False]),
    (f"value.conformsTo('{CORE}Quantity')", [True]),
    (f"bodySite.conformsTo('{PROFILE}')", []),
    (f"component.conformsTo('{PROFILE}')", ERROR),
    ("conformsTo('http://x.test/unknown')", ERROR),
    ("conformsTo({})", []),
)
MODIFIERS: tuple[tuple[str, Any], ...] = (
    ("name.checkModifiers().family", ["A", "D"]),
    ("contact.checkModifiers('http://x.test/m').name.family", ["E"]),
    ("contact.checkModifiers('http://x.test/a', 'http://x.test/m').name.family", ["E"]),
    ("contact.checkModifiers()", ERROR),
    ("contact.checkModifiers('http://x.test/a')", ERROR),
    ("contact.checkModifiers({})", ERROR),
    ("photo.checkModifiers()", []),
)
TERMS: tuple[tuple[str, Any], ...] = (
    ("gender.memberOf('http://hl7.org/fhir/ValueSet/administrative-gender')", [True]),
    ("maritalStatus.memberOf('http://hl7.org/fhir/ValueSet/marital-status')", [True]),
    ("maritalStatus.coding.memberOf('http://hl7.org/fhir/ValueSet/administrative-gender')", [False]),
    ("gender.memberOf('http://x.test/unknown')", []),
    ("name.memberOf('http://hl7.org/fhir/ValueSet/marital-status')", []),
)
SUBSUMPTION: tuple[tuple[str, Any], ...] = (
    ("interpretation[0].coding.subsumes(interpretation[1].coding)", [True]),
    ("interpretation[1].coding.subsumes(interpretation[0].coding)", [False]),
    ("interpretation[1].subsumedBy(interpretation[0])", [True]),
    ("interpretation[2].subsumes(interpretation[2])", [True]),
    ("interpretation[0].subsumes(bodySite)", []),
)
NARRATIVES: tuple[tuple[str, Any], ...] = (
    ("text.div.htmlChecks()", [True]),
    ("text.status.htmlChecks()", []),
    ("code.htmlChecks()", []),
    ("'<div/>'.htmlChecks()", []),
    ("bodySite.htmlChecks()", []),
)


class ExpressionTests(TestCase):
    """Each row is evaluated on one resource."""

    def setUp(self) -> None:
        self.validator = Validator(Structures(lambda url: BLOOD_PRESSURE if url == PROFILE else None))

    def table(self, rows: tuple[tuple[str, Any], ...], resource: Json) -> None:
        for text, wanted in rows:
            try:
                found: Any = compile(text).evaluate(resource, host=self.validator.host_for(resource))
            except FhirPathError:
                found = ERROR
            self.assertEqual(found, wanted, text)

    def test_tables(self) -> None:
        div = "<div xmlns='http://www.w3.org/1999/xhtml'>x</div>"
        for rows, resource in (
            (ELEMENTS, PATIENT),
            (SLICES, OBSERVATION),
            (CONFORMS, OBSERVATION),
            (MODIFIERS, PATIENT),
            (TERMS, PATIENT),
            (SUBSUMPTION, INTERPRETED),
            (NARRATIVES, {**OBSERVATION, "text": {"status": "generated", "div": div}}),
        ):
            self.table(rows, resource)

    def test_an_invariant_may_name_a_slice(self) -> None:
        """In validation, too."""
        rule = {"key": "x-1", "severity": "error", "human": "high", "expression": ""}
        rule["expression"] = f"component.slice('{PROFILE}', 'systolic').value.value.all($this < 100)"
        element = {"id": "Observation", "path": "Observation", "constraint": [rule]}
        made = {**BLOOD_PRESSURE, "url": "http://x.test/q", "differential": {"element": [element]}}
        known = {PROFILE: BLOOD_PRESSURE, "http://x.test/q": made}
        found = Validator(Structures(known.get)).validate(OBSERVATION, ["http://x.test/q"])
        self.assertIn("x-1: high", [one.text for one in found if one.severity == "error"])

    def test_lookups_have_a_limit(self) -> None:
        """Those of one evaluation are counted."""
        many = "(" + " | ".join(f"'{number}'" for number in range(110)) + ")"
        text = f"{many}.select({many}.select(conformsTo('http://x.test/' & $this)))"
        self.assertRaises(FhirPathError, compile(text).evaluate, OBSERVATION, host=self.validator.host_for(OBSERVATION))
