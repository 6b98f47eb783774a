"""Validation of R4 resources: profiles compiled once into closures, findings with their place.

`Validator.validate(resource)` is the way in; `findings.outcome` makes an OperationOutcome of what it found.
"""

from ipf.fhir.validation.findings import Finding, outcome
from ipf.fhir.validation.validator import Validator

__all__ = ["Finding", "Validator", "outcome"]
