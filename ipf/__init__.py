"""ipf: an HL7 v2 to FHIR R4 interface engine with a FHIR server and subscriptions.

docs/explanation/architecture.md describes the packages.
"""

__version__ = "0.2.0"
