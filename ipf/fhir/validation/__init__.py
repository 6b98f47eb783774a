"""Validation of R4 resources: profiles compiled once into closures, findings with their location.

`validator.Validator.validate(resource)` is the way in; `findings.outcome` makes an OperationOutcome of what it found.
The validator is imported by those who validate: many show findings, and a converter process does neither.
"""

from ipf.fhir.validation.findings import Finding, outcome

__all__ = ["Finding", "outcome"]
