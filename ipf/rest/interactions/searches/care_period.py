"""The time of care that `Patient/$everything` and `DocumentReference/$docref` ask for with `start` and `end`.

Sources: https://hl7.org/fhir/R4/operation-patient-everything.html,
http://hl7.org/fhir/us/core/OperationDefinition/docref, version 7.0.0
"""

from __future__ import annotations

from dataclasses import dataclass

from ipf.errors import Category, Problem
from ipf.fhir.model.dates import Range, date_range, moment
from ipf.fhir.search.language.terms import TermReader
from ipf.ports.queries.predicates import AllOf, AnyOf, Test

CARE_DATES = {
    "AdverseEvent": "date", "Appointment": "date", "CarePlan": "date", "CareTeam": "date", "ChargeItem": "occurrence",
    "ClinicalImpression": "date", "Communication": "sent", "CommunicationRequest": "occurrence", "Composition": "date",
    "DeviceRequest": "event-date", "DiagnosticReport": "date", "DocumentReference": "period", "Encounter": "date",
    "EpisodeOfCare": "date", "Flag": "date", "ImagingStudy": "started", "Immunization": "date", "Media": "created",
    "MedicationAdministration": "effective-time", "MedicationDispense": "whenhandedover",
    "MedicationRequest": "authoredon", "MedicationStatement": "effective", "NutritionOrder": "datetime",
    "Observation": "date", "Procedure": "date", "QuestionnaireResponse": "authored", "RequestGroup": "authored",
    "RiskAssessment": "date", "ServiceRequest": "occurrence", "Specimen": "collected", "SupplyRequest": "date",
    "VisionPrescription": "datewritten",
}  # fmt: skip
"""The search parameter that tells when care took place.  Others last (allergies, conditions) or are about no care."""


@dataclass(frozen=True, slots=True)
class CarePeriod:
    """From the beginning of `start` to the end of `end`, in microseconds since 1970; None: without limit."""

    start: int | None
    end: int | None

    @staticmethod
    def read(start: str | None, end: str | None) -> CarePeriod:
        """The period of a request, whose ends are dates or dateTimes.  Problem VALUE names the parameter."""
        first, last = _range("start", start), _range("end", end)
        if first and last and first[0] >= last[1]:
            raise Problem(Category.VALUE, "start must not be after end", "start")
        return CarePeriod(first and first[0], last and last[1])

    def terms(self, code: str) -> list[tuple[str, str]]:
        """The terms of a search for what overlaps with the period; none of one without limits.

        `ge2020-04` would leave out what began in March and ended in April, `gt` of the moment before April does not.
        """
        found = [] if self.start is None else [(code, f"gt{_instant(self.start - 1)}")]
        return found if self.end is None else [*found, (code, f"lt{_instant(self.end)}")]

    def test(self, resource_type: str) -> Test | None:
        """The test that care took place in the period, or has no date; None when all resources of the type pass."""
        code = CARE_DATES.get(resource_type)
        if code is None or not self.terms(code):
            return None
        reader = TermReader(None, code)
        within = tuple(reader.read(resource_type, *term) for term in self.terms(code))
        undated = reader.read(resource_type, f"{code}:missing", "true")
        return AnyOf((undated, AllOf(within) if len(within) > 1 else within[0]))


def _range(name: str, value: str | None) -> Range | None:
    """A plus sign that was not escaped in the URL arrives as a space."""
    if value is None:
        return None
    found = date_range(value.replace(" ", "+"))
    if found is None:
        raise Problem(Category.VALUE, f"{name} must be a date or dateTime, such as 2026-01-31T08:00:00Z", name)
    return found


def _instant(value: int) -> str:
    return moment(value).isoformat(timespec="microseconds").replace("+00:00", "Z")
