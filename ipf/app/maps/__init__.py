"""Maps, FHIR packages and vendor profiles of this installation, loaded and kept current."""
