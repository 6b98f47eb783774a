"""How a resource of a source is named here: an identifier made of its id, or an id made of its id.

A resource with a list of identifiers gets one of the system `<identifierBase>/<Type>`, and is found again by it.  For a
Patient it has the type RI and comes last: numbers of the person come first, so that other feeds mean the same Patient.
A type without such a list gets an id that is always the same for the same id of the source.
"""

from __future__ import annotations

import re
from functools import cache
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from ipf.fhir.model.definitions import definitions
from ipf.ports import Json
from ipf.ports.messages.sources import PolledSource

PATIENT = "Patient"
_TYPES = "http://terminology.hl7.org/CodeSystem/v2-0203"
_RESOURCE_IDENTIFIER = {"coding": [{"system": _TYPES, "code": "RI", "display": "Resource identifier"}]}
_SPECIAL = re.compile(r"([\\,|$])")


def identifier_of(source: PolledSource, resource_type: str, number: str) -> Json:
    """The identifier that a resource of the source has here."""
    made: Json = {"system": f"{source.identifier_base}/{resource_type}", "value": number}
    return {"type": _RESOURCE_IDENTIFIER, **made} if resource_type == PATIENT else made


def named(resource: Json, source: PolledSource) -> None:
    """Replace the id of the source in place."""
    number = resource.pop("id", None)
    if not isinstance(number, str):
        return
    resource_type = resource["resourceType"]
    if not has_identifiers(resource_type):
        resource["id"] = id_of(source, resource_type, number)
        return
    own = identifier_of(source, resource_type, number)
    others = [one for one in resource.get("identifier") or () if _key(one) != _key(own)]
    resource["identifier"] = [*others, own] if resource_type == PATIENT else [own, *others]


def reference_to(source: PolledSource, resource_type: str, number: str) -> str:
    """The reference to a resource of the source that is fetched too: a search, which the store resolves."""
    if not has_identifiers(resource_type):
        return f"{resource_type}/{id_of(source, resource_type, number)}"
    token = f"{_escaped(source.identifier_base)}/{resource_type}|{_escaped(number)}"
    return f"{resource_type}?identifier={token}"


@cache
def has_identifiers(resource_type: str) -> bool:
    """Whether resources of this type have a list of identifiers."""
    element = definitions().element(resource_type, "identifier")
    return element is not None and element.many and "identifier" in definitions().search_parameters(resource_type)


def id_of(source: PolledSource, resource_type: str, number: str) -> str:
    """The id here of a resource without identifiers."""
    return str(uuid5(NAMESPACE_URL, f"{source.identifier_base}/{resource_type}/{number}"))


def _key(identifier: object) -> tuple[object, object]:
    held = identifier if isinstance(identifier, dict) else {}
    return held.get("system"), held.get("value")


def _escaped(text: str) -> str:
    return quote(_SPECIAL.sub(r"\\\1", text), safe=":/")
