"""The stores of FHIR resources and of terminology."""
