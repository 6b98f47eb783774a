"""A profile narrows its base: what would widen it is left out of the snapshot, and is an error of the profile."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.profiles.library import Structures
from ipf.fhir.validation.validator import Validator

Json = dict[str, Any]
CORE = "http://hl7.org/fhir/StructureDefinition/"
X = "http://x.test/"
UCUM = "http://unitsofmeasure.org"
OBSERVATION: Json = {"resourceType": "Observation", "status": "final", "code": {"text": "x"}}
CODED: Json = {"coding": [{"system": "http://x.test/cs", "code": "a"}]}
VALUE_SET = "http://hl7.org/fhir/ValueSet/administrative-gender"


def profile(name: str, kind: str, base: str, *elements: Json) -> Json:
    """A profile without a snapshot."""
    return {
        "resourceType": "StructureDefinition",
        "url": X + name,
        "name": "P",
        "status": "draft",
        "kind": "resource",
        "abstract": False,
        "type": kind,
        "derivation": "constraint",
        "baseDefinition": base,
        "differential": {"element": [{"id": one["path"], **one} for one in elements]},
    }


def quantity(value: float, unit: str) -> Json:
    """A UCUM quantity."""
    return {"value": value, "unit": unit, "system": UCUM, "code": unit}


def measured(value: float, unit: str) -> Json:
    """An Observation with a value."""
    return {**OBSERVATION, "valueQuantity": quantity(value, unit)}


class WideningTests(TestCase):
    """Each row: a base profile's element, the element of a profile derived from it, a resource that the base forbids,
    and one that both allow (None: the derived element allows nothing more to try)."""

    ROWS: dict[str, tuple[Json, Json, Json, Json | None]] = {
        "min": (
            {"path": "Observation.subject", "min": 1},
            {"min": 0},
            OBSERVATION,
            {**OBSERVATION, "subject": {"reference": "Patient/1"}},
        ),
        "max": (
            {"path": "Observation.note", "max": "1"},
            {"max": "*"},
            {**OBSERVATION, "note": [{"text": "a"}, {"text": "b"}]},
            {**OBSERVATION, "note": [{"text": "a"}]},
        ),
        "max 0": (
            {"path": "Observation.note", "max": "0"},
            {"max": "1"},
            {**OBSERVATION, "note": [{"text": "a"}]},
            OBSERVATION,
        ),
        "types": (
            {"path": "Observation.value[x]", "type": [{"code": "Quantity"}]},
            {"type": [{"code": "Quantity"}, {"code": "string"}]},
            {**OBSERVATION, "valueString": "x"},
            measured(1, "kg"),
        ),
        "another type": (
            {"path": "Observation.value[x]", "type": [{"code": "Quantity"}]},
            {"type": [{"code": "string"}]},
            {**OBSERVATION, "valueString": "x"},
            measured(1, "kg"),
        ),
        "targets": (
            {"path": "Observation.subject", "type": [{"code": "Reference", "targetProfile": [CORE + "Patient"]}]},
            {"type": [{"code": "Reference"}]},
            {**OBSERVATION, "subject": {"reference": "Group/1"}},
            {**OBSERVATION, "subject": {"reference": "Patient/1"}},
        ),
        "another target": (
            {"path": "Observation.subject", "type": [{"code": "Reference", "targetProfile": [CORE + "Patient"]}]},
            {"type": [{"code": "Reference", "targetProfile": [CORE + "Group"]}]},
            {**OBSERVATION, "subject": {"reference": "Group/1"}},
            {**OBSERVATION, "subject": {"reference": "Patient/1"}},
        ),
        "fixed": (
            {"path": "Observation.status", "fixedCode": "final"},
            {"fixedCode": "amended"},
            {**OBSERVATION, "status": "amended"},
            OBSERVATION,
        ),
        "pattern for fixed": (
            {"path": "Observation.status", "fixedCode": "final"},
            {"patternCode": "amended"},
            {**OBSERVATION, "status": "amended"},
            OBSERVATION,
        ),
        "pattern": (
            {"path": "Observation.code", "patternCodeableConcept": CODED},
            {"patternCodeableConcept": {"text": "x"}},
            OBSERVATION,
            {**OBSERVATION, "code": CODED},
        ),
        "binding": (
            {"path": "Observation.method", "binding": {"strength": "required", "valueSet": VALUE_SET}},
            {"binding": {"strength": "example", "valueSet": VALUE_SET}},
            {**OBSERVATION, "method": CODED},
            {
                **OBSERVATION,
                "method": {"coding": [{"system": "http://hl7.org/fhir/administrative-gender", "code": "male"}]},
            },
        ),
        "maxLength": (
            {"path": "Observation.value[x]", "type": [{"code": "string"}], "maxLength": 3},
            {"maxLength": 9},
            {**OBSERVATION, "valueString": "abcd"},
            {**OBSERVATION, "valueString": "abc"},
        ),
        "minValue": (
            {"path": "Observation.issued", "minValueInstant": "2020-01-01T00:00:00Z"},
            {"minValueInstant": "1900-01-01T00:00:00Z"},
            {**OBSERVATION, "issued": "2010-01-01T00:00:00Z"},
            {**OBSERVATION, "issued": "2021-01-01T00:00:00Z"},
        ),
        "limit in another unit": (
            {"path": "Observation.value[x]", "type": [{"code": "Quantity"}], "maxValueQuantity": quantity(2, "kg")},
            {"maxValueQuantity": quantity(3000, "g")},
            measured(2500, "g"),
            measured(1900, "g"),
        ),
        "constraint": (
            {
                "path": "Observation",
                "constraint": [{"key": "x-1", "severity": "error", "human": "x", "expression": "note.exists()"}],
            },
            {"constraint": [{"key": "x-1", "severity": "error", "human": "x", "expression": "true"}]},
            OBSERVATION,
            {**OBSERVATION, "note": [{"text": "a"}]},
        ),
        "severity of a constraint": (
            {
                "path": "Observation",
                "constraint": [{"key": "x-1", "severity": "error", "human": "x", "expression": "note.exists()"}],
            },
            {"constraint": [{"key": "x-1", "severity": "warning", "human": "x", "expression": "note.exists()"}]},
            OBSERVATION,
            {**OBSERVATION, "note": [{"text": "a"}]},
        ),
        "closed slicing": (
            {
                "path": "Observation.category",
                "slicing": {"discriminator": [{"type": "pattern", "path": "$this"}], "rules": "closed"},
            },
            {"slicing": {"discriminator": [{"type": "pattern", "path": "$this"}], "rules": "open"}},
            {**OBSERVATION, "category": [{"text": "other"}]},
            {**OBSERVATION, "category": [CODED]},
        ),
    }

    def validator(self, *profiles: Json) -> Validator:
        known = {one["url"]: one for one in profiles}
        return Validator(Structures(lambda url: known.get(url.partition("|")[0])))

    def errors(self, validator: Validator, resource: Json, *profiles: str) -> list[str]:
        found = validator.validate(resource, [X + one for one in profiles])
        return [f"{one.location}: {one.text}" for one in found if one.severity == "error"]

    def test_the_rule_of_the_base_stays(self) -> None:
        for name, (base, changes, forbidden, allowed) in self.ROWS.items():
            first: list[Json] = [base]
            if name == "closed slicing":
                slice_of = {"id": "Observation.category:a", "path": "Observation.category", "sliceName": "a"}
                first.append({**slice_of, "patternCodeableConcept": CODED})
            parent = profile("base", "Observation", CORE + "Observation", *first)
            child = profile("p", "Observation", X + "base", {"path": base["path"], **changes})
            validator = self.validator(parent, child)
            self.assertNotEqual(self.errors(validator, forbidden, "base"), [], name)
            self.assertEqual(self.errors(validator, forbidden, "p"), self.errors(validator, forbidden, "base"), name)
            if allowed is not None:
                self.assertEqual(self.errors(validator, allowed, "base"), [], name)
                self.assertEqual(self.errors(validator, allowed, "p"), [], name)

    def test_the_profile_has_an_error(self) -> None:
        """At the element of the differential; a parent, which only narrows, has none."""
        for name, (base, changes, _, _) in self.ROWS.items():
            root = {"path": "Observation"}
            parent = profile(
                "base", "Observation", CORE + "Observation", *({root["path"]: root, base["path"]: base}.values())
            )
            child = profile("p", "Observation", X + "base", {"path": base["path"], **changes})
            validator = self.validator(parent, child)
            self.assertEqual(self.errors(validator, parent), [], name)
            found = self.errors(validator, child)
            self.assertEqual(bool(found), name != "targets", name)  # a type without targets says nothing about them
            for one in found:
                self.assertIn("StructureDefinition.differential.element[0]: a profile narrows its base: ", one, name)

    def test_what_narrows_is_taken(self) -> None:
        """The same members in the other direction."""
        for base, changes, forbidden in (
            ({"path": "Observation.note", "max": "3"}, {"max": "1"}, {**OBSERVATION, "note": [{"text": "a"}] * 2}),
            ({"path": "Observation.subject"}, {"min": 1}, OBSERVATION),
            ({"path": "Observation.value[x]"}, {"type": [{"code": "string"}]}, measured(1, "kg")),
            (
                {"path": "Observation.subject"},
                {"type": [{"code": "Reference", "targetProfile": [CORE + "Patient"]}]},
                {**OBSERVATION, "subject": {"reference": "Group/1"}},
            ),
            (
                {"path": "Observation.code", "patternCodeableConcept": CODED},
                {"patternCodeableConcept": {**CODED, "text": "y"}},
                {**OBSERVATION, "code": CODED},
            ),
            (
                {"path": "Observation.code", "patternCodeableConcept": CODED},
                {"fixedCodeableConcept": CODED},
                {**OBSERVATION, "code": {**CODED, "text": "y"}},
            ),
            (
                {
                    "path": "Observation.value[x]",
                    "type": [{"code": "Quantity"}],
                    "maxValueQuantity": quantity(2, "kg"),
                },
                {"maxValueQuantity": quantity(500, "g")},
                measured(1, "kg"),
            ),
            (
                {"path": "Observation.method", "binding": {"strength": "example", "valueSet": VALUE_SET}},
                {"binding": {"strength": "required"}},
                {**OBSERVATION, "method": CODED},
            ),
        ):
            parent = profile("base", "Observation", CORE + "Observation", base)
            child = profile("p", "Observation", X + "base", {"path": base["path"], **changes})
            validator = self.validator(parent, child)
            self.assertEqual(self.errors(validator, child), [], changes)
            self.assertEqual(self.errors(validator, forbidden, "base"), [], changes)
            self.assertNotEqual(self.errors(validator, forbidden, "p"), [], changes)

    def test_types_of_r4_cannot_be_widened(self) -> None:
        """Also those of data types, whose own check does not run beside that of a profile."""
        address = profile("address", "Address", CORE + "Address", {"path": "Address.city", "max": "*"})
        parts = profile("ext", "Extension", CORE + "Extension", {"path": "Extension.url", "min": 0, "max": "0"})
        patient = profile(
            "p",
            "Patient",
            CORE + "Patient",
            {"path": "Patient.address", "type": [{"code": "Address", "profile": [X + "address"]}]},
            {"path": "Patient.extension", "type": [{"code": "Extension", "profile": [X + "ext"]}]},
        )
        validator = self.validator(address, parts, patient)
        resource = {"resourceType": "Patient", "extension": [{"valueString": "a"}]}
        self.assertIn("Patient.extension[0]", " ".join(self.errors(validator, resource, "p")))
        self.assertEqual(len(self.errors(validator, address)), 1)

    def test_a_profile_that_fits_no_base_is_a_warning(self) -> None:
        wrong = profile("p", "Patient", CORE + "Patient", {"path": "Patient.nothing", "min": 1})
        found = [one for one in self.validator(wrong).validate(wrong) if one.severity == "warning"]
        self.assertIn("Patient.nothing", " ".join(one.text for one in found))
