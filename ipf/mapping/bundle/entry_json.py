"""Entries that the engine made, as entries of a Bundle.

Source: https://hl7.org/fhir/R4/http.html#transaction
"""

from __future__ import annotations

from ipf.fhir.model.identifier import OLD, identifiers_of, key_of
from ipf.mapping.bundle.identity import (
    request_by_id,
    request_by_key,
    update_by_any,
)
from ipf.mapping.bundle.orders import code_condition
from ipf.ports import Json
from ipf.ports.identity import Identity
from ipf.ports.queries.entries import Entry, Method


def entry_as_json(entry: Entry) -> Json:
    """An entry that the engine made, as an entry of a Bundle."""
    resource, identity = entry.resource or {}, entry.identity
    if identity is not None and _has_further_numbers(identity, resource):
        how, _ = update_by_any(resource)
    elif identity is not None:
        further = identity.further if identity.service is None else code_condition(identity.service)
        how, _ = request_by_key(resource, identity.keys[0], is_once=entry.method is Method.CREATE, further=further)
    elif entry.id is not None:
        how, _ = request_by_id(resource)
    else:
        how = {"method": "POST", "url": entry.resource_type}
    return {"fullUrl": entry.full_url, "resource": resource, "request": how}


def _has_further_numbers(identity: Identity, resource: Json) -> bool:
    """Whether a resource is updated whatever its type, and is found by another number than it is usually."""
    if resource["resourceType"] != "Patient":
        return len(identity.keys) > 1
    return any(one.get("use") == OLD and key_of(one) == identity.keys[-1] for one in identifiers_of(resource))
