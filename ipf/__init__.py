"""ipf: HL7 v2 feeds in, FHIR R4 resources stored, subscribers told.  `docs/architecture.md` shows the house."""

__version__ = "0.1.0"
