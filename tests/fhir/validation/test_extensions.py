"""Known and unknown extensions, and their structure."""

from __future__ import annotations

from ipf.fhir.validation.findings import Policy
from tests.fhir.validation.rules import OBSERVATION, PATIENT, Base, found, with_


class Extensions(Base):
    """Known and unknown extensions, and their contexts."""

    def test_known(self) -> None:
        birth_place = "http://hl7.org/fhir/StructureDefinition/patient-birthPlace"
        own_prefix = "http://hl7.org/fhir/StructureDefinition/humanname-own-prefix"
        family = [{"family": "van A", "_family": {"extension": [{"url": own_prefix, "valueString": "van"}]}}]
        self.check(
            [
                (with_(PATIENT, extension=[{"url": birth_place, "valueAddress": {"city": "X"}}]), []),
                (
                    with_(PATIENT, extension=[{"url": birth_place, "valueString": "X"}]),
                    [("structure", "Patient.extension[0].valueString"), ("required", "Patient.extension[0]")],
                ),
                (
                    with_(OBSERVATION, extension=[{"url": birth_place, "valueAddress": {"city": "X"}}]),
                    [("extension", "Observation.extension[0]")],
                ),
                (with_(PATIENT, name=family), []),
                (with_(PATIENT, contact=[{"name": family[0]}]), []),
            ]
        )

    def test_unknown(self) -> None:
        own = {"url": "http://x.test/e", "valueString": "x"}
        self.check([(with_(PATIENT, extension=[own]), []), (with_(PATIENT, modifierExtension=[own]), [])])
        self.assertIn(("extension", "Patient.extension[0]"), found(with_(PATIENT, extension=[own]), "information"))
        self.assertIn(
            ("extension", "Patient.modifierExtension[0]"), found(with_(PATIENT, modifierExtension=[own]), "warning")
        )
        refused = found(with_(PATIENT, extension=[own]), policy=Policy(unknown_extensions="error"))
        self.assertEqual(refused, [("extension", "Patient.extension[0]")])

    def test_shape(self) -> None:
        inner = {"url": "a", "valueString": "x"}
        both = {"url": "http://x.test/e", "valueString": "x", "extension": [inner]}
        self.check(
            [
                (with_(PATIENT, extension=[{"url": "http://x.test/e"}]), [("invariant", "Patient.extension[0]")]),
                (with_(PATIENT, extension=[both]), [("invariant", "Patient.extension[0]")]),
                (with_(PATIENT, extension=[{"url": "http://x.test/e", "extension": [inner]}]), []),
                (with_(PATIENT, extension=[inner]), [("extension", "Patient.extension[0]")]),
            ]
        )
