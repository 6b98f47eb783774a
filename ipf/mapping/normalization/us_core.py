"""The US Core profile that a resource meets, by its type and category.

A profile is claimed only when the resource is valid against its definition; what is missing becomes a note.  Nothing is
added to a resource but what follows without doubt: the system of a category code of US Core.

Source: https://hl7.org/fhir/us/core/STU7/profiles-and-extensions.html
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ipf.ports import Json

if TYPE_CHECKING:
    from ipf.fhir.validation.validator import Validator

BASE = "http://hl7.org/fhir/us/core/StructureDefinition/us-core-"
_TERMINOLOGY = "http://terminology.hl7.org/CodeSystem/"

BY_TYPE = {
    "AllergyIntolerance": "allergyintolerance", "CarePlan": "careplan", "CareTeam": "careteam", "Coverage": "coverage",
    "DocumentReference": "documentreference", "Encounter": "encounter", "Goal": "goal",
    "Immunization": "immunization", "Location": "location", "Medication": "medication",
    "MedicationDispense": "medicationdispense", "MedicationRequest": "medicationrequest",
    "Organization": "organization", "Patient": "patient", "Practitioner": "practitioner",
    "PractitionerRole": "practitionerrole", "Procedure": "procedure",
    "QuestionnaireResponse": "questionnaireresponse", "RelatedPerson": "relatedperson",
    "ServiceRequest": "servicerequest", "Specimen": "specimen",
}  # fmt: skip
"""Types with one profile."""

BY_CATEGORY = {
    "Observation": {
        "laboratory": "observation-lab", "vital-signs": "vital-signs", "imaging": "observation-clinical-result",
        "procedure": "observation-clinical-result", "exam": "observation-clinical-result",
        "survey": "observation-screening-assessment", "social-history": "simple-observation",
    },
    "Condition": {
        "problem-list-item": "condition-problems-health-concerns",
        "health-concern": "condition-problems-health-concerns",
        "encounter-diagnosis": "condition-encounter-diagnosis",
    },
    "DiagnosticReport": {
        "LAB": "diagnosticreport-lab", "LP29684-5": "diagnosticreport-note", "LP29708-2": "diagnosticreport-note",
        "LP7839-6": "diagnosticreport-note",
    },
}  # fmt: skip
"""Types with a profile for each code of a category."""

_SYSTEMS = {
    "Observation": _TERMINOLOGY + "observation-category",
    "Condition": _TERMINOLOGY + "condition-category",
    "DiagnosticReport": _TERMINOLOGY + "v2-0074",
}
_LOINC = "http://loinc.org"
_OTHER_SYSTEMS = {"health-concern": "http://hl7.org/fhir/us/core/CodeSystem/condition-category"}


def claimed(resource: Json) -> list[str]:
    """State in place the profile that the resource meets; returns notes."""
    name = _name(resource)
    if name is None:
        return []
    url = BASE + name
    profiles = [one for one in (resource.get("meta") or {}).get("profile") or () if isinstance(one, str)]
    if any(one.partition("|")[0] == url for one in profiles):
        return []
    missing = _missing(resource, url)
    if missing:
        return [f"{url} is not claimed: {missing}"]
    resource["meta"] = {**(resource.get("meta") or {}), "profile": [*profiles, url]}
    return [f"{url} is claimed"]


def _name(resource: Json) -> str | None:
    resource_type = resource["resourceType"]
    of_category = BY_CATEGORY.get(resource_type)
    if of_category is None:
        return BY_TYPE.get(resource_type)
    for coding in _codings(resource):
        name = of_category.get(coding.get("code", ""))
        if name is not None and coding.setdefault("system", _system(resource_type, coding["code"])):
            return name
    return None


def _system(resource_type: str, code: str) -> str:
    if code.startswith("LP"):
        return _LOINC
    return _OTHER_SYSTEMS.get(code, _SYSTEMS[resource_type])


def _codings(resource: Json) -> list[Json]:
    listed: Any = resource.get("category")
    concepts = listed if isinstance(listed, list) else [listed]
    found = [one.get("coding") for one in concepts if isinstance(one, dict)]
    return [one for each in found if isinstance(each, list) for one in each if isinstance(one, dict)]


def _missing(resource: Json, url: str) -> str:
    """The first error against a profile; empty: the resource meets it."""
    findings = _validator().validate({name: one for name, one in resource.items() if name != "meta"}, (url,))
    errors = [one for one in findings if one.severity == "error"]
    return f"{errors[0].location}: {errors[0].text}" if errors else ""


@cache
def _validator() -> Validator:
    """The validator with the shipped definitions, loaded with the first resource: it takes 30 MiB."""
    from ipf.fhir.validation.validator import Validator

    return Validator()
