"""What this server can do, as a CapabilityStatement made from the definitions it works with.

Source: https://hl7.org/fhir/R4/capabilitystatement.html
"""

from __future__ import annotations

from ipf.fhir.definitions import Definitions
from ipf.ports import Json

INTERACTIONS = ("read", "vread", "update", "delete", "history-instance", "create", "search-type")
SYSTEM_INTERACTIONS = ("transaction", "batch")
FHIR_VERSION = "4.0.1"

_NOT_SEARCHABLE = frozenset({"composite", "special"})
_DATE = "2026-01-01"  # of this form of the statement; it changes when the statement does


def capability_statement(definitions: Definitions, *, base_url: str, version: str) -> Json:
    """The statement of the server at `base_url`, software version `version`."""
    resources = [_resource(definitions, name) for name in sorted(definitions.resource_types)]
    rest = {"mode": "server", "resource": resources, "interaction": [{"code": code} for code in SYSTEM_INTERACTIONS]}
    return {
        "resourceType": "CapabilityStatement",
        "status": "active",
        "date": _DATE,
        "kind": "instance",
        "software": {"name": "ipf", "version": version},
        "implementation": {"description": "ipf FHIR R4 server", "url": base_url},
        "fhirVersion": FHIR_VERSION,
        "format": ["json", "application/fhir+json"],
        "rest": [rest],
    }


def _resource(definitions: Definitions, resource_type: str) -> Json:
    parameters = [
        {"name": parameter.code, "definition": parameter.url, "type": parameter.type}
        for parameter in definitions.search_parameters(resource_type).values()
        if parameter.type not in _NOT_SEARCHABLE and (parameter.expression or parameter.code == "_id")
    ]
    return {
        "type": resource_type,
        "interaction": [{"code": code} for code in INTERACTIONS],
        "versioning": "versioned-update",
        "readHistory": True,
        "updateCreate": True,
        "conditionalCreate": True,
        "conditionalRead": "full-support",
        "conditionalUpdate": True,
        "conditionalDelete": "single",
        "searchParam": parameters,
    }
