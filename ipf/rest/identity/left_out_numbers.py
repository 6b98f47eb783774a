"""Numbers of a Patient in an update: those of null fields go, those of fields that the message leaves out stay.

PID-3 is apart: `retained` decides by authority and type which of its numbers a message replaces.
"""

from __future__ import annotations

from ipf.fhir.model.identifier import identifiers_of, key_of
from ipf.ports import Json
from ipf.ports.queries.field_sources import FieldSources, NullNumber
from ipf.rest.identity.stored_sources import digest, read_sources


def without_null_numbers(stored: Json, sources: FieldSources, before: str) -> Json:
    """A stored Patient without the numbers that the message deletes: of a field that is null, or a null repetition."""
    held = stored.get("identifier")
    stated = sources.stated
    if not held or sources.is_snapshot or not (stated.nulls or stated.numbers):
        return stored
    origins = read_sources(before).get("identifier", {})
    kept = [
        one
        for one in held
        if not stated.is_null(origins.get(digest(one), ""))
        and not any(_is_number(one, null) for null in stated.numbers)
    ]
    return {**stored, "identifier": kept}


def with_left_out_numbers(resource: Json, stored: Json, sources: FieldSources, before: str) -> Json:
    """A Patient with the stored numbers of fields beside PID-3 (PID-2, PID-19 ...) that the message leaves out."""
    origins = read_sources(before).get("identifier", {})
    if sources.is_snapshot or not origins:
        return resource
    sent = {key_of(one) for one in identifiers_of(resource)}
    left_out = []
    for one in identifiers_of(stored):
        origin = origins.get(digest(one), "")
        if origin not in ("", "PID-3") and not sources.stated.states(origin) and key_of(one) not in sent:
            left_out.append(one)
    return {**resource, "identifier": [*resource.get("identifier", ()), *left_out]} if left_out else resource


def _is_number(identifier: Json, null: NullNumber) -> bool:
    codes = {one.get("code", "") for one in identifier.get("type", {}).get("coding", ())}
    if null.type and null.type not in codes:
        return False
    system, name = identifier.get("system", ""), identifier.get("assigner", {}).get("display", "")
    if null.universal:
        return bool(system.endswith(f":{null.universal}") or system == null.universal)
    return bool(null.namespace in (name, system) or system == f"urn:ipf:authority:{null.namespace}")
