"""Numbers of a Patient in an update: those of null fields go, those of fields that the message leaves out stay.

PID-3 is apart: `retained` decides by authority and type which of its numbers a message replaces.
"""

from __future__ import annotations

from ipf.fhir.model.identifier import identifiers_of, key_of
from ipf.ports import Json
from ipf.ports.queries.field_sources import FieldSources, NullNumber
from ipf.rest.identity.stored_sources import digest, read_sources

_PREFIXES = ("urn:oid:", "urn:uuid:", "urn:ipf:authority:")
"""What the maps put before the namespace or the universal ID of an authority."""


def without_null_numbers(stored: Json, sources: FieldSources, before: str) -> Json:
    """A stored Patient without the numbers that the message deletes: of a field that is null, or a null repetition."""
    held = stored.get("identifier")
    stated = sources.stated
    if not held or sources.is_snapshot or not (stated.nulls or stated.numbers):
        return stored
    origins, nulls = read_sources(before).get("identifier", {}), frozenset(stated.numbers)
    kept = [
        one
        for one in held
        if not stated.is_null(origins.get(digest(one), "")) and (not nulls or nulls.isdisjoint(_named(one)))
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


def _named(identifier: Json) -> set[NullNumber]:
    """The null repetitions that name an identifier: by its authority, with or without its type."""
    types = {one.get("code", "") for one in identifier.get("type", {}).get("coding", ())} | {""}
    system, name = identifier.get("system", ""), identifier.get("assigner", {}).get("display", "")
    plain = next((system.removeprefix(one) for one in _PREFIXES if system.startswith(one)), system)
    spaces, universals = {name, system, plain}, {system, plain}
    found = {NullNumber(space, "", kind) for space in spaces for kind in types}
    return found | {NullNumber("", universal, kind) for universal in universals for kind in types}
