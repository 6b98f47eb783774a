"""Validation against published data: the examples of the specification, and cases of HL7's validator.

Both need the reference folder beside the repository.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.validation.findings import Policy
from ipf.fhir.validation.validator import Validator
from ipf.fhir.xml.writer import from_xml
from tests.fhir.examples import examples
from tests.reference import REFERENCE, needs_reference

CASES = REFERENCE / "validation"
VALIDATOR = Validator()

EXCEPTIONS = {
    "activitydefinition-servicerequest-example.json": "an empty narrative (txt-2)",
    "activitydefinition-supplyrequest-example.json": "an empty narrative (txt-2)",
    "eventdefinition-example.json": "an empty narrative (txt-2)",
    "questionnaire-zika-virus-exposure-assessment.json": "an empty narrative (txt-2)",
    "devicemetric-example.json": "parent refers to a DeviceDefinition, R4 allows a Device",
    "deviceusestatement-example.json": "reasonReference refers to a Procedure, which R4 does not list",
    "medicationrequest0301.json": "dispenseRequest.performer refers to a Practitioner, R4 allows an Organization",
    "observation-example-clinical-gender.json": "performer refers to an Encounter",
    "diagnosticreport-example-lri.json": "full urls that do not end with the ids of their resources",
    "message-request-link.json": "a full url that does not end with the id of its resource",
    "message-response-link.json": "a full url that does not end with the id of its resource",
    "library-zika-virus-intervention-logic.json": "urn:oid:X.Y.Z is no OID",
    "observation-example-genetics-brcapat.json": "the US Core ethnicity extension in an older form, with a value",
    "package-min-ver.json": "no resource: a package manifest",
}
"""Examples with errors, and why they are right to be found."""

DISAGREEMENTS = {
    "bad-bundle-reference-type-4": "Practitioner/x is not read as urn:uuid:x, so nothing is found to be another type",
    "bundle-id-5": "a display name of CVX",
    "uk-msg": "display names and codes of SNOMED CT",
    "ips-nz-pj": "display names of LOINC",
    "encounter-period": "per-1 cannot tell a day from a time within it; no answer is no violation here",
}
"""Cases with another verdict than HL7's validator, and why."""


def errors(resource: Any, policy: Policy) -> list[str]:
    """The errors of a resource."""
    return [
        f"{one.location}: {one.text}" for one in VALIDATOR.validate(resource, policy=policy) if one.severity == "error"
    ]


class Examples(TestCase):
    """The 719 example instances of R4."""

    @needs_reference
    def test_all_are_valid(self) -> None:
        wrong = {}
        for name, text in examples().items():
            resource = loads(text)
            written = dumps(resource)
            self.assertEqual(json.loads(written, parse_float=str), json.loads(text, parse_float=str), name)
            found = errors(resource, Policy())
            if bool(found) is not (name in EXCEPTIONS):
                wrong[name] = found
        self.assertEqual(wrong, {})

    @needs_reference
    def test_validation_does_not_change_the_resource(self) -> None:
        for name, text in list(examples().items())[::20]:
            resource = loads(text)
            VALIDATOR.validate(resource)
            self.assertEqual(dumps(resource), dumps(loads(text)), name)


class Cases(TestCase):
    """Tier A of HL7's test cases: whether there is an error."""

    @needs_reference
    def test_results_agree_with_published_outcomes(self) -> None:
        cases = json.loads((CASES / "cases.json").read_text())["cases"]
        wrong = {one["name"] for one in cases if self.verdict(one) is not bool(one["base"]["error"])}
        self.assertEqual(wrong, set(DISAGREEMENTS))
        self.assertGreaterEqual(1 - len(wrong) / len(cases), 0.95)

    def verdict(self, case: dict[str, Any]) -> bool:
        """Whether there is an error in a case's file."""
        data = (CASES / "files" / case["file"]).read_bytes()
        try:
            resource = from_xml(data) if case["file"].endswith(".xml") else loads(data)
        except Problem:
            return True
        return not isinstance(resource, dict) or bool(errors(resource, policy_of(case)))


def policy_of(case: dict[str, Any]) -> Policy:
    """The validator's options of a case, some of which only its name or description states."""
    options = case["options"]
    existence = options.get("validateReference") == "CHECK_EXISTS_AND_TYPE"
    return Policy(
        markup=bool(options.get("security-checks")) or case["name"].endswith("no-html"),
        example_urls=options.get("examples", True),
        dead_links=True,
        unknown_extensions="error" if options.get("fetcher") == "standalone" else "information",
        exists=(lambda reference: False) if existence else None,
        contained="validateContains to IGNORE" not in (case["description"] or ""),
    )
