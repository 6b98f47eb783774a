"""Slicing: each kind of discriminator, closed and ordered slicing, cardinality of slices."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.profiles.library import Structures
from ipf.fhir.validation.validator import Validator

Json = dict[str, Any]
CORE = "http://hl7.org/fhir/StructureDefinition/"
OBSERVATION: Json = {"resourceType": "Observation", "status": "final", "code": {"text": "x"}}


def profile(kind: str, *elements: Json) -> Json:
    """A profile with this differential; each element by its id."""
    return {
        "resourceType": "StructureDefinition",
        "url": "http://x.test/p",
        "type": kind,
        "baseDefinition": CORE + kind,
        "derivation": "constraint",
        "differential": {"element": [_element(one) for one in elements]},
    }


def _element(facts: Json) -> Json:
    path = ".".join(part.partition(":")[0] for part in facts["id"].split("."))
    last = facts["id"].rpartition(".")[2]
    return {"path": path, **({"sliceName": last.partition(":")[2]} if ":" in last else {}), **facts}


def sliced(id: str, kind: str, path: str, **more: Any) -> Json:
    """A sliced element."""
    return {"id": id, "slicing": {"discriminator": [{"type": kind, "path": path}], "rules": "open", **more}}


def errors(definition: Json, resource: Json) -> list[tuple[str, str]]:
    """(code, location) of the errors, by a profile alone."""
    validator = Validator(Structures(lambda url: definition if url == "http://x.test/p" else None))
    found = validator.validate(resource, ["http://x.test/p"])
    return [(one.code, one.location) for one in found if one.severity == "error"]


def category(*codes: str) -> Json:
    """An Observation of these categories."""
    return {**OBSERVATION, "category": [{"coding": [{"system": "http://x.test/cs", "code": code}]} for code in codes]}


def coded(code: str) -> Json:
    """A pattern."""
    return {"coding": [{"system": "http://x.test/cs", "code": code}]}


class Slicing(TestCase):
    """Rows of (resource, errors)."""

    def check(self, definition: Json, rows: list[tuple[Json, list[tuple[str, str]]]]) -> None:
        """Each resource gives exactly these."""
        for resource, expected in rows:
            self.assertEqual(errors(definition, resource), expected, resource)

    def test_pattern(self) -> None:
        definition = profile(
            "Observation",
            sliced("Observation.category", "pattern", "$this"),
            {"id": "Observation.category:a", "min": 1, "max": "1", "patternCodeableConcept": coded("a")},
        )
        self.check(
            definition,
            [
                (category("a"), []),
                (category("b", "a"), []),
                (category("b"), [("required", "Observation")]),
                (category("a", "a"), [("structure", "Observation")]),
            ],
        )

    def test_value_below(self) -> None:
        definition = profile(
            "Patient",
            sliced("Patient.identifier", "value", "system"),
            {"id": "Patient.identifier:mrn", "min": 0, "max": "1"},
            {"id": "Patient.identifier:mrn.system", "min": 1, "fixedUri": "http://x.test/mrn"},
            {"id": "Patient.identifier:mrn.value", "min": 1},
        )
        patient: Json = {"resourceType": "Patient"}
        self.check(
            definition,
            [
                ({**patient, "identifier": [{"system": "http://x.test/mrn", "value": "1"}]}, []),
                ({**patient, "identifier": [{"system": "http://x.test/other"}]}, []),
                ({**patient, "identifier": [{"system": "http://x.test/mrn"}]}, [("required", "Patient.identifier[0]")]),
            ],
        )

    def test_closed_and_ordered(self) -> None:
        definition = profile(
            "Observation",
            sliced("Observation.category", "pattern", "$this", rules="closed", ordered=True),
            {"id": "Observation.category:a", "max": "1", "patternCodeableConcept": coded("a")},
            {"id": "Observation.category:b", "max": "1", "patternCodeableConcept": coded("b")},
        )
        self.check(
            definition,
            [
                (category("a", "b"), []),
                (category("b", "a"), [("structure", "Observation.category[1]")]),
                (category("a", "c"), [("structure", "Observation.category[1]")]),
            ],
        )

    def test_open_at_end(self) -> None:
        definition = profile(
            "Observation",
            sliced("Observation.category", "pattern", "$this", rules="openAtEnd"),
            {"id": "Observation.category:a", "max": "1", "patternCodeableConcept": coded("a")},
        )
        self.check(
            definition, [(category("a", "c"), []), (category("c", "a"), [("structure", "Observation.category[1]")])]
        )

    def test_exists(self) -> None:
        definition = profile(
            "Patient",
            sliced("Patient.name", "exists", "period"),
            {"id": "Patient.name:old", "max": "1"},
            {"id": "Patient.name:old.period", "min": 1},
            {"id": "Patient.name:now", "min": 1, "max": "1"},
            {"id": "Patient.name:now.period", "max": "0"},
        )
        old, now = {"family": "A", "period": {"end": "2020"}}, {"family": "B"}
        self.check(
            definition,
            [
                ({"resourceType": "Patient", "name": [old, now]}, []),
                ({"resourceType": "Patient", "name": [old]}, [("required", "Patient")]),
                ({"resourceType": "Patient", "name": [now, now]}, [("structure", "Patient")]),
            ],
        )

    def test_type_of_a_choice(self) -> None:
        definition = profile(
            "Observation",
            sliced("Observation.value[x]", "type", "$this", rules="closed"),
            {"id": "Observation.value[x]:valueQuantity", "min": 1, "max": "1", "type": [{"code": "Quantity"}]},
            {"id": "Observation.value[x]:valueQuantity.code", "min": 1},
        )
        quantity = {"value": 1, "system": "http://unitsofmeasure.org", "code": "g"}
        self.check(
            definition,
            [
                ({**OBSERVATION, "valueQuantity": quantity}, []),
                ({**OBSERVATION, "valueQuantity": {"value": 1}}, [("required", "Observation.value.ofType(Quantity)")]),
                (
                    {**OBSERVATION, "valueString": "x"},
                    [("structure", "Observation.valueString"), ("required", "Observation")],
                ),
            ],
        )

    def test_type_of_resources_and_references(self) -> None:
        in_bundle = profile(
            "Bundle",
            sliced("Bundle.entry", "type", "resource"),
            {"id": "Bundle.entry:patient", "min": 1, "max": "1"},
            {"id": "Bundle.entry:patient.resource", "min": 1, "type": [{"code": "Patient"}]},
        )

        def bundle(*kinds: str) -> Json:
            resources = [{"resourceType": kind} for kind in kinds]
            return {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": one} for one in resources]}

        self.check(in_bundle, [(bundle("Patient"), [])])
        self.assertEqual(errors(in_bundle, bundle("Patient", "Patient")), [("structure", "Bundle")])
        by_target = profile(
            "Observation",
            sliced("Observation.performer", "type", "resolve()"),
            {
                "id": "Observation.performer:who",
                "min": 1,
                "type": [{"code": "Reference", "targetProfile": [CORE + "Practitioner"]}],
            },
        )
        practitioner = {"resourceType": "Practitioner", "id": "p"}
        organization = {"resourceType": "Organization", "id": "p", "name": "x"}
        observation = {**OBSERVATION, "performer": [{"reference": "#p"}]}
        self.check(
            by_target,
            [
                ({**observation, "contained": [practitioner]}, []),
                ({**observation, "contained": [organization]}, [("required", "Observation")]),
                ({**OBSERVATION, "performer": [{"reference": "Practitioner/1"}]}, []),  # cannot be known
            ],
        )

    def test_profile(self) -> None:
        definition = profile(
            "Bundle",
            sliced("Bundle.entry", "profile", "resource"),
            {"id": "Bundle.entry:bmi", "min": 1, "max": "1"},
            {"id": "Bundle.entry:bmi.resource", "min": 1, "type": [{"code": "Observation", "profile": [CORE + "bmi"]}]},
        )
        bmi = {
            **OBSERVATION,
            "code": {"coding": [{"system": "http://loinc.org", "code": "39156-5"}]},
            "category": [
                {
                    "coding": [
                        {"system": "http://terminology.hl7.org/CodeSystem/observation-category", "code": "vital-signs"}
                    ]
                }
            ],
            "subject": {"reference": "Patient/1"},
            "effectiveDateTime": "2024-01-01",
            "valueQuantity": {"value": 21, "unit": "kg/m2", "system": "http://unitsofmeasure.org", "code": "kg/m2"},
        }

        def bundle(resource: Json) -> Json:
            return {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": resource}]}

        self.check(
            definition,
            [(bundle(bmi), []), (bundle({**bmi, "valueQuantity": {"value": 21}}), [("required", "Bundle")])],
        )

    def test_slices_of_slices(self) -> None:
        """Each with its cardinality and its rules, among the values of the slice that they divide."""
        name = "Patient.identifier"
        definition = profile(
            "Patient",
            sliced(name, "value", "value"),
            sliced(f"{name}:a", "value", "use", rules="closed"),
            {"id": f"{name}:a.value", "patternString": "1"},
            {"id": f"{name}:a/x", "min": 1, "max": "1"},
            {"id": f"{name}:a/x.use", "min": 1, "fixedCode": "usual"},
            {"id": f"{name}:a/y"},
            {"id": f"{name}:a/y.use", "min": 1, "fixedCode": "old"},
            {"id": f"{name}:a/y.period", "min": 1},
        )
        x, y, other = {"value": "1", "use": "usual"}, {"value": "1", "use": "old"}, {"value": "2"}
        ended = {**y, "period": {"end": "2020"}}
        rows: list[tuple[list[Json], list[tuple[str, str]]]] = [
            ([x], []),
            ([x, other], []),
            ([x, x], [("structure", "Patient")]),
            ([x, y], [("required", "Patient.identifier[1]")]),
            ([x, ended], []),
            ([ended], [("required", "Patient")]),
            ([x, {"value": "1"}], [("structure", "Patient.identifier[1]")]),
            ([x, {**other, "use": "usual"}], []),
        ]
        self.check(definition, [({"resourceType": "Patient", "identifier": numbers}, found) for numbers, found in rows])

    def test_extensions_by_url(self) -> None:
        url = CORE + "patient-birthPlace"
        definition = profile(
            "Patient",
            {
                "id": "Patient.extension:location",
                "min": 1,
                "max": "1",
                "type": [{"code": "Extension", "profile": [url]}],
            },
        )
        location = {"url": url, "valueAddress": {"city": "X"}}
        self.check(
            definition,
            [
                ({"resourceType": "Patient", "extension": [location]}, []),
                ({"resourceType": "Patient"}, [("required", "Patient")]),
                ({"resourceType": "Patient", "extension": [location, location]}, [("structure", "Patient")]),
            ],
        )

    def test_fixed_and_limits(self) -> None:
        definition = profile(
            "Patient",
            {"id": "Patient.gender", "fixedCode": "female"},
            {"id": "Patient.name.family", "maxLength": 3},
            {"id": "Patient.birthDate", "minValueDate": "1900-01-01"},
            {"id": "Patient.photo", "max": "0"},
        )
        self.check(
            definition,
            [
                ({"resourceType": "Patient", "gender": "female", "name": [{"family": "abc"}], "birthDate": "1950"}, []),
                ({"resourceType": "Patient", "gender": "male"}, [("value", "Patient.gender")]),
                ({"resourceType": "Patient", "name": [{"family": "abcd"}]}, [("too-long", "Patient.name[0].family")]),
                ({"resourceType": "Patient", "birthDate": "1890"}, [("value", "Patient.birthDate")]),
                ({"resourceType": "Patient", "photo": [{"url": "x"}]}, [("structure", "Patient")]),
            ],
        )
