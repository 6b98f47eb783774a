"""Findings name the value that was probably meant."""

from __future__ import annotations

from decimal import Decimal

from twisted.trial.unittest import TestCase

from ipf.fhir.validation.checks.repairs import primitive_meant
from ipf.fhir.validation.findings import MAX_PROPOSALS, outcome
from ipf.fhir.validation.proposals import nearest, system_meant
from tests.fhir.validation.rules import OBSERVATION, PATIENT, VALIDATOR, Json, texts, with_

US_CORE = "http://hl7.org/fhir/us/core/StructureDefinition/"


def coded(system: str) -> Json:
    """An Observation with a code of this system."""
    return with_(OBSERVATION, code={"coding": [{"system": system, "code": "1"}]})


class ProposalTests(TestCase):
    def test_findings(self) -> None:
        for resource, wanted in (
            (with_(PATIENT, birthdate="1980-01-01"), "Patient has no element 'birthdate'; did you mean 'birthDate'?"),
            (with_(PATIENT, nmae=[]), "did you mean 'name'?"),
            (with_(PATIENT, _birthdate={"id": "x"}), "did you mean '_birthDate'?"),
            (with_(OBSERVATION, valueQuantiy={"value": 1}), "did you mean 'valueQuantity'?"),
            (with_(PATIENT, birthDate="13.05.1980"), "did you mean '1980-05-13'?"),
            (with_(PATIENT, active="true"), "true or false is expected, without quotes; did you mean true?"),
            (with_(OBSERVATION, valueQuantity={"value": "5.40"}), "without quotes; did you mean 5.40?"),
            (with_(OBSERVATION, valueInteger="5"), "did you mean 5?"),
            (with_(PATIENT, name=[{"family": 5}]), "a text is expected; did you mean '5'?"),
            (coded("LOINC"), "must be an absolute url; did you mean 'http://loinc.org'?"),
            (coded("https://loinc.org/"), "is not known; did you mean 'http://loinc.org'?"),
            (coded("urn:oid:2.16.840.1.113883.6.96"), "did you mean 'http://snomed.info/sct'?"),
            ({"resourceType": "Patiant"}, "not a resource type of R4; did you mean 'Patient'?"),
            (
                with_(PATIENT, meta={"profile": [US_CORE + "us-core-patiant"]}),
                f"did you mean '{US_CORE}us-core-patient'?",
            ),
        ):
            self.assertTrue(any(one.endswith(wanted) for one in texts(resource)), (wanted, texts(resource)))

    def test_nothing_near(self) -> None:
        for resource in (with_(PATIENT, qqq=1), coded("http://x.test/cs"), coded("http://loinc.org"), coded("xyz")):
            self.assertNotIn("did you mean", " ".join(texts(resource)))

    def test_outcome(self) -> None:
        found = VALIDATOR.validate(with_(PATIENT, gender="Male"))
        issue = outcome(found)["issue"][0]
        self.assertTrue(issue["diagnostics"].endswith("administrative-gender; did you mean 'male'?"))
        self.assertNotIn("did you mean", found[0].text)

    def test_many_findings_have_few_proposals(self) -> None:
        found = VALIDATOR.validate(with_(PATIENT, **{f"nam{number}": 1 for number in range(20_000)}))
        self.assertEqual(sum(bool(one.meant) for one in found), MAX_PROPOSALS)

    def test_nearest(self) -> None:
        for word, wanted in (("Name", "name"), ("nmae", "name"), ("name", None), ("", None), ("x" * 500, None)):
            self.assertEqual(nearest(word, ["name", "gender"]), wanted)

    def test_systems(self) -> None:
        for text, wanted in (
            ("http://loinc.org", None),
            ("http://www.loinc.org", "http://loinc.org"),
            ("SNOMED-CT", "http://snomed.info/sct"),
            ("http://acme.org", None),
        ):
            self.assertEqual(system_meant(text), wanted)


class PrimitiveTests(TestCase):
    def test_repairs(self) -> None:
        for kind, value, wanted in (
            ("date", "19800513", "1980-05-13"),
            ("date", "1980/5/3", "1980-05-03"),
            ("date", "13/05/1980", "1980-05-13"),
            ("date", "05/13/1980", "1980-05-13"),
            ("date", "04/05/1980", None),
            ("date", "04.05.1980", "1980-05-04"),
            ("date", "2024-01-01T10:00:00Z", "2024-01-01"),
            ("date", "31.02.1980", None),
            ("date", "yesterday", None),
            ("dateTime", "2024-01-01 10:00", "2024-01-01T10:00:00Z"),
            ("dateTime", "2024-01-01T10:00:00", "2024-01-01T10:00:00Z"),
            ("dateTime", "20240101100000+0200", "2024-01-01T10:00:00+02:00"),
            ("instant", "2024-01-01T10:00:00+0200", "2024-01-01T10:00:00+02:00"),
            ("instant", "2024-01-01", None),
            ("time", "9:30", "09:30:00"),
            ("decimal", "5.4", Decimal("5.4")),
            ("decimal", "05", None),
            ("decimal", "five", None),
            ("integer", "5", 5),
            ("integer", "5.5", None),
            ("integer", 5.0, 5),
            ("boolean", "True", True),
            ("boolean", "yes", None),
            ("string", 5, "5"),
            ("string", True, "true"),
            ("id", "a_b", "a-b"),
            ("code", " a  b", "a b"),
            ("uri", " http://x.test ", "http://x.test"),
            ("uuid", "urn:uuid:C757873D-EC9A-4326-A141-556F43239520", "urn:uuid:c757873d-ec9a-4326-a141-556f43239520"),
            ("date", [], None),
            ("string", {}, None),
            ("integer", float("inf"), None),
        ):
            self.assertEqual(primitive_meant(kind, value), wanted, (kind, value))
