"""The base of the table tests of validation: resources, and the findings that they must give."""

from __future__ import annotations

import copy
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.validation.validator import Validator

Json = dict[str, Any]
PATIENT: Json = {"resourceType": "Patient"}
OBSERVATION: Json = {
    "resourceType": "Observation",
    "status": "final",
    "code": {"coding": [{"system": "http://loinc.org", "code": "718-7"}]},
}
VALIDATOR = Validator()


def with_(resource: Json, **members: Any) -> Json:
    """A copy of a resource with some members replaced."""
    return {**copy.deepcopy(resource), **members}


def found(resource: Json, severity: str = "error", **more: Any) -> list[tuple[str, str]]:
    """(code, location) of the findings of one severity."""
    return [(one.code, one.location) for one in VALIDATOR.validate(resource, **more) if one.severity == severity]


def texts(resource: Json, *profiles: str) -> list[str]:
    """The texts of all findings."""
    return [one.words for one in VALIDATOR.validate(resource, profiles)]


class Base(TestCase):
    """A table is rows of (resource, findings)."""

    def check(self, rows: list[tuple[Json, list[tuple[str, str]]]], severity: str = "error") -> None:
        """Each resource gives exactly these."""
        for resource, expected in rows:
            self.assertEqual(found(resource, severity), expected, resource)
