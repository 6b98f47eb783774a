"""Conformance suites for any FHIR R4 server, over HTTP: `bin/conformance URL` (docs/reference/conformance.md)."""
