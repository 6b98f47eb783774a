"""Identifiers as keys: system, type and value, and whether an identifier is in use.

The type is the code of `Identifier.type` from table 0203, else the first code of any other system, else empty.

Source: https://hl7.org/fhir/R4/datatypes.html#Identifier, HL7 v2 table 0203
"""

from __future__ import annotations

from ipf.ports.base import Json
from ipf.ports.identity import IdentityKey

TABLE_0203 = "http://terminology.hl7.org/CodeSystem/v2-0203"
OLD, SECONDARY = "old", "secondary"
_NOT_IN_USE = frozenset((OLD, SECONDARY))


def type_coding(identifier: Json) -> tuple[str, str]:
    """System and code of the type; empty texts when it has none."""
    concept = identifier.get("type")
    found = "", ""
    if type(concept) is dict:
        for coding in concept.get("coding", ()):
            code = coding.get("code", "")
            if not code:
                continue
            if coding.get("system") == TABLE_0203:
                return TABLE_0203, code
            if not found[1]:
                found = coding.get("system", ""), code
    return found


def key_of(identifier: Json) -> IdentityKey:
    """The key of an identifier with a value."""
    code = type_coding(identifier)[1] if "type" in identifier else ""
    return IdentityKey(identifier.get("system", ""), code, identifier["value"])


def identifiers_of(resource: Json) -> list[Json]:
    """The identifiers with a value; of some types `identifier` is one element, not a list."""
    held = resource.get("identifier")
    if not held:
        return []
    every: list[Json] = held if type(held) is list else [held]
    return [one for one in every if type(one) is dict and one.get("value")]


def keys_in_use(resource: Json) -> tuple[IdentityKey, ...]:
    """The keys of the identifiers that find a resource: neither old nor secondary."""
    return tuple([key_of(one) for one in identifiers_of(resource) if one.get("use") not in _NOT_IN_USE])
