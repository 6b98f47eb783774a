"""The check of a profile as a resource: its differential fits its base and narrows it.

Source: https://hl7.org/fhir/R4/profiling.html#resources
"""

from __future__ import annotations

from ipf.fhir.profiles.library import Structures
from ipf.fhir.profiles.snapshot import SnapshotError
from ipf.fhir.validation.findings import ERROR, Json, Run

MOST_ELEMENTS = 2000


def check_profile(definition: Json, structures: Structures, location: str, run: Run) -> None:
    """Findings about the differential of a valid StructureDefinition with derivation `constraint`."""
    elements = definition.get("differential", {}).get("element", ())
    if definition.get("derivation") != "constraint" or not elements or _has_errors(location, run):
        return
    if len(elements) > MOST_ELEMENTS:
        run.note("not-supported", f"not checked: the differential has more than {MOST_ELEMENTS} elements", location)
        return
    try:
        found = structures.widenings(definition)
    except (SnapshotError, ValueError) as error:
        run.warn("not-supported", f"no snapshot can be generated: {error}", f"{location}.differential")
        return
    for number, text in found:
        run.error("business-rule", f"a profile narrows its base: {text}", f"{location}.differential.element[{number}]")


def _has_errors(location: str, run: Run) -> bool:
    return any(one.severity == ERROR and one.location.startswith(location) for one in run.findings)
