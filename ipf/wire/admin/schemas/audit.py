"""Paths of the audit trail, for the OpenAPI document of the operator API."""

from __future__ import annotations

from ipf.ports.audit.records import ADMIN, FHIR
from ipf.wire.admin.schemas.base import COUNT, TEXT, TIME, Schema, list_of, object_of, or_null, page_of


def _query(name: str, description: str, schema: Schema = TEXT) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}


_SURFACE = _query("surface", "fhir: the FHIR API; admin: this one", {"enum": [FHIR, ADMIN]})
_CHAINS = [
    _query("tenant", "of this tenant"),
    _SURFACE,
    _query("since", "first day", {"type": "string", "format": "date"}),
    _query("until", "last day", {"type": "string", "format": "date"}),
]
_FILTERS = [
    _query("actor", "a person, or the token of a caller that named nobody"),
    _query("agent", "the client or token, exactly"),
    _query("action", "of C R U D E, separated by commas"),
    _query("outcome", "of 0 (success), 4, 8 (failure), separated by commas"),
    _query("interaction", "such as read, search, retry, exactly"),
    _query("entity", "a reference, such as Patient/7"),
    _query("patient", "records about this Patient"),
    _query("correlation_id", "exactly"),
    _query("tenant", "of this tenant; * = of all, as without it"),
    _SURFACE,
    _query("since", "ISO 8601, included", TIME),
    _query("until", "ISO 8601, included", TIME),
]


def schemas() -> Schema:
    """The bodies by name."""
    source = object_of(
        agent_system=or_null(TEXT), source_system=TEXT, details={"type": "object", "additionalProperties": TEXT}
    )
    record = object_of(
        id=TEXT, recorded_at=TIME, duration_ms=or_null({"type": "number"}), tenant=TEXT,
        surface={"enum": [FHIR, ADMIN]}, interaction=TEXT, action={"enum": list("CRUDE")},
        outcome={"enum": [0, 4, 8]}, http_status=or_null(COUNT),
        agent=TEXT, client=or_null(TEXT), issuer=or_null(TEXT), user=or_null(TEXT), actor=TEXT, via=or_null(TEXT),
        address=or_null(TEXT), correlation_id=or_null(TEXT), target=or_null(TEXT), entities=list_of(TEXT),
        patients=list_of(TEXT), source=or_null(source),
    )  # fmt: skip
    any_object: Schema = {"type": "object"}
    heads = page_of(any_object)
    heads["properties"] |= {"installation": TEXT, "keys": list_of(any_object)}
    return {"AuditRecord": record, "AuditList": page_of(record), "AuditHeads": heads}
