"""Known and unknown extensions, and their structure."""

from __future__ import annotations

from collections.abc import Sequence

from ipf.fhir.profiles.library import Structures
from ipf.fhir.validation.findings import Policy
from ipf.fhir.validation.validator import Validator
from tests.fhir.validation.rules import OBSERVATION, PATIENT, Base, Json, found, with_


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

    def test_contexts(self) -> None:
        """Each type of context, and contextInvariant."""
        inner = {"url": "http://x.test/inner", "valueString": "x"}
        outer = {"url": "http://x.test/outer", "extension": [inner]}
        part = {"url": "http://x.test/outer", "extension": [{"url": "part", "extension": [inner]}]}
        named = [{"given": ["A", "B"], "_given": [None, {"extension": [inner]}]}]
        official = "Patient.name.where(use = 'official')"
        rows: list[tuple[str, str, Json, list[str]]] = [
            ("extension", "http://x.test/outer", {"extension": [outer]}, []),
            ("extension", "http://x.test/outer", {"extension": [inner]}, ["Patient.extension[0]"]),
            ("extension", "http://x.test/other", {"extension": [outer]}, ["Patient.extension[0].extension[0]"]),
            ("extension", "http://x.test/outer#part", {"extension": [part]}, []),
            (
                "extension",
                "http://x.test/outer",
                {"extension": [part]},
                ["Patient.extension[0].extension[0].extension[0]"],
            ),
            ("element", "Patient", {"extension": [inner]}, []),
            ("element", "Patient.name", {"extension": [inner]}, ["Patient.extension[0]"]),
            ("element", "Element", {"name": named}, []),
            (
                "fhirpath",
                official,
                {"name": [{"use": "official", "extension": [inner]}]},
                [],
            ),
            (
                "fhirpath",
                "Patient.name.where(use = 'official')",
                {"name": [{"use": "official", "text": "x"}, {"text": "y", "extension": [inner]}]},
                ["Patient.name[1].extension[0]"],
            ),
            ("fhirpath", "Patient.name.given", {"name": named}, []),
            ("fhirpath", "Patient.name.family", {"name": named}, ["Patient.name[0].given[1].extension[0]"]),
            ("fhirpath", "Patient", {"extension": [inner]}, []),
        ]
        for kind, expression, members, expected in rows:
            self.assertEqual(
                self.places([{"type": kind, "expression": expression}], members), expected, (kind, expression)
            )

    def test_context_invariants(self) -> None:
        inner = {"url": "http://x.test/inner", "valueString": "x"}
        anywhere = [{"type": "element", "expression": "Element"}]
        name = {"text": "x", "extension": [inner]}
        for rule, expected in (
            ("text.exists()", []),
            ("family.exists()", ["Patient.name[0].extension[0]"]),
            ("%extension.value = 'x'", []),
            ("%extension.value = 'y'", ["Patient.name[0].extension[0]"]),
            ("%resource.active", []),
            ("this is no expression", []),
        ):
            self.assertEqual(self.places(anywhere, {"name": [name]}, [rule]), expected, rule)

    def places(self, contexts: list[Json], members: Json, rules: Sequence[str] = ()) -> list[str]:
        """The errors of a Patient, where `http://x.test/inner` has these contexts."""
        core = "http://hl7.org/fhir/StructureDefinition/"
        definition = {
            "resourceType": "StructureDefinition",
            "url": "http://x.test/inner",
            "type": "Extension",
            "baseDefinition": core + "Extension",
            "derivation": "constraint",
            "context": contexts,
            "contextInvariant": list(rules),
            "differential": {"element": [{"path": "Extension.url", "fixedUri": "http://x.test/inner"}]},
        }
        known = Structures(lambda url: definition if url == "http://x.test/inner" else None)
        found = Validator(known).validate(with_(PATIENT, **members))
        return [one.location for one in found if one.severity == "error"]

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
