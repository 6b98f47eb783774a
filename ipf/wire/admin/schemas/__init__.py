"""The OpenAPI document of the operator API."""
