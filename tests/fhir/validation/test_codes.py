"""Codes of bound elements, and targets of references."""

from __future__ import annotations

from ipf.fhir.profiles.library import Structures
from ipf.fhir.validation.findings import Policy
from ipf.fhir.validation.validator import Validator
from tests.fhir.validation.rules import OBSERVATION, PATIENT, Base, Json, found, texts, with_


class Codes(Base):
    """Bindings and rules of Coding."""

    def test_required_and_extensible(self) -> None:
        marital = {"coding": [{"system": "http://x.test/cs", "code": "M"}]}
        self.check([(with_(PATIENT, gender="man"), [("code-invalid", "Patient.gender")])])
        self.check([(with_(PATIENT, maritalStatus=marital), [])])
        self.assertIn(
            ("code-invalid", "Patient.maritalStatus"), found(with_(PATIENT, maritalStatus=marital), "warning")
        )
        clinical = {"resourceType": "Condition", "subject": {"reference": "Patient/1"}}
        self.check(
            [
                (with_(clinical, clinicalStatus={"text": "x"}), [("code-invalid", "Condition.clinicalStatus")]),
                (
                    with_(clinical, clinicalStatus={"coding": [{"system": "http://x.test/cs", "code": "active"}]}),
                    [("code-invalid", "Condition.clinicalStatus")],
                ),
            ]
        )

    def test_undecidable_codes_give_information(self) -> None:
        profile = {
            "resourceType": "StructureDefinition",
            "url": "http://x.test/p",
            "type": "Observation",
            "baseDefinition": "http://hl7.org/fhir/StructureDefinition/Observation",
            "derivation": "constraint",
            "differential": {
                "element": [
                    {
                        "id": "Observation.code",
                        "path": "Observation.code",
                        "binding": {"strength": "required", "valueSet": "http://x.test/vs"},
                    }
                ]
            },
        }
        validator = Validator(Structures(lambda url: profile if url == "http://x.test/p" else None))
        findings = validator.validate(OBSERVATION, ["http://x.test/p"])
        self.assertIn(("information", "Observation.code"), {(one.severity, one.location) for one in findings})
        self.assertNotIn("error", {one.severity for one in findings})

    def test_codings(self) -> None:
        def coded(**coding: str) -> Json:
            return with_(OBSERVATION, code={"coding": [coding]})

        observation_status = "http://hl7.org/fhir/observation-status"
        self.check(
            [
                (coded(system="#x", code="a"), [("invalid", "Observation.code.coding[0].system")]),
                (
                    coded(system="http://hl7.org/fhir/ValueSet/observation-status", code="a"),
                    [("invalid", "Observation.code.coding[0].system")],
                ),
                (coded(system=observation_status, code="final"), []),
                (coded(system=observation_status, code="nil"), [("code-invalid", "Observation.code.coding[0].code")]),
                (coded(system="http://snomed.info/sct", code="1"), []),
            ]
        )

    def test_units(self) -> None:
        def measured(code: str, unit_system: str = "http://unitsofmeasure.org") -> Json:
            return with_(OBSERVATION, valueQuantity={"value": 5, "system": unit_system, "code": code})

        place = ("code-invalid", "Observation.value.ofType(Quantity).code")
        for code, wanted in (("mm[Hg]", []), ("mmHg", [place]), ("qqqzz", [place])):
            self.assertEqual([one for one in found(measured(code), "warning") if one == place], wanted, code)
        self.assertNotIn(place, found(measured("mmHg", "http://acme.org/units"), "warning"))
        self.assertTrue(any(text.endswith("; did you mean 'mm[Hg]'?") for text in texts(measured("mmHg"))))

    def test_a_required_unit_is_an_error_with_a_proposal(self) -> None:
        categories = "http://terminology.hl7.org/CodeSystem/observation-category"
        vital = with_(
            OBSERVATION,
            category=[{"coding": [{"system": categories, "code": "vital-signs"}]}],
            code={"coding": [{"system": "http://loinc.org", "code": "29463-7"}]},
            subject={"reference": "Patient/1"},
            effectiveDateTime="2024-01-01",
            valueQuantity={"value": 70, "system": "http://unitsofmeasure.org", "code": "Kg", "unit": "kg"},
        )
        errors = Validator().validate(vital, ["http://hl7.org/fhir/StructureDefinition/bodyweight"])
        text = next(one.words for one in errors if one.severity == "error" and "ucum-bodyweight" in one.text)
        self.assertIn("did you mean 'kg'?", text)

    def test_codes_that_were_meant(self) -> None:
        status = "http://hl7.org/fhir/observation-status"

        def coded(code: str) -> Json:
            return with_(OBSERVATION, code={"coding": [{"system": status, "code": code}]})

        for resource, wanted in (
            (with_(PATIENT, gender="Male"), "did you mean 'male'?"),
            (with_(PATIENT, gender="femal"), "did you mean 'female'?"),
            (coded("Final"), "did you mean 'final'?"),
            (coded("Entered in Error"), "did you mean 'entered-in-error'?"),
        ):
            self.assertTrue(any(wanted in text for text in texts(resource)), texts(resource))
        self.assertNotIn("did you mean", " ".join(texts(with_(PATIENT, gender="zzz"))))


class References(Base):
    """Targets, contained resources."""

    def test_targets(self) -> None:
        self.check(
            [
                (with_(OBSERVATION, subject={"reference": "Patient/1"}), []),
                (with_(OBSERVATION, subject={"reference": "https://x.test/fhir/Location/1/_history/2"}), []),
                (with_(OBSERVATION, subject={"reference": "Medication/1"}), [("structure", "Observation.subject")]),
                (with_(OBSERVATION, subject={"type": "Medication"}), [("structure", "Observation.subject")]),
                (with_(OBSERVATION, subject={"reference": "urn:uuid:c757873d-ec9a-4326-a141-556f43239520"}), []),
                (with_(OBSERVATION, subject={"reference": "#p"}), [("invariant", "Observation.subject")]),
            ]
        )

    def test_contained(self) -> None:
        patient = {"resourceType": "Patient", "id": "p"}
        medication = {"resourceType": "Medication", "id": "p"}
        of_p = {"reference": "#p"}
        self.check(
            [
                (with_(OBSERVATION, contained=[patient], subject=of_p), []),
                (with_(OBSERVATION, contained=[medication], subject=of_p), [("structure", "Observation.subject")]),
                (with_(OBSERVATION, contained=[patient]), [("invariant", "Observation")]),
                (
                    with_(OBSERVATION, contained=[with_(patient, gender="x")], subject=of_p),
                    [("code-invalid", "Observation.contained[0].gender")],
                ),
                (
                    with_(OBSERVATION, contained=[with_(patient, meta={"versionId": "1"})], subject=of_p),
                    [("invariant", "Observation")],
                ),
            ]
        )

    def test_missing_targets_with_exists_callback(self) -> None:
        resource = with_(OBSERVATION, subject={"reference": "Patient/1"})
        self.assertEqual(found(resource, policy=Policy(exists=lambda reference: True)), [])
        missing = found(resource, policy=Policy(exists=lambda reference: False))
        self.assertEqual(missing, [("not-found", "Observation.subject")])
