"""`memberOf`, `subsumes` and `subsumedBy` on a terminology service.

The service is a port, which `ipf.fhir.terminology` implements.  A code alone is looked up without a system.  A
CodeableConcept is a member when one of its codings is.

Source: https://hl7.org/fhir/R4/fhirpath.html#functions
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ipf.fhir.fhirpath.errors import FhirPathError
from ipf.fhir.fhirpath.evaluation.context import Host


class Terminology(Protocol):
    """Lookups in code systems and value sets.  None: undecided (not loaded, or an open set)."""

    def contains(self, value_set: str, system: str | None, code: str) -> bool | None:
        """Whether a code is in a value set; without a system the code alone counts."""

    def subsumes(self, system: str, above: str, below: str) -> bool | None:
        """Whether `above` is `below` or one of its ancestors."""


def terminology_host(
    terms: Terminology,
    *,
    resolve: Callable[[str], Any] | None = None,
    conforms_to: Callable[[Any, str], bool | None] | None = None,
) -> Host:
    """The terminology functions of FHIRPath, from a terminology service."""

    def member_of(value: Any, value_set: str) -> bool | None:
        return _any([terms.contains(value_set, system, code) for system, code in codings(value)])

    def subsumes(above: Any, below: Any) -> bool | None:
        pairs = [(a, b) for a in codings(above) for b in codings(below) if a[0] is not None and a[0] == b[0]]
        if not pairs and not any(isinstance(one, dict) and "coding" in one for one in (above, below)):
            raise FhirPathError("subsumes() and subsumedBy() need Codings of one code system")
        return _any([terms.subsumes(str(a[0]), a[1], b[1]) for a, b in pairs])

    return Host(resolve=resolve, member_of=member_of, conforms_to=conforms_to, subsumes=subsumes)


def codings(value: Any) -> list[tuple[str | None, str]]:
    """(system, code) of a code, Coding, CodeableConcept or Quantity as JSON."""
    if isinstance(value, str):
        return [(None, value)]
    if not isinstance(value, dict):
        return []
    inner = value.get("coding")
    found = inner if isinstance(inner, list) else [value]
    return [
        (one.get("system"), one["code"])
        for one in found
        if isinstance(one, dict) and isinstance(one.get("code"), str) and isinstance(one.get("system", ""), str)
    ]


def _any(answers: list[bool | None]) -> bool | None:
    """True when one result is True, False when all are False, else None."""
    if True in answers:
        return True
    return None if None in answers else False


__all__ = ["Terminology", "codings", "terminology_host"]
