"""A profile whose required binding names a smaller value set than its base does."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.fhir.profiles.library import Structures
from ipf.fhir.terminology import Terminology
from ipf.fhir.validation.validator import Validator
from ipf.ports import Json
from tests.fhir.validation.test_alternatives import X, profile

CORE = "http://hl7.org/fhir/"
CLINICAL = "http://terminology.hl7.org/CodeSystem/condition-clinical"
CATEGORY = "http://terminology.hl7.org/CodeSystem/observation-category"
UCUM, OWN = "http://unitsofmeasure.org", "urn:own"


def value_set(name: str, system: str, *codes: str) -> Json:
    """A value set of a few codes."""
    include = {"system": system, "concept": [{"code": one} for one in codes]}
    return {"resourceType": "ValueSet", "url": X + name, "status": "active", "compose": {"include": [include]}}


SETS = {
    one["url"]: one
    for one in (
        value_set("final", CORE + "observation-status", "final", "amended"),
        value_set("active", CLINICAL, "active"),
        value_set("lab", CATEGORY, "laboratory"),
        value_set("male", CORE + "administrative-gender", "male"),
        value_set("official", CORE + "identifier-use", "official"),
        value_set("own", OWN, "a", "b"),
        value_set("mg", UCUM, "mg"),
    )
}


def concept(system: str, code: str) -> Json:
    """A CodeableConcept."""
    return {"coding": [{"system": system, "code": code}]}


def observation(**members: object) -> Json:
    """An Observation."""
    return {"resourceType": "Observation", "status": "final", "code": {"text": "x"}, **members}


PATIENT: Json = {"resourceType": "Patient"}
CONDITION: Json = {"resourceType": "Condition", "subject": {"reference": "Patient/1"}}
ROWS: list[tuple[str, str, Json, Json]] = [
    # element, value set, a resource that fits, one that fits the base alone
    ("Observation.status", "final", observation(), observation(status="preliminary")),
    ("Observation.code", "own", observation(code=concept(OWN, "a")), observation(code=concept(OWN, "z"))),
    (
        "Observation.category", "lab", observation(category=[concept(CATEGORY, "laboratory")]),
        observation(category=[concept(CATEGORY, "imaging")]),
    ),
    (
        "Observation.value[x]", "own", observation(valueCodeableConcept=concept(OWN, "b")),
        observation(valueCodeableConcept=concept(OWN, "z")),
    ),
    (
        "Observation.valueCodeableConcept", "own", observation(valueCodeableConcept=concept(OWN, "b")),
        observation(valueCodeableConcept=concept(OWN, "z")),
    ),
    (
        "Observation.valueQuantity", "mg", observation(valueQuantity={"value": 1, "system": UCUM, "code": "mg"}),
        observation(valueQuantity={"value": 1, "system": UCUM, "code": "kg"}),
    ),
    (
        "Observation.component.code", "own", observation(component=[{"code": concept(OWN, "a")}]),
        observation(component=[{"code": concept(OWN, "z")}]),
    ),
    (
        "Condition.clinicalStatus", "active", {**CONDITION, "clinicalStatus": concept(CLINICAL, "active")},
        {**CONDITION, "clinicalStatus": concept(CLINICAL, "resolved")},
    ),
    ("Patient.gender", "male", {**PATIENT, "gender": "male"}, {**PATIENT, "gender": "female"}),
    (
        "Patient.contact.gender", "male", {**PATIENT, "contact": [{"name": {"text": "x"}, "gender": "male"}]},
        {**PATIENT, "contact": [{"name": {"text": "x"}, "gender": "other"}]},
    ),
    (
        "Patient.identifier.use", "official", {**PATIENT, "identifier": [{"use": "official", "value": "1"}]},
        {**PATIENT, "identifier": [{"use": "usual", "value": "1"}]},
    ),
]  # fmt: skip


class NarrowedBindingTests(TestCase):
    def errors(self, narrowed: Json, resource: Json, *profiles: Json) -> list[str]:
        """The errors of a resource by a profile."""
        known = {one["url"]: one for one in (narrowed, *profiles)}
        terminology = Terminology(lambda kind, url: SETS.get(url.partition("|")[0]) if kind == "ValueSet" else None)
        validator = Validator(Structures(lambda url: known.get(url.partition("|")[0])), terminology)
        found = validator.validate(resource, [narrowed["url"]])
        return [one.text for one in found if one.severity == "error"]

    def test_each_kind_of_element(self) -> None:
        """Also where the base has a required binding of its own, and in a profile on the profile."""
        for path, name, fits, does_not in ROWS:
            binding = {"path": path, "binding": {"strength": "required", "valueSet": X + name}}
            narrowed = profile("narrowed", path.partition(".")[0], binding)
            below = {**profile("below", path.partition(".")[0]), "baseDefinition": narrowed["url"]}
            for made, others in ((narrowed, ()), (below, (narrowed,))):
                self.assertEqual(self.errors(made, fits, *others), [], path)
                (text,) = self.errors(made, does_not, *others)
                self.assertIn(f"is not in the required value set {X}{name}", text, path)
